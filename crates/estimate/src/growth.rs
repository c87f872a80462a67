//! The least working set of a guest whose memory in use grows.
//!
//! Idea: a page that comes into use is touched. So a guest needs at least what it needed when its
//! tracker reported, and what came into use since:
//!
//! ```text
//! least = max (working set of a report + growth of memory in use since)   of the last reports
//! ```
//!
//! Only growth of [`GROWTH_MIN`] or more counts, so a working set that shrinks is followed at once.
//!
//! The tracker itself shows growth late and in part. Its report comes an interval later. Pages that
//! a program fills seem to be needed no more until it returns to them; and a program that waits for
//! its swap returns to few. So a report of an interval with swap-ins replaces no earlier one.
//!
//! Cost: O(1), for at most [`REPORTS`] reports. Source: ours. In the lab a guest grew from 130 to
//! 214 MiB in seven seconds, of the sixteen of `lab/meb-16`. Its tracker reported 65 MiB of 180
//! then, and 130 MiB half a minute later; it kept its target, swapped, and did a tenth of its work
//! in that time.
//! Limits: what came into use and is not touched again counts for [`REPORTS`] intervals. Page cache
//! that a guest counts as available is not in use, so its growth does not show.

use std::collections::VecDeque;

use ballast_model::Bytes;

/// The number of reports that count: with one each 5 s, half a minute, in which a program that has
/// memory enough returns to what it filled.
const REPORTS: usize = 6;

/// A kernel's own use goes up and down by less.
const GROWTH_MIN: Bytes = Bytes::mib(16);

/// Fewer swap-ins in an interval do not hold a guest up.
const SWAPPED_IN_MIN: Bytes = Bytes::pages(64);

/// The last reports of one guest's tracker, each with the memory in use at that time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Growth {
    /// The oldest first.
    reports: VecDeque<Report>,
}

#[derive(Clone, Copy, Debug)]
struct Report {
    working_set: Bytes,
    used: Bytes,
}

impl Growth {
    /// Takes in a report of a guest that used `used` and had read `swapped_in` from its swap since
    /// the report before.
    pub(crate) fn report(&mut self, working_set: Bytes, used: Bytes, swapped_in: Bytes) {
        if swapped_in >= SWAPPED_IN_MIN && !self.reports.is_empty() {
            return;
        }
        if self.reports.len() == REPORTS {
            self.reports.pop_front();
        }
        self.reports.push_back(Report { working_set, used });
    }

    /// The least working set of the guest, which uses `used` now; zero: its use has not grown.
    pub(crate) fn least(&self, used: Bytes) -> Bytes {
        let mut least = Bytes::ZERO;
        for report in &self.reports {
            let grown = used.saturating_sub(report.used);
            if grown >= GROWTH_MIN {
                least = least.max(report.working_set.saturating_add(grown));
            }
        }
        least
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Takes in reports of `(working set, used, swapped in)`, in MiB.
    fn reported(reports: &[(u64, u64, u64)]) -> Growth {
        let mut growth = Growth::default();
        for &(working_set, used, swapped_in) in reports {
            growth.report(Bytes::mib(working_set), Bytes::mib(used), Bytes::mib(swapped_in));
        }
        growth
    }

    #[test]
    fn growth_adds_to_what_was_needed_before() {
        let growth = reported(&[(60, 130, 0), (60, 130, 0)]);
        for (used, least) in [(130, 0), (145, 0), (146, 76), (214, 144), (100, 0)] {
            assert_eq!(growth.least(Bytes::mib(used)), Bytes::mib(least), "{used}");
        }
    }

    #[test]
    fn a_guest_that_waits_for_its_swap_keeps_its_need() {
        let swapping = [(65, 211, 1); 20];
        let all = [&[(60, 130, 0)][..], &swapping].concat();
        assert_eq!(reported(&all).least(Bytes::mib(211)), Bytes::mib(141));
        // Once it swaps no more, its reports count.
        let rested = [&all[..], &[(180, 240, 0); REPORTS]].concat();
        assert_eq!(reported(&rested).least(Bytes::mib(240)), Bytes::ZERO);
    }

    proptest! {
        /// The oracle keeps all reports.
        #[test]
        fn the_last_reports_count_and_no_other(
            reports in prop::collection::vec((0..1000u64, 0..1000u64, 0..2u64), 1..30),
            used in 0..2000u64,
        ) {
            let counted: Vec<_> =
                reports.iter().enumerate().filter(|(n, it)| *n == 0 || it.2 == 0).collect();
            let last = &counted[counted.len().saturating_sub(REPORTS)..];
            let grown = |it: &(u64, u64, u64)| used.checked_sub(it.1).filter(|mib| *mib >= 16);
            let least = last.iter().filter_map(|(_, it)| Some(it.0 + grown(it)?)).max();
            let expected = Bytes::mib(least.unwrap_or(0));
            prop_assert_eq!(reported(&reports).least(Bytes::mib(used)), expected);
        }
    }
}
