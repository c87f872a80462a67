//! Parses the balloon device's statistics.
//!
//! Source: `hw/virtio/virtio-balloon.c`, `balloon_stats_get_all`; virtio 1.2 §5.5.6.4.
//! Limits: a value that the guest does not send arrives as 2^64 − 1, or as −1 from software that
//! treats it as signed; both are `None`. Values are not checked for plausibility here.

use ballast_model::{Bytes, GuestStats};
use serde::{Deserialize, Deserializer};

/// The reply to `qom-get guest-stats`.
#[derive(Debug, Deserialize)]
struct StatsReply {
    stats: RawStats,
    /// Wall-clock second of the guest's last report; 0: none yet.
    #[serde(rename = "last-update", deserialize_with = "seconds")]
    last_update: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawStats {
    #[serde(rename = "stat-total-memory")]
    total: Stat,
    #[serde(rename = "stat-free-memory")]
    free: Stat,
    #[serde(rename = "stat-available-memory")]
    available: Stat,
    #[serde(rename = "stat-disk-caches")]
    disk_caches: Stat,
    #[serde(rename = "stat-swap-in")]
    swap_in: Stat,
    #[serde(rename = "stat-swap-out")]
    swap_out: Stat,
    #[serde(rename = "stat-major-faults")]
    major_faults: Stat,
    #[serde(rename = "stat-minor-faults")]
    minor_faults: Stat,
}

/// Parses the reply to `qom-get guest-stats`: the statistics and the wall-clock second of the
/// guest's last report (0: none yet).
///
/// # Errors
/// The reply is malformed.
pub fn read_guest_stats(json: &str) -> Result<(GuestStats, u64), serde_json::Error> {
    let reply: StatsReply = serde_json::from_str(json)?;
    Ok((reply.guest_stats(), reply.last_update))
}

impl StatsReply {
    fn guest_stats(&self) -> GuestStats {
        let bytes = |stat: &Stat| stat.0.map(Bytes::new);
        GuestStats {
            total: bytes(&self.stats.total),
            free: bytes(&self.stats.free),
            available: bytes(&self.stats.available),
            disk_caches: bytes(&self.stats.disk_caches),
            swap_in: bytes(&self.stats.swap_in),
            swap_out: bytes(&self.stats.swap_out),
            major_faults: self.stats.major_faults.0,
            minor_faults: self.stats.minor_faults.0,
        }
    }
}

/// One statistic; `None` if the guest does not send it.
#[derive(Debug, Default)]
struct Stat(Option<u64>);

impl<'de> Deserialize<'de> for Stat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Stat, D::Error> {
        deserializer.deserialize_any(StatVisitor)
    }
}

struct StatVisitor;

impl serde::de::Visitor<'_> for StatVisitor {
    type Value = Stat;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a whole number, or -1 for a statistic the guest does not send")
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Stat, E> {
        Ok(Stat((value != u64::MAX).then_some(value)))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Stat, E> {
        match value {
            -1 => Ok(Stat(None)),
            _ => u64::try_from(value)
                .map(|value| Stat(Some(value)))
                .map_err(|_| E::invalid_value(serde::de::Unexpected::Signed(value), &self)),
        }
    }
}

/// A negative time comes from a host without a clock, and counts as none.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let secs = i64::deserialize(deserializer)?;
    Ok(u64::try_from(secs).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<(GuestStats, u64), String> {
        read_guest_stats(json).map_err(|error| error.to_string())
    }

    #[test]
    fn values_not_sent_by_the_guest_are_none() {
        for unsupported in ["-1", "18446744073709551615"] {
            let json = format!(
                r#"{{"stats": {{"stat-free-memory": {unsupported}, "stat-total-memory": 4096,
                "stat-htlb-pgalloc": 7, "stat-oom-kill": 1}}, "last-update": 5}}"#
            );
            let expected = GuestStats { total: Some(Bytes::new(4096)), ..GuestStats::default() };
            assert_eq!(read(&json), Ok((expected, 5)));
        }
    }

    #[test]
    fn malformed_statistics_are_an_error() {
        for json in [
            r#"{"stats": {"stat-free-memory": "much"}, "last-update": 5}"#,
            r#"{"stats": {"stat-free-memory": -2}, "last-update": 5}"#,
            r#"{"stats": {"stat-free-memory": 1e99}, "last-update": 5}"#,
        ] {
            let message = read(json).unwrap_err();
            assert!(message.contains("expected a whole number"), "{message}");
        }
        assert!(read(r#"{"stats": {}}"#).unwrap_err().contains("last-update"));
        assert_eq!(read(r#"{"stats": {}, "last-update": -3}"#), Ok((GuestStats::default(), 0)));
    }
}
