//! From page touches to a working set and a miss curve, and back to how to watch next.
//!
//! Idea: a tracker of permissions tells, for each interval, which pages of a sample were touched, in
//! order, and each at most once while it stays accessible. [`Analysis`] keeps them in LRU order, counts
//! stack distances, ages them, and answers with the working set and the misses at every size (MEB
//! §3.1). [`Pilot`] says how to watch the next interval: whether at all (MEB §3.5), how many pages stay
//! accessible (MEB §3.4), in what granules (MEB §3.1.2), and which share of them, so that watching costs
//! no more than the operator allows.
//!
//! Limits: no clock, no I/O; what the tracker did not see is told as such, never guessed.

#![forbid(unsafe_code)]

mod analysis;
mod budget;
mod pilot;
mod recency;

pub use analysis::{Analysis, AnalysisSettings, Interval, Seen, Watched};
pub use budget::{Budget, BudgetError};
pub use pilot::{Finished, Pilot, PilotSettings, Watch};
