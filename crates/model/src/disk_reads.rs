//! What was read from a guest's disks.
//!
//! Idea: a guest that lacks page cache reads from its disks what it has read before.
//! Limits: counters without addresses; they fall when a disk is unplugged.

use std::time::Duration;

use crate::Bytes;
#[cfg(feature = "serde")]
use crate::unit;

/// What was read from all disks of a guest, its swap disks included. The hypervisor counts it: a
/// guest can cause reads, but cannot claim any unless it has taken over its hypervisor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DiskReads {
    /// How much.
    #[cfg_attr(feature = "serde", serde(rename = "read_bytes", with = "unit"))]
    pub read: Bytes,
    /// In how many requests.
    pub requests: u64,
    /// How long the answer to the query took. The figures are of some moment of that time, which
    /// began with the query.
    #[cfg_attr(
        feature = "serde",
        serde(
            rename = "took_ns",
            default,
            with = "unit",
            skip_serializing_if = "unit::is_default"
        )
    )]
    pub took: Duration,
}
