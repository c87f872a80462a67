//! Why a scenario cannot be simulated.
//!
//! Idea: each names the field, what it says, and what it may say; whoever reads files finds the place.

use std::time::Duration;

use ballast_model::{Bytes, GuestId};

use crate::WorkloadError;
use crate::scenario::{BLOCKS_MAX, GUESTS_MAX, TICKS_MAX};

/// Why a scenario cannot be simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// The time step is out of range.
    #[error("tick = {0:?}: expected 1ms to 1h")]
    Tick(Duration),
    /// The run has no step, or too many.
    #[error("a run of {ticks} ticks: expected 1 to {TICKS_MAX}")]
    Ticks {
        /// How many.
        ticks: u64,
    },
    /// The granularity is none.
    #[error("block = {0}: expected whole pages, at most 1GiB")]
    Block(Bytes),
    /// None or too many guests.
    #[error("{0} guests: expected 1 to {GUESTS_MAX}")]
    Guests(usize),
    /// Two guests have one name.
    #[error("guest {0} is there twice: expected unique names")]
    Twice(GuestId),
    /// More blocks than fit into memory.
    #[error("workloads of {blocks} blocks: expected at most {BLOCKS_MAX}; choose larger blocks")]
    TooLarge {
        /// How many.
        blocks: u64,
    },
    /// What guests hold at the beginning is more than there is.
    #[error("guests hold {start} at the beginning: expected at most the budget of {room}")]
    Overcommitted {
        /// What they hold.
        start: Bytes,
        /// What there is.
        room: Bytes,
    },
    /// A value of a guest is out of its range.
    #[error("guest {guest}: {field} = {value}: expected {expected}")]
    Guest {
        /// The guest.
        guest: GuestId,
        /// The field.
        field: &'static str,
        /// What it says.
        value: String,
        /// What it may be.
        expected: String,
    },
    /// A workload cannot be.
    #[error("guest {guest}: workload {place}: {error}")]
    Workload {
        /// The guest.
        guest: GuestId,
        /// The workload's place in the list, from 0.
        place: usize,
        /// Why.
        error: WorkloadError,
    },
}
