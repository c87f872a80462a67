//! Demand beyond the allocation.
//!
//! Idea: a list of host frames cannot hold more than the guest has, so what it lacks shows only in its
//! swap: `demand = WSS + swap in use` (MEB §3.6). Swap in use rather than the distances of swap traffic,
//! because it falls when the guest needs it no longer.
//!
//! Where a guest does not tell its swap in use, swap-ins stand for it. Every page read back is one that
//! the guest needs and could not hold:
//!
//! ```text
//! beyond −= growth of the allocation          what was granted is within the allocation now
//! beyond += swapped in in this interval       or, in an interval without any, beyond −= beyond / 8
//! beyond  = min(beyond, allocation)
//! ```
//!
//! So a guest that thrashes is asked for more with every interval, at most twice what it holds at a time;
//! one that got what it lacked is believed after a few intervals.
//!
//! Cost: O(1). Source: MEB §3.6; the rule for swap-ins is ours.
//! Limits: pages that are swapped in more than once are counted more than once, and read-ahead with them:
//! too high for a tick rather than too low. Swap in use also counts what will never be needed again.

use ballast_model::Bytes;

/// What is forgotten in an interval without swap-ins: an eighth, half of it in five intervals. Slower
/// than swap-ins come back after a pause, faster than a phase ends.
const FORGET_PART: u64 = 8;

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
}

/// What of a guest's swap is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapKnown {
    /// How much is in use.
    Used,
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
    /// What that was found by.
    pub by: SwapKnown,
}

/// Demand beyond the allocation of one guest, from interval to interval.
#[derive(Clone, Debug, Default)]
pub struct DemandBeyond {
    beyond: Bytes,
    /// Of the interval before; at first, when there is nothing yet that a grant could end, zero.
    allocation: Bytes,
}

impl DemandBeyond {
    /// Takes in an interval.
    pub fn update(&mut self, seen: BeyondInput) -> Beyond {
        let granted = seen.allocation.saturating_sub(self.allocation);
        self.allocation = seen.allocation;
        let (beyond, by) = match (seen.swap_used, seen.swapped_in) {
            (Some(used), _) => (used, SwapKnown::Used),
            (None, Some(swapped_in)) => {
                let left = self.beyond.saturating_sub(granted);
                let next = match swapped_in {
                    Bytes::ZERO => forget(left),
                    swapped_in => left.saturating_add(swapped_in),
                };
                (next.min(seen.allocation), SwapKnown::SwapIns)
            }
            (None, None) => {
                let left = self.beyond.saturating_sub(granted);
                (left.min(seen.allocation), SwapKnown::Nothing)
            }
        };
        self.beyond = beyond;
        Beyond { demand: seen.wss.saturating_add(beyond), beyond, by }
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

    proptest! {
        #[test]
        fn what_was_swapped_in_is_forgotten_in_the_end(beyond in 0..1u64 << 42) {
            let mut demand = DemandBeyond { beyond: Bytes::new(beyond), allocation: Bytes::MAX };
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
