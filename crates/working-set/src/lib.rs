//! Computes a guest's working set and miss curve from its page touches, and plans how to watch it
//! next.
//!
//! Idea: a tracker removes access permissions and reports, for each interval, which pages of a
//! sample were touched, in order, each at most once while it stays accessible. [`Analysis`] keeps
//! the pages in LRU order, counts and ages their stack distances, and returns the working set and
//! the misses at every memory size (MEB §3.1). [`WatchPlanner`] decides how to watch the next
//! interval: whether at all (MEB §3.5), how many pages stay accessible (MEB §3.4), the granule size
//! (MEB §3.1.2), and the share of granules, so that watching costs no more than the operator
//! allows.
//!
//! Begin with `planner.rs`; it drives all other parts.
//! Limits: no clock, no I/O; lost touches are counted, never guessed.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod analysis;
mod budget;
mod planner;
mod recency;

pub use analysis::{Analysis, AnalysisSettings, IntervalAnalysis, IntervalTouches, Sampling};
pub use budget::{WatchBudget, WatchBudgetError};
pub use planner::{FinishedInterval, WatchPlan, WatchPlanner, WatchPlannerSettings};
