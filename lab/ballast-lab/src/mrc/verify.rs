//! Verifies an engine with a second one, the oracle.
//!
//! Idea: the oracle is the linked list, whose search is too simple to be wrong. It is slow, so
//! beyond [`LIST_TAGS_MAX`] tags the AVL tree takes over its order (or, if the AVL tree is being
//! verified, the fast engine does). The oracle counts in a plain array of its own, so it shares
//! nothing with the engine that it checks except the type of the histogram. Where distances are in
//! touched pages, both stacks are used below the same layer that weighs pages ([`PageWeighted`]);
//! then only the order of tags is verified.
//! Cost: for each reference a search of at most [`LIST_TAGS_MAX`] tags, later O(log n); 8 bytes for
//! each distance.
//! Limits: an engine that samples cannot fail; its error is reported.

use std::time::{Duration, Instant};

use anyhow::bail;
use ballast_mrc::{
    Curve, EngineName, Form, Full, Granularity, Histogram, PageWeighted, Stack, mean_absolute_error,
};

use super::any_stack::any_stack;
use super::counter::Counts;
use super::outcome::Verified;
use super::settings::{Reading, Units};

/// Tags beyond which the list is replaced; it may exceed this within one step.
const LIST_TAGS_MAX: u64 = 2_000;
/// References between two checks of that.
const STEP_REFERENCES: usize = 1024;
/// The number of sizes at which an approximate curve is compared.
const SIZES_COMPARED: u64 = 500;
/// The greatest number of differences that are listed.
const DIFFERENCES_SHOWN_MAX: usize = 5;

/// A second engine that counts the same references.
pub(super) struct Oracle {
    /// The engine that replaces the list when there are many tags.
    later: EngineName,
    kind: CheckKind,
    granularity: Granularity,
    /// The oracle's own time, which must not count as the engine's.
    pub(super) elapsed: Duration,
}

enum CheckKind {
    Tags {
        name: EngineName,
        stack: Box<dyn Stack>,
        counts: Vec<u64>,
        tags: Vec<u64>,
        distances: Vec<u32>,
    },
    Pages(Box<PageWeighted<Box<dyn Stack>>>),
}

impl Oracle {
    /// An oracle for `engine`, whose counts are in `units`.
    pub(super) fn new(engine: EngineName, units: Units) -> Self {
        let later = if engine == EngineName::Avl { EngineName::Exact } else { EngineName::Avl };
        let kind = match units.reading {
            Reading::Touched => {
                let stack = any_stack(later);
                CheckKind::Pages(Box::new(PageWeighted::new(stack, units.granularity)))
            }
            Reading::Paper => {
                let name = if engine == EngineName::List { later } else { EngineName::List };
                let stack = any_stack(name);
                CheckKind::Tags {
                    name,
                    stack,
                    counts: vec![0],
                    tags: Vec::new(),
                    distances: Vec::new(),
                }
            }
        };
        Self { later, kind, granularity: units.granularity, elapsed: Duration::ZERO }
    }

    /// Counts references to `pages`.
    ///
    /// # Errors
    /// [`Full`] if there are too many different tags.
    pub(super) fn record(&mut self, pages: &[u64]) -> Result<(), Full> {
        let started = Instant::now();
        let result = pages.chunks(STEP_REFERENCES).try_for_each(|pages| self.step(pages));
        self.elapsed += started.elapsed();
        result
    }

    fn step(&mut self, pages: &[u64]) -> Result<(), Full> {
        match &mut self.kind {
            CheckKind::Pages(weighted) => weighted.record(pages)?,
            CheckKind::Tags { name, stack, counts, tags, distances } => {
                tags.clear();
                tags.extend(pages.iter().map(|&page| self.granularity.tag(page)));
                distances.resize(tags.len(), 0);
                stack.reference(tags, distances)?;
                counts.resize(stack.len() as usize + 1, 0);
                distances.iter().for_each(|&distance| counts[distance as usize] += 1);
                if *name == EngineName::List && stack.len() > LIST_TAGS_MAX {
                    let order = stack.order();
                    *name = self.later;
                    *stack = any_stack(*name);
                    stack.restore(&order)?;
                }
            }
        }
        Ok(())
    }

    /// Compares `counts`, which are of the same references, with the oracle's.
    ///
    /// # Errors
    /// An exact engine's counts differ; the error lists the first differences.
    pub(super) fn compare(&self, counts: &Counts) -> anyhow::Result<Verified> {
        let (oracle, expected, expected_curve) = match &self.kind {
            CheckKind::Pages(weighted) => (self.later, weighted.histogram(), weighted.curve()),
            CheckKind::Tags { name, counts, .. } => {
                let histogram = Histogram::from_counts(counts);
                let curve = Curve::new(&histogram, self.granularity);
                (*name, histogram, curve)
            }
        };
        let engine = counts.used.engine;
        let Some(found) = &counts.histogram else {
            bail!("{engine} counts no distances: there is nothing to verify");
        };
        let distances = expected.buckets().count() as u64;
        if !engine.is_exact() {
            let error = counts.curve.as_ref().map(|curve| error_of(curve, &expected_curve));
            return Ok(Verified { oracle, distances, error });
        }
        let Differences { count, first } = Differences::of(found, &expected);
        if count == 0 {
            return Ok(Verified { oracle, distances, error: None });
        }
        let differences: Vec<String> = first
            .iter()
            .map(|(at, found, expected)| format!("{at}: {engine} {found}, {oracle} {expected}"))
            .collect();
        bail!("{engine} and {oracle} differ at {count} distances: {}", differences.join("; "))
    }
}

/// The mean absolute error of the warm curve.
fn error_of(curve: &Curve, expected: &Curve) -> f64 {
    let largest = expected.pages_max();
    let sizes =
        (1..=SIZES_COMPARED).map(|n| (largest as u128 * n as u128 / SIZES_COMPARED as u128) as u64);
    mean_absolute_error(curve, expected, sizes, Form::Warm)
}

/// The differences of two histograms.
#[derive(Debug, Default, PartialEq)]
struct Differences {
    count: u64,
    /// The first differences: the distance, and the two counts there.
    first: Vec<(String, f64, f64)>,
}

impl Differences {
    fn of(found: &Histogram, expected: &Histogram) -> Self {
        let mut all = Self::default();
        all.compare(0, found.cold(), expected.cold());
        for distance in 1..=found.distance_max().max(expected.distance_max()) {
            all.compare(distance, found.weight_at(distance), expected.weight_at(distance));
        }
        all
    }

    /// Compares the counts at one distance; distance 0 has the cold references.
    fn compare(&mut self, distance: u64, found: f64, expected: f64) {
        if found == expected {
            return;
        }
        self.count += 1;
        if self.first.len() < DIFFERENCES_SHOWN_MAX {
            let at = if distance == 0 { "cold".to_owned() } else { format!("distance {distance}") };
            self.first.push((at, found, expected));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mrc::outcome::Used;

    #[test]
    fn differences_are_named_by_distance() {
        let found = Histogram::from_counts(&[2, 5, 0, 1]);
        let expected = Histogram::from_counts(&[3, 5, 1]);
        let named = Differences::of(&found, &expected);
        let all = [("cold", 2.0, 3.0), ("distance 2", 0.0, 1.0), ("distance 3", 1.0, 0.0)];
        let first = all.map(|(at, a, b)| (at.to_owned(), a, b)).to_vec();
        assert_eq!(named, Differences { count: 3, first });
        assert_eq!(Differences::of(&expected, &expected), Differences::default());
        let many = Differences::of(&Histogram::from_counts(&[1; 100]), &expected);
        assert_eq!((many.count, many.first.len()), (99, DIFFERENCES_SHOWN_MAX));
    }

    #[test]
    fn an_engine_that_counts_otherwise_is_found_out() {
        let units =
            Units { page_bytes: None, granularity: Granularity::PAGE, reading: Reading::Paper };
        let counted = |counts: &[u64], engine| {
            let mut oracle = Oracle::new(engine, units);
            oracle.record(&[1, 2, 1, 1]).unwrap();
            let histogram = Histogram::from_counts(counts);
            oracle.compare(&Counts {
                curve: Some(Curve::new(&histogram, units.granularity)),
                histogram: Some(histogram),
                distinct: Some(2),
                pages_touched: None,
                active_pages: None,
                used: Used { engine, why: None, memory_bytes: 0 },
            })
        };
        let right = counted(&[2, 1, 1], EngineName::Exact).unwrap();
        assert_eq!(right, Verified { oracle: EngineName::List, distances: 2, error: None });
        let error = counted(&[2, 2], EngineName::Exact).unwrap_err().to_string();
        let expected = "exact and list differ at 2 distances: distance 1: exact 2, list 1; \
                        distance 2: exact 0, list 1";
        assert_eq!(error, expected);
        // With one page half of the warm references miss; the sampled curve says that none do.
        let sampled = counted(&[2, 2], EngineName::Shards).unwrap();
        assert!(sampled.error.is_some_and(|error| error > 0.2), "{sampled:?}");
    }
}
