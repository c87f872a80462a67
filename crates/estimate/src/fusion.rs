//! Chooses one demand among several sources.
//!
//! Idea: sources are not averaged, because the mean of a right figure and a wrong one is wrong. One
//! source is chosen, and the result says why the others were not.
//!
//! 1. Of several sources of one kind the freshest counts; of equally fresh ones the largest.
//! 2. A source older than the limit of its kind is stale and cannot be chosen.
//! 3. The most trusted kind is chosen, in this order: tracked working set, sampled working set,
//!    probing, used memory, working set in huge pages, `Committed_AS`. Tracking sees the order of
//!    touches; a sample by DAMON does not. Probing shows what the guest has managed with. Used
//!    memory includes idle pages. A touch of a huge page counts 2 MiB, so a working set in huge
//!    pages is an upper bound and never comes before the guest's own figures. Committed memory may
//!    never be touched, and excludes page cache.
//! 4. Confidence starts at the kind's and falls linearly with age, to half when it becomes stale.
//! 5. Each other fresh source that contradicts the chosen one halves the confidence:
//!    - tracking, sampling and probing estimate the same quantity, so none should exceed twice
//!      another;
//!    - a working set of over twice the memory in use is doubtful: it exceeds memory in use only by
//!      page cache that counts as available;
//!    - an upper bound contradicts nothing, and neither does `Committed_AS`, which excludes page
//!      cache and may never be touched.
//!
//!    Amounts less than 64 MiB apart never contradict: kernel and page cache account for as much.
//!
//! Cost: O(n) for n sources. Source: ours.
//! Limits: the trust figures are judgement, not measurement. Only their order decides; confidence
//! is reported.

use std::fmt;
use std::time::Duration;

use ballast_model::{
    Bytes, Confidence, Demand, DemandSource, PassedOver, PassedOverReason, WORKING_SET_AGE_MAX,
};

/// Confidence in a fresh source, in per cent.
const fn trust(source: DemandSource) -> u8 {
    match source {
        DemandSource::WorkingSet => 95,
        DemandSource::Sampled => 85,
        DemandSource::Probing => 80,
        DemandSource::Used => Confidence::USED.percent(),
        DemandSource::Coarse => 40,
        DemandSource::Committed => 30,
    }
}

/// The age from which a source is stale. All but working sets are read once a second; shrinking a
/// guest by older figures would hurt it.
const fn age_max(source: DemandSource) -> Duration {
    match source {
        DemandSource::WorkingSet | DemandSource::Sampled | DemandSource::Coarse => {
            WORKING_SET_AGE_MAX
        }
        DemandSource::Probing | DemandSource::Used | DemandSource::Committed => {
            Duration::from_secs(10)
        }
    }
}

/// The demand according to one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceDemand {
    /// Kind of source.
    pub kind: DemandSource,
    /// The guest's demand.
    pub demand: Bytes,
    /// Time since the demand was last confirmed.
    pub age: Duration,
}

/// The demand of a guest, and the sources it was chosen from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FusedDemand {
    /// The demand of the chosen source.
    pub demand: Demand,
    /// The best source of every other kind, most trusted first; at most five.
    pub passed_over: Vec<PassedOver>,
}

/// There is no fresh source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoFreshSource {
    /// The stale sources; at most six.
    pub stale: Vec<PassedOver>,
}

/// Chooses among `sources`, whose order does not matter.
///
/// # Errors
/// There are no sources, or all are stale.
pub fn fuse(sources: &[SourceDemand]) -> Result<FusedDemand, NoFreshSource> {
    let mut chosen: Option<SourceDemand> = None;
    let mut contradictions = 0_u32;
    let mut passed_over = Vec::new();
    // The most trusted kind comes first.
    for kind in DemandSource::ALL {
        let Some(source) = best_of(kind, sources) else { continue };
        let SourceDemand { demand: size, age, .. } = source;
        let age_max = age_max(kind);
        let why = match chosen {
            _ if age >= age_max => PassedOverReason::Stale { age_max },
            None => {
                chosen = Some(source);
                continue;
            }
            Some(chosen) if is_contradicted(chosen, source) => {
                contradictions += 1;
                PassedOverReason::Contradicts
            }
            Some(_) => PassedOverReason::LessTrusted,
        };
        passed_over.push(PassedOver { source: kind, size, age, why });
    }
    let Some(chosen) = chosen else { return Err(NoFreshSource { stale: passed_over }) };
    let confidence = Confidence::from_percent(aged_trust(chosen) >> contradictions);
    let SourceDemand { kind: source, demand: size, age } = chosen;
    let demand = Demand { size, source, age, confidence };
    Ok(FusedDemand { demand, passed_over })
}

/// The freshest source of a kind; of equally fresh ones the largest.
fn best_of(kind: DemandSource, sources: &[SourceDemand]) -> Option<SourceDemand> {
    let all = sources.iter().copied().filter(|source| source.kind == kind);
    all.min_by_key(|source| (source.age, std::cmp::Reverse(source.demand)))
}

/// The kind's trust, falling from all of it when fresh to half of it when stale.
fn aged_trust(source: SourceDemand) -> u8 {
    let whole = age_max(source.kind).as_millis() * 2;
    let left = whole.saturating_sub(source.age.as_millis());
    // At most the trust, so it fits.
    (u128::from(trust(source.kind)) * left / whole.max(1)) as u8
}

/// Whether `other`, of a less trusted kind, contradicts `chosen`.
fn is_contradicted(chosen: SourceDemand, other: SourceDemand) -> bool {
    const FACTOR: u64 = 2;
    const APART_MIN: Bytes = Bytes::mib(64);
    let twice = |demand: Bytes| Bytes::new(demand.get().saturating_mul(FACTOR));
    let is_over_twice = |more: SourceDemand, less: SourceDemand| more.demand > twice(less.demand);
    chosen.demand.abs_diff(other.demand) >= APART_MIN
        && match other.kind {
            DemandSource::Coarse | DemandSource::Committed => false,
            DemandSource::Used => is_over_twice(chosen, other),
            DemandSource::Probing | DemandSource::Sampled | DemandSource::WorkingSet => {
                is_over_twice(chosen, other) || is_over_twice(other, chosen)
            }
        }
}

impl fmt::Display for FusedDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.demand)?;
        self.passed_over.iter().try_for_each(|other| write!(f, "; {other}"))
    }
}

impl fmt::Display for NoFreshSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.stale.is_empty() {
            return write!(f, "no source of demand");
        }
        write!(f, "all sources of demand are stale")?;
        self.stale.iter().try_for_each(|other| write!(f, "; {other}"))
    }
}

impl std::error::Error for NoFreshSource {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn source(kind: DemandSource, mib: u64, age_s: u64) -> SourceDemand {
        SourceDemand { kind, demand: Bytes::mib(mib), age: Duration::from_secs(age_s) }
    }

    fn rendered(sources: &[SourceDemand]) -> String {
        fuse(sources).map_or_else(|none| none.to_string(), |fused| fused.to_string())
    }

    #[test]
    fn the_most_trusted_source_wins_and_the_others_are_listed() {
        let all = [
            source(DemandSource::Committed, 1500, 0),
            source(DemandSource::Used, 800, 0),
            source(DemandSource::Probing, 520, 0),
            source(DemandSource::WorkingSet, 512, 0),
        ];
        assert_eq!(
            rendered(&all),
            "tracked working set 512MiB 0.0s old (confidence 95%); \
             probing 520MiB 0.0s old: trusted less; \
             used memory 800MiB 0.0s old: trusted less; \
             Committed_AS 1.5GiB 0.0s old: trusted less"
        );
        let by_trust = [(3, 95), (2, 80), (1, 60), (0, 30)];
        for (last, percent) in by_trust {
            let fused = fuse(&all[..=last]).unwrap();
            assert_eq!(
                (fused.demand.source, fused.demand.confidence),
                (all[last].kind, Confidence::from_percent(percent))
            );
        }
    }

    #[test]
    fn stale_sources_are_not_chosen() {
        let old = source(DemandSource::WorkingSet, 512, 30);
        assert_eq!(
            rendered(&[source(DemandSource::Used, 800, 1), old]),
            "used memory 800MiB 1.0s old (confidence 57%); \
             tracked working set 512MiB 30.0s old: stale, believed for 30.0s"
        );
        assert_eq!(
            rendered(&[old]),
            "all sources of demand are stale; \
             tracked working set 512MiB 30.0s old: stale, believed for 30.0s"
        );
        assert_eq!(rendered(&[]), "no source of demand");
    }

    #[test]
    fn each_contradiction_halves_the_confidence() {
        use DemandSource::{Committed, Probing, Used, WorkingSet};
        for (others, percent) in [
            (vec![(Probing, 800)], 95),
            (vec![(Probing, 801)], 47),
            (vec![(Probing, 200)], 95),
            (vec![(Probing, 199)], 47),
            (vec![(Used, 200)], 95),
            (vec![(Used, 199)], 47),
            (vec![(Used, 9000)], 95),
            (vec![(Committed, 1)], 95),
            (vec![(Used, 100), (Probing, 100)], 23),
        ] {
            let mut sources = vec![source(WorkingSet, 400, 0)];
            sources.extend(others.iter().map(|&(kind, mib)| source(kind, mib, 0)));
            let fused = fuse(&sources).unwrap();
            assert_eq!(fused.demand.confidence, Confidence::from_percent(percent), "{others:?}");
        }
        // Over twice as much but less than 64 MiB apart: no contradiction.
        let fused = fuse(&[source(WorkingSet, 100, 0), source(Used, 40, 0)]).unwrap();
        assert_eq!(fused.demand.confidence, Confidence::from_percent(95));
    }

    #[test]
    fn within_a_kind_the_freshest_then_the_largest_counts() {
        let kind = DemandSource::Used;
        let all = [source(kind, 900, 2), source(kind, 300, 1), source(kind, 400, 1)];
        let fused = fuse(&all).unwrap();
        assert_eq!((fused.demand.size, fused.passed_over), (all[2].demand, vec![]));
    }

    fn any_source() -> impl Strategy<Value = SourceDemand> {
        let kind = prop::sample::select(DemandSource::ALL.to_vec());
        let age = prop_oneof![0..40_000u64, any::<u64>()].prop_map(Duration::from_millis);
        (kind, any::<u64>(), age).prop_map(|(kind, demand, age)| SourceDemand {
            kind,
            demand: Bytes::new(demand),
            age,
        })
    }

    proptest! {
        #[test]
        fn the_choice_is_a_source_and_independent_of_order(
            (one, other) in prop::collection::vec(any_source(), 0..12)
                .prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        ) {
            let fused = fuse(&one);
            prop_assert_eq!(&fused, &fuse(&other));
            match fused {
                Ok(fused) => {
                    let Demand { size: demand, source: kind, age, .. } = fused.demand;
                    let chosen = SourceDemand { kind, demand, age };
                    prop_assert!(one.contains(&chosen) && fused.passed_over.len() < DemandSource::ALL.len());
                    let trust = trust(kind);
                    prop_assert!(fused.demand.confidence.percent() <= trust);
                    let better = one.iter().filter(|it| it.kind > kind);
                    prop_assert!(better.clone().all(|it| it.age >= age_max(it.kind)));
                }
                Err(none) => {
                    prop_assert!(one.iter().all(|it| it.age >= age_max(it.kind)));
                    prop_assert_eq!(none.stale.is_empty(), one.is_empty());
                }
            }
        }

        #[test]
        fn confidence_falls_with_age(source in any_source(), older in 0..60_000u64) {
            let age = source.age.saturating_add(Duration::from_millis(older));
            let aged = SourceDemand { age, ..source };
            if let (Ok(now), Ok(later)) = (fuse(&[source]), fuse(&[aged])) {
                prop_assert!(later.demand.confidence <= now.demand.confidence);
                prop_assert!(later.demand.confidence.percent() >= trust(source.kind) / 2);
            }
        }
    }
}
