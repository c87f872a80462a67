//! Intermittent tracking: tracks a working set only while it changes.
//!
//! Idea: within a phase of a guest its working set hardly changes, so tracking, which costs the
//! guest time, can rest. Two detectors of the same kind judge stability: one of working sets, one
//! of an event that costs nothing to count (data TLB misses, or a substitute). At rest only events
//! are counted; when they change, a new phase has begun and tracking resumes.
//!
//! ```text
//! f(i)    mean of the last k samples of the phase
//! f_mean  mean of the last k values of f
//! err_r   f(j) / f_mean          err_a   |f(j) − f_mean|
//! ```
//!
//! A detector is *filling* until there are k values of `f`, after 2k − 1 samples. Then it is
//! *stable* if `|err_r − 1| ≤ T` or, for working sets, if `err_a` is below the balancing unit.
//! Otherwise it is *unstable*, which empties its filter.
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
//! Jumps are ours: a single event count far from the earlier ones begins a new phase at once
//! ([`IntermittentSettings::jumps`]). The filter alone would notice it some intervals later.
//!
//! After `ckpt` intervals of rest in a row, the adaptive machine tracks one interval to calibrate.
//! If that adjusts nothing, `ckpt` grows by 5 up to 20; any adjustment resets it to 10.
//!
//! Cost: O(k) an interval and detector. Source: MEB §3.5, IMT. Begin with `machine.rs`.
//!
//! Points the papers leave open, and misprints:
//!
//! - They print `T := err_r` for both adjustments. A threshold near 1 would call anything stable;
//!   the deviation of the ratio from 1 is meant.
//! - Tightening stops at 0.05: with a constant event `T` would fall to 0, and tracking never rest.
//! - Relaxing stops at 0.30, the loosest fixed threshold of the papers. Events that fall by half
//!   deviate by at most 0.25, and events that fall to zero by 0.5; a `T` relaxed further after a
//!   jump up would never see a working set shrink. Recorded series show it
//!   (`docs/benchmarks/2026-11-22-tracking.md`).
//! - Filling counts values of `f`, not samples: the mean of a single `f` is that `f`, so anything
//!   would look stable.
//! - Only the adaptive machine has checkpoints, as in MEB §3.5.4: a fixed threshold needs no
//!   calibration. MEB Table II agrees: fixed thresholds reach up ratios of 1.1 %, which is
//!   impossible with a checkpoint every 21 intervals.
//! - An adjustment counts even if the new threshold equals the old one: the detectors disagreed.
//! - A fixed machine rests whenever working sets are stable, even if its event filter is empty. It
//!   then tracks the next interval, because a filling detector cannot detect a phase.
//! - A missing input feeds no filter, and tracking continues or resumes.

mod detector;
mod jump;
mod machine;
mod replay;

pub use detector::{FilterLength, FilterLengthError, Threshold, ThresholdError};
pub use machine::{
    Intermittent, IntermittentSettings, MissingInput, NextInterval, PhaseSample, PhaseStep,
    RestReason, ThresholdChange, ThresholdMode, TrackReason,
};
pub use replay::{PhaseReplay, RecordedInterval, ReplayInterval, replay};
