//! QEMU's report of a migration, and the state of a guest's hypervisor that follows from it.
//!
//! Idea: QEMU keeps the result of the last migration for ever, and a guest that an operator paused
//! looks like one that has just arrived. What only the caller can know is therefore a parameter:
//! [`Origin`].
//! Limits: post-copy stages count as under way; Ballast starts no post-copy.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ballast_model::{Bytes, PAGE_SIZE};
use serde::Deserialize;

use crate::codec::printable;
use crate::session::QmpEvent;

/// Longest error kept, in characters.
const ERROR_CHARS_MAX: usize = 300;

/// The stage of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationStage {
    /// There was none.
    Nothing,
    /// It is under way, or about to end.
    UnderWay,
    /// All of the guest is at the destination.
    Completed,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// The progress of a migration, as `query-migrate` returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationProgress {
    /// The stage of the migration.
    pub stage: MigrationStage,
    /// Size of the guest's memory. Pages that are copied again do not add to it.
    pub total: Bytes,
    /// Bytes sent so far.
    pub sent: Bytes,
    /// Memory that is still to be sent.
    pub remaining: Bytes,
    /// Memory that the guest writes per second, by QEMU's last count.
    pub dirty_per_s: Bytes,
    /// Time spent on copying, without the setup: so far, or in total once it is over.
    pub took: Option<Duration>,
    /// How long the guest is paused at the end; an estimate until the migration is over.
    pub downtime: Option<Duration>,
    /// QEMU's error text, made printable.
    pub error: Option<String>,
    /// The address at which a destination listens.
    pub listens_at: Option<SocketAddr>,
}

/// What only the caller knows of a guest's hypervisor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The hypervisor was started as a destination, and the guest was never started in it.
    pub is_listener: bool,
    /// This caller began the last copy out of the hypervisor, for its current move.
    pub began_copy: bool,
}

/// The state of a guest's hypervisor with regard to migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestMigration {
    /// A destination that was not ordered to listen yet.
    Empty,
    /// A destination that listens, and has at most a part of the guest.
    Listens(SocketAddr),
    /// A destination that has all of the guest, which has not run there yet.
    Loaded,
    /// The guest runs. No copy is under way, and none of this caller's has failed.
    Runs,
    /// The guest is being copied.
    Copies,
    /// The guest runs; the copy failed or was cancelled.
    CopyFailed,
    /// The guest is paused because all of it was copied.
    Left,
    /// The guest is paused for another reason.
    Paused,
}

impl GuestMigration {
    /// The state that follows from the run state, in QEMU's own word, and the progress.
    pub fn of(run_state: &str, progress: &MigrationProgress, origin: Origin) -> GuestMigration {
        match (run_state, progress.stage) {
            ("inmigrate", _) => match progress.listens_at {
                Some(address) => GuestMigration::Listens(address),
                None => GuestMigration::Empty,
            },
            // With `-S` the guest becomes paused at the moment when all of it has arrived. The
            // progress may still say that it is under way, because it was read before the run
            // state.
            ("paused", MigrationStage::Completed | MigrationStage::UnderWay)
                if origin.is_listener =>
            {
                GuestMigration::Loaded
            }
            ("postmigrate", _) => GuestMigration::Left,
            // The copy is about to end: QEMU reports it as completed or failed a moment before the
            // run state changes.
            ("finish-migrate", _) => GuestMigration::Copies,
            ("running" | "paused", MigrationStage::UnderWay) if !origin.is_listener => {
                GuestMigration::Copies
            }
            ("running", MigrationStage::Failed | MigrationStage::Cancelled)
                if origin.began_copy =>
            {
                GuestMigration::CopyFailed
            }
            // The result is that of an earlier migration.
            ("running", _) => GuestMigration::Runs,
            _ => GuestMigration::Paused,
        }
    }
}

#[derive(Deserialize)]
struct ProgressReply<'a> {
    #[serde(borrow, default)]
    status: Option<Cow<'a, str>>,
    #[serde(default)]
    ram: Option<RamReply>,
    #[serde(default, rename = "expected-downtime")]
    expected_downtime_ms: Option<u64>,
    #[serde(default, rename = "downtime")]
    downtime_ms: Option<u64>,
    #[serde(default, rename = "total-time")]
    total_ms: Option<u64>,
    #[serde(default, rename = "setup-time")]
    setup_ms: u64,
    #[serde(borrow, default, rename = "error-desc")]
    error: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "socket-address")]
    addresses: Vec<AddressReply<'a>>,
}

#[derive(Deserialize)]
struct RamReply {
    transferred: u64,
    remaining: u64,
    total: u64,
    #[serde(default, rename = "dirty-pages-rate")]
    dirty_pages_per_s: u64,
}

#[derive(Deserialize)]
struct AddressReply<'a> {
    #[serde(borrow, default)]
    host: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    port: Option<Cow<'a, str>>,
}

impl MigrationProgress {
    /// Parses the reply to `query-migrate`.
    ///
    /// # Errors
    /// The reply is malformed.
    pub fn parse(json: &str) -> Result<MigrationProgress, serde_json::Error> {
        let reply: ProgressReply<'_> = serde_json::from_str(json)?;
        let ram = reply.ram;
        let ram = |of: fn(&RamReply) -> u64| Bytes::new(ram.as_ref().map_or(0, of));
        Ok(MigrationProgress {
            stage: reply.status.as_deref().map_or(MigrationStage::Nothing, stage),
            total: ram(|it| it.total),
            sent: ram(|it| it.transferred),
            remaining: ram(|it| it.remaining),
            dirty_per_s: ram(|it| it.dirty_pages_per_s.saturating_mul(PAGE_SIZE)),
            took: reply
                .total_ms
                .map(|total| Duration::from_millis(total.saturating_sub(reply.setup_ms))),
            downtime: reply.downtime_ms.or(reply.expected_downtime_ms).map(Duration::from_millis),
            error: reply.error.map(|text| printable(&text, ERROR_CHARS_MAX)),
            listens_at: reply.addresses.iter().find_map(AddressReply::socket),
        })
    }

    /// Mean bandwidth of a completed copy, per second, under the limit that it had. `None` if no
    /// copy is complete, or if it sent nothing or took less than a millisecond.
    pub fn bandwidth_per_s(&self) -> Option<Bytes> {
        let ms = u64::try_from(self.took?.as_millis()).ok().filter(|ms| *ms > 0)?;
        let is_complete = self.stage == MigrationStage::Completed && self.sent > Bytes::ZERO;
        is_complete.then(|| self.sent.fraction(1000, ms))
    }
}

impl AddressReply<'_> {
    /// The address, if it is an IP address with a port.
    fn socket(&self) -> Option<SocketAddr> {
        let ip: IpAddr = self.host.as_deref()?.parse().ok()?;
        let port = self.port.as_deref()?.parse().ok().filter(|port| *port != 0)?;
        Some(SocketAddr::new(ip, port))
    }
}

/// The stage that QEMU's word means. An unknown word counts as under way, so that no second copy is
/// started.
fn stage(word: &str) -> MigrationStage {
    match word {
        "none" => MigrationStage::Nothing,
        "completed" => MigrationStage::Completed,
        "failed" => MigrationStage::Failed,
        "cancelled" => MigrationStage::Cancelled,
        _ => MigrationStage::UnderWay,
    }
}

#[derive(Deserialize)]
struct EventData<'a> {
    #[serde(borrow)]
    status: Cow<'a, str>,
}

/// The stage that a `MIGRATION` event reports; `None` for any other event.
pub fn event_stage(event: &QmpEvent) -> Option<MigrationStage> {
    let data = event.data.as_deref().filter(|_| event.name == "MIGRATION")?;
    let data: EventData<'_> = serde_json::from_str(data).ok()?;
    Some(stage(&data.status))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn replies_of_either_side_are_read() {
        let source = r#"{"expected-downtime":300,"status":"active","setup-time":1,"total-time":914,
            "ram":{"total":135864320,"postcopy-requests":0,"dirty-sync-count":1,
            "multifd-bytes":0,"pages-per-second":34,"downtime-bytes":0,"page-size":4096,
            "remaining":10240000,"mbps":8.4,"transferred":921600,"precopy-bytes":9,"duplicate":3,
            "dirty-pages-rate":2,"skipped":0,"normal-bytes":9,"normal":3,"postcopy-bytes":0}}"#;
        let read = MigrationProgress::parse(source).unwrap();
        assert_eq!(read.stage, MigrationStage::UnderWay);
        assert_eq!((read.total, read.sent), (Bytes::new(135_864_320), Bytes::new(921_600)));
        assert_eq!(read.remaining, Bytes::new(10_240_000));
        assert_eq!(read.dirty_per_s, Bytes::kib(8));
        assert_eq!(read.downtime, Some(Duration::from_millis(300)));
        assert_eq!(read.took, Some(Duration::from_millis(913)));
        assert_eq!(read.bandwidth_per_s(), None, "it is under way");
        let over = source.replace("active", "completed");
        let over = MigrationProgress::parse(&over).unwrap().bandwidth_per_s();
        assert_eq!(over, Some(Bytes::new(921_600 * 1000 / 913)));
        let destination = r#"{"status":"setup","socket-address":[
            {"port":"37213","ipv4":true,"host":"127.0.0.1","type":"inet"}]}"#;
        let read = MigrationProgress::parse(destination).unwrap();
        assert_eq!(read.listens_at, Some("127.0.0.1:37213".parse().unwrap()));
        let nothing = MigrationProgress::parse("{}").unwrap();
        assert_eq!((nothing.stage, nothing.listens_at), (MigrationStage::Nothing, None));
        let failed = r#"{"status":"failed","error-desc":"no\u001b[2J route"}"#;
        let failed = MigrationProgress::parse(failed).unwrap();
        assert_eq!(failed.error.as_deref(), Some(r"no\u{1b}[2J route"));
        let path = r#"{"socket-address":[{"path":"/run/x","type":"unix"}]}"#;
        assert_eq!(MigrationProgress::parse(path).unwrap().listens_at, None);
    }

    #[test]
    fn old_results_do_not_pass_for_new_ones() {
        let progress = |stage, listens: bool| MigrationProgress {
            stage,
            listens_at: listens.then(|| "127.0.0.1:9".parse().unwrap()),
            ..MigrationProgress::parse("{}").unwrap()
        };
        let (old, listener, began) = (
            Origin::default(),
            Origin { is_listener: true, began_copy: false },
            Origin { is_listener: false, began_copy: true },
        );
        use GuestMigration::*;
        use MigrationStage::{Cancelled, Completed, Failed, Nothing, UnderWay};
        for (run_state, stage, listens, origin, expected) in [
            ("inmigrate", Nothing, false, listener, Empty),
            ("inmigrate", UnderWay, true, listener, Listens("127.0.0.1:9".parse().unwrap())),
            ("paused", Completed, true, listener, Loaded),
            ("paused", UnderWay, true, listener, Loaded),
            // A guest that arrived long ago and that an operator has paused since.
            ("paused", Completed, true, old, Paused),
            ("paused", Nothing, false, old, Paused),
            ("running", Completed, true, old, Runs),
            ("running", Nothing, false, began, Runs),
            ("running", UnderWay, false, began, Copies),
            ("finish-migrate", UnderWay, false, began, Copies),
            ("finish-migrate", Completed, false, began, Copies),
            ("finish-migrate", Failed, false, began, Copies),
            ("running", Failed, false, began, CopyFailed),
            ("running", Cancelled, false, began, CopyFailed),
            ("running", Failed, false, old, Runs),
            // Left, then resumed because the destination did not start it.
            ("running", Completed, false, began, Runs),
            ("postmigrate", Completed, false, began, Left),
            ("postmigrate", Completed, false, old, Left),
            ("paused", UnderWay, false, began, Copies),
            ("paused", Failed, false, began, Paused),
            ("shutdown", Completed, false, old, Paused),
            ("prelaunch", Nothing, false, old, Paused),
        ] {
            let found = GuestMigration::of(run_state, &progress(stage, listens), origin);
            assert_eq!(found, expected, "{run_state} {stage:?} {origin:?}");
        }
    }

    #[test]
    fn only_events_of_migrations_tell_a_stage() {
        let event = |name: &str, data: &str| {
            event_stage(&QmpEvent { name: name.to_owned(), data: Some(data.to_owned()) })
        };
        let completed = r#"{"status":"completed"}"#;
        assert_eq!(event("MIGRATION", completed), Some(MigrationStage::Completed));
        assert_eq!(event("MIGRATION", "{}"), None);
        assert_eq!(event("STOP", completed), None);
    }

    proptest! {
        #[test]
        fn no_reply_breaks_the_parser(text in ".*", status in ".*", port in ".*", n: u64) {
            let ram = serde_json::json!({
                "transferred": n, "remaining": n, "total": n, "dirty-pages-rate": n,
            });
            let status = if n % 2 == 0 { "completed".to_owned() } else { status };
            let address = serde_json::json!([{"host": text, "port": port}]);
            let reply = serde_json::json!({
                "status": status, "ram": ram, "error-desc": text, "socket-address": address,
                "total-time": n / 3, "setup-time": n / 7,
            });
            for json in [text, reply.to_string()] {
                if let Ok(read) = MigrationProgress::parse(&json) {
                    let _ = read.bandwidth_per_s();
                    let printed = read.error.unwrap_or_default();
                    prop_assert!(printed.chars().count() <= ERROR_CHARS_MAX);
                    prop_assert!(!printed.chars().any(char::is_control));
                }
            }
        }
    }
}
