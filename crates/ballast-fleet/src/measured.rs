//! What was measured of this host's guests and copies.
//!
//! Idea: a measured dirty rate counts unless the configuration has one for the guest. A measured
//! bandwidth counts instead of the configured one, but never more than that.

use std::collections::BTreeMap;

use ballast_model::{Bytes, GuestId};

/// What was measured on this host.
#[derive(Clone, Debug, Default)]
pub struct Measurements {
    /// Dirty rate of each guest, in bytes a second.
    pub writes_per_s: BTreeMap<GuestId, Bytes>,
    /// Bandwidth of the last copy from this host, in bytes a second.
    pub bandwidth_per_s: Option<Bytes>,
}
