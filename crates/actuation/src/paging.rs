//! Which guests the host pages out, and in again.
//!
//! Idea (flexmemd §3.2.2): a guest from which memory is taken by paging (see
//! [`crate::rates::choose`]) is capped. Its process may occupy no more than it would if the guest
//! had given the memory, and the host pages it out until that is so. While a cap is in force, the
//! guest counts as what its process occupies, so that others get what was taken. When paging has
//! nothing more to take, the cap ends, and the host reads back what it took before the guest
//! touches it. It ends at the next decision only, so that this decision already counts everything
//! that the guest may take again.
//!
//! A host that gets shorter does not wait for guests that owe memory. It also takes from the
//! *richest*, those that hold most beyond what the policy wants for them, and no more than it
//! lacks.
//!
//! Cost: O(1) per guest and tick. Limits: never below a guest's floor; a process without a recent
//! known size is left alone. The mechanism chooses the pages.

use std::time::Duration;

use ballast_model::{Bytes, HostSample, Measured, Mechanism, MechanismReason, Move, Timestamp};

/// Memory of a hypervisor besides its guest's: translated code, devices, queues.
pub const OVERHEAD: Bytes = Bytes::mib(64);
/// A smaller excess over a cap is not paged out.
const SLACK: Bytes = Bytes::mib(8);
/// A guest that holds less than this beyond its part is not rich.
const RICH_MIN: Bytes = Bytes::mib(16);
/// How long a guest is read back, from the time when its cap has ended and the host has memory for
/// it. What is still paged out then, the guest may not need.
const READ_BACK_FOR: Duration = Duration::from_secs(10);

/// How much of the host's swap paging may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapRules {
    /// At most this part of the swap may be in use, in percent; more than 100 counts as 100.
    pub use_max_percent: u64,
    /// At least this much of the swap must stay free.
    pub reserve: Bytes,
}

impl SwapRules {
    /// Whether the host has room to page out to; no if it does not say.
    pub fn has_room(&self, host: &HostSample) -> bool {
        let (Some(total), Some(free)) = (host.swap_total, host.swap_free) else { return false };
        free > total.fraction(100 - self.use_max_percent.min(100), 100).max(self.reserve)
    }
}

/// Input of the decision whether to page a guest.
#[derive(Clone, Debug)]
pub struct PagingInput {
    /// The moment of the decision.
    pub now: Timestamp,
    /// Memory that the guest's process occupies.
    pub resident: Option<Measured<Bytes>>,
    /// Memory that the guest holds.
    pub holds: Option<Bytes>,
    /// The size to page it out to, and why; `None`: it is not paged out.
    pub take_to: Option<(Bytes, MechanismReason)>,
    /// Its guaranteed minimum; `None`: unknown.
    pub floor: Option<Bytes>,
    /// Whether the host has memory to read back what it took.
    pub may_read_back: bool,
    /// An older size is not acted on.
    pub stale_after: Duration,
}

/// The cap on what one guest's process occupies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidentCap {
    in_force: Option<Bytes>,
    /// Whether it ends at the next decision.
    is_ending: bool,
    /// Since when memory taken under the last cap can be read back.
    readable_since: Option<Timestamp>,
}

/// What is to be done about a guest's pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// [`Mechanism::PageOut`] or [`Mechanism::PageIn`].
    pub mechanism: Mechanism,
    /// The size that its process should have.
    pub resident: Bytes,
    /// The same as a move, for people.
    pub as_move: Move,
}

impl ResidentCap {
    /// The cap in force; `None`: no cap.
    pub fn in_force(&self) -> Option<Bytes> {
        self.in_force
    }

    /// Whether the cap ends at this decision. Others must not be granted what it took then.
    pub fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// The previous daemon's cap, which is still in force.
    pub fn restored(in_force: Option<Bytes>) -> ResidentCap {
        ResidentCap { in_force, ..ResidentCap::default() }
    }

    /// Decides on this snapshot; call once for each.
    pub fn decide(&mut self, input: &PagingInput) -> Option<Page> {
        let resident = input.resident.filter(|it| it.age <= input.stale_after)?.value;
        if self.is_ending {
            // The cap was counted as gone. If it is needed again, it starts anew at the next
            // decision.
            *self = ResidentCap { readable_since: Some(input.now), ..ResidentCap::default() };
            if input.take_to.is_some() {
                return None;
            }
        }
        if let (Some((to, why)), Some(floor)) = (&input.take_to, input.floor) {
            let cap = (*to).max(floor).saturating_add(OVERHEAD).page_ceil();
            *self = ResidentCap::restored(Some(cap));
            return page_out(resident, cap, why.clone());
        }
        if let (Some(cap), Some(floor)) = (self.in_force, input.floor) {
            // The cap stays in force for one decision more, and its memory may be granted to
            // others, so it must be kept.
            let cap = cap.max(floor.saturating_add(OVERHEAD).page_ceil());
            *self = ResidentCap { in_force: Some(cap), is_ending: true, readable_since: None };
            let why =
                MechanismReason::BeyondEntitlement { entitlement: cap.saturating_sub(OVERHEAD) };
            return page_out(resident, cap, why);
        }
        if self.in_force.is_some() {
            // A cap of the last daemon on a guest with an unknown floor, which counted for nothing.
            *self = ResidentCap { readable_since: Some(input.now), ..ResidentCap::default() };
        }
        let since = self.readable_since?;
        if !input.may_read_back {
            // `READ_BACK_FOR` begins once the host is no longer short.
            self.readable_since = Some(input.now);
            return None;
        }
        if input.now.saturating_since(since) > READ_BACK_FOR {
            self.readable_since = None;
            return None;
        }
        let whole = input.holds?.saturating_add(OVERHEAD);
        (resident < whole)
            .then(|| page(Mechanism::PageIn, resident, whole, MechanismReason::Growing))
    }
}

/// What guests are ranked by when the host takes from the richest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wealth {
    /// What it holds beyond both its wanted target and its floor.
    pub beyond: Bytes,
    /// Whether it was among the richest at the last decision.
    pub was_rich: bool,
}

/// The guests from which a host that lacks `lacking` takes memory: the richest first, until that is
/// covered. Guests from which it takes already stay among them, because without them the host would
/// lack more. O(n log n).
pub fn richest(wealth: &[Wealth], lacking: Bytes) -> Vec<bool> {
    let mut order: Vec<usize> = (0..wealth.len()).collect();
    order.sort_by_key(|&at| (!wealth[at].was_rich, std::cmp::Reverse(wealth[at].beyond), at));
    let mut left = lacking;
    let mut taken = vec![false; wealth.len()];
    for at in order {
        let Wealth { beyond, was_rich } = wealth[at];
        if beyond < RICH_MIN || (left == Bytes::ZERO && !was_rich) {
            continue;
        }
        taken[at] = true;
        if !was_rich {
            left = left.saturating_sub(beyond);
        }
    }
    taken
}

/// Pages a process out to its cap, if it exceeds that by enough to be worth it.
fn page_out(resident: Bytes, cap: Bytes, why: MechanismReason) -> Option<Page> {
    let is_due = resident > cap.saturating_add(SLACK);
    is_due.then(|| page(Mechanism::PageOut, resident, cap, why))
}

fn page(mechanism: Mechanism, from: Bytes, to: Bytes, why: MechanismReason) -> Page {
    Page { mechanism, resident: to, as_move: Move { mechanism, from, to, why } }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn not_given() -> Option<(Bytes, MechanismReason)> {
        let why =
            MechanismReason::NotGiven { left: Bytes::mib(312), asked: Duration::from_secs(20) };
        Some((Bytes::mib(200), why))
    }

    fn input(take_to: Option<(Bytes, MechanismReason)>, resident_mib: u64) -> PagingInput {
        PagingInput {
            now: Timestamp::from_millis(100_000),
            resident: Some(Measured::fresh(Bytes::mib(resident_mib))),
            holds: Some(Bytes::mib(512)),
            take_to,
            floor: Some(Bytes::mib(128)),
            may_read_back: true,
            stale_after: Duration::from_secs(10),
        }
    }

    #[test]
    fn a_stuck_guest_is_paged_out_to_its_target() {
        let mut cap = ResidentCap::default();
        assert_eq!(cap.decide(&input(None, 560)), None);
        let page = cap.decide(&input(not_given(), 560)).unwrap();
        assert_eq!((page.mechanism, page.resident), (Mechanism::PageOut, Bytes::mib(264)));
        assert_eq!(
            page.as_move.to_string(),
            "page-out 560MiB to 264MiB: 312MiB still not released 20s after the request"
        );
        assert_eq!(cap.decide(&input(not_given(), 270)), None, "near enough");
        assert_eq!(cap.in_force(), Some(Bytes::mib(264)), "and held there");
    }

    #[test]
    fn paged_memory_is_read_back_once_nothing_is_owed() {
        let mut cap = ResidentCap::default();
        cap.decide(&input(not_given(), 560));
        assert_eq!(cap.decide(&input(None, 264)), None);
        assert!(cap.in_force().is_some() && cap.is_ending(), "in force for one decision more");
        let short = PagingInput { may_read_back: false, ..input(None, 264) };
        assert_eq!(cap.clone().decide(&short), None, "the host has no memory for that");
        let page = cap.decide(&input(None, 264)).unwrap();
        assert_eq!((page.mechanism, page.resident), (Mechanism::PageIn, Bytes::mib(576)));
        assert_eq!(cap.in_force(), None);
        let later = PagingInput { now: Timestamp::from_millis(111_000), ..input(None, 264) };
        assert_eq!(cap.decide(&later), None, "not for ever");
        assert_eq!(cap.decide(&later), None);
    }

    #[test]
    fn paged_memory_is_read_back_while_the_host_is_short() {
        let mut cap = ResidentCap::default();
        cap.decide(&input(not_given(), 560));
        cap.decide(&input(None, 264));
        let at = |second: u64| PagingInput {
            now: Timestamp::from_millis(second * 1000),
            ..input(None, 264)
        };
        for second in 100..150 {
            let short = PagingInput { may_read_back: false, ..at(second) };
            assert_eq!(cap.decide(&short), None);
        }
        assert_eq!(cap.decide(&at(150)).unwrap().mechanism, Mechanism::PageIn);
        assert_eq!(cap.decide(&at(161)), None, "for ten seconds");
    }

    #[test]
    fn a_cap_that_ends_is_kept_until_then() {
        let mut cap = ResidentCap::default();
        cap.decide(&input(not_given(), 560));
        let page = cap.decide(&input(None, 300)).unwrap();
        assert_eq!((page.mechanism, page.resident), (Mechanism::PageOut, Bytes::mib(264)));
        // The operator has raised the floor since then.
        let mut cap = ResidentCap::default();
        cap.decide(&input(not_given(), 560));
        let raised = PagingInput { floor: Some(Bytes::mib(230)), ..input(None, 310) };
        assert_eq!(cap.decide(&raised).unwrap().resident, Bytes::mib(294));
        assert_eq!(cap.in_force(), Some(Bytes::mib(294)));
    }

    #[test]
    fn a_cap_ends_where_no_floor_is_known() {
        let mut cap = ResidentCap::restored(Some(Bytes::mib(264)));
        let unknown = PagingInput { floor: None, may_read_back: false, ..input(not_given(), 560) };
        assert_eq!(cap.decide(&unknown), None);
        assert_eq!(cap.in_force(), None);
    }

    #[test]
    fn a_cap_that_is_needed_again_restarts() {
        let mut cap = ResidentCap::default();
        cap.decide(&input(not_given(), 560));
        cap.decide(&input(None, 264));
        assert_eq!(cap.decide(&input(not_given(), 560)), None);
        assert_eq!(cap.in_force(), None, "others were divided memory as if it had ended");
        assert!(cap.decide(&input(not_given(), 560)).is_some());
        assert!(cap.in_force().is_some() && !cap.is_ending());
    }

    #[test]
    fn nothing_is_done_without_figures() {
        let mut cap = ResidentCap::default();
        let unknown = PagingInput { resident: None, ..input(not_given(), 560) };
        assert_eq!(cap.decide(&unknown), None);
        let mut stale = input(not_given(), 560);
        stale.resident.as_mut().unwrap().age = Duration::from_secs(11);
        assert_eq!(cap.decide(&stale), None);
        let no_floor = PagingInput { floor: None, ..input(not_given(), 560) };
        assert_eq!(cap.decide(&no_floor), None);
        assert_eq!(cap.in_force(), None);
    }

    #[test]
    fn the_richest_give_what_the_host_lacks_and_keep_giving() {
        let rich = |beyond, was_rich| Wealth { beyond: Bytes::mib(beyond), was_rich };
        let wealth = [rich(100, false), rich(300, false), rich(8, false), rich(200, false)];
        assert_eq!(richest(&wealth, Bytes::ZERO), [false; 4]);
        assert_eq!(richest(&wealth, Bytes::mib(250)), [false, true, false, false]);
        assert_eq!(richest(&wealth, Bytes::mib(350)), [false, true, false, true]);
        assert_eq!(
            richest(&wealth, Bytes::gib(1)),
            [true, true, false, true],
            "8 MiB are not worth it"
        );
        let wealth = [rich(100, true), rich(300, false)];
        assert_eq!(
            richest(&wealth, Bytes::ZERO),
            [true, false],
            "what it gave is why nothing lacks"
        );
        assert_eq!(richest(&wealth, Bytes::mib(50)), [true, true]);
    }

    proptest! {
        #[test]
        fn paging_stops_at_floor_and_target(
            resident in 0..4096u64, holds in 0..4096u64, to in 0..4096u64, floor in 0..4096u64,
        ) {
            let mut cap = ResidentCap::default();
            let page = cap.decide(&PagingInput {
                holds: Some(Bytes::mib(holds)),
                floor: Some(Bytes::mib(floor)),
                ..input(Some((Bytes::mib(to), MechanismReason::Growing)), resident)
            });
            if let Some(page) = page {
                prop_assert_eq!(page.mechanism, Mechanism::PageOut);
                prop_assert!(page.resident >= Bytes::mib(floor.max(to)));
                prop_assert!(page.resident < Bytes::mib(resident));
            }
        }

        /// They cover the need where they can, none is included without need, and none holds less
        /// beyond its part than a guest that is spared.
        #[test]
        fn the_richest_cover_what_is_lacking(beyond in prop::collection::vec(0..500u64, 0..12), lacking in 0..3000u64) {
            let wealth: Vec<_> =
                beyond.iter().map(|mib| Wealth { beyond: Bytes::mib(*mib), was_rich: false }).collect();
            let taken = richest(&wealth, Bytes::mib(lacking));
            let of = |which| -> Vec<u64> {
                beyond.iter().zip(&taken).filter(|(_, taken)| **taken == which).map(|(mib, _)| *mib).collect()
            };
            let (took, spared) = (of(true), of(false));
            let sum: u64 = took.iter().sum();
            prop_assert!(sum >= lacking || spared.iter().all(|mib| *mib < 16));
            if let Some(least) = took.iter().min() {
                prop_assert!(sum - least < lacking);
                prop_assert!(spared.iter().all(|mib| mib <= least));
            }
        }
    }
}
