//! The largest scenario that is simulated.
//!
//! Limits: chosen so that a run fits into memory and ends.

/// Most guests on one host.
pub const GUESTS_MAX: usize = 10_000;
/// Most workloads of one guest.
pub const WORKLOADS_MAX: usize = 64;
/// Most ticks of one run: a month of seconds.
pub const TICKS_MAX: u64 = 31 * 86_400;
/// Most blocks of all guests together, which bounds the simulator's own memory.
pub const BLOCKS_MAX: u64 = 1 << 28;
