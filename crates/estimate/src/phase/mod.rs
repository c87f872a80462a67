//! Intermittent tracking: a working set is tracked only while it is moving.
//!
//! Idea: within a phase of a guest its working set hardly changes, so tracking, which costs the guest,
//! may rest. Two detectors of the same kind judge stability, one of working sets and one of an event
//! that costs nothing to count (misses of the data TLB, or a substitute). While tracking rests only
//! events are seen; when they move, a new phase has begun and tracking goes on.
//!
//! ```text
//! f(i)    mean of the last k samples of the phase
//! f_mean  mean of the last k values of f
//! err_r   f(j) / f_mean          err_a   |f(j) − f_mean|
//! ```
//!
//! *Filling* until there are k values of `f`, that is 2k − 1 samples; then *Stable* where
//! `|err_r − 1| ≤ T`, for working sets also where `err_a` is below the unit that is balanced by; else
//! *Unstable*, which empties the detector's filter.
//!
//! | working sets | events | fixed `T` | adaptive `T` |
//! |---|---|---|---|
//! | either filling | | track | track |
//! | stable | stable | rest | rest |
//! | stable | unstable | rest | rest, `T := min(0.30, \|err_r − 1\|)`, the filter stays |
//! | unstable | stable | track | track, `T := max(0.05, \|err_r − 1\|)` |
//! | unstable | unstable | track | track |
//! | not tracked | stable | rest | rest, but for a checkpoint |
//! | not tracked | unstable | track | track |
//!
//! Ours, and not of the papers' machine, is that a single count of events out of all proportion to those before it
//! begins a new phase at once ([`IntermittentSettings::jumps`]): the filter would notice it intervals later.
//!
//! After `ckpt` intervals of rest in a row the adaptive machine tracks one interval to calibrate. Where
//! that adjusts nothing, `ckpt` grows by 5 to at most 20; any adjustment, then or ever, makes it 10.
//!
//! Cost: O(k) an interval and detector. Source: MEB §3.5, IMT.
//!
//! What the papers leave open, and misprints:
//!
//! - Printed is `T := err_r`, for both adjustments; a ratio near 1 as a threshold would call anything
//!   stable. The deviation of that ratio from 1 is meant.
//! - Tightening stops at 0.05: with a flat event `T` would fall to 0 and nothing rest any more.
//! - Relaxing stops at 0.30, the loosest of the papers' fixed thresholds: events that fall to half deviate by no more
//!   than 0.25, to nothing by 0.5, so that one relaxed further by a jump up would see no working set shrink any more.
//!   Recorded series show it (`docs/benchmarks/2026-11-22-tracking.md`).
//! - Filling is counted in values of `f`, not in samples: the mean of a single `f` is that `f`, and
//!   anything would look stable.
//! - Checkpoints are of the adaptive machine alone, as in MEB §3.5.4: a fixed threshold has nothing to
//!   calibrate. MEB Table II bears it out: fixed thresholds have up ratios down to 1.1 %, with
//!   checkpoints they could not fall below 1 in 21.
//! - An adjustment counts as one where the new threshold happens to be the old: the detectors disagreed.
//! - A fixed machine rests whenever working sets are stable, so its events' filter can be found
//!   empty; then it tracks again in the next interval, because a detector that is filling sees no phase.
//! - What is missing says nothing: it feeds no filter, and tracking goes on or goes on again.

mod detector;
mod jump;
mod machine;
mod replay;

pub use detector::{Samples, SamplesError, Threshold, ThresholdError};
pub use machine::{
    Adjusted, Intermittent, IntermittentSettings, Interval, Missing, Mode, Next, RestWhy, Step,
    TrackWhy,
};
pub use replay::{Recorded, Replay, ReplayInterval, replay};
