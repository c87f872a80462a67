//! What is remembered of one guest to tell its demand from more than memory in use.
//!
//! Idea: counters become rates, rates drive the probing machine, swap on top of the tracked working
//! set becomes the demand beyond the allocation, and all that is known goes through [`fusion`]. What a
//! guest needs beside what a tracker sees it touch, for its kernel and to keep free, comes on top of
//! working set and curve; and what it swaps out for want of room are misses that a curve of the memory it
//! holds cannot know ([`MissCurve::extended`](ballast_model::MissCurve::extended)). A
//! reading counts once: statistics that have not come anew since the last tick change nothing.
//!
//! A kernel that clears pages when it hands them out (`init_on_alloc`, the rule in distributions) touches
//! those that it gives to its balloon: a guest that is made smaller seems to use more. So while it shrinks,
//! and for an interval more, a working set that grows is not believed, nor its curve; one that grows
//! in truth swaps, and that is.
//!
//! Cost: O(1) a guest and tick; nothing but memory in use costs nothing more.
//! Limits: counters that fall (the guest was booted anew) tell nothing until the next reading.

use std::sync::Arc;
use std::time::Duration;

use ballast_model::{
    AgentReport, Bytes, Confidence, Demand, DemandSource, Estimate, GuestSample, GuestStats,
    Measured, MissCurve, Signals, Timestamp, TrackerReport,
};

use crate::before;
use crate::beyond::{Beyond, BeyondInput, DemandBeyond};
use crate::fusion::{self, Source};
use crate::probing::{Bounds, Epoch, Probing, ProbingSettings};

/// Readings come once a second, dated to within half of one.
const READING_APART_MIN: Duration = Duration::from_millis(500);

/// What a guest needs beside the memory that its processes were promised: its kernel takes some
/// 75 MiB and keeps some 60 MiB free. Without it probing begins below what the guest can run in.
const KERNEL_AND_FREE: Bytes = Bytes::mib(128);

/// What a Linux guest keeps free beside its working set, where it does not tell its watermarks: it
/// begins to reclaim, and to lose its working set, when less is free.
const KEPT_FREE: Bytes = Bytes::mib(64);

/// Intervals in which a growing working set is not believed: that in which the guest shrank, and the next,
/// in which what it gave away is still remembered.
const DOUBTED: u32 = 2;

/// The memory of one guest's rates and machines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    counters: Option<Counters>,
    swapped_pages_per_s: Option<u64>,
    probing: Probing,
    probed: Option<(Bytes, Timestamp)>,
    beyond: DemandBeyond,
    /// Swapped in and out since the tracker last reported.
    swapped_in: Option<Bytes>,
    swapped_out: Option<Bytes>,
    tracked: Option<(Tracked, Timestamp)>,
    /// The last report that was believed.
    believed: Option<TrackerReport>,
    /// How many more are doubted.
    doubted: u32,
}

/// What the tracker's last report came to.
#[derive(Clone, Copy, Debug)]
struct Tracked {
    beyond: Beyond,
    /// What the guest held then.
    held: Bytes,
    /// What of that it needs beside what it touches.
    aside: Bytes,
}

/// Counters since boot, as of one reading.
#[derive(Clone, Copy, Debug)]
struct Counters {
    at: Timestamp,
    swap_in: Option<Bytes>,
    swap_out: Option<Bytes>,
    refaulted_pages: Option<u64>,
}

impl Watch {
    /// Probes by these settings from now on.
    pub(crate) fn configure(&mut self, settings: ProbingSettings) {
        self.probing.configure(settings);
    }

    /// Takes in a sample. `uncounted` is what of its allocation the guest's kernel took at boot: it is
    /// held, and hardly touched.
    pub(crate) fn observe(
        &mut self,
        guest: &GuestSample,
        uncounted: Option<Bytes>,
        now: Timestamp,
    ) {
        if let Some(stats) = &guest.stats {
            self.count(guest, stats, now);
        }
        if let Some(tracker) = &guest.tracker {
            let at = before(now, tracker.age);
            if self.tracked.is_none_or(|(_, last)| at > last) {
                let held = guest.allocation.map_or(Bytes::ZERO, |measured| measured.value);
                let wss = self.believe(&tracker.value, held);
                // No more than it holds: the difference of that and what the guest counts.
                let aside = kept_free(guest, held).saturating_add(uncounted.unwrap_or(Bytes::ZERO));
                let seen = BeyondInput {
                    wss: wss.saturating_add(aside),
                    allocation: held,
                    swap_used: guest.agent.and_then(|agent| agent.value.swap_used),
                    swapped_in: self.swapped_in.take(),
                    swapped_out: self.swapped_out.take(),
                };
                let beyond = self.beyond.update(seen);
                self.tracked = Some((Tracked { beyond, held, aside }, at));
            }
        }
    }

    /// Takes in a report of a guest that holds so much; the working set that is believed.
    fn believe(&mut self, report: &TrackerReport, held: Bytes) -> Bytes {
        self.doubted = match self.tracked {
            Some((before, _)) if held < before.held => DOUBTED,
            _ => self.doubted.saturating_sub(1),
        };
        match &self.believed {
            Some(last) if self.doubted > 0 && report.working_set > last.working_set => {
                last.working_set
            }
            _ => {
                self.believed = Some(report.clone());
                report.working_set
            }
        }
    }

    /// What the counters of a new reading say, and an epoch of probing.
    fn count(&mut self, guest: &GuestSample, stats: &Measured<GuestStats>, now: Timestamp) {
        let at = before(now, stats.age);
        let agent: Option<AgentReport> = guest.agent.map(|agent| agent.value);
        let counters = Counters {
            at,
            swap_in: stats.value.swap_in,
            swap_out: stats.value.swap_out,
            refaulted_pages: agent.and_then(|agent| agent.refaulted_file_pages),
        };
        let Some(last) = self.counters else {
            self.counters = Some(counters);
            return;
        };
        let apart = at.saturating_since(last.at);
        if apart < READING_APART_MIN {
            return;
        }
        self.counters = Some(counters);
        let grown = |now: Option<Bytes>, then: Option<Bytes>| {
            now?.get().checked_sub(then?.get()).map(Bytes::new)
        };
        let swapped_in = grown(counters.swap_in, last.swap_in);
        let swapped_out = grown(counters.swap_out, last.swap_out);
        let refaulted = match (counters.refaulted_pages, last.refaulted_pages) {
            (Some(now), Some(then)) => now.checked_sub(then),
            _ => None,
        };
        self.swapped_pages_per_s = swapped_in.zip(swapped_out).map(|(read, written)| {
            let pages = u128::from(read.saturating_add(written).to_pages());
            let per_s = pages * 1_000_000_000 / apart.as_nanos().max(1);
            u64::try_from(per_s).unwrap_or(u64::MAX)
        });
        let add = |sum: &mut Option<Bytes>, more: Option<Bytes>| {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(Bytes::ZERO).saturating_add(more));
            }
        };
        add(&mut self.swapped_in, swapped_in);
        add(&mut self.swapped_out, swapped_out);
        let epoch = Epoch {
            committed: agent
                .and_then(|agent| agent.committed)
                .map(|committed| committed.saturating_add(KERNEL_AND_FREE)),
            allocation: guest.allocation.map(|measured| measured.value),
            swapped_in: swapped_in.map(Bytes::to_pages),
            swapped_out: swapped_out.map(Bytes::to_pages),
            refaulted,
            // The operator's bounds are not an estimator's: no policy lets a guest go beyond them.
            bounds: Bounds::new(Bytes::ZERO, guest.memory_max().unwrap_or(Bytes::MAX)),
        };
        self.probed = self.probing.observe(epoch).map(|probed| (probed.wss, at));
    }

    /// `plain`, which knows memory in use alone, and what else is known.
    pub(crate) fn add_to(&self, plain: Estimate, guest: &GuestSample, now: Timestamp) -> Estimate {
        let agent = guest.agent.map(|agent| agent.value);
        let signals = Signals {
            free: guest.stats.and_then(|stats| stats.value.free),
            committed: agent.and_then(|agent| agent.committed),
            probed: self.probed.map(|(size, _)| size),
            swapped_pages_per_s: self.swapped_pages_per_s,
            request: agent.and_then(|agent| agent.request),
        };
        let believed = self.believed.as_ref().filter(|_| guest.tracker.is_some());
        let curve = believed.and_then(|report| report.curve.as_ref());
        let curve = curve.zip(self.tracked).map(|(curve, (tracked, _))| {
            let Tracked { beyond, held, aside } = tracked;
            let plain = curve.shifted(aside);
            Arc::new(match ends_within(curve, held) {
                // At most twice what it holds: what a guest claims must not grow curves.
                true => {
                    let misses = beyond.lacking.min(held).to_pages();
                    plain.extended(held, beyond.beyond.min(held), misses)
                }
                false => plain,
            })
        });
        let estimate = Estimate { signals, curve, ..plain };
        if self.probed.is_none() && self.tracked.is_none() && signals.committed.is_none() {
            return estimate;
        }
        let since = |at: Timestamp| now.saturating_since(at);
        let source = |kind, (demand, age)| Source { kind, demand, age };
        let tracked = self.tracked.map(|(tracked, at)| (tracked.beyond.demand, since(at)));
        let probed = self.probed.map(|(size, at)| (size, since(at)));
        let committed = signals.committed.zip(guest.agent.map(|agent| agent.age));
        let used = (estimate.used, estimate.demand.age);
        let sources: Vec<Source> = [
            tracked.map(|known| source(DemandSource::WorkingSet, known)),
            probed.map(|known| source(DemandSource::Probing, known)),
            Some(source(DemandSource::Used, used)),
            committed.map(|known| source(DemandSource::Committed, known)),
        ]
        .into_iter()
        .flatten()
        .collect();
        match fusion::fuse(&sources) {
            Ok(fused) => {
                Estimate { demand: fused.demand, passed_over: fused.passed_over, ..estimate }
            }
            // Nothing is fresh: memory in use stands, and is not relied on.
            Err(none) => {
                let demand = Demand { confidence: Confidence::from_percent(0), ..estimate.demand };
                Estimate { demand, passed_over: none.stale, ..estimate }
            }
        }
    }
}

/// What a guest that holds so much keeps free. One that claims more than a quarter of it keeps nobody else from
/// anything, and the bound keeps curves from growing long.
fn kept_free(guest: &GuestSample, held: Bytes) -> Bytes {
    let told = guest.agent.and_then(|agent| agent.value.watermark_high);
    told.unwrap_or(KEPT_FREE).min(held.fraction(1, 4))
}

/// Whether the curve ends where a guest's memory does, or hardly beyond: one that goes on knows more than
/// swapping tells. What a sample stands for may exceed what there is.
fn ends_within(curve: &MissCurve, held: Bytes) -> bool {
    let points = u64::try_from(curve.points().len()).unwrap_or(u64::MAX);
    let last = curve.step().get().saturating_mul(points.saturating_sub(1));
    last <= held.saturating_add(held.fraction(1, 8)).get()
}

#[cfg(test)]
mod tests {
    use ballast_model::{LinkState, MemoryRequest, Provenance, RequestKind};

    use super::*;

    fn second(n: u64) -> Timestamp {
        Timestamp::from_millis(n * 1000)
    }

    fn guest(swap_in_pages: u64) -> GuestSample {
        let stats = GuestStats {
            free: Some(Bytes::mib(70)),
            swap_in: Some(Bytes::pages(swap_in_pages)),
            swap_out: Some(Bytes::ZERO),
            ..GuestStats::default()
        };
        GuestSample {
            boot_memory: Some(Bytes::gib(2)),
            allocation: Some(Measured::fresh(Bytes::mib(500))),
            stats: Some(Measured::fresh(stats)),
            ..GuestSample::unknown("a".parse().unwrap(), LinkState::Up)
        }
    }

    fn plain() -> Estimate {
        let provenance = Provenance::BalloonStatistics { age: Duration::ZERO };
        Estimate::of_used(Bytes::mib(400), Bytes::mib(100), provenance)
    }

    fn with_agent(mut guest: GuestSample, committed_mib: u64, refaulted: u64) -> GuestSample {
        guest.agent = Some(Measured::fresh(AgentReport {
            committed: Some(Bytes::mib(committed_mib)),
            refaulted_file_pages: Some(refaulted),
            request: Some(MemoryRequest {
                number: 7,
                kind: RequestKind::More,
                amount: Bytes::mib(64),
            }),
            ..AgentReport::default()
        }));
        guest
    }

    #[test]
    fn swap_counters_become_a_rate_and_one_reading_counts_once() {
        let mut watch = Watch::default();
        watch.observe(&guest(1000), None, second(1));
        assert_eq!(
            watch.add_to(plain(), &guest(1000), second(1)).signals.swapped_pages_per_s,
            None
        );
        watch.observe(&guest(1200), None, second(3));
        let signals = watch.add_to(plain(), &guest(1200), second(3)).signals;
        assert_eq!(signals.swapped_pages_per_s, Some(100));
        assert_eq!(signals.free, Some(Bytes::mib(70)));
        // The same reading, seen again a second later, is no new second without swapping.
        let mut again = guest(1200);
        again.stats.as_mut().unwrap().age = Duration::from_secs(1);
        watch.observe(&again, None, second(4));
        assert_eq!(watch.add_to(plain(), &again, second(4)).signals.swapped_pages_per_s, Some(100));
        // Booted anew: the counter begins again.
        watch.observe(&guest(3), None, second(5));
        assert_eq!(watch.add_to(plain(), &guest(3), second(5)).signals.swapped_pages_per_s, None);
    }

    #[test]
    fn without_an_agent_or_a_tracker_the_demand_is_what_is_used() {
        let mut watch = Watch::default();
        watch.observe(&guest(0), None, second(1));
        let estimate = watch.add_to(plain(), &guest(0), second(1));
        assert_eq!((estimate.demand, estimate.passed_over.len()), (plain().demand, 0));
    }

    #[test]
    fn committed_memory_starts_the_probing_and_the_rest_is_told() {
        let mut watch = Watch::default();
        for n in 1..4 {
            watch.observe(&with_agent(guest(0), 480, 0), None, second(n));
        }
        let estimate = watch.add_to(plain(), &with_agent(guest(0), 480, 0), second(3));
        // One epoch to begin, one step of 5 % down: 480 and 128 MiB, and the guest holds less.
        let begun = Bytes::mib(608);
        assert_eq!(estimate.signals.probed, Some(begun - begun.fraction(5, 100)));
        assert_eq!(estimate.demand.source, DemandSource::Probing);
        let others: Vec<_> = estimate.passed_over.iter().map(|other| other.source).collect();
        assert_eq!(others, [DemandSource::Used, DemandSource::Committed]);
        assert_eq!(estimate.signals.request.map(|request| request.number), Some(7));
    }

    #[test]
    fn a_tracked_guest_needs_its_working_set_and_what_it_swapped() {
        let mut watch = Watch::default();
        let mut tracked = guest(0);
        tracked.tracker = Some(Measured {
            value: TrackerReport { working_set: Bytes::mib(450), curve: None },
            age: Duration::ZERO,
        });
        let agent = AgentReport { swap_used: Some(Bytes::mib(50)), ..AgentReport::default() };
        tracked.agent = Some(Measured::fresh(agent));
        watch.observe(&tracked, None, second(1));
        let demand = watch.add_to(plain(), &tracked, second(1)).demand;
        // 450 and 50 MiB, and what its kernel keeps free.
        assert_eq!((demand.size, demand.source), (Bytes::mib(564), DemandSource::WorkingSet));
        // 34 MiB that its kernel took at boot are needed too.
        watch.observe(&tracked, Some(Bytes::mib(34)), second(2));
        let demand = watch.add_to(plain(), &tracked, second(2)).demand;
        assert_eq!(demand.size, Bytes::mib(598));
        // Half a minute later nothing of it is believed any more.
        tracked.agent = None;
        tracked.tracker.as_mut().unwrap().age = Duration::from_secs(30);
        let demand = watch.add_to(plain(), &tracked, second(32)).demand;
        assert_eq!((demand.size, demand.source), (Bytes::mib(400), DemandSource::Used));
    }
    #[test]
    fn a_guest_that_is_made_smaller_touches_what_it_gives_away() {
        let mut watch = Watch::default();
        let mut demand_of = |n, held_mib, wss_mib| {
            let mut tracked = guest(0);
            let report = TrackerReport { working_set: Bytes::mib(wss_mib), curve: None };
            tracked.allocation = Some(Measured::fresh(Bytes::mib(held_mib)));
            tracked.tracker = Some(Measured::fresh(report));
            watch.observe(&tracked, None, second(n));
            watch.add_to(plain(), &tracked, second(n)).demand.size - KEPT_FREE
        };
        for (n, held, seen, believed) in [
            (1, 500, 100, 100),
            (2, 450, 210, 100), // shrinks, and seems to use more
            (3, 450, 180, 100), // the interval after
            (4, 450, 180, 180), // it does use more
            (5, 400, 90, 90),   // less is believed at once
        ] {
            assert_eq!(demand_of(n, held, seen), Bytes::mib(believed), "{n}");
        }
    }

    /// 300 pages swapped out in the interval: beside 500 MiB held a curve of 200 MiB has no misses. As many
    /// pages more are all it needs, so each one less is a miss more: 25,600 in 100 MiB.
    #[test]
    fn what_is_swapped_out_for_want_of_room_are_misses_beyond_the_memory_held() {
        let mut watch = Watch::default();
        let mut tracked = guest(0);
        let curve = MissCurve::new(Bytes::mib(100), Duration::from_secs(1), vec![9000, 9000, 0]);
        tracked.tracker = Some(Measured::fresh(TrackerReport {
            working_set: Bytes::mib(400),
            curve: curve.ok().map(Arc::new),
        }));
        let estimated = |watch: &Watch, guest: &GuestSample, n| {
            watch.add_to(plain(), guest, second(n)).curve.unwrap()
        };
        watch.observe(&tracked, None, second(1));
        // Shifted by the 64 MiB that are kept free: a step.
        assert_eq!(estimated(&watch, &tracked, 1).points(), [9000, 9000, 9000, 0]);
        let mut tracked = GuestSample { tracker: tracked.tracker, ..guest(0) };
        tracked.stats.as_mut().unwrap().value.swap_out = Some(Bytes::pages(300));
        watch.observe(&tracked, None, second(2));
        let beyond = estimated(&watch, &tracked, 2);
        assert_eq!(beyond.points(), [137_300, 111_700, 86_100, 51_500, 25_900, 300, 0]);
        // One that goes on beyond what is held knows better.
        let curve = MissCurve::new(Bytes::mib(300), Duration::from_secs(1), vec![9, 9, 9, 0]);
        let report = |curve| TrackerReport { working_set: Bytes::mib(400), curve };
        let tracker = Some(Measured::fresh(report(curve.ok().map(Arc::new))));
        let mut tracked = GuestSample { tracker, ..guest(0) };
        tracked.stats.as_mut().unwrap().value.swap_out = Some(Bytes::pages(600));
        watch.observe(&tracked, None, second(3));
        assert_eq!(estimated(&watch, &tracked, 3).points(), [9, 9, 9, 9, 0]);
    }
}
