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
//! back, its demand is not believed to; and while it also swaps out for want of room, it needs all that it
//! holds, at least:
//!
//! ```text
//! demand = WSS + beyond
//! demand = max(demand, demand before)                    in an interval with swap-ins
//! demand = max(demand, allocation)                       in one with both
//! ```
//!
//! Where only swap-ins are told, they stand for what is lacking, and grants are taken off:
//! `beyond + swapped in − growth of the allocation`.
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
    /// The working set within the allocation.
    pub wss: Bytes,
    /// What the guest holds.
    pub allocation: Bytes,
    /// Swap in use in the guest; `None`: it does not tell.
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
    /// Working set and what is beyond the allocation.
    pub demand: Bytes,
    /// What is beyond the allocation.
    pub beyond: Bytes,
    /// What had to leave its memory in this interval for want of room.
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
        let mut demand = seen.wss.saturating_add(beyond);
        if by == SwapKnown::Traffic && seen.swapped_in >= Some(TRAFFIC_MIN) {
            demand = demand.max(self.demand);
            if lacking >= TRAFFIC_MIN {
                demand = demand.max(seen.allocation);
            }
        }
        self.demand = demand;
        Beyond { demand, beyond: demand.saturating_sub(seen.wss), lacking, by }
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
        let mut demand = DemandBeyond::default();
        for (allocation, out, swapped_in, lacking, beyond) in [
            (256, 40, 0, 40, 40),  // grows into swap
            (256, 30, 30, 30, 56), // thrashes: needs all of its 256
            (300, 0, 10, 0, 56),   // was granted more, and reads back what is missing
            (300, 8, 0, 8, 38),    // 40 - 10 and 8
            (250, 50, 0, 0, 38),   // made smaller by as much as it swapped out
            (250, 0, 6, 0, 38),
            (250, 0, 0, 0, 28), // 32, an eighth forgotten
            (20, 1, 0, 0, 20),  // at most the allocation
        ] {
            let swapped_out = Some(Bytes::mib(out));
            let seen = BeyondInput { swapped_out, ..interval(allocation, Some(swapped_in)) };
            let told = demand.update(seen);
            let expected = (Bytes::mib(lacking), Bytes::mib(beyond), SwapKnown::Traffic);
            assert_eq!((told.lacking, told.beyond, told.by), expected, "{seen:?}");
            assert_eq!(told.demand, Bytes::mib(200 + beyond));
        }
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
