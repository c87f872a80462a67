//! Demand beyond the allocation.
//!
//! Idea: a list of host frames cannot hold more than the guest has, so what it lacks shows only in its
//! swap: `demand = WSS + swap in use` (MEB §3.6). Swap in use rather than the distances of swap traffic,
//! because it falls when the guest needs it no longer.
//!
//! Where a guest does not tell its swap in use, it is counted from its swap traffic:
//!
//! ```text
//! lacking = swapped out − what the allocation shrank     what had to go for want of room
//! beyond  = beyond + lacking − swapped in                or, in an interval without either, beyond − beyond / 8
//! beyond  = min(beyond, allocation)
//! ```
//!
//! A guest that grows into its swap asks for more before it reads anything back; one that thrashes goes on
//! asking; one that got what it lacked is asked for as much all the while that it reads back what is
//! missing, because its working set grows as this falls. What it swaps out because it was made smaller
//! tells nothing until it is read back, and what it never reads back is forgotten.
//!
//! A guest that waits for its swap touches little, so that its working set seems to fall. While it reads
//! back, its demand is not believed to. And a guest that swaps out for want of room has none left in what it holds: its kernel found
//! nothing there that is worth less. It needs that and what had to go, however little of it was touched of
//! late; and it is not made smaller again because an interval passed in which it had room:
//!
//! ```text
//! least  = max(least, demand before)                     in an interval with swap-ins
//! least  = max(least, allocation + lacking)              in one with swap-outs for want of room
//! least  = least − (least − WSS − beyond) / 8            in one with neither
//! demand = max(WSS + beyond, least)
//! ```
//!
//! Where only swap-ins are told, they stand for what is lacking, and grants are taken off:
//! `beyond + swapped in − growth of the allocation`.
//!
//! Where swap in use is told, none of this is added to it: with `least` as well, ten guests on a host that has
//! not enough for them all seem to need more than they do, and those that had enough lose it (in the simulator
//! `global-10` falls from 77 to 55 % of the best).
//!
//! Cost: O(1). Source: MEB §3.6; the rule for swap traffic is ours.
//! Limits: of swap-ins alone, those of the same page are counted each time, and read-ahead with them: too
//! high for a tick rather than too low. Swap in use also counts what will never be needed again.

use ballast_model::Bytes;

/// What is forgotten in an interval without swapping: an eighth, half of it in five intervals. Slower
/// than swap-ins come back after a pause, faster than a phase ends.
const FORGET_PART: u64 = 8;

/// Traffic that is worth a mention: less is read back by a guest that has what it needs, now and then.
const TRAFFIC_MIN: Bytes = Bytes::pages(64);

/// What was seen of one guest in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeyondInput {
    /// The working set within the allocation, and what else of it the guest cannot do without.
    pub wss: Bytes,
    /// What the guest holds.
    pub allocation: Bytes,
    /// Swap in use in the guest, without what the swap cache has in memory too; `None`: it does not tell.
    pub swap_used: Option<Bytes>,
    /// Swapped in in this interval; `None`: it does not tell.
    pub swapped_in: Option<Bytes>,
    /// Swapped out in it, likewise.
    pub swapped_out: Option<Bytes>,
}

/// What of a guest's swap is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapKnown {
    /// How much is in use.
    Used,
    /// How much is written and read back.
    Traffic,
    /// How much is read back.
    SwapIns,
    /// Nothing in this interval; what was found before stands.
    Nothing,
}

/// The demand of one guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// Working set and what is beyond the allocation, at least; more where swapping tells it.
    pub demand: Bytes,
    /// What is beyond the allocation.
    pub beyond: Bytes,
    /// What had to leave its memory for want of room in this interval; or, where swap in use is not told, what
    /// is remembered of earlier ones, an eighth less with each since, if that is more.
    pub lacking: Bytes,
    /// What that was found by.
    pub by: SwapKnown,
}

/// Demand beyond the allocation of one guest, from interval to interval.
#[derive(Clone, Debug, Default)]
pub struct DemandBeyond {
    beyond: Bytes,
    /// All of it, of the interval before.
    demand: Bytes,
    /// What swapping told that it is at least.
    least: Bytes,
    /// What is remembered of what had to go.
    lacking: Bytes,
    /// Of the interval before; at first, when there is nothing yet that a grant could end, zero.
    allocation: Bytes,
}

impl DemandBeyond {
    /// Takes in an interval.
    pub fn update(&mut self, seen: BeyondInput) -> Beyond {
        let granted = seen.allocation.saturating_sub(self.allocation);
        let shrunk = self.allocation.saturating_sub(seen.allocation);
        self.allocation = seen.allocation;
        let lacking = seen.swapped_out.map(|out| out.saturating_sub(shrunk)).or(seen.swapped_in);
        let lacking = lacking.unwrap_or(Bytes::ZERO);
        let (beyond, by) = match (seen.swap_used, seen.swapped_in, seen.swapped_out) {
            (Some(used), _, _) => (used, SwapKnown::Used),
            (None, Some(Bytes::ZERO), Some(Bytes::ZERO)) => {
                (forget(self.beyond).min(seen.allocation), SwapKnown::Traffic)
            }
            (None, Some(swapped_in), Some(_)) => {
                let next = self.beyond.saturating_add(lacking).saturating_sub(swapped_in);
                (next.min(seen.allocation), SwapKnown::Traffic)
            }
            (None, Some(swapped_in), None) => {
                let left = self.beyond.saturating_sub(granted);
                let next = match swapped_in {
                    Bytes::ZERO => forget(left),
                    swapped_in => left.saturating_add(swapped_in),
                };
                (next.min(seen.allocation), SwapKnown::SwapIns)
            }
            (None, None, _) => {
                let left = self.beyond.saturating_sub(granted);
                (left.min(seen.allocation), SwapKnown::Nothing)
            }
        };
        self.beyond = beyond;
        let plain = seen.wss.saturating_add(beyond);
        let reads_back = by == SwapKnown::Traffic && seen.swapped_in >= Some(TRAFFIC_MIN);
        let lacks = by == SwapKnown::Traffic && lacking >= TRAFFIC_MIN;
        if reads_back {
            self.least = self.least.max(self.demand);
        }
        if lacks {
            self.least = self.least.max(seen.allocation.saturating_add(lacking));
        }
        if !reads_back && !lacks {
            // Below what the guest needs anyway there is nothing left to remember.
            self.least = match self.least > plain {
                true => plain.saturating_add(forget(self.least.saturating_sub(plain))),
                false => Bytes::ZERO,
            };
        }
        let demand = plain.max(self.least);
        self.demand = demand;
        // Swap in use says itself for how long something is lacking.
        self.lacking = match by {
            SwapKnown::Used => lacking,
            _ => lacking.max(forget(self.lacking)),
        };
        Beyond { demand, beyond, lacking: self.lacking, by }
    }
}

/// At least a page, so that it ends.
fn forget(beyond: Bytes) -> Bytes {
    beyond.saturating_sub(beyond.fraction(1, FORGET_PART).max(Bytes::pages(1)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn interval(allocation_mib: u64, swapped_in_mib: Option<u64>) -> BeyondInput {
        BeyondInput {
            wss: Bytes::mib(200),
            allocation: Bytes::mib(allocation_mib),
            swap_used: None,
            swapped_in: swapped_in_mib.map(Bytes::mib),
            swapped_out: None,
        }
    }

    #[test]
    fn swap_in_use_is_added_as_it_is_told() {
        let mut demand = DemandBeyond::default();
        let seen = BeyondInput { swap_used: Some(Bytes::mib(300)), ..interval(256, Some(9)) };
        let told = demand.update(seen);
        assert_eq!((told.demand, told.by), (Bytes::mib(500), SwapKnown::Used));
        let seen = BeyondInput { swap_used: Some(Bytes::ZERO), ..interval(256, Some(9)) };
        assert_eq!(demand.update(seen).demand, Bytes::mib(200));
    }

    #[test]
    fn swap_ins_push_until_it_is_granted_and_are_then_forgotten() {
        let mut demand = DemandBeyond::default();
        for (allocation, swapped_in, expected) in [
            (256, Some(0), 0),
            (256, Some(16), 16),
            (256, Some(48), 64),
            (288, Some(0), 28), // 32 granted; of the other 32 an eighth forgotten
            (288, None, 28),
            (300, None, 16),
            (300, Some(0), 14),
            (200, Some(500), 200), // at most the allocation
        ] {
            let told = demand.update(interval(allocation, swapped_in));
            assert_eq!(told.beyond, Bytes::mib(expected), "{allocation} {swapped_in:?}");
            assert_eq!(told.demand, Bytes::mib(200 + expected));
        }
    }

    #[test]
    fn a_guest_that_grows_into_its_swap_pushes_at_once_and_one_that_was_made_smaller_does_not() {
        let mut machine = DemandBeyond::default();
        for (allocation, out, swapped_in, beyond, demand) in [
            (256, 40, 0, 40, 296.0),  // grows into swap: needs its 256 and the 40
            (256, 30, 30, 40, 296.0), // thrashes: needs no less than before
            (256, 40, 30, 50, 296.0),
            (304, 0, 10, 40, 296.0), // was granted more, and reads back what is missing
            (304, 8, 0, 48, 312.0),  // and grows again
            (254, 50, 0, 48, 304.0), // made smaller by as much as it swapped out: 312 less 64 / 8
            (254, 0, 8, 40, 304.0),  // while it reads back its demand stays
            (254, 0, 0, 35, 295.375), // an eighth forgotten, of 40 and of 304 - 235
            (20, 1, 0, 20, 285.953125), // at most the allocation; swapped out as it was made smaller
        ] {
            let swapped_out = Some(Bytes::mib(out));
            let seen = BeyondInput { swapped_out, ..interval(allocation, Some(swapped_in)) };
            let told = machine.update(seen);
            let expected = (Bytes::mib(beyond), SwapKnown::Traffic);
            assert_eq!((told.beyond, told.by), expected, "{seen:?}");
            assert_eq!(told.demand.get() as f64 / Bytes::mib(1).get() as f64, demand, "{seen:?}");
        }
    }

    #[test]
    fn what_swapping_told_is_forgotten_in_the_end() {
        let mut machine = DemandBeyond::default();
        let grows = BeyondInput { swapped_out: Some(Bytes::mib(40)), ..interval(500, Some(0)) };
        assert_eq!(machine.update(grows).demand, Bytes::mib(540));
        let again = BeyondInput { swapped_out: Some(Bytes::mib(32)), ..grows };
        assert_eq!(machine.update(again).lacking, Bytes::mib(35), "more than the 32 of now");
        assert_eq!(machine.update(grows).lacking, Bytes::mib(40));
        let quiet = BeyondInput { swapped_out: Some(Bytes::ZERO), ..interval(500, Some(0)) };
        let demands: Vec<Bytes> = (0..200).map(|_| machine.update(quiet).demand).collect();
        assert!(demands.is_sorted_by(|before, after| before >= after));
        // 340 MiB beyond its working set: two thirds of it for some intervals, a third after a dozen.
        assert!(demands[3] > Bytes::mib(427) && demands[12] < Bytes::mib(313), "{demands:?}");
        assert_eq!(demands[199], Bytes::mib(200));
        assert_eq!(machine.update(quiet).lacking, Bytes::ZERO);
    }

    proptest! {
        #[test]
        fn what_was_swapped_in_is_forgotten_in_the_end(beyond in 0..1u64 << 42) {
            let beyond = Bytes::new(beyond);
            let mut demand =
                DemandBeyond { beyond, allocation: Bytes::MAX, ..DemandBeyond::default() };
            let quiet = BeyondInput { allocation: Bytes::MAX, ..interval(0, Some(0)) };
            let intervals = (0..300).find(|_| demand.update(quiet).beyond == Bytes::ZERO);
            prop_assert!(intervals.is_some());
        }

        #[test]
        fn more_swap_ins_never_ask_for_less(
            series in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 1..30),
            extra: u64,
        ) {
            let (mut less, mut more) = (DemandBeyond::default(), DemandBeyond::default());
            for (wss, allocation, swapped_in) in series {
                let of = |swapped_in: u64| BeyondInput {
                    wss: Bytes::new(wss),
                    allocation: Bytes::new(allocation),
                    swap_used: None,
                    swapped_in: Some(Bytes::new(swapped_in)),
                    swapped_out: None,
                };
                let less = less.update(of(swapped_in));
                let more = more.update(of(swapped_in.saturating_add(extra)));
                prop_assert!(less.demand <= more.demand);
                prop_assert!(more.beyond <= Bytes::new(allocation));
                prop_assert!(less.demand >= Bytes::new(wss));
            }
        }
    }
}
