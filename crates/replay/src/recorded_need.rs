//! What a recorded guest needs beyond its memory in use: memory in its swap that it reads back.
//!
//! Idea: the daemon grants a guest what it would read back in the next 8 s, and grants again once
//! the guest has read that (`swap_need.rs` of `estimate`). A guest that is only observed is granted
//! nothing, so its record shows only the first of these steps. But the record also shows what
//! happened afterwards. With enough room, whatever the guest reads back would stay in its memory,
//! in use until it is freed. So it needs
//!
//! ```text
//! read back = min(read back + swapped in, in swap)    since it last had nothing in its swap
//! need      = min(in swap, max(read back, 8 s of swap-ins))
//! ```
//!
//! An agent reports what is in the swap. Without an agent it is derived from the balance of swap
//! traffic and from memory that is not free: memory and swap together do not shrink while the
//! guest swaps. That also covers pages that were read back, not changed, and evicted again without
//! being written.
//!
//! ```text
//! balance   = balance + swapped out − swapped in
//! footprint = max(footprint, not free + balance)
//! in swap   = footprint − not free
//! ```
//!
//! If memory was freed, the allocation moved, or nothing was swapped, the footprint starts again
//! from what is in swap.
//!
//! The balance does not contain what was swapped out before the record began. So if the guest had
//! swapped before, or reads back more than the balance contains, the daemon's estimate counts if it
//! is larger. Without traffic the balance decays, because pages in swap may have been freed unseen.
//!
//! Cost: O(1) a reading. Source: ours; Linux keeps anonymous memory resident until it is freed or
//! reclaimed.
//! Limits: without an agent this is a lower bound, with two exceptions that count as needed until a
//! reading without traffic: memory that was freed while in swap, and page cache that displaced
//! processes' memory and was dropped later.

use std::time::Duration;

use ballast_model::{Bytes, Estimate, GuestSample, GuestStats, Measured, Timestamp};

/// Shortest time between two readings, as in the estimator: they come once a second, dated to
/// within half a second.
const READING_APART_MIN: Duration = Duration::from_millis(500);

/// Swap traffic between two readings below this is no sign of a shortage.
pub(crate) const SWAPPING_MIN: Bytes = Bytes::pages(64);

/// A reading without traffic forgets one part in this many of what is in swap, as in the
/// estimator.
const FORGET_PART: u64 = 8;

/// Reclaim frees at most about this much at once: from the low watermark to the high one, and what
/// is under way. If more becomes free, processes freed it.
const RECLAIMED_AT_ONCE: Bytes = Bytes::mib(64);

/// Agents report once a second; a report older than this is not used.
const REPORT_AGE_MAX: Duration = Duration::from_secs(10);

/// What one guest needs from its swap, by its record so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecordedNeed {
    /// The last reading; `None`: none since the guest started.
    last: Option<NeedReading>,
    in_swap: Bytes,
    /// What is in its swap by the balance alone.
    balance: Bytes,
    /// Memory in use and swap together.
    footprint: Bytes,
    /// Read back since it last had nothing in its swap.
    read_back: Bytes,
    /// Whether an agent reported what is in its swap at the last reading.
    is_reported: bool,
    /// Whether its swap held something that is not in the balance.
    is_partial: bool,
}

/// A guest's counters at one time.
#[derive(Clone, Copy, Debug)]
struct NeedReading {
    at: Timestamp,
    swap_in: Bytes,
    swap_out: Bytes,
    /// `None`: not known.
    not_free: Option<Bytes>,
    allocation: Bytes,
}

/// What the agent reports to be in the guest's swap; `None`: there is no agent, or its report
/// lacks that or is too old.
pub(crate) fn reported_swap(guest: &GuestSample) -> Option<Bytes> {
    let agent = guest.agent.as_ref().filter(|agent| agent.age <= REPORT_AGE_MAX)?;
    agent.value.swap_used
}

impl RecordedNeed {
    /// Takes in the guest's statistics, recorded at `now`.
    pub(crate) fn observe(
        &mut self,
        guest: &GuestSample,
        stats: &Measured<GuestStats>,
        now: Timestamp,
    ) {
        let at = now.saturating_sub(stats.age);
        let GuestStats { total, free, swap_in, swap_out, .. } = stats.value;
        let (Some(swap_in), Some(swap_out)) = (swap_in, swap_out) else {
            *self = RecordedNeed::default();
            return;
        };
        let reading = NeedReading {
            at,
            swap_in,
            swap_out,
            not_free: total.zip(free).map(|(total, free)| total.saturating_sub(free)),
            allocation: guest.allocation.map(|it| it.value).unwrap_or_default(),
        };
        let reported = reported_swap(guest);
        // A guest cannot get more than its present memory, so a larger claim is cut to that.
        let most = guest.present_memory().unwrap_or(reading.allocation).max(reading.allocation);
        let reported = reported.map(|reported| reported.min(most));
        let last = self.last.filter(|last| last.swap_in <= swap_in && last.swap_out <= swap_out);
        if last.is_some_and(|last| at.saturating_since(last.at) < READING_APART_MIN) {
            return;
        }
        self.last = Some(reading);
        self.is_reported = reported.is_some();
        match (reported, last) {
            (Some(reported), _) => self.is_in_swap(reported, reading),
            (None, Some(last)) => self.balance(last, reading, most),
            (None, None) => {
                self.is_in_swap(Bytes::ZERO, reading);
                self.is_partial = swap_in.max(swap_out) >= SWAPPING_MIN;
            }
        }
        let swapped_in = last.map_or(Bytes::ZERO, |last| swap_in - last.swap_in);
        self.read_back = self.read_back.saturating_add(swapped_in).min(self.in_swap);
    }

    /// Starts again with `in_swap`, which is known to be in its swap.
    fn is_in_swap(&mut self, in_swap: Bytes, now: NeedReading) {
        (self.in_swap, self.balance) = (in_swap, in_swap);
        self.footprint = now.not_free.unwrap_or_default().saturating_add(in_swap);
        self.is_partial = false;
    }

    /// Derives what is in its swap, at most `most`, from the traffic since `last`.
    fn balance(&mut self, last: NeedReading, now: NeedReading, most: Bytes) {
        let (swapped_in, swapped_out) = (now.swap_in - last.swap_in, now.swap_out - last.swap_out);
        let after = |before: Bytes| before.saturating_add(swapped_out).saturating_sub(swapped_in);
        let had = self.in_swap.saturating_add(swapped_out);
        if swapped_in.saturating_sub(had) >= SWAPPING_MIN {
            self.is_partial = true;
        }
        let is_quiet = swapped_in.max(swapped_out) < SWAPPING_MIN;
        let known = now.not_free.zip(last.not_free);
        let is_steady = !is_quiet
            && now.allocation == last.allocation
            && known.is_some_and(|(now, last)| last.saturating_sub(now) <= RECLAIMED_AT_ONCE);
        let not_free = now.not_free.unwrap_or_default();
        if is_steady {
            self.balance = after(self.balance);
            self.footprint = self.footprint.max(not_free.saturating_add(self.balance));
        } else {
            self.balance = after(self.in_swap);
            if is_quiet {
                let forgotten = self.balance.fraction(1, FORGET_PART).max(Bytes::pages(1));
                self.balance = self.balance.saturating_sub(forgotten);
            }
            self.footprint = not_free.saturating_add(self.balance);
        }
        self.in_swap = self.footprint.saturating_sub(not_free).min(most);
    }

    /// What it needs beyond its memory in use, given the daemon's `estimate`.
    pub(crate) fn beyond(&self, estimate: &Estimate) -> Bytes {
        let wanted = estimate.swap_need.max(self.read_back);
        match self.is_reported || !self.is_partial {
            true => wanted.min(self.in_swap),
            false => wanted,
        }
    }
}

#[cfg(test)]
mod tests {
    use ballast_model::{AgentReport, LinkState, Provenance};
    use proptest::prelude::*;

    use super::*;

    const MEMORY: u64 = 512;

    /// The sample of a guest of [`MEMORY`] MiB with these counters and free memory, in MiB.
    fn sample(swap_in: u64, swap_out: u64, free: u64, reported: Option<u64>) -> GuestSample {
        let stats = GuestStats {
            total: Some(Bytes::mib(MEMORY)),
            free: Some(Bytes::mib(free)),
            swap_in: Some(Bytes::mib(swap_in)),
            swap_out: Some(Bytes::mib(swap_out)),
            ..GuestStats::default()
        };
        let agent = AgentReport { swap_used: reported.map(Bytes::mib), ..AgentReport::default() };
        GuestSample {
            boot_memory: Some(Bytes::mib(2 * MEMORY)),
            allocation: Some(Measured::fresh(Bytes::mib(MEMORY))),
            stats: Some(Measured::fresh(stats)),
            agent: reported.map(|_| Box::new(Measured::fresh(agent))),
            ..GuestSample::unknown("a".parse().unwrap(), LinkState::Up)
        }
    }

    fn observe(need: &mut RecordedNeed, second: u64, sample: &GuestSample) {
        let stats = sample.stats.as_ref().unwrap();
        need.observe(sample, stats, Timestamp::from_millis(second * 1000));
    }

    /// What it needs beyond its memory in use, in MiB, if the daemon estimated `swap_need`.
    fn beyond(need: &RecordedNeed, swap_need: u64) -> u64 {
        let provenance = Provenance::BalloonStatistics { age: Duration::ZERO };
        let plain = Estimate::of_used(Bytes::mib(400), Bytes::mib(100), provenance);
        need.beyond(&Estimate { swap_need: Bytes::mib(swap_need), ..plain }).get() >> 20
    }

    /// The guest has 300 MiB in its swap and reads 10 MiB of it back every second.
    #[test]
    fn a_slow_swap_shows_all_that_lacks_in_time() {
        for reported in [None, Some(300)] {
            let mut need = RecordedNeed::default();
            observe(&mut need, 0, &sample(0, 0, 40, reported.map(|_| 0)));
            observe(&mut need, 1, &sample(0, 300, 40, reported));
            assert_eq!(beyond(&need, 80), 80, "the estimate of the daemon, before it reads back");
            for second in 2..100 {
                let read = 10 * (second - 1);
                observe(&mut need, second, &sample(read, 300 + read, 40, reported));
                assert_eq!(beyond(&need, 80), read.clamp(80, 300), "{second}");
            }
        }
    }

    #[test]
    fn pages_evicted_without_being_written_stay_in_the_balance() {
        let mut need = RecordedNeed::default();
        observe(&mut need, 0, &sample(0, 0, 40, None));
        observe(&mut need, 1, &sample(0, 200, 40, None));
        for second in 2..100 {
            // Free memory goes up and down with reclaim.
            observe(&mut need, second, &sample(20 * second, 200, 30 + second % 2 * 20, None));
        }
        assert_eq!(beyond(&need, 0), 210, "of 672 MiB 462 are in memory");
    }

    #[test]
    fn what_was_swapped_before_the_record_is_the_daemons_guess() {
        let mut late = RecordedNeed::default();
        for second in 0..100 {
            observe(&mut late, second, &sample(900 + 20 * second, 999 + 20 * second, 40, None));
        }
        assert_eq!(beyond(&late, 160), 160);
        let mut reported = RecordedNeed::default();
        for second in 0..100 {
            observe(&mut reported, second, &sample(900 + 20 * second, 999, 40, Some(280)));
        }
        assert_eq!(beyond(&reported, 160), 280, "an agent knows it from the first reading");
    }

    #[test]
    fn memory_read_back_that_stays_is_lacking_no_more() {
        let mut need = RecordedNeed::default();
        observe(&mut need, 0, &sample(0, 0, 20, None));
        observe(&mut need, 1, &sample(0, 200, 20, None));
        observe(&mut need, 2, &sample(50, 250, 20, None));
        assert_eq!(beyond(&need, 200), 200);
        // A process ends, and the rest is read back into the memory that it freed.
        observe(&mut need, 3, &sample(60, 250, 300, None));
        for second in 4..20 {
            let read = (60 + (second - 3) * 25).min(240);
            observe(&mut need, second, &sample(read, 250, 300 + 60 - read, None));
        }
        assert!(beyond(&need, 0) <= 10, "{need:?}");
    }

    #[test]
    fn without_traffic_a_balance_is_forgotten_a_reported_one_not() {
        for (reported, left) in [(None, 0), (Some(200), 200)] {
            let mut need = RecordedNeed::default();
            observe(&mut need, 0, &sample(0, 0, 20, reported.map(|_| 0)));
            observe(&mut need, 1, &sample(0, 200, 20, reported));
            observe(&mut need, 2, &sample(200, 400, 20, reported));
            assert_eq!(beyond(&need, 0), 200);
            for second in 3..100 {
                observe(&mut need, second, &sample(200, 400, 20, reported));
            }
            assert_eq!(beyond(&need, 0), left, "{reported:?}");
        }
    }

    #[test]
    fn a_claim_beyond_all_memory_is_not_counted() {
        let mut need = RecordedNeed::default();
        observe(&mut need, 0, &sample(0, 0, 20, Some(1 << 30)));
        observe(&mut need, 1, &sample(1 << 30, 1 << 30, 20, Some(1 << 30)));
        assert_eq!(beyond(&need, 1 << 30), 2 * MEMORY);
    }

    /// A page of the oracle; it stands for a MiB.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Page {
        Dirty,
        Clean,
        InSwap,
    }

    /// A guest page by page: it touches new and old pages in random order, and when it is full it
    /// evicts pages in turn.
    struct Oracle {
        pages: Vec<Page>,
        room: usize,
        turn: usize,
        swap_in: u64,
        swap_out: u64,
    }

    impl Oracle {
        fn resident(&self) -> usize {
            self.pages.iter().filter(|page| **page != Page::InSwap).count()
        }

        fn make_room(&mut self) {
            while self.resident() >= self.room {
                self.turn = (self.turn + 1) % self.pages.len();
                let page = &mut self.pages[self.turn];
                self.swap_out += u64::from(*page == Page::Dirty);
                *page = Page::InSwap;
            }
        }

        fn touch(&mut self, at: usize, writes: bool) {
            let Some(&page) = self.pages.get(at) else {
                self.make_room();
                self.pages.push(Page::Dirty);
                return;
            };
            if page == Page::InSwap {
                self.make_room();
                self.swap_in += 1;
                self.pages[at] = Page::Clean;
            }
            if writes {
                self.pages[at] = Page::Dirty;
            }
        }

        fn in_swap(&self) -> u64 {
            (self.pages.len() - self.resident()) as u64
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// The guest frees nothing, and every reading has traffic.
        #[test]
        fn no_more_is_in_swap_than_there_is(
            touches in prop::collection::vec((0usize..400, any::<bool>()), 200..3000),
            room in 40usize..200,
            always_writes: bool,
        ) {
            let mut oracle = Oracle { pages: vec![], room, turn: 0, swap_in: 0, swap_out: 0 };
            let mut need = RecordedNeed::default();
            observe(&mut need, 0, &sample(0, 0, MEMORY, None));
            for (second, touches) in touches.chunks(50).enumerate() {
                let before = oracle.swap_in.max(oracle.swap_out);
                for (at, writes) in touches {
                    oracle.touch((*at).min(oracle.pages.len()), *writes || always_writes);
                }
                if oracle.swap_in.max(oracle.swap_out) == before {
                    continue;
                }
                let free = MEMORY - oracle.resident() as u64;
                let (swap_in, swap_out) = (oracle.swap_in, oracle.swap_out);
                observe(&mut need, second as u64 + 1, &sample(swap_in, swap_out, free, None));
                let found = need.in_swap.get() >> 20;
                prop_assert!(found <= oracle.in_swap(), "{found} of {}", oracle.in_swap());
                if always_writes {
                    prop_assert_eq!(found, oracle.in_swap(), "every eviction is written");
                }
                prop_assert!(beyond(&need, 0) <= found || need.is_partial);
            }
        }
    }
}
