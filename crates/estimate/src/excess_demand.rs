//! Demand beyond the allocation.
//!
//! Idea: the LRU list cannot hold more pages than the guest has, so memory it lacks shows only in
//! its swap: `demand = WSS + swap in use` (MEB §3.6). Swap in use is better than the distances of
//! swap traffic because it falls once the guest frees the memory. But it does not fall while pages
//! that the guest no longer touches stay in swap. So swap that moves neither in nor out is slowly
//! forgotten:
//!
//! ```text
//! cold   = cold + (used before − cold) / 128                 what did not move
//!               − swapped in − swapped out − fall of used    any of it may have been cold
//! excess = used − cold                                       used, if traffic is unknown
//! ```
//!
//! If a guest does not report its swap in use, it is estimated from swap traffic:
//!
//! ```text
//! displaced = swapped out − decrease of the allocation   swapped out for lack of room
//! excess    = excess + displaced − swapped in
//! excess    = excess − excess / 8                        instead, in an interval without swapping
//! excess    = min(excess, allocation)
//! ```
//!
//! So the demand of a guest that grows into swap rises before it reads anything back, and the
//! demand of a guest that thrashes stays. After a grant the demand also stays while the guest reads
//! its pages back: `excess` falls as the working set grows. Pages swapped out because the
//! allocation was reduced count only once they are read back; pages never read back are forgotten.
//!
//! A guest waiting for swap touches little, so its working set appears to shrink. Its demand
//! therefore does not fall while it reads pages back. A guest that swaps out for lack of room needs
//! all it holds, because its kernel found nothing less valuable to evict, plus what it evicted.
//! That demand does not vanish with the first interval without swapping:
//!
//! ```text
//! min    = max(min, last demand)                         in an interval with swap-ins
//! min    = max(min, allocation + displaced)              with swap-outs for lack of room
//! min    = min − (min − WSS − excess) / 8                with neither
//! demand = max(WSS + excess, min)
//! ```
//!
//! If only swap-ins are reported they stand in for `displaced`, and growth of the allocation is
//! subtracted: `excess + swapped in − growth`.
//!
//! If swap in use is reported, the minimum is not applied. With it, ten guests on a host too small
//! for all of them would all appear to need more than they do, and those with enough would lose
//! memory (in the simulator `global-10` falls from 77 to 55 % of the best).
//!
//! Cost: O(1). Source: MEB §3.6; the rule for swap traffic is ours.
//! Limits: from swap-ins alone, repeated reads of a page and read-ahead all count, so the demand is
//! too high for a tick rather than too low. It is also too high while a guest swaps some pages in
//! and out again, because everything that it has in swap then counts.

use ballast_model::Bytes;

/// An interval without swapping forgets an eighth, so five forget half: slow enough to outlast a
/// pause between swap-ins, fast enough to finish within a phase.
const FORGET_PART: u64 = 8;

/// An interval forgets this part of the swap in use that did not move: half of it after 89
/// intervals, and nine tenths after 294. That outlasts phases of a guest, and times in
/// which it gets no processor.
const COLD_PART: u64 = 128;

/// Swap traffic below this is ignored: a guest with enough memory reads back as much now and then.
const TRAFFIC_MIN: Bytes = Bytes::pages(64);

/// Measurements of one guest in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExcessDemandInput {
    /// The working set, plus other memory within the allocation that the guest cannot do without.
    pub wss: Bytes,
    /// The guest's allocation.
    pub allocation: Bytes,
    /// Swap in use in the guest, without pages also in its swap cache; `None`: not reported.
    pub swap_used: Option<Bytes>,
    /// Swapped in during this interval; `None`: not reported.
    pub swapped_in: Option<Bytes>,
    /// Swapped out during this interval; `None`: not reported.
    pub swapped_out: Option<Bytes>,
}

/// Which of a guest's swap figures a result is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapEvidence {
    /// Swap in use.
    Used,
    /// Swap-ins and swap-outs.
    Traffic,
    /// Swap-ins alone.
    SwapIns,
    /// None in this interval; the earlier result is kept.
    Nothing,
}

/// The demand of one guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExcessDemandOutput {
    /// Working set plus the part beyond the allocation, raised to the minimum that swapping
    /// implies.
    pub demand: Bytes,
    /// The part beyond the allocation.
    pub excess: Bytes,
    /// Swapped out for lack of room in this interval. Without reported swap in use, at least the
    /// figure of earlier intervals, less an eighth for each interval since.
    pub displaced: Bytes,
    /// What the result is based on.
    pub evidence: SwapEvidence,
}

/// Estimates the demand of one guest beyond its allocation, interval by interval.
#[derive(Clone, Debug, Default)]
pub struct ExcessDemand {
    excess: Bytes,
    /// Total demand in the last interval.
    demand: Bytes,
    /// The least demand that swapping implies.
    demand_min: Bytes,
    displaced: Bytes,
    /// Swap in use in the last interval.
    swap_used: Bytes,
    /// The part of `swap_used` that has not moved for long.
    cold: Bytes,
    /// Allocation in the last interval; zero at first.
    allocation: Bytes,
}

impl ExcessDemand {
    /// Updates the estimate with an interval.
    pub fn update(&mut self, input: ExcessDemandInput) -> ExcessDemandOutput {
        let granted = input.allocation.saturating_sub(self.allocation);
        let shrunk = self.allocation.saturating_sub(input.allocation);
        self.allocation = input.allocation;
        let displaced =
            input.swapped_out.map(|out| out.saturating_sub(shrunk)).or(input.swapped_in);
        let displaced = displaced.unwrap_or(Bytes::ZERO);
        let (excess, evidence) = match (input.swap_used, input.swapped_in, input.swapped_out) {
            (Some(used), Some(swapped_in), Some(swapped_out)) => {
                let before = self.swap_used.saturating_sub(self.cold);
                let cold = self.swap_used.saturating_sub(forget(before, COLD_PART));
                let moved = swapped_in
                    .saturating_add(swapped_out)
                    .saturating_add(self.swap_used.saturating_sub(used));
                self.cold = cold.saturating_sub(moved);
                self.swap_used = used;
                (used.saturating_sub(self.cold), SwapEvidence::Used)
            }
            (Some(used), _, _) => {
                (self.swap_used, self.cold) = (used, Bytes::ZERO);
                (used, SwapEvidence::Used)
            }
            (None, Some(Bytes::ZERO), Some(Bytes::ZERO)) => {
                (forget(self.excess, FORGET_PART).min(input.allocation), SwapEvidence::Traffic)
            }
            (None, Some(swapped_in), Some(_)) => {
                let next = self.excess.saturating_add(displaced).saturating_sub(swapped_in);
                (next.min(input.allocation), SwapEvidence::Traffic)
            }
            (None, Some(swapped_in), None) => {
                let left = self.excess.saturating_sub(granted);
                let next = match swapped_in {
                    Bytes::ZERO => forget(left, FORGET_PART),
                    swapped_in => left.saturating_add(swapped_in),
                };
                (next.min(input.allocation), SwapEvidence::SwapIns)
            }
            (None, None, _) => {
                let left = self.excess.saturating_sub(granted);
                (left.min(input.allocation), SwapEvidence::Nothing)
            }
        };
        self.excess = excess;
        let plain = input.wss.saturating_add(excess);
        let reads_back = evidence == SwapEvidence::Traffic && input.swapped_in >= Some(TRAFFIC_MIN);
        let lacks_room = evidence == SwapEvidence::Traffic && displaced >= TRAFFIC_MIN;
        if reads_back {
            self.demand_min = self.demand_min.max(self.demand);
        }
        if lacks_room {
            self.demand_min = self.demand_min.max(input.allocation.saturating_add(displaced));
        }
        if !reads_back && !lacks_room {
            self.demand_min = if self.demand_min > plain {
                plain.saturating_add(forget(self.demand_min.saturating_sub(plain), FORGET_PART))
            } else {
                Bytes::ZERO
            };
        }
        self.demand = plain.max(self.demand_min);
        // Swap in use itself shows how long the guest lacks memory.
        self.displaced = match evidence {
            SwapEvidence::Used => displaced,
            _ => displaced.max(forget(self.displaced, FORGET_PART)),
        };
        ExcessDemandOutput { demand: self.demand, excess, displaced: self.displaced, evidence }
    }
}

/// Forgets one part in `part`, and at least a page, so that it reaches zero.
fn forget(excess: Bytes, part: u64) -> Bytes {
    excess.saturating_sub(excess.fraction(1, part).max(Bytes::pages(1)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn interval(allocation_mib: u64, swapped_in_mib: Option<u64>) -> ExcessDemandInput {
        ExcessDemandInput {
            wss: Bytes::mib(200),
            allocation: Bytes::mib(allocation_mib),
            swap_used: None,
            swapped_in: swapped_in_mib.map(Bytes::mib),
            swapped_out: None,
        }
    }

    #[test]
    fn reported_swap_in_use_is_added_to_the_working_set() {
        let mut demand = ExcessDemand::default();
        let input =
            ExcessDemandInput { swap_used: Some(Bytes::mib(300)), ..interval(256, Some(9)) };
        let result = demand.update(input);
        assert_eq!((result.demand, result.evidence), (Bytes::mib(500), SwapEvidence::Used));
        let input = ExcessDemandInput { swap_used: Some(Bytes::ZERO), ..interval(256, Some(9)) };
        assert_eq!(demand.update(input).demand, Bytes::mib(200));
    }

    /// 320 MiB in swap: a 128th is forgotten in an interval without traffic, and traffic brings it
    /// back.
    #[test]
    fn swap_that_does_not_move_is_forgotten() {
        let mut demand = ExcessDemand::default();
        let mut excess = |used: u64, swapped_in: u64, swapped_out: u64| {
            let input = ExcessDemandInput {
                swap_used: Some(Bytes::mib(used)),
                swapped_out: Some(Bytes::mib(swapped_out)),
                ..interval(256, Some(swapped_in))
            };
            demand.update(input).excess
        };
        assert_eq!(excess(320, 0, 0), Bytes::mib(320));
        assert_eq!(excess(320, 0, 0), Bytes::kib(320 * 1024 - 2560));
        assert!(excess(640, 0, 0) > Bytes::mib(634), "what comes in counts at once");
        assert_eq!(excess(320, 200, 130), Bytes::mib(320), "at most what is in use");
        for _ in 0..294 {
            excess(320, 0, 0);
        }
        assert!(excess(320, 0, 0) < Bytes::mib(32));
        assert!(excess(320, 20, 20) > Bytes::mib(60));
        assert_eq!(excess(5, 0, 0), Bytes::mib(5), "freed");
    }

    #[test]
    fn swap_ins_raise_demand_until_granted_or_forgotten() {
        let mut demand = ExcessDemand::default();
        for (allocation, swapped_in, expected) in [
            (256, Some(0), 0),
            (256, Some(16), 16),
            (256, Some(48), 64),
            (288, Some(0), 28), // 32 granted; an eighth of the other 32 forgotten
            (288, None, 28),
            (300, None, 16),
            (300, Some(0), 14),
            (200, Some(500), 200), // at most the allocation
        ] {
            let result = demand.update(interval(allocation, swapped_in));
            assert_eq!(result.excess, Bytes::mib(expected), "{allocation} {swapped_in:?}");
            assert_eq!(result.demand, Bytes::mib(200 + expected));
        }
    }

    #[test]
    fn growth_into_swap_raises_demand_and_shrinking_does_not() {
        let mut excess_demand = ExcessDemand::default();
        for (allocation, out, swapped_in, excess, demand) in [
            (256, 40, 0, 40, 296.0),  // grows into swap: needs its 256 and the 40
            (256, 30, 30, 40, 296.0), // thrashes: needs no less than before
            (256, 40, 30, 50, 296.0),
            (304, 0, 10, 40, 296.0), // was granted more, and reads pages back
            (304, 8, 0, 48, 312.0),  // grows again
            (254, 50, 0, 48, 304.0), // shrunk by as much as it swapped out: 312 less 64 / 8
            (254, 0, 8, 40, 304.0),  // demand stays while it reads pages back
            (254, 0, 0, 35, 295.375), // an eighth forgotten, of 40 and of 304 - 235
            (20, 1, 0, 20, 285.953125), // at most the allocation; swapped out because it was shrunk
        ] {
            let swapped_out = Some(Bytes::mib(out));
            let input = ExcessDemandInput { swapped_out, ..interval(allocation, Some(swapped_in)) };
            let result = excess_demand.update(input);
            let expected = (Bytes::mib(excess), SwapEvidence::Traffic);
            assert_eq!((result.excess, result.evidence), expected, "{input:?}");
            assert_eq!(
                result.demand.get() as f64 / Bytes::mib(1).get() as f64,
                demand,
                "{input:?}"
            );
        }
    }

    #[test]
    fn demand_from_swapping_decays_to_the_working_set() {
        let mut excess_demand = ExcessDemand::default();
        let grows =
            ExcessDemandInput { swapped_out: Some(Bytes::mib(40)), ..interval(500, Some(0)) };
        assert_eq!(excess_demand.update(grows).demand, Bytes::mib(540));
        let again = ExcessDemandInput { swapped_out: Some(Bytes::mib(32)), ..grows };
        let displaced = excess_demand.update(again).displaced;
        assert_eq!(displaced, Bytes::mib(35), "seven eighths of 40, more than the new 32");
        assert_eq!(excess_demand.update(grows).displaced, Bytes::mib(40));
        let quiet = ExcessDemandInput { swapped_out: Some(Bytes::ZERO), ..interval(500, Some(0)) };
        let demands: Vec<Bytes> = (0..200).map(|_| excess_demand.update(quiet).demand).collect();
        assert!(demands.is_sorted_by(|before, after| before >= after));
        // 340 MiB beyond the working set: two thirds of it remain after four intervals, a third
        // after thirteen.
        assert!(demands[3] > Bytes::mib(427) && demands[12] < Bytes::mib(313), "{demands:?}");
        assert_eq!(demands[199], Bytes::mib(200));
        assert_eq!(excess_demand.update(quiet).displaced, Bytes::ZERO);
    }

    proptest! {
        #[test]
        fn demand_from_swap_ins_decays_to_zero(excess in 0..1u64 << 42) {
            let excess = Bytes::new(excess);
            let mut demand =
                ExcessDemand { excess, allocation: Bytes::MAX, ..ExcessDemand::default() };
            let quiet = ExcessDemandInput { allocation: Bytes::MAX, ..interval(0, Some(0)) };
            let intervals = (0..300).find(|_| demand.update(quiet).excess == Bytes::ZERO);
            prop_assert!(intervals.is_some());
        }

        /// `excess` is at most the swap in use: all of it while everything moves, and finally
        /// nothing while nothing moves.
        #[test]
        fn only_swap_that_moves_stays_in_demand(
            series in prop::collection::vec((0..1u64 << 42, 0..1u64 << 42), 1..30),
        ) {
            let mut demand = ExcessDemand::default();
            let mut excess = |used: u64, swapped_in: u64| {
                let input = ExcessDemandInput {
                    swap_used: Some(Bytes::new(used)),
                    swapped_in: Some(Bytes::new(swapped_in)),
                    swapped_out: Some(Bytes::ZERO),
                    ..interval(256, None)
                };
                demand.update(input).excess
            };
            for (used, swapped_in) in series {
                let excess = excess(used, swapped_in);
                prop_assert!(excess <= Bytes::new(used));
                prop_assert!(excess >= Bytes::new(used.min(swapped_in)));
            }
            prop_assert_eq!(excess(1 << 42, 1 << 42), Bytes::new(1 << 42));
            prop_assert!((0..5000).any(|_| excess(1 << 42, 0) == Bytes::ZERO));
        }

        #[test]
        fn more_swap_ins_never_lower_demand(
            series in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 1..30),
            extra: u64,
        ) {
            let (mut less, mut more) = (ExcessDemand::default(), ExcessDemand::default());
            for (wss, allocation, swapped_in) in series {
                let of = |swapped_in: u64| ExcessDemandInput {
                    wss: Bytes::new(wss),
                    allocation: Bytes::new(allocation),
                    swap_used: None,
                    swapped_in: Some(Bytes::new(swapped_in)),
                    swapped_out: None,
                };
                let less = less.update(of(swapped_in));
                let more = more.update(of(swapped_in.saturating_add(extra)));
                prop_assert!(less.demand <= more.demand);
                prop_assert!(more.excess <= Bytes::new(allocation));
                prop_assert!(less.demand >= Bytes::new(wss));
            }
        }
    }
}
