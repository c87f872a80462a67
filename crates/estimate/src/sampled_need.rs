//! The need of a silent guest, by the memory that the host sees it touch.
//!
//! Idea: a working set seen by the host is evidence of need, but no evidence of what could be given
//! back. Memory that the guest does not touch may belong to a program for which it has no swap. And
//! a guest from which too much was taken touches no more than it is left, so nothing that the host
//! sees would reveal the mistake. So such a guest grows, and never shrinks. It lacks memory while
//! its working set, plus what its kernel takes and keeps free, does not fit its allocation; then it
//! grows up to that sum. What the kernel takes and keeps free is mostly untouched: a guest that
//! swaps for lack of memory is never seen to touch all it holds. Because the guest does not give
//! memory back, one report is not enough: a scan of a file fills any memory once. [`REPORTS_MIN`]
//! of the last eight are enough. They need not be consecutive: a guest that waits for its swap
//! touches next to nothing in between.
//!
//! Cost: O(1) per guest and report. Source: ours; a lab guest of 256 MiB that was left 160 MiB, and
//! swapped for a loop of 140 MiB, was seen to touch 80 to 101 MiB in half of its reports.
//! Limits: a step of growth is at most what its kernel takes and keeps free; then reports are
//! counted again.

use ballast_model::{Bytes, DemandSource, Estimate, GuestSample, Provenance, Timestamp};

use crate::before;
use crate::fusion::{SourceDemand, fuse};
use crate::no_estimate::NoEstimate;
use crate::refine::KERNEL_AND_FREE;

/// A guest lacks memory once this many of its last eight reports, including the latest, say so.
const REPORTS_MIN: u32 = 3;

/// How the working set of a guest without statistics fits its allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampledNeed {
    /// Time of the last report; `None`: there is none, or the guest reports its need itself.
    last: Option<Timestamp>,
    /// One bit for each of the last eight reports, the latest lowest: set if it did not fit.
    lacking: u8,
    /// Its need by the last report.
    need: Bytes,
}

impl SampledNeed {
    /// Observes a sample taken at `now`. Each report counts once.
    pub(crate) fn observe(&mut self, guest: &GuestSample, now: Timestamp) {
        let Some((working_set, held)) = guest.working_set_alone().zip(guest.allocation) else {
            *self = SampledNeed::default();
            return;
        };
        let at = before(now, working_set.age);
        if self.last.is_some_and(|last| at <= last) {
            return;
        }
        self.last = Some(at);
        self.need = working_set.value.saturating_add(kernel_and_free(held.value));
        self.lacking = self.lacking << 1 | u8::from(self.need > held.value);
    }

    /// Its demand by the last observed sample, which exceeds its allocation. Everything that it
    /// holds counts as used.
    ///
    /// # Errors
    /// Nothing is seen of it, or what is seen does not show that it lacks memory.
    pub(crate) fn estimate(
        &self,
        guest: &GuestSample,
        held: Bytes,
        now: Timestamp,
    ) -> Result<Estimate, NoEstimate> {
        let report = guest.working_set_alone().and(guest.tracker.as_deref());
        let (Some(report), Some(at)) = (report, self.last) else {
            return Err(NoEstimate::NoStatistics);
        };
        let working_set = report.value.working_set;
        let (kind, age) = (report.value.source.of_demand(), now.saturating_since(at));
        if self.lacking.count_ones() < REPORTS_MIN || self.need <= held {
            return Err(NoEstimate::SampledAlone { working_set });
        }
        let source = SourceDemand { kind, demand: self.need, age };
        let demand = fuse(&[source]).map_err(|_| NoEstimate::NoStatistics)?.demand;
        debug_assert!(kind != DemandSource::Coarse);
        let plain = Estimate::of_used(held, Bytes::ZERO, Provenance::WorkingSet { age });
        Ok(Estimate { demand, ..plain })
    }
}

/// What the kernel of a guest that holds `held` takes and keeps free, most of it untouched.
fn kernel_and_free(held: Bytes) -> Bytes {
    KERNEL_AND_FREE.min(held.fraction(1, 2))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ballast_model::{GuestStats, LinkState, Measured, TrackerReport, TrackingSource};
    use proptest::prelude::*;

    use super::*;

    fn guest(held: u64, working_set: u64, source: TrackingSource, age_s: u64) -> GuestSample {
        let report = TrackerReport { working_set: Bytes::mib(working_set), curve: None, source };
        let age = Duration::from_secs(age_s);
        GuestSample {
            boot_memory: Some(Bytes::gib(4)),
            allocation: Some(Measured::fresh(Bytes::mib(held))),
            tracker: Some(Box::new(Measured { value: report, age })),
            ..GuestSample::unknown("a".parse().unwrap(), LinkState::Up)
        }
    }

    fn at(second: u64) -> Timestamp {
        Timestamp::from_millis(second * 1000)
    }

    /// Its need in MiB by samples of one source, a second apart.
    fn needs(source: TrackingSource, samples: &[(u64, u64)]) -> Vec<Result<u64, NoEstimate>> {
        let mut need = SampledNeed::default();
        let of_sample = |((held, working_set), second): (&(u64, u64), u64)| {
            let guest = guest(*held, *working_set, source, 0);
            need.observe(&guest, at(second));
            let estimate = need.estimate(&guest, Bytes::mib(*held), at(second))?;
            Ok(estimate.demand.size.get() >> 20)
        };
        samples.iter().zip(1..).map(of_sample).collect()
    }

    #[test]
    fn a_guest_that_keeps_touching_all_it_holds_grows() {
        let fits = |mib| Err(NoEstimate::SampledAlone { working_set: Bytes::mib(mib) });
        let samples =
            [(512, 500), (512, 384), (512, 385), (512, 510), (512, 90), (512, 400), (640, 510)];
        assert_eq!(
            needs(TrackingSource::Damon, &samples),
            [fits(500), fits(384), fits(385), Ok(638), fits(90), Ok(528), fits(510)]
        );
        let refused = needs(TrackingSource::DamonHuge, &samples);
        assert!(refused.iter().all(|it| *it == Err(NoEstimate::NoStatistics)), "an upper bound");
    }

    #[test]
    fn one_report_counts_once_and_none_when_it_is_old() {
        let mut need = SampledNeed::default();
        for second in 0..60 {
            // The report was made at second 1.
            let guest = guest(100, 100, TrackingSource::Damon, second);
            need.observe(&guest, at(second + 1));
            let estimate = need.estimate(&guest, Bytes::mib(100), at(second + 1));
            let expected = match second {
                0..30 => NoEstimate::SampledAlone { working_set: Bytes::mib(100) },
                _ => NoEstimate::NoStatistics,
            };
            assert_eq!(estimate, Err(expected), "{second}");
        }
    }

    proptest! {
        /// The oracle goes through all reports again.
        #[test]
        fn it_lacks_memory_by_its_last_reports_alone(
            samples in prop::collection::vec((64..1024u64, 0..1024u64, 0..16u8, 1..4u64), 1..40)
        ) {
            let (mut need, mut second, mut lacking) = (SampledNeed::default(), 0, Vec::new());
            for (held, working_set, mood, apart) in samples {
                let reports_itself = mood == 0;
                second += apart;
                let mut guest = guest(held, working_set.min(held), TrackingSource::Damon, 0);
                guest.stats = reports_itself.then(|| Measured::fresh(GuestStats::default()));
                need.observe(&guest, at(second));
                if reports_itself {
                    lacking.clear();
                } else {
                    // In half MiB.
                    lacking.push(2 * working_set.min(held) + held.min(2 * 128) > 2 * held);
                }
                let of_late = lacking.iter().rev().take(8).filter(|lacks| **lacks).count();
                let estimate = need.estimate(&guest, Bytes::mib(held), at(second));
                prop_assert_eq!(estimate.is_ok(), of_late >= 3 && lacking.last() == Some(&true));
                if let Ok(estimate) = estimate {
                    prop_assert_eq!((estimate.used, estimate.available), (Bytes::mib(held), Bytes::ZERO));
                    let beyond = estimate.demand.size - Bytes::mib(held);
                    prop_assert!(beyond > Bytes::ZERO && beyond <= KERNEL_AND_FREE);
                }
            }
        }
    }
}
