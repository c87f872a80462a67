//! What a request costs.
//!
//! Idea: a disk serves one request after the other: each takes its latency, and its data the time
//! that bandwidth gives it. Limits: no queue is kept; see `contention_permille`.

use std::time::Duration;

use ballast_model::PAGE_SIZE;

use crate::scenario::Disk;

/// A disk, with its time as integers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requests {
    latency_ns: u64,
    bytes_per_s: u64,
}

impl Requests {
    pub(crate) fn new(disk: Disk) -> Requests {
        Requests { latency_ns: ns(disk.latency), bytes_per_s: disk.bandwidth.get().max(1) }
    }

    /// Time of `requests` for `pages` in all, in ns.
    pub(crate) fn ns(self, requests: u64, pages: u64) -> u64 {
        let data = u128::from(pages) * u128::from(PAGE_SIZE) * 1_000_000_000;
        let data = u64::try_from(data / u128::from(self.bytes_per_s)).unwrap_or(u64::MAX);
        requests.saturating_mul(self.latency_ns).saturating_add(data)
    }
}

/// Nanoseconds of a span; half a thousand years where it is longer.
pub(crate) fn ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
