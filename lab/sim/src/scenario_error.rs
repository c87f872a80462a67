//! The reasons to refuse a scenario.
//!
//! Idea: each error names the field, its value and its range; a reader of files adds the place.

use std::time::Duration;

use ballast_model::{Bytes, GuestId};

use crate::WorkloadError;
use crate::limits::{BLOCKS_MAX, GUESTS_MAX, TICKS_MAX};

/// Why a scenario cannot be simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// The time step is out of range.
    #[error("tick = {0:?}: expected 1ms to 1h")]
    Tick(Duration),
    /// The run has no step, or too many.
    #[error("a run of {ticks} ticks: expected 1 to {TICKS_MAX}")]
    Ticks {
        /// Their number.
        ticks: u64,
    },
    /// The block size is invalid.
    #[error("block = {0}: expected whole pages, at most 1GiB")]
    Block(Bytes),
    /// There are no guests, or too many.
    #[error("{0} guests: expected 1 to {GUESTS_MAX}")]
    Guests(usize),
    /// Two guests have the same name.
    #[error("guest {0} is defined twice: expected unique names")]
    Twice(GuestId),
    /// The workloads have too many blocks.
    #[error("workloads of {blocks} blocks: expected at most {BLOCKS_MAX}; choose larger blocks")]
    TooLarge {
        /// Their number.
        blocks: u64,
    },
    /// The guests' initial allocations exceed the budget.
    #[error("guests hold {start} at the start: expected at most the budget of {room}")]
    Overcommitted {
        /// The sum of their allocations.
        start: Bytes,
        /// The budget.
        room: Bytes,
    },
    /// A value of a guest is out of range.
    #[error("guest {guest}: {field} = {value}: expected {expected}")]
    Guest {
        /// The guest.
        guest: GuestId,
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// Its range.
        expected: String,
    },
    /// A workload is invalid.
    #[error("guest {guest}: workload {place}: {error}")]
    Workload {
        /// The guest.
        guest: GuestId,
        /// The workload's index.
        place: usize,
        /// Why.
        error: WorkloadError,
    },
}
