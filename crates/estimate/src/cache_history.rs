//! From samples of a guest to readings for its [cache need](crate::cache_need).
//!
//! Idea: disks are read every five seconds, statistics every second, and an agent reports when it
//! likes. A reading covers the time between two readings of the disks, or of the statistics where
//! there are none of disks. It is made once the statistics are as new as the disks' figures, since
//! until then swap-ins would look like reads of files.
//!
//! A hypervisor that hangs answers late. Its figures are then of any moment between query and
//! answer, and the time between two readings is taken for as long as it can have been: from the
//! earlier query to the later answer. So reads per second are never overstated. Nor are they
//! understated by more than half, because that time has to be known as well: at the least, it must
//! be half as long.
//!
//! Cost: O(1) per sample. Source: ours. Limits: without the balloon's figure of the page cache,
//! nothing is known. Nothing is known either of a guest whose answers all take longer than
//! [`TOOK_MAX`].

use std::time::Duration;

use ballast_model::{Bytes, DiskReads, GuestSample, GuestStats, Measured, Timestamp};

use crate::before;
use crate::cache_need::{CacheNeed, CacheReading, ReadBetween};

/// Shortest time between two readings: disks are read every five seconds.
const APART_MIN: Duration = Duration::from_secs(4);

/// Older readings of disks say nothing of the cache that is needed now.
const AGE_MAX: Duration = Duration::from_secs(60);

/// An answer that took longer is ignored. If answers take `t`, the shortest time between two
/// queries whose readings count is `3 t`, and the later one is answered when the earlier one is
/// `4 t` old: that must not be older than [`AGE_MAX`].
const TOOK_MAX: Duration = Duration::from_secs(15);

/// Statistics and readings of disks are of the same time if they are no more apart: statistics are
/// dated in whole seconds.
const SAME_TIME: Duration = Duration::from_secs(1);

/// What a guest's cache need is computed from.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheHistory {
    need: CacheNeed,
    last: Option<LastReading>,
    /// Swapped in since.
    swapped_in: Bytes,
    /// Read again from files since; `None`: no agent reports it.
    refaulted: Option<Bytes>,
}

/// The last reading that counted. Its figures are of some moment between query and answer.
#[derive(Clone, Copy, Debug)]
struct LastReading {
    asked_at: Timestamp,
    answered_at: Timestamp,
    /// What was read from its disks by then; `None`: unknown.
    disks: Option<DiskReads>,
    /// Swapped in between the reading before and this one.
    swapped_in: Bytes,
}

impl CacheHistory {
    /// Adds what statistics and agent counted since the last time; `None`: not reported.
    pub(crate) fn count(&mut self, swapped_in: Option<Bytes>, refaulted: Option<Bytes>) {
        self.swapped_in = self.swapped_in.saturating_add(swapped_in.unwrap_or_default());
        if let Some(more) = refaulted {
            self.refaulted = Some(self.refaulted.unwrap_or_default().saturating_add(more));
        }
    }

    /// Takes in a sample with `stats`. Most samples bring no new reading.
    pub(crate) fn observe(
        &mut self,
        guest: &GuestSample,
        stats: &Measured<GuestStats>,
        now: Timestamp,
    ) {
        let reads = guest.disk_reads;
        // Of a guest whose reads are counted, refaults alone do not count: it may have made its
        // hypervisor hang.
        let is_without_news = match &reads {
            Some(reads) => reads.age > AGE_MAX || reads.value.took > TOOK_MAX,
            None => self.refaulted.is_none(),
        };
        if is_without_news {
            // The last reading stays the last one, and ages.
            return;
        }
        let stats_at = before(now, stats.age);
        let asked_at = reads.map_or(stats_at, |reads| before(now, reads.age));
        let took = reads.map_or(Duration::ZERO, |reads| reads.value.took);
        let answered_at = (asked_at + took).min(now);
        if stats_at + SAME_TIME < answered_at {
            // What was swapped in by then is not known yet.
            return;
        }
        let disks = reads.map(|reads| reads.value);
        let reading = LastReading { asked_at, answered_at, disks, swapped_in: self.swapped_in };
        let Some(last) = self.last else {
            self.last = Some(reading);
            return;
        };
        let longest = answered_at.saturating_since(last.asked_at);
        let shortest = asked_at.saturating_since(last.answered_at);
        if longest < APART_MIN || shortest < longest / 2 {
            return;
        }
        self.last = Some(reading);
        let mut swapped_in = std::mem::take(&mut self.swapped_in);
        if last.answered_at > last.asked_at + SAME_TIME {
            // These swap-ins may have come after the figures of the earlier answer.
            swapped_in = swapped_in.saturating_add(last.swapped_in);
        }
        let refaulted = self.refaulted.take();
        let GuestStats { disk_caches: Some(cache), free: Some(free), available, .. } = stats.value
        else {
            self.need = CacheNeed::default();
            return;
        };
        let disks = last.disks.zip(disks).map(|(then, now)| ReadBetween { then, now, swapped_in });
        let reads = match (disks, refaulted) {
            (Some(disks), Some(refaulted)) => disks.in_all().min(refaulted),
            (Some(disks), None) => disks.at_random(),
            (None, Some(refaulted)) => refaulted,
            (None, None) => return,
        };
        // What is not available counts as used already.
        let cache = cache.min(available.unwrap_or(free));
        let memory = guest.memory_max().unwrap_or(Bytes::ZERO);
        self.need.update(CacheReading { reads, cache, free, memory, interval: longest });
    }

    /// The page cache that the guest needs, as far as it is known at `now`.
    pub(crate) fn need(&self, now: Timestamp) -> Bytes {
        match self.last {
            Some(last) if now.saturating_since(last.asked_at) <= AGE_MAX => self.need.get(),
            _ => Bytes::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use ballast_model::LinkState;
    use proptest::prelude::*;

    use super::*;

    const CACHE: Bytes = Bytes::mib(500);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    /// An answer to a query of the disks. Times are in milliseconds.
    #[derive(Clone, Copy, Debug)]
    struct DiskAnswer {
        asked: u64,
        answered: u64,
        /// When its figures were true.
        counted: u64,
    }

    /// Samples at `now` a guest that reads `kib_per_ms` in small requests all the time. `answer` is
    /// the last one about its disks.
    fn sample(history: &mut CacheHistory, kib_per_ms: u64, answer: Option<DiskAnswer>, now: u64) {
        let disk_reads = answer.map(|answer| {
            let pages = answer.counted * kib_per_ms / 4;
            let took = Duration::from_millis(answer.answered - answer.asked);
            let value = DiskReads { read: Bytes::pages(pages), requests: pages, took };
            Measured { value, age: Duration::from_millis(now - answer.asked) }
        });
        let guest = GuestSample {
            boot_memory: Some(Bytes::gib(4)),
            disk_reads,
            ..GuestSample::unknown("a".parse().unwrap(), LinkState::Up)
        };
        let stats = GuestStats {
            disk_caches: Some(CACHE),
            free: Some(Bytes::mib(60)),
            ..GuestStats::default()
        };
        let stats = Measured::fresh(GuestStats { available: Some(Bytes::mib(600)), ..stats });
        history.observe(&guest, &stats, at(now));
    }

    /// Samples once a second until after the last of `answers`. Returns the largest need.
    fn largest_need(answers: &[DiskAnswer], kib_per_ms: u64, swaps: bool) -> Bytes {
        let mut history = CacheHistory::default();
        let mut largest = Bytes::ZERO;
        let end = answers.last().map_or(0, |answer| answer.answered) + 2000;
        for now in (0..=end).step_by(1000) {
            let swapped_in = swaps.then_some(Bytes::kib(kib_per_ms * 1000));
            history.count(swapped_in, None);
            let last = answers.iter().rfind(|answer| answer.answered <= now);
            sample(&mut history, kib_per_ms, last.copied(), now);
            largest = largest.max(history.need(at(now)));
        }
        largest
    }

    fn answer(asked: u64, answered: u64, counted: u64) -> DiskAnswer {
        DiskAnswer { asked, answered, counted }
    }

    #[test]
    fn a_late_answer_does_not_overstate_what_is_read() {
        // Ten seconds of reads at 10 MiB a second, by an answer to a query after five seconds.
        let answers = [answer(0, 0, 0), answer(5000, 10_000, 10_000)];
        let need = largest_need(&answers, 10, false);
        assert!(need > CACHE && need <= CACHE + Bytes::mib(80), "{need}");
    }

    #[test]
    fn an_answer_after_a_late_one_does_not_overstate_either() {
        let answers = [answer(1000, 11_000, 1000), answer(31_000, 31_000, 31_000)];
        let need = largest_need(&answers, 10, false);
        assert!(need > CACHE && need <= CACHE + Bytes::mib(80), "{need}");
    }

    #[test]
    fn answers_that_are_too_late_are_ignored() {
        let late = [answer(0, 0, 0), answer(5000, 21_000, 21_000)];
        assert_eq!(largest_need(&late, 10, false), Bytes::ZERO);
        let then_early = [late[0], late[1], answer(26_000, 26_000, 26_000)];
        assert!(largest_need(&then_early, 10, false) > CACHE);
    }

    #[test]
    fn readings_that_may_understate_by_more_than_half_are_skipped() {
        let half = [answer(0, 10_000, 10_000), answer(30_000, 40_000, 30_000)];
        let need = largest_need(&half, 10, false);
        assert!(need >= CACHE + Bytes::kib(38_000), "{need}");
        let third = [answer(0, 15_000, 15_000), answer(30_000, 45_000, 30_000)];
        assert_eq!(largest_need(&third, 10, false), Bytes::ZERO);
    }

    #[test]
    fn late_answers_make_no_swap_ins_reads_of_files() {
        let answers =
            [answer(0, 0, 0), answer(20_000, 30_000, 20_000), answer(60_000, 60_000, 60_000)];
        assert_eq!(largest_need(&answers, 10, true), Bytes::ZERO);
        assert!(largest_need(&answers, 10, false) > CACHE);
    }

    #[test]
    fn refaults_that_are_no_longer_reported_make_no_need() {
        let mut history = CacheHistory::default();
        for now in (0..=10_000).step_by(1000) {
            history.count(None, Some(Bytes::mib(10)));
            sample(&mut history, 0, None, now);
        }
        assert!(history.need(at(10_000)) > CACHE);
        for now in (11_000..=80_000).step_by(1000) {
            history.count(None, None);
            sample(&mut history, 0, None, now);
        }
        assert_eq!(history.need(at(80_000)), Bytes::ZERO);
    }

    #[test]
    fn refaults_do_not_count_while_counters_are_missing() {
        let mut history = CacheHistory::default();
        let last = answer(0, 0, 0);
        for now in (0..=90_000).step_by(1000) {
            history.count(None, Some(Bytes::mib(10)));
            sample(&mut history, 0, Some(last), now);
            assert_eq!(history.need(at(now)), Bytes::ZERO, "{now}");
        }
    }

    proptest! {
        /// Whenever the figures were true, and however late the answers: never more than is read in
        /// eight seconds. Once answers are in time again, all of it but the 32nd that counts as
        /// read in order.
        #[test]
        fn what_is_read_is_never_overstated(
            times in prop::collection::vec((0..10_000u64, 0..20_000u64, 0..=100u64), 0..20),
        ) {
            let mut answers = Vec::new();
            let mut now = 0;
            let in_time = [(5000, 0, 0); 10];
            for (pause, took, part) in times.into_iter().chain(in_time) {
                let asked = now + pause;
                now = asked + took;
                answers.push(answer(asked, now, asked + took * part / 100));
            }
            let need = largest_need(&answers, 10, false);
            let eight_seconds = Bytes::kib(80_000);
            prop_assert!(need <= CACHE + eight_seconds, "{}", need);
            prop_assert!(need >= CACHE + eight_seconds.fraction(30, 32), "{}", need);
        }
    }
}
