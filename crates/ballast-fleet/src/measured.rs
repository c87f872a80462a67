//! What was measured of this host's guests and copies.
//!
//! Idea: measurements replace assumptions of the configuration.

use std::collections::BTreeMap;

use ballast_model::{Bytes, GuestId};

/// What was measured on this host.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Dirty rate of each guest, in bytes a second.
    pub writes_per_s: BTreeMap<GuestId, Bytes>,
    /// Bandwidth of the last copy from this host, in bytes a second.
    pub bandwidth_per_s: Option<Bytes>,
}
