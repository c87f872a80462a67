//! The working set, found by taking memory away until the guest reads some of it back.
//!
//! Idea: a guest that holds at least its working set hardly ever swaps in or reads a file's page again.
//! So the estimate, which is also the target, is lowered step by step until there are such *events*,
//! raised by what was read back, left alone for a while, and lowered again more slowly. What the guest
//! promised its processes (`Committed_AS`) is where it begins, and begins again when that changes.
//!
//! These are the paper's figures; an operator may set others ([`ProbingSettings`]).
//!
//! | state | epoch without events | epoch with events |
//! |---|---|---|
//! | fast | − 5 % of `Committed_AS` | + events; cool down |
//! | cool down | counts down 8 epochs, then slow | + events; counts anew |
//! | slow | − 1 % of `Committed_AS` | + events; cool down |
//!
//! Events are pages swapped in and file pages read again (`pswpin`, `workingset_refault_file`). What
//! Linux now calls `workingset_refault_anon` is a part of `pswpin` and would count twice.
//!
//! An epoch is a second. Cost: O(1). Source: TWS §2, Fig. 1. Ours:
//!
//! - Pages swapped out count too, as far as they left neither for the balloon nor for pages that came
//!   back: they made room for new ones, and with as much more memory would have stayed. A guest that
//!   fills its memory reads nothing back, and would be taken for quiet and lowered until it thrashes.
//!   A kernel reclaims ahead, so that what the balloon took before is borne in mind, up to 64 MiB.
//! - While pages are still being swapped out for the balloon it waits: whether they are read back is
//!   not known yet.
//! - It steps down only while the guest holds at most the estimate and one step. While the balloon lags,
//!   or the guard holds, nothing is being probed, and the estimate would run away from what was.
//! - `Committed_AS` always changes on a live Linux, so it begins again only where it moved by more than
//!   2 % and 4 MiB since it began. In that epoch nothing is taken away; events count as ever.
//! - What was not read in an epoch changes nothing in it.

use std::fmt;

use ballast_model::Bytes;

/// Most memory taken by the balloon whose swapping out is still to come: what a kernel wins back
/// ahead, its high watermark.
const TAKEN_MAX: Bytes = Bytes::mib(64);

/// Hundredths of a percent in a whole.
const WHOLE_BASIS_POINTS: u64 = 10_000;

/// What an operator can set about probing; parts are in hundredths of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbingSettings {
    /// What is taken away in an epoch at first, as a part of `Committed_AS` (TWS §2: 5 %).
    pub fast_basis_points: u32,
    /// What is taken away once the guest has read something back (TWS §2: 1 %).
    pub slow_basis_points: u32,
    /// Quiet epochs before it lowers again (TWS §2: 8 seconds); at least one.
    pub cool_down_epochs: u32,
    /// What moves `Committed_AS` must exceed both this part of what it was …
    pub change_basis_points: u32,
    /// … and this amount.
    pub change_min: Bytes,
}

impl Default for ProbingSettings {
    /// The paper's, and 2 % and 4 MiB, which are ours.
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

/// The least and the most that may be probed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    min: Bytes,
    max: Bytes,
}

impl Bounds {
    /// From `min` to `max`; a `min` above `max` is `max`.
    pub fn new(min: Bytes, max: Bytes) -> Bounds {
        Bounds { min: min.min(max), max }
    }

    /// The nearest amount within.
    pub fn clamp(self, amount: Bytes) -> Bytes {
        amount.clamp(self.min, self.max)
    }
}

/// What was seen of a guest in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// `Committed_AS`.
    pub committed: Option<Bytes>,
    /// What the guest holds.
    pub allocation: Option<Bytes>,
    /// Pages swapped in in this epoch.
    pub swapped_in: Option<u64>,
    /// Pages swapped out in this epoch; `None`: nothing is concluded from it.
    pub swapped_out: Option<u64>,
    /// File pages read again in this epoch after they were dropped.
    pub refaulted: Option<u64>,
    /// The guest's bounds.
    pub bounds: Bounds,
}

/// What it is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbingState {
    /// Lowering by 5 %.
    Fast,
    /// Waiting.
    CoolDown {
        /// Quiet epochs still to come.
        epochs_left: u32,
    },
    /// Lowering by 1 %.
    Slow,
}

/// What an epoch did to the estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbingStep {
    /// It began, or began again, at `Committed_AS`.
    Reset,
    /// The guest read pages back, or swapped out for new ones, as many as this.
    Raised(u64),
    /// It was lowered.
    Lowered,
    /// It waits.
    CooledDown,
    /// It waits for the guest, which holds more than the estimate and a step.
    Lagging,
    /// It waits for what is being swapped out.
    SwappingOut,
    /// It cannot be lowered further.
    AtMinimum,
    /// What it takes to go on was not read.
    Unknown,
}

/// What an epoch came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probed {
    /// The working set; also the target.
    pub wss: Bytes,
    /// What it does next.
    pub state: ProbingState,
    /// What was done.
    pub step: ProbingStep,
}

/// The probing of one guest.
#[derive(Clone, Debug, Default)]
pub struct Probing {
    settings: ProbingSettings,
    begun: Option<Begun>,
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    wss: Bytes,
    state: ProbingState,
    /// `Committed_AS` as it was when it began.
    reference: Bytes,
    /// `Committed_AS` as last read.
    committed: Bytes,
    /// What the guest held in the epoch before.
    allocation: Option<Bytes>,
    /// Pages the balloon took that may still have to be swapped out.
    taken: u64,
}

impl Probing {
    /// Goes on by these settings; what was found so far stays.
    pub fn configure(&mut self, settings: ProbingSettings) {
        self.settings = settings;
    }

    /// Takes in an epoch; `None` until `Committed_AS` was once read.
    pub fn observe(&mut self, seen: Epoch) -> Option<Probed> {
        let (begun, is_reset) = self.begin(seen.committed)?;
        let mut next = begun;
        let displaced = next.displaced(&seen);
        let events = match (seen.swapped_in, seen.refaulted) {
            (None, None) => None,
            (swapped_in, refaulted) => {
                let read = swapped_in.unwrap_or(0).saturating_add(refaulted.unwrap_or(0));
                Some(read.saturating_add(displaced))
            }
        };
        let step = match events {
            Some(events) if events > 0 => {
                next.wss = begun.wss.saturating_add(Bytes::pages(events));
                next.state =
                    ProbingState::CoolDown { epochs_left: self.settings.cool_down_epochs.max(1) };
                ProbingStep::Raised(events)
            }
            _ if is_reset => ProbingStep::Reset,
            _ if seen.swapped_out.is_some_and(|pages| pages > 0) => ProbingStep::SwappingOut,
            // A part of the events, and no sign of any, is no sign that there were none.
            Some(_) if seen.swapped_in.is_some() && seen.refaulted.is_some() => {
                next.quiet(seen.allocation, seen.bounds, &self.settings)
            }
            _ => ProbingStep::Unknown,
        };
        next.wss = seen.bounds.clamp(next.wss);
        self.begun = Some(next);
        Some(Probed { wss: next.wss, state: next.state, step })
    }

    /// Where this epoch begins, and whether anew.
    fn begin(&self, committed: Option<Bytes>) -> Option<(Begun, bool)> {
        let anew = |committed| {
            let state = ProbingState::Fast;
            let (allocation, taken) = self.begun.map_or((None, 0), |it| (it.allocation, it.taken));
            let reference = committed;
            (Begun { wss: committed, state, reference, committed, allocation, taken }, true)
        };
        match (self.begun, committed) {
            (None, None) => None,
            (Some(begun), None) => Some((begun, false)),
            (None, Some(committed)) => Some(anew(committed)),
            (Some(begun), Some(committed)) if begun.is_moved(committed, &self.settings) => {
                Some(anew(committed))
            }
            (Some(begun), Some(committed)) => Some((Begun { committed, ..begun }, false)),
        }
    }
}

impl Begun {
    fn is_moved(&self, committed: Bytes, settings: &ProbingSettings) -> bool {
        let moved = committed.abs_diff(self.reference);
        moved > part(self.reference, settings.change_basis_points) && moved > settings.change_min
    }

    /// Pages that were swapped out for new ones: neither for the balloon nor for those that came back.
    /// None while it is not known what the balloon took.
    fn displaced(&mut self, seen: &Epoch) -> u64 {
        let before = std::mem::replace(&mut self.allocation, seen.allocation);
        let (Some(before), Some(now)) = (before, seen.allocation) else { return 0 };
        let taken = self.taken.saturating_add(before.saturating_sub(now).to_pages());
        let for_others =
            seen.swapped_out.unwrap_or(0).saturating_sub(seen.swapped_in.unwrap_or(u64::MAX));
        self.taken = taken.saturating_sub(for_others).min(TAKEN_MAX.to_pages());
        for_others.saturating_sub(taken)
    }

    /// An epoch in which the guest read nothing back.
    fn quiet(
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
        if self.wss <= bounds.min {
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

    fn epoch(committed_mib: u64, allocation_mib: u64, events: u64) -> Epoch {
        Epoch {
            committed: Some(Bytes::mib(committed_mib)),
            allocation: Some(Bytes::mib(allocation_mib)),
            swapped_in: Some(events / 2),
            swapped_out: Some(0),
            refaulted: Some(events - events / 2),
            bounds: Bounds::new(Bytes::mib(128), Bytes::gib(2)),
        }
    }

    /// An epoch in which the guest holds what was asked of it.
    fn follow(probing: &mut Probing, events: u64) -> Probed {
        let held = probing.begun.map_or(Bytes::mib(1000), |begun| begun.wss);
        let seen = Epoch { allocation: Some(held), ..epoch(1000, 0, events) };
        probing.observe(seen).unwrap()
    }

    const COOL_DOWN: ProbingState = ProbingState::CoolDown { epochs_left: 8 };

    /// The whole table, with 1,000 MiB committed: steps of 50 and of 10.
    #[test]
    fn a_worked_example() {
        let mut probing = Probing::default();
        let mib = |probed: Probed| (probed.wss.get() >> 20, probed.state, probed.step);
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

    /// By hand, in pages of 4 KiB, 256 to the MiB. The guest holds 1,000 MiB at first.
    #[test]
    fn what_is_swapped_out_for_new_pages_counts() {
        use ProbingStep::{Lowered, Raised, Reset, SwappingOut};
        let mut probing = Probing::default();
        for (allocation, swapped_out, swapped_in, wss, step) in [
            (1000, 0, 0, 1000, Reset),
            // The balloon took 40 MiB, of which 20 are swapped out: its own doing.
            (960, 20 * 256, 0, 1000, SwappingOut),
            (960, 0, 0, 950, Lowered),
            // 20 MiB are still to be expected; 30 MiB leave, so 10 for new pages.
            (960, 30 * 256, 0, 960, Raised(10 * 256)),
            // What comes back puts others out, and counts once.
            (960, 256, 256, 961, Raised(256)),
            (960, 3 * 256, 256, 964, Raised(3 * 256)),
            // The guest grew, and swaps out all the same.
            (980, 256, 0, 965, Raised(256)),
        ] {
            let seen = Epoch {
                swapped_out: Some(swapped_out),
                swapped_in: Some(swapped_in),
                refaulted: Some(0),
                ..epoch(1000, allocation, 0)
            };
            let probed = probing.observe(seen).unwrap();
            assert_eq!((probed.wss, probed.step), (Bytes::mib(wss), step), "{swapped_out}");
        }
    }

    /// Much that was free is taken: 64 MiB of it at most are expected to be swapped out later.
    #[test]
    fn what_was_taken_long_ago_excuses_little() {
        let mut probing = Probing::default();
        probing.observe(epoch(1000, 2000, 0));
        probing.observe(epoch(1000, 1100, 0));
        let seen = Epoch { swapped_out: Some(100 * 256), ..epoch(1000, 1100, 0) };
        let probed = probing.observe(seen).unwrap();
        assert_eq!(probed.step, ProbingStep::Raised(36 * 256));
    }

    /// Where it is not known what the balloon took, or what came back, nothing is concluded.
    #[test]
    fn what_left_for_unknown_reasons_only_waits() {
        let left = Epoch { swapped_out: Some(999), ..epoch(1000, 1000, 0) };
        for unread in [Epoch { allocation: None, ..left }, Epoch { swapped_in: None, ..left }] {
            let mut probing = Probing::default();
            probing.observe(epoch(1000, 1000, 0));
            let probed = probing.observe(unread).unwrap();
            assert_eq!((probed.wss, probed.step), (Bytes::mib(1000), ProbingStep::SwappingOut));
        }
    }

    /// 10 % and 2 % of 1,000 MiB, and two quiet epochs between; 5 % more committed is no change.
    #[test]
    fn other_settings_by_hand() {
        let mut probing = Probing::default();
        probing.configure(ProbingSettings {
            fast_basis_points: 1000,
            slow_basis_points: 200,
            cool_down_epochs: 2,
            change_basis_points: 500,
            change_min: Bytes::ZERO,
        });
        let mib = |probed: Probed| probed.wss.get() >> 20;
        let events = [0, 0, 0, 256, 0, 0, 0, 0];
        let found = events.map(|events| mib(follow(&mut probing, events)));
        assert_eq!(found, [1000, 900, 800, 801, 801, 801, 781, 761]);
        let step_of = |probed: Option<Probed>| probed.unwrap().step;
        let seen = Epoch { allocation: Some(Bytes::mib(741)), ..epoch(1050, 0, 0) };
        assert_eq!(step_of(probing.observe(seen)), ProbingStep::Lowered);
        assert_eq!(step_of(probing.observe(epoch(1051, 700, 0))), ProbingStep::Reset);
    }

    #[test]
    fn it_steps_down_only_while_the_guest_follows() {
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

    /// 2 % of 100 MiB are less than 4 MiB, 2 % of 1,000 MiB are more.
    #[test]
    fn it_begins_again_where_committed_memory_moved_by_more_than_both() {
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

    /// Small changes add up: what counts is how far it is from where it began.
    #[test]
    fn a_creeping_change_is_noticed() {
        let mut probing = Probing::default();
        let step_of = |probed: Option<Probed>| probed.unwrap().step;
        let creeping = (1000..=1021).map(|mib| step_of(probing.observe(epoch(mib, 4000, 0))));
        let resets: Vec<_> = creeping.map(|step| step == ProbingStep::Reset).collect();
        assert_eq!(resets, [&[true][..], &[false; 20], &[true]].concat());
    }

    #[test]
    fn events_count_also_where_it_begins_again() {
        let mut probing = Probing::default();
        let probed = probing.observe(epoch(1000, 1000, 256)).unwrap();
        assert_eq!((probed.wss, probed.state), (Bytes::mib(1001), COOL_DOWN));
    }

    #[test]
    fn what_was_not_read_changes_nothing() {
        let mut probing = Probing::default();
        let unread = Epoch { committed: None, ..epoch(0, 1000, 9) };
        assert_eq!(probing.observe(unread), None);
        probing.observe(epoch(1000, 1000, 0));
        for unread in [
            Epoch { allocation: None, ..epoch(1000, 0, 0) },
            Epoch { swapped_in: None, ..epoch(1000, 1000, 0) },
            Epoch { refaulted: None, ..epoch(1000, 1000, 0) },
            Epoch { swapped_in: None, refaulted: None, ..epoch(1000, 1000, 0) },
        ] {
            let probed = probing.observe(unread).unwrap();
            assert_eq!((probed.wss, probed.step), (Bytes::mib(1000), ProbingStep::Unknown));
        }
        let unread = Epoch { committed: None, ..epoch(0, 1000, 0) };
        assert_eq!(probing.observe(unread).unwrap().step, ProbingStep::Lowered);
    }

    #[test]
    fn it_ends_at_the_minimum_and_never_passes_the_maximum() {
        let mut probing = Probing::default();
        let last = (0..100).map(|_| follow(&mut probing, 0)).last().unwrap();
        assert_eq!((last.wss, last.step), (Bytes::mib(128), ProbingStep::AtMinimum));
        let probed = follow(&mut probing, u64::MAX);
        assert_eq!(probed.wss, Bytes::gib(2));
    }

    fn any_epoch() -> impl Strategy<Value = Epoch> {
        let size =
            || prop::option::of(prop_oneof![any::<u64>(), 0..1u64 << 34].prop_map(Bytes::new));
        let events = || prop::option::weighted(0.9, prop_oneof![4 => Just(0), 1 => any::<u64>()]);
        (size(), size(), events(), events(), events(), any::<(u64, u64)>()).prop_map(
            |(committed, allocation, swapped_in, swapped_out, refaulted, (min, max))| {
                let bounds = Bounds::new(Bytes::new(min), Bytes::new(max));
                Epoch { committed, allocation, swapped_in, swapped_out, refaulted, bounds }
            },
        )
    }

    proptest! {
        #[test]
        fn it_is_within_bounds_whatever_it_sees(epochs in prop::collection::vec(any_epoch(), 0..40)) {
            let mut probing = Probing::default();
            for seen in epochs {
                if let Some(probed) = probing.observe(seen) {
                    prop_assert_eq!(seen.bounds.clamp(probed.wss), probed.wss);
                }
            }
        }

        /// One epoch from the same place: more events never give less.
        #[test]
        fn more_events_never_lower_it(
            epochs in prop::collection::vec(any_epoch(), 0..10), last in any_epoch(), extra: u64,
        ) {
            let mut probing = Probing::default();
            for seen in epochs {
                probing.observe(seen);
            }
            let more = last.swapped_in.map(|events| events.saturating_add(extra));
            let less = probing.clone().observe(last);
            let more = probing.observe(Epoch { swapped_in: more, ..last });
            prop_assert!(less.map(|it| it.wss) <= more.map(|it| it.wss));
        }

        /// A guest that never reads anything back is lowered to its minimum, and there it stays.
        #[test]
        fn an_idle_guest_ends_at_its_minimum(committed in 200u64..2000) {
            let mut probing = Probing::default();
            let mut held = Bytes::mib(2000);
            for _ in 0..60 {
                let seen = Epoch { allocation: Some(held), ..epoch(committed, 0, 0) };
                held = probing.observe(seen).unwrap().wss;
            }
            prop_assert_eq!(held, Bytes::mib(128));
        }
    }
}
