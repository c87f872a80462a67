//! Finds the working set by taking memory away until the guest reads some of it back.
//!
//! Idea: a guest that holds at least its working set hardly ever swaps in or rereads file pages. So
//! the estimate, which is also the target, is lowered step by step until such *events* occur,
//! raised by the memory read back, kept for a while, and then lowered more slowly. It starts at the
//! memory committed to processes (`Committed_AS`), and starts again when that changes.
//!
//! The table has the paper's figures; an operator may set others ([`ProbingSettings`]).
//!
//! | state | epoch without events | epoch with events |
//! |---|---|---|
//! | fast | − 5 % of `Committed_AS` | + events; cool down |
//! | cool down | counts down 8 epochs, then slow | + events; counts from 8 again |
//! | slow | − 1 % of `Committed_AS` | + events; cool down |
//!
//! Events are pages swapped in and file pages reread (`pswpin`, `workingset_refault_file`). Linux's
//! newer `workingset_refault_anon` is included in `pswpin` and would count twice.
//!
//! An epoch is a second. Cost: O(1). Source: TWS §2, Fig. 1. Ours:
//!
//! - Pages swapped out also count, unless they left for the balloon or for pages that came back.
//!   They made room for new pages, and would have stayed with that much more memory. A guest that
//!   fills its memory reads nothing back; it would look quiet and be lowered until it thrashes. A
//!   kernel reclaims ahead, so up to 64 MiB taken by the balloon in earlier epochs are accounted
//!   for.
//! - While pages are still being swapped out for the balloon, the estimate stays: the guest may
//!   read them back.
//! - The estimate is lowered only while the guest holds at most the estimate plus one step. While
//!   the balloon lags or the guard delays it, nothing is probed, and the estimate would run ahead.
//! - `Committed_AS` always changes on a live Linux, so probing starts again only if it moved by
//!   more than 2 % and 4 MiB since the start. In that epoch nothing is taken away; events count as
//!   usual.
//! - A figure that was not read in an epoch has no effect in that epoch.

use std::fmt;

use ballast_model::{Bounds, Bytes};

/// Most memory taken by the balloon that may still have to be swapped out: about a kernel's high
/// watermark, up to which it reclaims ahead.
const TAKEN_MAX: Bytes = Bytes::mib(64);

/// Basis points (hundredths of a percent) in a whole.
const WHOLE_BASIS_POINTS: u64 = 10_000;

/// The operator's settings for probing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbingSettings {
    /// First step down, as a part of `Committed_AS` (TWS §2: 5 %).
    pub fast_basis_points: u32,
    /// Step down after the guest has read something back (TWS §2: 1 %).
    pub slow_basis_points: u32,
    /// Quiet epochs before the estimate is lowered again (TWS §2: 8 seconds); at least one.
    pub cool_down_epochs: u32,
    /// Probing starts again when `Committed_AS` changes by more than this part …
    pub change_basis_points: u32,
    /// … and by more than this amount.
    pub change_min: Bytes,
}

impl Default for ProbingSettings {
    /// The paper's figures; the change of 2 % and 4 MiB is ours.
    fn default() -> Self {
        ProbingSettings {
            fast_basis_points: 500,
            slow_basis_points: 100,
            cool_down_epochs: 8,
            change_basis_points: 200,
            change_min: Bytes::mib(4),
        }
    }
}

fn part(whole: Bytes, basis_points: u32) -> Bytes {
    whole.fraction(u64::from(basis_points), WHOLE_BASIS_POINTS)
}

/// Measurements of a guest in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbingEpoch {
    /// `Committed_AS`.
    pub committed: Option<Bytes>,
    /// The guest's allocation.
    pub allocation: Option<Bytes>,
    /// Pages swapped in during this epoch.
    pub swapped_in: Option<u64>,
    /// Pages swapped out during this epoch.
    pub swapped_out: Option<u64>,
    /// Dropped file pages that were reread during this epoch.
    pub refaulted: Option<u64>,
    /// Bounds of the estimate; the floor is not above the ceiling.
    pub bounds: Bounds,
}

/// State of the probing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbingState {
    /// Lowering by the first, large step.
    Fast,
    /// Waiting after events.
    CoolDown {
        /// Quiet epochs still to come.
        epochs_left: u32,
    },
    /// Lowering by the small step.
    Slow,
}

/// How an epoch changed the estimate, or why it did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbingStep {
    /// Started, or started again, at `Committed_AS`.
    Reset,
    /// Raised by this many pages, which the guest read back or swapped out to make room.
    Raised(u64),
    /// Lowered by a step.
    Lowered,
    /// Unchanged: cooling down.
    CooledDown,
    /// Unchanged: the guest still holds more than the estimate plus a step.
    Lagging,
    /// Unchanged: the guest is still swapping out.
    SwappingOut,
    /// Unchanged: at the lower bound.
    AtMinimum,
    /// Unchanged: a figure it needs was not read.
    Unknown,
}

/// Result of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbingResult {
    /// The estimated working set, which is also the target.
    pub wss: Bytes,
    /// State in the next epoch.
    pub state: ProbingState,
    /// How this epoch changed it.
    pub step: ProbingStep,
}

/// Probes one guest.
#[derive(Clone, Debug, Default)]
pub struct Probing {
    settings: ProbingSettings,
    run: Option<ProbingRun>,
}

#[derive(Clone, Copy, Debug)]
struct ProbingRun {
    wss: Bytes,
    state: ProbingState,
    /// `Committed_AS` at the start.
    reference: Bytes,
    /// `Committed_AS` as last read.
    committed: Bytes,
    /// Allocation in the last epoch.
    allocation: Option<Bytes>,
    /// Pages taken by the balloon that may still have to be swapped out.
    taken: u64,
}

impl Probing {
    /// Changes the settings and keeps the state.
    pub fn configure(&mut self, settings: ProbingSettings) {
        self.settings = settings;
    }

    /// Processes an epoch; `None` until `Committed_AS` was read once.
    pub fn observe(&mut self, epoch: ProbingEpoch) -> Option<ProbingResult> {
        let (run, is_reset) = self.begin(epoch.committed)?;
        let mut next = run;
        let displaced = next.displaced(&epoch);
        let events = match (epoch.swapped_in, epoch.refaulted) {
            (None, None) => None,
            (swapped_in, refaulted) => {
                let read = swapped_in.unwrap_or(0).saturating_add(refaulted.unwrap_or(0));
                Some(read.saturating_add(displaced))
            }
        };
        let step = match events {
            Some(events) if events > 0 => {
                next.wss = run.wss.saturating_add(Bytes::pages(events));
                next.state =
                    ProbingState::CoolDown { epochs_left: self.settings.cool_down_epochs.max(1) };
                ProbingStep::Raised(events)
            }
            _ if is_reset => ProbingStep::Reset,
            _ if epoch.swapped_out.is_some_and(|pages| pages > 0) => ProbingStep::SwappingOut,
            // Only if both counters were read do zeros show that there were no events.
            Some(_) if epoch.swapped_in.is_some() && epoch.refaulted.is_some() => {
                next.end_quiet_epoch(epoch.allocation, epoch.bounds, &self.settings)
            }
            _ => ProbingStep::Unknown,
        };
        next.wss = next.wss.clamp(epoch.bounds.floor, epoch.bounds.ceiling);
        self.run = Some(next);
        Some(ProbingResult { wss: next.wss, state: next.state, step })
    }

    /// The state at the beginning of this epoch, and whether probing starts again.
    fn begin(&self, committed: Option<Bytes>) -> Option<(ProbingRun, bool)> {
        match (self.run, committed) {
            (Some(run), None) => return Some((run, false)),
            (Some(run), Some(committed)) if !run.has_changed(committed, &self.settings) => {
                return Some((ProbingRun { committed, ..run }, false));
            }
            _ => {}
        }
        let committed = committed?;
        let (allocation, taken) = self.run.map_or((None, 0), |run| (run.allocation, run.taken));
        let (state, reference) = (ProbingState::Fast, committed);
        Some((ProbingRun { wss: committed, state, reference, committed, allocation, taken }, true))
    }
}

impl ProbingRun {
    fn has_changed(&self, committed: Bytes, settings: &ProbingSettings) -> bool {
        let moved = committed.abs_diff(self.reference);
        moved > part(self.reference, settings.change_basis_points) && moved > settings.change_min
    }

    /// Pages swapped out to make room for new ones, rather than for the balloon or for pages that
    /// came back. Zero while it is unknown how much the balloon took.
    fn displaced(&mut self, epoch: &ProbingEpoch) -> u64 {
        let before = std::mem::replace(&mut self.allocation, epoch.allocation);
        let (Some(before), Some(now)) = (before, epoch.allocation) else { return 0 };
        let taken = self.taken.saturating_add(before.saturating_sub(now).to_pages());
        // While swap-ins are unknown, all swap-outs are taken to have made room for them.
        let not_for_swap_ins =
            epoch.swapped_out.unwrap_or(0).saturating_sub(epoch.swapped_in.unwrap_or(u64::MAX));
        self.taken = taken.saturating_sub(not_for_swap_ins).min(TAKEN_MAX.to_pages());
        not_for_swap_ins.saturating_sub(taken)
    }

    /// Processes an epoch without events.
    fn end_quiet_epoch(
        &mut self,
        allocation: Option<Bytes>,
        bounds: Bounds,
        settings: &ProbingSettings,
    ) -> ProbingStep {
        let lowered = match self.state {
            ProbingState::Fast => settings.fast_basis_points,
            ProbingState::Slow => settings.slow_basis_points,
            ProbingState::CoolDown { epochs_left } => {
                self.state = match epochs_left.saturating_sub(1) {
                    0 => ProbingState::Slow,
                    epochs_left => ProbingState::CoolDown { epochs_left },
                };
                return ProbingStep::CooledDown;
            }
        };
        let step = part(self.committed, lowered);
        let Some(allocation) = allocation else { return ProbingStep::Unknown };
        if self.wss <= bounds.floor {
            return ProbingStep::AtMinimum;
        }
        if allocation > self.wss.saturating_add(step) {
            return ProbingStep::Lagging;
        }
        self.wss = self.wss.saturating_sub(step);
        ProbingStep::Lowered
    }
}

impl fmt::Display for ProbingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProbingState::Fast => write!(f, "fast"),
            ProbingState::CoolDown { epochs_left } => write!(f, "cool down, {epochs_left} to go"),
            ProbingState::Slow => write!(f, "slow"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn epoch(committed_mib: u64, allocation_mib: u64, events: u64) -> ProbingEpoch {
        ProbingEpoch {
            committed: Some(Bytes::mib(committed_mib)),
            allocation: Some(Bytes::mib(allocation_mib)),
            swapped_in: Some(events / 2),
            swapped_out: Some(0),
            refaulted: Some(events - events / 2),
            bounds: Bounds { floor: Bytes::mib(128), ceiling: Bytes::gib(2) },
        }
    }

    /// An epoch in which the guest holds exactly the target.
    fn follow(probing: &mut Probing, events: u64) -> ProbingResult {
        let held = probing.run.map_or(Bytes::mib(1000), |run| run.wss);
        let observed = ProbingEpoch { allocation: Some(held), ..epoch(1000, 0, events) };
        probing.observe(observed).unwrap()
    }

    const COOL_DOWN: ProbingState = ProbingState::CoolDown { epochs_left: 8 };

    /// With 1,000 MiB committed the steps are 50 and 10 MiB.
    #[test]
    fn epochs_follow_the_papers_table() {
        let mut probing = Probing::default();
        let mib = |probed: ProbingResult| (probed.wss.get() >> 20, probed.state, probed.step);
        use ProbingState::{CoolDown, Fast, Slow};
        use ProbingStep::{CooledDown, Lowered, Raised, Reset};
        assert_eq!(mib(follow(&mut probing, 0)), (1000, Fast, Reset));
        assert_eq!(mib(follow(&mut probing, 0)), (950, Fast, Lowered));
        assert_eq!(mib(follow(&mut probing, 0)), (900, Fast, Lowered));
        assert_eq!(mib(follow(&mut probing, 256)), (901, COOL_DOWN, Raised(256)));
        for epochs_left in (4..8).rev() {
            let expected = (901, CoolDown { epochs_left }, CooledDown);
            assert_eq!(mib(follow(&mut probing, 0)), expected);
        }
        assert_eq!(mib(follow(&mut probing, 512)), (903, COOL_DOWN, Raised(512)));
        for epochs_left in (1..8).rev() {
            let expected = (903, CoolDown { epochs_left }, CooledDown);
            assert_eq!(mib(follow(&mut probing, 0)), expected);
        }
        assert_eq!(mib(follow(&mut probing, 0)), (903, Slow, CooledDown));
        assert_eq!(mib(follow(&mut probing, 0)), (893, Slow, Lowered));
        assert_eq!(mib(follow(&mut probing, 256)), (894, COOL_DOWN, Raised(256)));
    }

    /// By hand; 256 pages are 1 MiB. The guest holds 1,000 MiB at first.
    #[test]
    fn pages_swapped_out_for_new_ones_raise_the_estimate() {
        use ProbingStep::{Lowered, Raised, Reset, SwappingOut};
        let mut probing = Probing::default();
        for (allocation, swapped_out, swapped_in, wss, step) in [
            (1000, 0, 0, 1000, Reset),
            // The balloon took 40 MiB and so caused the 20 MiB of swap-outs.
            (960, 20 * 256, 0, 1000, SwappingOut),
            (960, 0, 0, 950, Lowered),
            // 20 MiB more are expected for the balloon; 30 MiB leave, so 10 are for new pages.
            (960, 30 * 256, 0, 960, Raised(10 * 256)),
            // Pages that come back displace others, and count once.
            (960, 256, 256, 961, Raised(256)),
            (960, 3 * 256, 256, 964, Raised(3 * 256)),
            // The guest grew, but still swaps out.
            (980, 256, 0, 965, Raised(256)),
        ] {
            let observed = ProbingEpoch {
                swapped_out: Some(swapped_out),
                swapped_in: Some(swapped_in),
                refaulted: Some(0),
                ..epoch(1000, allocation, 0)
            };
            let probed = probing.observe(observed).unwrap();
            assert_eq!((probed.wss, probed.step), (Bytes::mib(wss), step), "{swapped_out}");
        }
    }

    /// The balloon took 900 MiB of free memory. At most 64 MiB of later swap-outs are attributed to
    /// it.
    #[test]
    fn earlier_ballooning_explains_at_most_64_mib_of_swap_outs() {
        let mut probing = Probing::default();
        probing.observe(epoch(1000, 2000, 0));
        probing.observe(epoch(1000, 1100, 0));
        let observed = ProbingEpoch { swapped_out: Some(100 * 256), ..epoch(1000, 1100, 0) };
        let probed = probing.observe(observed).unwrap();
        assert_eq!(probed.step, ProbingStep::Raised(36 * 256));
    }

    #[test]
    fn swap_outs_of_unknown_cause_leave_the_estimate_unchanged() {
        let left = ProbingEpoch { swapped_out: Some(999), ..epoch(1000, 1000, 0) };
        for unread in
            [ProbingEpoch { allocation: None, ..left }, ProbingEpoch { swapped_in: None, ..left }]
        {
            let mut probing = Probing::default();
            probing.observe(epoch(1000, 1000, 0));
            let probed = probing.observe(unread).unwrap();
            assert_eq!((probed.wss, probed.step), (Bytes::mib(1000), ProbingStep::SwappingOut));
        }
    }

    /// Steps of 10 % and 2 % of 1,000 MiB with two quiet epochs between; a change of 5 % is
    /// ignored.
    #[test]
    fn configured_steps_and_limits_are_used() {
        let mut probing = Probing::default();
        probing.configure(ProbingSettings {
            fast_basis_points: 1000,
            slow_basis_points: 200,
            cool_down_epochs: 2,
            change_basis_points: 500,
            change_min: Bytes::ZERO,
        });
        let mib = |probed: ProbingResult| probed.wss.get() >> 20;
        let events = [0, 0, 0, 256, 0, 0, 0, 0];
        let found = events.map(|events| mib(follow(&mut probing, events)));
        assert_eq!(found, [1000, 900, 800, 801, 801, 801, 781, 761]);
        let step_of = |probed: Option<ProbingResult>| probed.unwrap().step;
        let observed = ProbingEpoch { allocation: Some(Bytes::mib(741)), ..epoch(1050, 0, 0) };
        assert_eq!(step_of(probing.observe(observed)), ProbingStep::Lowered);
        assert_eq!(step_of(probing.observe(epoch(1051, 700, 0))), ProbingStep::Reset);
    }

    #[test]
    fn the_estimate_falls_only_while_the_guest_follows() {
        let mut probing = Probing::default();
        probing.observe(epoch(1000, 1100, 0));
        for (allocation, wss, step) in [
            (1051, 1000, ProbingStep::Lagging),
            (1050, 950, ProbingStep::Lowered),
            (1001, 950, ProbingStep::Lagging),
            (300, 900, ProbingStep::Lowered),
        ] {
            let probed = probing.observe(epoch(1000, allocation, 0)).unwrap();
            assert_eq!((probed.wss, probed.step), (Bytes::mib(wss), step), "{allocation} MiB held");
        }
    }

    /// 2 % of 150 MiB is less than 4 MiB, 2 % of 1,000 MiB is more.
    #[test]
    fn probing_restarts_when_a_change_exceeds_both_limits() {
        for (from, to, is_reset) in [
            (1000, 1020, false),
            (1000, 1021, true),
            (1000, 979, true),
            (150, 154, false),
            (150, 155, true),
        ] {
            let mut probing = Probing::default();
            probing.observe(epoch(from, 4000, 0));
            let probed = probing.observe(epoch(to, 4000, 0)).unwrap();
            assert_eq!(probed.step == ProbingStep::Reset, is_reset, "{from} to {to}");
            assert_eq!(probed.wss, Bytes::mib(if is_reset { to } else { from }));
        }
    }

    #[test]
    fn many_small_changes_of_committed_memory_restart_probing() {
        let mut probing = Probing::default();
        let step_of = |probed: Option<ProbingResult>| probed.unwrap().step;
        let creeping = (1000..=1021).map(|mib| step_of(probing.observe(epoch(mib, 4000, 0))));
        let resets: Vec<_> = creeping.map(|step| step == ProbingStep::Reset).collect();
        assert_eq!(resets, [&[true][..], &[false; 20], &[true]].concat());
    }

    #[test]
    fn events_count_in_the_first_epoch_too() {
        let mut probing = Probing::default();
        let probed = probing.observe(epoch(1000, 1000, 256)).unwrap();
        assert_eq!((probed.wss, probed.state), (Bytes::mib(1001), COOL_DOWN));
    }

    #[test]
    fn unread_figures_leave_the_estimate_unchanged() {
        let mut probing = Probing::default();
        let unread = ProbingEpoch { committed: None, ..epoch(0, 1000, 9) };
        assert_eq!(probing.observe(unread), None);
        probing.observe(epoch(1000, 1000, 0));
        for unread in [
            ProbingEpoch { allocation: None, ..epoch(1000, 0, 0) },
            ProbingEpoch { swapped_in: None, ..epoch(1000, 1000, 0) },
            ProbingEpoch { refaulted: None, ..epoch(1000, 1000, 0) },
            ProbingEpoch { swapped_in: None, refaulted: None, ..epoch(1000, 1000, 0) },
        ] {
            let probed = probing.observe(unread).unwrap();
            assert_eq!((probed.wss, probed.step), (Bytes::mib(1000), ProbingStep::Unknown));
        }
        let unread = ProbingEpoch { committed: None, ..epoch(0, 1000, 0) };
        assert_eq!(probing.observe(unread).unwrap().step, ProbingStep::Lowered);
    }

    #[test]
    fn the_estimate_stops_at_both_bounds() {
        let mut probing = Probing::default();
        let last = (0..100).map(|_| follow(&mut probing, 0)).last().unwrap();
        assert_eq!((last.wss, last.step), (Bytes::mib(128), ProbingStep::AtMinimum));
        let probed = follow(&mut probing, u64::MAX);
        assert_eq!(probed.wss, Bytes::gib(2));
    }

    fn any_epoch() -> impl Strategy<Value = ProbingEpoch> {
        let size =
            || prop::option::of(prop_oneof![any::<u64>(), 0..1u64 << 34].prop_map(Bytes::new));
        let events = || prop::option::weighted(0.9, prop_oneof![4 => Just(0), 1 => any::<u64>()]);
        (size(), size(), events(), events(), events(), any::<(u64, u64)>()).prop_map(
            |(committed, allocation, swapped_in, swapped_out, refaulted, (min, max))| {
                let bounds = Bounds { floor: Bytes::new(min.min(max)), ceiling: Bytes::new(max) };
                ProbingEpoch { committed, allocation, swapped_in, swapped_out, refaulted, bounds }
            },
        )
    }

    proptest! {
        #[test]
        fn any_epochs_keep_the_estimate_within_bounds(
            epochs in prop::collection::vec(any_epoch(), 0..40),
        ) {
            let mut probing = Probing::default();
            for observed in epochs {
                if let Some(probed) = probing.observe(observed) {
                    let Bounds { floor, ceiling } = observed.bounds;
                    prop_assert!((floor..=ceiling).contains(&probed.wss));
                }
            }
        }

        #[test]
        fn more_events_in_an_epoch_never_lower_the_estimate(
            epochs in prop::collection::vec(any_epoch(), 0..10), last in any_epoch(), extra: u64,
        ) {
            let mut probing = Probing::default();
            for observed in epochs {
                probing.observe(observed);
            }
            let more = last.swapped_in.map(|events| events.saturating_add(extra));
            let less = probing.clone().observe(last);
            let more = probing.observe(ProbingEpoch { swapped_in: more, ..last });
            prop_assert!(less.map(|it| it.wss) <= more.map(|it| it.wss));
        }

        #[test]
        fn an_idle_guest_ends_at_its_minimum(committed in 200u64..2000) {
            let mut probing = Probing::default();
            let mut held = Bytes::mib(2000);
            for _ in 0..60 {
                let observed = ProbingEpoch { allocation: Some(held), ..epoch(committed, 0, 0) };
                held = probing.observe(observed).unwrap().wss;
            }
            prop_assert_eq!(held, Bytes::mib(128));
        }
    }
}
