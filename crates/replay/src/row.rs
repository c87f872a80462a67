//! The result of a replay for one guest at one tick.

use ballast_model::{Bytes, GuestId};

/// One guest at one tick, recorded and simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayRow {
    /// The guest.
    pub id: GuestId,
    /// Its demand: memory in use, and memory in its swap that it reads back.
    pub demand: Bytes,
    /// Its recorded allocation.
    pub recorded: Bytes,
    /// Its simulated allocation.
    pub imagined: Bytes,
    /// What it read back from swap since the previous tick.
    pub recorded_swap_in: Bytes,
    /// What it would have read back in the simulation.
    pub imagined_swap_in: Bytes,
    /// Whether the record suffices to know that: the guest lacks no more than in the record, and
    /// only free memory was taken from it.
    pub is_predictable: bool,
    /// Its recorded target.
    pub recorded_target: Option<Bytes>,
    /// Its simulated target.
    pub imagined_target: Option<Bytes>,
}
