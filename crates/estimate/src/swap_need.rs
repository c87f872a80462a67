//! Estimates the memory that a guest needs of its swap, from swap traffic alone.
//!
//! Idea: memory in use ends at the allocation, so it cannot show what a guest lacks. A guest that
//! lacks memory swaps out although nothing is taken from it, and reads back what it swapped out.
//! From one reading of its counters to the next:
//!
//! ```text
//! evicted = max(swapped out, swapped in − growth of memory in use)
//! swapped = swapped + evicted − swapped in               what is in its swap and may be needed
//! traffic = max(swapped in, swapped out)                 swapped in, where its allocation shrank
//! need    = min(swapped, 8 s × traffic per second)
//! ```
//!
//! A page that was read back and not written since is evicted without a swap-out, but then memory
//! in use does not grow by what is read back; that is the second term of `evicted`. So `swapped`
//! stays while a guest thrashes, and falls by as much as memory in use grows while it fills a
//! grant.
//!
//! Only what a guest could read back in the next seconds counts. Swap-outs count only if its
//! allocation shrank neither in this interval nor in the one before, because swap-outs lag. So an
//! idle guest whose cold pages were swapped out when its allocation was reduced needs hardly more
//! than it uses. In an interval without traffic the need is halved, and an eighth of `swapped` is
//! forgotten.
//!
//! Cost: O(1) per reading. Source: ours; MEB §3.6 has demand beyond the allocation.
//! Limits: read-ahead counts as needed. A working set that exceeds the memory by more than 8 s of
//! swap-ins shows in steps. For a tracked guest, the demand is computed in `excess_demand.rs`, and
//! this counts only together with its memory in use.

use std::time::Duration;

use ballast_model::Bytes;

/// Only what the guest would read back in this time counts. The next grant comes within two
/// decisions, and takes about as long again to arrive.
const HORIZON: Duration = Duration::from_secs(8);

/// Less traffic in an interval is no sign of need: a guest with enough memory swaps as much now and
/// then.
const TRAFFIC_MIN: Bytes = Bytes::pages(64);

/// Part of `swapped` that an interval without traffic forgets: half of it in five intervals.
const FORGET_PART: u64 = 8;

/// Swap traffic of one guest between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapTraffic {
    /// Memory swapped in.
    pub swapped_in: Bytes,
    /// Memory swapped out.
    pub swapped_out: Bytes,
    /// How much memory in use grew; `None`: unknown.
    pub use_growth: Option<Bytes>,
    /// The guest's allocation, which is also the most that can be needed beyond it.
    pub allocation: Bytes,
    /// Time between the readings; more than zero.
    pub interval: Duration,
}

/// How much of its swap one guest needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwapNeed {
    /// Memory that is in its swap and not forgotten.
    swapped: Bytes,
    need: Bytes,
    /// Its allocation at the last reading and at the one before; zero: there was none.
    allocations: [Bytes; 2],
}

impl SwapNeed {
    /// Memory the guest needs beyond what it uses.
    pub fn get(self) -> Bytes {
        self.need
    }

    /// Takes in the traffic since the last reading.
    pub fn update(&mut self, traffic: SwapTraffic) {
        let SwapTraffic { swapped_in, swapped_out, use_growth, allocation, interval } = traffic;
        // If growth is unknown, everything that is read back is assumed to stay.
        let evicted_clean =
            use_growth.map_or(Bytes::ZERO, |grown| swapped_in.saturating_sub(grown));
        let evicted = swapped_out.max(evicted_clean);
        let swapped = self.swapped.saturating_add(evicted).saturating_sub(swapped_in);
        self.swapped = swapped.min(allocation);
        let is_shrinking = self.allocations.iter().any(|&earlier| earlier > allocation);
        self.allocations = [allocation, self.allocations[0]];
        let traffic = if is_shrinking { swapped_in } else { swapped_in.max(swapped_out) };
        if traffic < TRAFFIC_MIN {
            let forgotten = self.swapped.fraction(1, FORGET_PART).max(Bytes::pages(1));
            self.swapped = self.swapped.saturating_sub(forgotten);
            self.need = self.need.fraction(1, 2).min(self.swapped);
            return;
        }
        let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).max(1);
        let horizon_ms = u64::try_from(HORIZON.as_millis()).unwrap_or(u64::MAX);
        self.need = self.swapped.min(traffic.fraction(horizon_ms, interval_ms));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn traffic(swapped_in_mib: u64, swapped_out_mib: u64, grown_mib: u64) -> SwapTraffic {
        SwapTraffic {
            swapped_in: Bytes::mib(swapped_in_mib),
            swapped_out: Bytes::mib(swapped_out_mib),
            use_growth: Some(Bytes::mib(grown_mib)),
            allocation: Bytes::mib(512),
            interval: Duration::from_secs(1),
        }
    }

    #[test]
    fn need_is_what_is_swapped_and_no_more() {
        let mut need = SwapNeed::default();
        for (traffic, expected) in [
            (traffic(0, 210, 300), 210), // grows into swap
            (traffic(40, 40, 0), 210),   // thrashes
            (traffic(40, 0, 0), 210),    // evicts pages that it did not write
            (traffic(10, 0, 0), 80),     // a slow disk: what 8 s read back
            (traffic(60, 0, 60), 150),   // fills what it was granted
            (traffic(100, 0, 100), 50),  // the same
            (traffic(0, 0, 0), 25),      // done: the rest is halved
            (traffic(0, 0, 0), 12),
        ] {
            need.update(traffic);
            assert_eq!(need.get().get() >> 20, expected, "{traffic:?}");
        }
    }

    #[test]
    fn cold_pages_of_an_idle_guest_are_not_needed() {
        let mut need = SwapNeed::default();
        for second in 1..12u64 {
            // The last swap-outs come after the balloon has stopped.
            let allocation = Bytes::mib(512 - 30 * second.min(10));
            need.update(SwapTraffic {
                swapped_in: Bytes::pages(80),
                swapped_out: Bytes::mib(if second == 1 { 0 } else { 30 }),
                allocation,
                ..traffic(0, 0, 0)
            });
            assert!(need.get() <= Bytes::pages(640), "{:?}", need.get());
        }
    }

    #[test]
    fn need_is_by_rate_not_by_reading() {
        let mut twice = SwapNeed::default();
        twice.update(traffic(0, 500, 0));
        twice.update(SwapTraffic { interval: Duration::from_secs(2), ..traffic(20, 0, 0) });
        assert_eq!(twice.get(), Bytes::mib(80));
    }

    proptest! {
        #[test]
        fn need_is_bounded_by_traffic_and_ends(
            series in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 1..30),
            allocation: u64,
        ) {
            let mut need = SwapNeed::default();
            let of = |swapped_in: u64, swapped_out: u64, grown: u64| SwapTraffic {
                swapped_in: Bytes::new(swapped_in),
                swapped_out: Bytes::new(swapped_out),
                use_growth: Some(Bytes::new(grown)),
                allocation: Bytes::new(allocation),
                interval: Duration::from_secs(1),
            };
            for (swapped_in, swapped_out, grown) in series {
                need.update(of(swapped_in, swapped_out, grown));
                prop_assert!(need.get() <= Bytes::new(allocation));
                let traffic = Bytes::new(swapped_in.max(swapped_out));
                if traffic >= TRAFFIC_MIN {
                    prop_assert!(need.get() <= traffic.fraction(8, 1));
                }
            }
            for _ in 0..64 {
                need.update(of(0, 0, 0));
            }
            prop_assert_eq!(need.get(), Bytes::ZERO);
        }
    }
}
