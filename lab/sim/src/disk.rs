//! The time of disk requests.
//!
//! Idea: a disk serves one request at a time: each takes the latency, and its data the time given
//! by the bandwidth. Limits: no queue is modelled; see `contention_permille`.

use std::time::Duration;

use ballast_model::PAGE_SIZE;

use crate::scenario::Disk;

/// A disk's times as integers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requests {
    latency_ns: u64,
    bytes_per_s: u64,
}

impl Requests {
    pub(crate) fn new(disk: Disk) -> Requests {
        Requests { latency_ns: ns(disk.latency), bytes_per_s: disk.bandwidth.get().max(1) }
    }

    /// Time of `requests` for `pages` in total, in ns.
    pub(crate) fn ns(self, requests: u64, pages: u64) -> u64 {
        let data = u128::from(pages) * u128::from(PAGE_SIZE) * 1_000_000_000;
        let data = u64::try_from(data / u128::from(self.bytes_per_s)).unwrap_or(u64::MAX);
        requests.saturating_mul(self.latency_ns).saturating_add(data)
    }
}

/// A span in nanoseconds, saturating at 584 years.
pub(crate) fn ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
