//! What was measured on this host of guests and copies.
//!
//! Idea: both replace what the configuration assumes.

use std::collections::BTreeMap;

use ballast_model::{Bytes, GuestId};

/// What was measured on this host.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Bytes a second that each guest writes to its memory.
    pub writes_per_s: BTreeMap<GuestId, Bytes>,
    /// Bytes a second of the last copy from here.
    pub bandwidth_per_s: Option<Bytes>,
}
