//! Outcomes made by hand, for tests of the outputs.

use std::time::Duration;

use ballast_mrc::{Curve, EngineName, Granularity, Histogram};
use ballast_trace::Format;

use super::outcome::{Outcome, Used, WorkingSet};
use super::settings::{Reading, Units};

/// Pages of 4 KiB, tracked one by one.
pub(super) const PAGES: Units =
    Units { page_bytes: Some(4096), granularity: Granularity::PAGE, reading: Reading::Paper };

/// A trace called `trace` whose references by distance are `counts`, cold ones first.
pub(super) fn outcome(trace: &str, counts: &[u64], units: Units) -> Outcome {
    let histogram = Histogram::from_counts(counts);
    let curve = Curve::new(&histogram, units.granularity);
    let set = |epsilon| WorkingSet { epsilon, pages: curve.working_set(epsilon) };
    Outcome {
        trace: trace.to_owned(),
        format: Format::U64,
        is_divided: false,
        skipped: 0,
        accesses: counts.iter().sum(),
        distinct: Some(counts.first().copied().unwrap_or(0)),
        pages_touched: None,
        units,
        intervals: None,
        used: Used { engine: EngineName::Exact, why: None, memory_bytes: 6 << 20 },
        working_sets: [0.05, 0.01, 0.001].map(set).to_vec(),
        active_pages: None,
        histogram: Some(histogram),
        curve: Some(curve),
        verified: None,
        elapsed: Duration::from_millis(20),
    }
}

/// A trace that reads `pages` pages in the same order `rounds` times.
pub(super) fn scan(trace: &str, pages: usize, rounds: u64, units: Units) -> Outcome {
    let mut counts = vec![0; pages + 1];
    counts[0] = pages as u64;
    counts[pages] = pages as u64 * (rounds - 1);
    outcome(trace, &counts, units)
}

/// A trace over `pages` pages whose hits become fewer with distance.
pub(super) fn falling(trace: &str, pages: usize, units: Units) -> Outcome {
    let mut counts: Vec<u64> = (1..=pages).map(|n| (40 * pages / n) as u64).collect();
    counts.insert(0, pages as u64);
    outcome(trace, &counts, units)
}
