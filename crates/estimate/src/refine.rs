//! Refines an estimate of memory in use with everything else known about one guest.
//!
//! Idea: counters become rates, rates drive probing, the tracked working set plus swap becomes the
//! demand beyond the allocation, and all sources go through [`fusion`]. Memory that a guest needs
//! but the tracker does not see touched, for its kernel and its free reserve, is added to working
//! set and curve. Pages swapped out for lack of room are misses that a curve of the present
//! allocation cannot contain; they extend the curve
//! ([`MissCurve::extended`](ballast_model::MissCurve::extended)). Each reading counts once:
//! statistics not renewed since the last tick change nothing.
//!
//! A tracker sees a working set with an error. Two working sets count as the same if they differ by
//! no more than an error can explain ([`SAME_WITHIN`]). Of at least the last [`REPORTS`] that are
//! the same, the largest working set counts, and at each size the most misses. So the estimated
//! need of a guest that does the same all the time comes to rest, and a guest that needs more, or
//! clearly less, is followed at once.
//!
//! A kernel that clears pages on allocation (`init_on_alloc`, the default of distributions) touches
//! the pages that it gives to its balloon, so a guest whose allocation is reduced seems to use
//! more. While it shrinks, and for one interval after, a growing working set and its curve are
//! ignored. If the growth is real the guest swaps, and swapping counts.
//!
//! Cost: O(1) per guest and tick, O(points) per report.
//! Source: IMT §4.2 for the size of an error. Using the largest of the last reports is ours; ESX
//! likewise follows use up at once and down slowly (Waldspurger 2002 §5.3).
//! Limits: misses that fall while the working set is the same are followed after up to twice
//! [`REPORTS`]. After counters fall (the guest rebooted) there are no rates until the next reading.

use std::sync::Arc;
use std::time::Duration;

use ballast_model::{
    Bounds, Bytes, Confidence, Demand, DemandSource, Estimate, GuestSample, GuestStats, Measured,
    MissCurve, Signals, Timestamp, TrackerReport,
};

use crate::before;
use crate::cache_history::CacheHistory;
use crate::excess_demand::{ExcessDemand, ExcessDemandInput, ExcessDemandOutput};
use crate::fusion::{self, SourceDemand};
use crate::probing::{Probing, ProbingEpoch, ProbingSettings};
use crate::swap_need::{SwapNeed, SwapTraffic};

/// Shortest time between two readings: they come once a second, dated to within half a second.
const READING_APART_MIN: Duration = Duration::from_millis(500);

/// An agent's counters that are older are not of this interval.
const AGENT_AGE_MAX: Duration = Duration::from_secs(4);

/// Memory a guest needs beyond `Committed_AS`: its kernel takes about 75 MiB and keeps about 60 MiB
/// free. Without it, probing would start below what the guest can run in.
pub(crate) const KERNEL_AND_FREE: Bytes = Bytes::mib(128);

/// Memory a Linux guest keeps free if it does not report its watermarks. With less free it
/// reclaims, and loses pages of its working set.
pub(crate) const KEPT_FREE: Bytes = Bytes::mib(64);

/// Working sets are the same if they differ by at most the larger one divided by this. By IMT two
/// samples within 5 % of their mean are equal; these differ by up to 9.5 % of the larger one, and
/// an eighth is the next simple fraction.
const SAME_WITHIN: u64 = 8;

/// The maximum is taken over at least this many reports: enough that some have nearly the largest
/// possible error, so that the maximum hardly changes. With a report each 5 s, misses that fell are
/// followed within five to ten minutes.
const REPORTS: u32 = 64;

/// Reports whose growth is ignored: the one for the interval in which the guest shrank, and the
/// next, which still counts the pages given away.
const GROWTH_IGNORED: u32 = 2;

/// Rates, probing and tracking results of one guest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refiner {
    counters: Option<SwapCounters>,
    swapped_pages_per_s: Option<u64>,
    swap_need: SwapNeed,
    /// `None`: neither reads of its disks nor refaults are known.
    cache: Option<Box<CacheHistory>>,
    /// `None`: its `Committed_AS` was never read.
    probing: Option<Box<Probing>>,
    probed: Option<(Bytes, Timestamp)>,
    /// Swapped in and out since the tracker last reported.
    swapped_in: Option<Bytes>,
    swapped_out: Option<Bytes>,
    /// `None`: no tracker has reported yet.
    tracker: Option<Box<TrackerHistory>>,
}

/// What is kept of the tracker's reports on one guest.
#[derive(Clone, Debug, Default)]
struct TrackerHistory {
    excess_demand: ExcessDemand,
    tracked: Option<(TrackedDemand, Timestamp)>,
    /// The largest of the last [`REPORTS`] (up to twice as many) that are the same and not ignored.
    accepted: Option<TrackerReport>,
    /// The largest of the last `recent_reports` of them.
    recent: Option<TrackerReport>,
    recent_reports: u32,
    /// Number of further reports whose growth is ignored.
    growth_ignored: u32,
}

/// The demand from the tracker's last report.
#[derive(Clone, Copy, Debug)]
struct TrackedDemand {
    kind: DemandSource,
    excess_demand: ExcessDemandOutput,
    /// The guest's allocation at that time.
    held: Bytes,
    /// Part of the allocation that the guest needs but does not touch.
    untouched: Bytes,
}

/// Counters since boot, as of one reading.
#[derive(Clone, Copy, Debug)]
struct SwapCounters {
    at: Timestamp,
    swap_in: Option<Bytes>,
    swap_out: Option<Bytes>,
    refaulted_pages: Option<u64>,
    /// The guest's total less what is available.
    used: Option<Bytes>,
}

impl SwapCounters {
    fn read(guest: &GuestSample, stats: &GuestStats, at: Timestamp) -> SwapCounters {
        let agent = guest.agent.as_ref().filter(|agent| agent.age <= AGENT_AGE_MAX);
        let used = match (stats.total, stats.available) {
            (Some(total), Some(available)) => Some(total.saturating_sub(available)),
            _ => None,
        };
        SwapCounters {
            at,
            swap_in: stats.swap_in,
            swap_out: stats.swap_out,
            refaulted_pages: agent.and_then(|agent| agent.value.refaulted_file_pages),
            used,
        }
    }
}

impl TrackerHistory {
    /// Accepts or ignores a report of a guest that holds `held`; returns the accepted working set.
    fn accept(&mut self, report: &TrackerReport, held: Bytes) -> Bytes {
        self.growth_ignored = match self.tracked {
            Some((before, _)) if held < before.held => GROWTH_IGNORED,
            _ => self.growth_ignored.saturating_sub(1),
        };
        match (&self.accepted, &self.recent) {
            (Some(last), _) if self.growth_ignored > 0 && report.working_set > last.working_set => {
            }
            (Some(last), Some(recent)) if is_same(last, report) => {
                let recent = larger(recent, report);
                self.recent_reports += 1;
                if self.recent_reports < REPORTS {
                    self.accepted = Some(larger(last, report));
                    self.recent = Some(recent);
                } else {
                    self.accepted = Some(recent);
                    self.recent = Some(report.clone());
                    self.recent_reports = 0;
                }
            }
            _ => {
                self.accepted = Some(report.clone());
                self.recent = Some(report.clone());
                self.recent_reports = 0;
            }
        }
        let working_set = self.accepted.as_ref().unwrap_or(report).working_set;
        // What the guest no longer holds is in its swap, which is counted apart.
        working_set.min(held.max(report.working_set))
    }
}

/// Whether two reports differ by no more than an error can explain.
fn is_same(last: &TrackerReport, report: &TrackerReport) -> bool {
    let apart = last.working_set.abs_diff(report.working_set);
    let larger = last.working_set.max(report.working_set);
    report.source == last.source && apart <= larger.fraction(1, SAME_WITHIN)
}

/// Of two reports that are the same, the larger working set, and at each size the larger misses.
fn larger(last: &TrackerReport, report: &TrackerReport) -> TrackerReport {
    let curve = match (&last.curve, &report.curve) {
        (Some(before), Some(now)) => Some(Arc::new(now.at_least(before))),
        _ => report.curve.clone(),
    };
    let working_set = last.working_set.max(report.working_set);
    TrackerReport { working_set, curve, source: report.source }
}

impl Refiner {
    /// Observes a sample. `uncounted` is the part of the allocation that the guest's kernel
    /// reserved at boot, which it needs but hardly touches.
    pub(crate) fn observe(
        &mut self,
        guest: &GuestSample,
        uncounted: Option<Bytes>,
        now: Timestamp,
        probing: ProbingSettings,
    ) {
        if let Some(stats) = &guest.stats {
            self.count(guest, stats, now, probing);
            if let Some(cache) = &mut self.cache {
                cache.observe(guest, stats, now);
            }
        }
        if let Some(tracker) = &guest.tracker {
            let at = before(now, tracker.age);
            let history = self.tracker.get_or_insert_default();
            if history.tracked.is_none_or(|(_, last)| at > last) {
                let held = guest.allocation.map_or(Bytes::ZERO, |measured| measured.value);
                let wss = history.accept(&tracker.value, held);
                let kept_free = kept_free(guest, held);
                let untouched = kept_free.saturating_add(uncounted.unwrap_or(Bytes::ZERO));
                let input = ExcessDemandInput {
                    wss: wss.saturating_add(untouched),
                    allocation: held,
                    swap_used: guest.agent.as_ref().and_then(|agent| agent.value.swap_used),
                    swapped_in: self.swapped_in.take(),
                    swapped_out: self.swapped_out.take(),
                };
                let excess_demand = history.excess_demand.update(input);
                let kind = tracker.value.source.of_demand();
                history.tracked =
                    Some((TrackedDemand { kind, excess_demand, held, untouched }, at));
            }
        }
    }

    /// Computes rates from a new reading of the counters, and probes for an epoch.
    fn count(
        &mut self,
        guest: &GuestSample,
        stats: &Measured<GuestStats>,
        now: Timestamp,
        probing: ProbingSettings,
    ) {
        let at = before(now, stats.age);
        let counters = SwapCounters::read(guest, &stats.value, at);
        let Some(last) = self.counters else {
            self.counters = Some(counters);
            return;
        };
        if at < last.at + READING_APART_MIN {
            return;
        }
        let apart = at.saturating_since(last.at);
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
        match (swapped_in, swapped_out) {
            (Some(swapped_in), Some(swapped_out)) => self.swap_need.update(SwapTraffic {
                swapped_in,
                swapped_out,
                use_growth: counters
                    .used
                    .zip(last.used)
                    .map(|(now, then)| now.saturating_sub(then)),
                allocation: guest.allocation.map_or(Bytes::ZERO, |measured| measured.value),
                interval: apart,
            }),
            _ => self.swap_need = SwapNeed::default(),
        }
        let add = |sum: &mut Option<Bytes>, more: Option<Bytes>| {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(Bytes::ZERO).saturating_add(more));
            }
        };
        add(&mut self.swapped_in, swapped_in);
        add(&mut self.swapped_out, swapped_out);
        if refaulted.is_some() || guest.disk_reads.is_some() {
            self.cache.get_or_insert_default().count(swapped_in, refaulted.map(Bytes::pages));
        }
        let committed = guest.agent.as_ref().and_then(|agent| agent.value.committed);
        if committed.is_none() && self.probing.is_none() {
            return;
        }
        let epoch = ProbingEpoch {
            committed: committed.map(|committed| committed.saturating_add(KERNEL_AND_FREE)),
            allocation: guest.allocation.map(|measured| measured.value),
            swapped_in: swapped_in.map(Bytes::to_pages),
            swapped_out: swapped_out.map(Bytes::to_pages),
            refaulted,
            // Policies apply the operator's bounds; estimators do not.
            bounds: Bounds {
                floor: Bytes::ZERO,
                ceiling: guest.memory_max().unwrap_or(Bytes::MAX),
            },
        };
        let run = self.probing.get_or_insert_default();
        run.configure(probing);
        self.probed = run.observe(epoch).map(|probed| (probed.wss, at));
    }

    /// Adds everything known to an `estimate` from memory in use alone. `most` is the host's
    /// memory: it bounds the length of curves, whatever a guest claims to hold.
    pub(crate) fn refine(
        &self,
        estimate: &mut Estimate,
        guest: &GuestSample,
        most: Bytes,
        now: Timestamp,
    ) {
        let agent = guest.agent.as_ref().map(|agent| &agent.value);
        let committed = agent.and_then(|agent| agent.committed);
        estimate.signals = Signals {
            free: guest.stats.as_ref().and_then(|stats| stats.value.free),
            committed,
            probed: self.probed.map(|(size, _)| size),
            swapped_pages_per_s: self.swapped_pages_per_s,
            request: agent.and_then(|agent| agent.request),
        };
        estimate.curve = self.curve(guest, most);
        estimate.swap_need = self.swap_need.get();
        estimate.cache_need = match &self.cache {
            Some(cache) => cache.need(now).min(room(guest, estimate.used)),
            None => Bytes::ZERO,
        };
        estimate.demand.size = estimate.needed();
        if self.probed.is_none() && self.tracker.is_none() && committed.is_none() {
            return;
        }
        let Demand { size: demand, age, .. } = estimate.demand;
        let mut sources = vec![SourceDemand { kind: DemandSource::Used, demand, age }];
        if let Some((tracked, at)) = self.tracker.as_ref().and_then(|history| history.tracked) {
            let (kind, demand) = (tracked.kind, tracked.excess_demand.demand);
            sources.push(SourceDemand { kind, demand, age: now.saturating_since(at) });
        }
        if let Some((demand, at)) = self.probed {
            let age = now.saturating_since(at);
            sources.push(SourceDemand { kind: DemandSource::Probing, demand, age });
        }
        if let (Some(demand), Some(agent)) = (committed, &guest.agent) {
            sources.push(SourceDemand { kind: DemandSource::Committed, demand, age: agent.age });
        }
        match fusion::fuse(&sources) {
            Ok(fused) => {
                estimate.demand = fused.demand;
                estimate.passed_over = fused.passed_over;
            }
            // No source is fresh: memory in use remains, without confidence.
            Err(none) => {
                estimate.demand.confidence = Confidence::from_percent(0);
                estimate.passed_over = none.stale;
            }
        }
    }

    /// The accepted miss curve, with memory that is needed untouched and misses found by swapping.
    fn curve(&self, guest: &GuestSample, most: Bytes) -> Option<Arc<MissCurve>> {
        guest.tracker.as_ref()?;
        let history = self.tracker.as_ref()?;
        let curve = history.accepted.as_ref()?.curve.as_ref()?;
        let (TrackedDemand { excess_demand, held, untouched, .. }, _) = history.tracked?;
        let held = held.min(most);
        let mut shifted = curve.shifted(untouched.min(most));
        if ends_within(curve, held) {
            // Limited to twice the allocation: a guest's claims must not lengthen curves.
            let misses = excess_demand.displaced.min(held).to_pages();
            shifted = shifted.extended(held, excess_demand.excess.min(held), misses);
        }
        Some(Arc::new(shifted))
    }
}

/// What a guest that uses `used` can have beyond that.
fn room(guest: &GuestSample, used: Bytes) -> Bytes {
    guest.memory_max().unwrap_or(Bytes::ZERO).saturating_sub(used)
}

/// Memory that a guest with allocation `held` keeps free. Its own claim counts up to a quarter of
/// the allocation, which keeps curves short.
fn kept_free(guest: &GuestSample, held: Bytes) -> Bytes {
    let reported = guest.agent.as_ref().and_then(|agent| agent.value.watermark_high);
    reported.unwrap_or(KEPT_FREE).min(held.fraction(1, 4))
}

/// Whether the curve ends at most an eighth beyond `held`; the memory a sample represents may
/// exceed it by chance. A longer curve knows more than swapping can tell.
fn ends_within(curve: &MissCurve, held: Bytes) -> bool {
    let points = u64::try_from(curve.points().len()).unwrap_or(u64::MAX);
    let last = curve.step().get().saturating_mul(points.saturating_sub(1));
    last <= held.saturating_add(held.fraction(1, 8)).get()
}

#[cfg(test)]
mod tests {
    use ballast_model::{
        AgentReport, LinkState, MemoryRequest, Provenance, RequestKind, TrackingSource,
    };

    use proptest::prelude::*;

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

    fn refined(refiner: &Refiner, guest: &GuestSample, most: Bytes, now: Timestamp) -> Estimate {
        let mut estimate = plain();
        refiner.refine(&mut estimate, guest, most, now);
        estimate
    }

    fn with_agent(mut guest: GuestSample, committed_mib: u64, refaulted: u64) -> GuestSample {
        guest.agent = Some(Box::new(Measured::fresh(AgentReport {
            committed: Some(Bytes::mib(committed_mib)),
            refaulted_file_pages: Some(refaulted),
            request: Some(MemoryRequest {
                number: 7,
                kind: RequestKind::More,
                amount: Bytes::mib(64),
            }),
            ..AgentReport::default()
        })));
        guest
    }

    #[test]
    fn a_reading_of_swap_counters_counts_once_in_the_rate() {
        let mut refiner = Refiner::default();
        refiner.observe(&guest(1000), None, second(1), ProbingSettings::default());
        assert_eq!(
            refined(&refiner, &guest(1000), Bytes::MAX, second(1)).signals.swapped_pages_per_s,
            None
        );
        refiner.observe(&guest(1200), None, second(3), ProbingSettings::default());
        let signals = refined(&refiner, &guest(1200), Bytes::MAX, second(3)).signals;
        assert_eq!(signals.swapped_pages_per_s, Some(100));
        assert_eq!(signals.free, Some(Bytes::mib(70)));
        // The same reading a second later must not count as a second without swapping.
        let mut again = guest(1200);
        again.stats.as_mut().unwrap().age = Duration::from_secs(1);
        refiner.observe(&again, None, second(4), ProbingSettings::default());
        assert_eq!(
            refined(&refiner, &again, Bytes::MAX, second(4)).signals.swapped_pages_per_s,
            Some(100)
        );
        // After a reboot the counter starts again.
        refiner.observe(&guest(3), None, second(5), ProbingSettings::default());
        assert_eq!(
            refined(&refiner, &guest(3), Bytes::MAX, second(5)).signals.swapped_pages_per_s,
            None
        );
    }

    #[test]
    fn without_agent_and_tracker_the_demand_is_memory_in_use() {
        let mut refiner = Refiner::default();
        refiner.observe(&guest(0), None, second(1), ProbingSettings::default());
        let estimate = refined(&refiner, &guest(0), Bytes::MAX, second(1));
        assert_eq!((estimate.demand, estimate.passed_over.len()), (plain().demand, 0));
    }

    #[test]
    fn committed_memory_starts_probing() {
        let mut refiner = Refiner::default();
        for n in 1..4 {
            refiner.observe(
                &with_agent(guest(0), 480, 0),
                None,
                second(n),
                ProbingSettings::default(),
            );
        }
        let estimate = refined(&refiner, &with_agent(guest(0), 480, 0), Bytes::MAX, second(3));
        // One epoch starts at 480 + 128 MiB, the next lowers it by 5 %: the guest holds less.
        let first = Bytes::mib(608);
        assert_eq!(estimate.signals.probed, Some(first - first.fraction(5, 100)));
        assert_eq!(estimate.demand.source, DemandSource::Probing);
        let others: Vec<_> = estimate.passed_over.iter().map(|other| other.source).collect();
        assert_eq!(others, [DemandSource::Used, DemandSource::Committed]);
        assert_eq!(estimate.signals.request.map(|request| request.number), Some(7));
    }

    #[test]
    fn a_tracked_guest_needs_its_working_set_and_its_swap() {
        let mut refiner = Refiner::default();
        let mut tracked = guest(0);
        tracked.tracker = Some(Box::new(Measured {
            value: TrackerReport {
                working_set: Bytes::mib(450),
                curve: None,
                source: TrackingSource::Library,
            },
            age: Duration::ZERO,
        }));
        let agent = AgentReport { swap_used: Some(Bytes::mib(50)), ..AgentReport::default() };
        tracked.agent = Some(Box::new(Measured::fresh(agent)));
        refiner.observe(&tracked, None, second(1), ProbingSettings::default());
        let demand = refined(&refiner, &tracked, Bytes::MAX, second(1)).demand;
        // 450 and 50 MiB, plus the 64 MiB its kernel keeps free.
        assert_eq!((demand.size, demand.source), (Bytes::mib(564), DemandSource::WorkingSet));
        // The 34 MiB that its kernel reserved at boot are needed too.
        refiner.observe(&tracked, Some(Bytes::mib(34)), second(2), ProbingSettings::default());
        let demand = refined(&refiner, &tracked, Bytes::MAX, second(2)).demand;
        // A 128th of the 50 MiB in swap, which did not move, is forgotten.
        assert_eq!(demand.size, Bytes::pages(598 * 256 - 100));
        // Half a minute later the tracker's report is stale.
        tracked.agent = None;
        tracked.tracker.as_mut().unwrap().age = Duration::from_secs(30);
        let demand = refined(&refiner, &tracked, Bytes::MAX, second(32)).demand;
        assert_eq!((demand.size, demand.source), (Bytes::mib(400), DemandSource::Used));
    }

    #[test]
    fn growth_of_a_shrinking_guest_is_ignored_for_two_intervals() {
        let mut refiner = Refiner::default();
        let mut demand_of = |n, held_mib, wss_mib| {
            let mut tracked = guest(0);
            let report = TrackerReport {
                working_set: Bytes::mib(wss_mib),
                curve: None,
                source: TrackingSource::Library,
            };
            tracked.allocation = Some(Measured::fresh(Bytes::mib(held_mib)));
            tracked.tracker = Some(Box::new(Measured::fresh(report)));
            refiner.observe(&tracked, None, second(n), ProbingSettings::default());
            refined(&refiner, &tracked, Bytes::MAX, second(n)).demand.size - KEPT_FREE
        };
        for (n, held, estimated_wss, accepted) in [
            (1, 500, 100, 100),
            (2, 450, 210, 100), // shrinks and seems to use more
            (3, 450, 180, 100), // one interval after
            (4, 450, 180, 180), // the growth is real
            (5, 400, 90, 90),   // a smaller working set is accepted at once
        ] {
            assert_eq!(demand_of(n, held, estimated_wss), Bytes::mib(accepted), "{n}");
        }
    }

    fn tracked(working_set: Bytes, held: Bytes, misses: Vec<u64>) -> GuestSample {
        let curve = MissCurve::new(Bytes::mib(100), Duration::from_secs(5), misses);
        let report = TrackerReport {
            working_set,
            curve: curve.ok().map(Arc::new),
            source: TrackingSource::Library,
        };
        let mut tracked = guest(0);
        tracked.allocation = Some(Measured::fresh(held));
        tracked.tracker = Some(Box::new(Measured::fresh(report)));
        tracked
    }

    #[test]
    fn working_sets_within_an_eighth_are_the_same() {
        let mut history = TrackerHistory::default();
        for (held, estimated_wss, misses, accepted, missed) in [
            (500, 160, [320, 32], 160, [320, 32]),
            (500, 150, [160, 0], 160, [320, 32]), // less by a sixteenth
            (500, 170, [330, 16], 170, [330, 32]), // more counts at once
            (152, 150, [160, 0], 152, [330, 32]), // no more than it holds
            (500, 148, [160, 0], 148, [160, 0]),  // less by more than an eighth
            (500, 200, [150, 0], 200, [150, 0]),
        ] {
            let guest = tracked(Bytes::mib(estimated_wss), Bytes::mib(held), misses.to_vec());
            let report = &guest.tracker.unwrap().value;
            assert_eq!(
                history.accept(report, Bytes::mib(held)),
                Bytes::mib(accepted),
                "{estimated_wss}"
            );
            let curve = history.accepted.as_ref().unwrap().curve.as_ref().unwrap();
            assert_eq!(curve.points(), missed, "{estimated_wss}");
        }
    }

    proptest! {
        /// The oracle: the largest since the last but one time that a full number of reports was
        /// reached. Errors of 5 % move it by at most 10.5 %, whatever they are.
        #[test]
        fn the_largest_of_the_last_same_reports_counts(
            needs in 1u64 << 20..1 << 40,
            errors in prop::collection::vec((-500..=500i64, 0..100u64), 1..300),
        ) {
            let mut history = TrackerHistory::default();
            let held = Bytes::new(needs * 2);
            let mut all: Vec<(Bytes, u64)> = Vec::new();
            for (error, misses) in errors {
                let estimated_wss = Bytes::new(needs).fraction((10_000 + error) as u64, 10_000);
                let guest = tracked(estimated_wss, held, vec![misses]);
                all.push((estimated_wss, misses));
                let accepted = history.accept(&guest.tracker.unwrap().value, held);
                let batches = (all.len() - 1) / REPORTS as usize;
                let last = &all[(batches.max(1) - 1) * REPORTS as usize..];
                prop_assert_eq!(Some(accepted), last.iter().map(|it| it.0).max());
                let curve = history.accepted.as_ref().unwrap().curve.clone().unwrap();
                prop_assert_eq!(Some(curve.points()[0]), last.iter().map(|it| it.1).max());
                let most = Bytes::new(needs).fraction(10_500, 10_000);
                prop_assert!(accepted >= estimated_wss && accepted <= most);
            }
        }
    }

    /// 300 pages are swapped out in the interval; with 500 MiB held the curve of 200 MiB has no
    /// misses. With 300 pages more there would be none, and each page less is a miss more: 25,600
    /// in 100 MiB.
    #[test]
    fn swap_outs_for_lack_of_room_extend_the_curve() {
        let mut refiner = Refiner::default();
        let mut tracked = guest(0);
        let curve = MissCurve::new(Bytes::mib(100), Duration::from_secs(1), vec![9000, 9000, 0]);
        tracked.tracker = Some(Box::new(Measured::fresh(TrackerReport {
            working_set: Bytes::mib(400),
            curve: curve.ok().map(Arc::new),
            source: TrackingSource::Library,
        })));
        let estimated = |refiner: &Refiner, guest: &GuestSample, n| {
            refined(refiner, guest, Bytes::MAX, second(n)).curve.unwrap()
        };
        refiner.observe(&tracked, None, second(1), ProbingSettings::default());
        // Shifted one step, for the 64 MiB that are kept free.
        assert_eq!(estimated(&refiner, &tracked, 1).points(), [9000, 9000, 9000, 0]);
        let mut tracked = GuestSample { tracker: tracked.tracker, ..guest(0) };
        tracked.stats.as_mut().unwrap().value.swap_out = Some(Bytes::pages(300));
        refiner.observe(&tracked, None, second(2), ProbingSettings::default());
        let beyond = estimated(&refiner, &tracked, 2);
        assert_eq!(beyond.points(), [137_300, 111_700, 86_100, 51_500, 25_900, 300, 0]);
        // A curve that reaches beyond the allocation is not extended.
        let curve = MissCurve::new(Bytes::mib(300), Duration::from_secs(1), vec![9, 9, 9, 0]);
        let report = |curve| TrackerReport {
            working_set: Bytes::mib(500),
            curve,
            source: TrackingSource::Library,
        };
        let tracker = Some(Box::new(Measured::fresh(report(curve.ok().map(Arc::new)))));
        let mut tracked = GuestSample { tracker, ..guest(0) };
        tracked.stats.as_mut().unwrap().value.swap_out = Some(Bytes::pages(600));
        refiner.observe(&tracked, None, second(3), ProbingSettings::default());
        assert_eq!(estimated(&refiner, &tracked, 3).points(), [9, 9, 9, 9, 0]);
    }

    #[test]
    fn no_curve_is_longer_than_the_host_is_large() {
        let mut refiner = Refiner::default();
        let mut tracked = guest(0);
        tracked.allocation = Some(Measured::fresh(Bytes::gib(1 << 20)));
        let curve = MissCurve::new(Bytes::mib(1), Duration::from_secs(1), vec![9000, 9000, 0]);
        let working_set = Bytes::mib(2);
        tracked.tracker = Some(Box::new(Measured::fresh(TrackerReport {
            working_set,
            curve: curve.ok().map(Arc::new),
            source: TrackingSource::Library,
        })));
        refiner.observe(&tracked, None, second(1), ProbingSettings::default());
        let mut tracked = GuestSample { tracker: tracked.tracker, ..guest(0) };
        tracked.allocation = Some(Measured::fresh(Bytes::gib(1 << 20)));
        tracked.stats.as_mut().unwrap().value.swap_out = Some(Bytes::gib(1 << 20));
        refiner.observe(&tracked, None, second(2), ProbingSettings::default());
        let estimate = refined(&refiner, &tracked, Bytes::gib(4), second(2));
        let points = estimate.curve.unwrap().points().len();
        assert!((4096..=4 * 4096).contains(&points), "{points}");
    }
}
