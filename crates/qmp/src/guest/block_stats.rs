//! What was read from a guest's disks, as QEMU counts it, and when to ask for it.
//!
//! Idea: `query-blockstats` lists all block devices, and below each device the nodes that store its
//! data, which count no reads. So the counters of the devices are added up, and nodes are ignored.
//! A failure costs only this figure: a process that refuses the query, or whose reply cannot be
//! read, is not asked again on the same connection. One whose reply may have broken the connection
//! (see `codec.rs` for the limits of a message), or that answers everything but this query, is
//! never asked again. No sample waits for the reply: it is the longest of all, and QEMU before 9.0
//! takes the locks of I/O threads to make it.
//!
//! Cost: one query each [`SpreadQuery::INTERVAL`], with a reply of 1.4 KB for each disk, and as
//! much for each file in its backing chain.
//! Source: `qapi/block-core.json` and `block/qapi.c` of QEMU 7.2.
//! Limits: the counters of an unplugged device leave the sum, which falls: whoever compares two
//! sums has to expect that. A drive without a medium has zeros, and so has a guest without disks.
//! Firmware in flash memory counts as a disk. Disks outside QEMU's block layer (vhost-user,
//! passthrough) do not count.

use ballast_backend::SpreadQuery;
use ballast_model::{Bytes, DiskReads, Measured, Timestamp};
use serde::Deserialize;

/// The block statistics of one guest.
#[derive(Debug, Default)]
pub(super) struct BlockStats {
    /// The last sum, and when it was queried.
    last: Option<(DiskReads, Timestamp)>,
    /// When to query; `None`: not on this connection.
    query: Option<SpreadQuery>,
    /// Whether a reply, or the lack of one, has ended a connection.
    has_broken: bool,
}

impl BlockStats {
    /// A connection was made to process `pid`.
    pub(super) fn connected(&mut self, now: Timestamp, pid: Option<u32>) {
        let number = u64::from(pid.unwrap_or(0));
        self.query = (!self.has_broken).then(|| SpreadQuery::new(number, now));
    }

    /// Whether to query now; assumes that the caller does.
    pub(super) fn take_due(&mut self, now: Timestamp) -> bool {
        self.query.as_mut().is_some_and(|query| query.take_due(now))
    }

    /// Takes in the reply, received at `now`, to the query sent at `at`.
    pub(super) fn replied(&mut self, json: &str, at: Timestamp, now: Timestamp) {
        match sum_reads(json) {
            Ok(reads) => {
                self.last = Some((DiskReads { took: now.saturating_since(at), ..reads }, at));
            }
            Err(_) => self.failed(),
        }
    }

    /// The query was refused.
    pub(super) fn failed(&mut self) {
        self.query = None;
    }

    /// The connection ended for lack of a reply that could be read.
    pub(super) fn broke(&mut self) {
        self.has_broken = true;
    }

    /// What was read, with its age at `now`.
    pub(super) fn reads(&self, now: Timestamp) -> Option<Measured<DiskReads>> {
        self.last.map(|(value, at)| Measured { value, age: now.saturating_since(at) })
    }
}

#[derive(Deserialize)]
struct DeviceEntry {
    stats: ReadStats,
}

#[derive(Deserialize)]
struct ReadStats {
    rd_bytes: u64,
    rd_operations: u64,
}

/// Adds up the counters of all devices in a reply to `query-blockstats`.
fn sum_reads(json: &str) -> Result<DiskReads, serde_json::Error> {
    let devices: Vec<DeviceEntry> = serde_json::from_str(json)?;
    let mut sum = DiskReads::default();
    for DeviceEntry { stats } in devices {
        sum.read = sum.read.saturating_add(Bytes::new(stats.rd_bytes));
        sum.requests = sum.requests.saturating_add(stats.rd_operations);
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn reads(bytes: u64, requests: u64) -> DiskReads {
        DiskReads { read: Bytes::new(bytes), requests, ..DiskReads::default() }
    }

    /// The counters in the form of QEMU 7.2.
    fn counters(bytes: u64, requests: u64) -> String {
        format!(
            r#"{{"unmap_operations": 0, "unmap_merged": 0, "flush_total_time_ns": 0,
            "wr_highest_offset": 4096, "wr_total_time_ns": 9, "failed_wr_operations": 0,
            "failed_rd_operations": 0, "wr_merged": 0, "wr_bytes": 512, "timed_stats": [],
            "failed_unmap_operations": 0, "failed_flush_operations": 0, "account_invalid": true,
            "rd_total_time_ns": 7, "invalid_unmap_operations": 0, "flush_operations": 0,
            "wr_operations": 1, "unmap_bytes": 0, "rd_merged": 3, "rd_bytes": {bytes},
            "unmap_total_time_ns": 0, "invalid_flush_operations": 0, "account_failed": true,
            "rd_operations": {requests}, "invalid_wr_operations": 0,
            "invalid_rd_operations": 0}}"#
        )
    }

    #[test]
    fn devices_are_added_up_without_their_nodes() {
        let (disk, node) = (counters(8192, 2), counters(1 << 40, 1 << 30));
        let reply = format!(
            r##"[{{"device": "", "parent": {{"stats": {node}, "node-name": "#block012"}},
            "stats": {disk}, "node-name": "#block139",
            "backing": {{"parent": {{"stats": {node}}}, "stats": {node}, "backing":
            {{"stats": {node}, "node-name": "base"}}}},
            "qdev": "/machine/peripheral-anon/device[0]/virtio-backend"}},
            {{"device": "ide1-cd0", "stats": {empty}, "qdev": "/machine/unattached/device[24]"}},
            {{"device": "virtio1", "stats": {disk}, "node-name": "data"}}]"##,
            empty = counters(0, 0)
        );
        assert_eq!(sum_reads(&reply).unwrap(), reads(16384, 4));
        assert_eq!(sum_reads("[]").unwrap(), DiskReads::default());
    }

    #[test]
    fn malformed_block_statistics_are_an_error() {
        for json in [
            "{}",
            "[1]",
            "[{}]",
            r#"[{"stats": {"rd_bytes": 1}}]"#,
            r#"[{"stats": {"rd_bytes": -1, "rd_operations": 0}}]"#,
            r#"[{"stats": {"rd_bytes": 1e99, "rd_operations": 0}}]"#,
        ] {
            assert!(sum_reads(json).is_err(), "{json}");
        }
    }

    #[test]
    fn an_unreadable_reply_ends_the_queries() {
        let mut stats = BlockStats::default();
        let [first, second, third] = [0, 5000, 10_000].map(Timestamp::from_millis);
        stats.connected(first, None);
        assert!(stats.take_due(first) && stats.take_due(second));
        stats.replied("[]", first, Timestamp::from_millis(7));
        stats.replied("{}", second, second);
        assert!(!stats.take_due(third));
        let value = DiskReads { took: Duration::from_millis(7), ..DiskReads::default() };
        let kept = Measured { value, age: Duration::from_secs(10) };
        assert_eq!(stats.reads(third), Some(kept));
    }

    proptest! {
        #[test]
        fn no_counters_overflow_the_sum(
            text in ".*",
            disks in proptest::collection::vec(any::<(u64, u64)>(), 0..4),
        ) {
            let entries: Vec<String> = disks
                .iter()
                .map(|(bytes, requests)| format!(r#"{{"stats": {}}}"#, counters(*bytes, *requests)))
                .collect();
            let total = |column: fn(&(u64, u64)) -> u64| {
                let total: u128 = disks.iter().map(|disk| u128::from(column(disk))).sum();
                u64::try_from(total).unwrap_or(u64::MAX)
            };
            let read = sum_reads(&format!("[{}]", entries.join(",")));
            prop_assert_eq!(read.unwrap(), reads(total(|disk| disk.0), total(|disk| disk.1)));
            let _ = sum_reads(&text);
        }
    }
}
