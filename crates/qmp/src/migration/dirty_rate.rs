//! A guest's dirty rate: how fast it writes to its memory, as QEMU measures it.
//!
//! Idea: QEMU takes checksums of randomly chosen pages, and again after a second; the share that
//! differs gives the amount written. The guest runs on unchanged, under any accelerator. The rate
//! is needed before a copy: a guest that writes faster than the network copies never arrives.
//! Source: `calc-dirty-rate` and `query-dirty-rate` in `qapi/migration.json` of QEMU 7.2, mode
//! `page-sampling` (QEMU 6.2 and later); `migration/dirtyrate.c`.
//! Limits: whole MiB per second. A page written many times counts once, as in a copy; a page
//! overwritten with the same content does not count. RAM blocks of less than 128 KiB are skipped.
//! The sampling error is that of [`SAMPLED_PER_GIB`] pages per GiB.

use std::time::Duration;

use ballast_model::Bytes;
use serde::Deserialize;

/// Length of a measurement.
pub const MEASURED_FOR: Duration = Duration::from_secs(1);
/// Pages sampled per GiB: 4 MiB are checksummed twice. The standard error is at most 1.6 % of the
/// memory of a guest of 1 GiB, and less for larger guests.
pub const SAMPLED_PER_GIB: u32 = 1024;
/// Highest rate accepted, in MiB per second: no machine writes a TiB per second.
const MIB_PER_S_MAX: i64 = 1 << 20;

/// The state and result of QEMU's last measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirtyRate {
    /// There was none, or it gave no valid figure.
    Nothing,
    /// It has not finished.
    UnderWay,
    /// It has finished.
    Measured {
        /// Memory that the guest writes per second.
        per_s: Bytes,
    },
}

#[derive(Deserialize)]
struct RateReply<'a> {
    #[serde(borrow)]
    status: std::borrow::Cow<'a, str>,
    #[serde(default, rename = "dirty-rate")]
    mib_per_s: Option<i64>,
}

impl DirtyRate {
    /// Parses the reply to `query-dirty-rate`. An impossible figure counts as none.
    ///
    /// # Errors
    /// The reply is malformed.
    pub fn parse(json: &str) -> Result<DirtyRate, serde_json::Error> {
        let reply: RateReply<'_> = serde_json::from_str(json)?;
        let believed = reply.mib_per_s.filter(|rate| (0..=MIB_PER_S_MAX).contains(rate));
        let believed = believed.and_then(|rate| u64::try_from(rate).ok());
        Ok(match (&*reply.status, believed) {
            ("measured", Some(mib)) => DirtyRate::Measured { per_s: Bytes::mib(mib) },
            ("measuring", _) => DirtyRate::UnderWay,
            _ => DirtyRate::Nothing,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn replies_before_during_and_after_are_told_apart() {
        let reply = |status: &str, rate: &str| {
            DirtyRate::parse(&format!(
                r#"{{"status":"{status}",{rate}"start-time":7,"calc-time":1,"sample-pages":1024,
                    "mode":"page-sampling"}}"#
            ))
            .unwrap()
        };
        let measured = |mib| DirtyRate::Measured { per_s: Bytes::mib(mib) };
        for (status, rate, expected) in [
            ("unstarted", "", DirtyRate::Nothing),
            ("measuring", "", DirtyRate::UnderWay),
            // The figure of the previous measurement, while the next one is under way.
            ("measuring", r#""dirty-rate":5,"#, DirtyRate::UnderWay),
            ("measured", r#""dirty-rate":0,"#, measured(0)),
            ("measured", r#""dirty-rate":108,"#, measured(108)),
            ("measured", r#""dirty-rate":-1,"#, DirtyRate::Nothing),
            ("measured", r#""dirty-rate":1048577,"#, DirtyRate::Nothing),
            ("measured", "", DirtyRate::Nothing),
            ("later", r#""dirty-rate":5,"#, DirtyRate::Nothing),
        ] {
            assert_eq!(reply(status, rate), expected, "{status} {rate}");
        }
        assert!(DirtyRate::parse("{}").is_err());
    }

    proptest! {
        #[test]
        fn no_reply_breaks_the_parser(text in ".*", status in ".*", rate in any::<i64>()) {
            let reply = serde_json::json!({ "status": status, "dirty-rate": rate });
            let measured = serde_json::json!({ "status": "measured", "dirty-rate": rate });
            for json in [text, reply.to_string(), measured.to_string()] {
                if let Ok(DirtyRate::Measured { per_s }) = DirtyRate::parse(&json) {
                    prop_assert!(per_s <= Bytes::gib(1024));
                }
            }
        }
    }
}
