//! One demand out of several sources.
//!
//! Idea: sources are not averaged: what is between a right figure and a wrong one is wrong too. One wins,
//! and why the others did not is part of the answer.
//!
//! 1. Of several sources of one kind the freshest stands for it; of equally fresh ones the larger.
//! 2. What is older than its kind is believed for is set aside as stale.
//! 3. The most trusted kind wins: tracked working set, probing, used memory, `Committed_AS`. Tracking sees
//!    every access; probing is what the guest was seen to live with; used memory counts what lies idle; what
//!    was promised need never have been touched and leaves out page cache, so it is the last resort.
//! 4. Confidence is that of the kind, and falls in step with age to its half at the age where it is stale.
//! 5. It is halved for each other source, not stale, that contradicts the winner:
//!    - tracking and probing estimate the same, so neither should be over twice the other;
//!    - a guest works with no more than it uses, but for page cache that counts as available; over twice
//!      as much is not believed so readily;
//!    - `Committed_AS` contradicts nothing: page cache is not in it, and what is may never be touched.
//!
//!    Amounts that are less than 64 MiB apart never contradict: a guest's kernel and its page cache
//!    account for as much.
//!
//! Cost: O(n) for n sources. Source: ours.
//! Limits: the figures of trust are judgement; nothing measured them yet. Order is what decides,
//! confidence only tells.

use std::fmt;
use std::time::Duration;

use ballast_model::{Bytes, Confidence, Demand, DemandSource, PassedOver, WhyPassedOver};

/// The confidence in a fresh figure, in per cent.
const fn trust(source: DemandSource) -> u8 {
    match source {
        DemandSource::WorkingSet => 95,
        DemandSource::Probing => 80,
        DemandSource::Used => Confidence::USED.percent(),
        DemandSource::Committed => 30,
    }
}

/// The age from which it is not believed. A tracker confirms its figure every 3 to 5 s, tracking or at
/// rest, and may miss a few; the others are read once a second, and a guest that is shrunk by them for
/// longer would feel it.
const fn age_max(source: DemandSource) -> Duration {
    match source {
        DemandSource::WorkingSet => Duration::from_secs(30),
        DemandSource::Probing | DemandSource::Used | DemandSource::Committed => {
            Duration::from_secs(10)
        }
    }
}

/// What one source says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// What it is.
    pub kind: DemandSource,
    /// The memory the guest is to have by it.
    pub demand: Bytes,
    /// Since it was last confirmed.
    pub age: Duration,
}

/// The demand of a guest, and how it came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fused {
    /// What the source that won says.
    pub demand: Demand,
    /// The best of every other kind, the most trusted first; at most three.
    pub passed_over: Vec<PassedOver>,
}

/// No source can be believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSource {
    /// Those there are, all of them stale; at most four.
    pub stale: Vec<PassedOver>,
}

/// Chooses among `sources`, in whatever order they are.
///
/// # Errors
/// There is none, or all are stale.
pub fn fuse(sources: &[Source]) -> Result<Fused, NoSource> {
    let best = DemandSource::ALL.into_iter().filter_map(|kind| best_of(kind, sources));
    let (fresh, stale): (Vec<Source>, Vec<Source>) =
        best.partition(|source| source.age < age_max(source.kind));
    let stale = stale
        .into_iter()
        .map(|source| passed_over(source, WhyPassedOver::Stale { age_max: age_max(source.kind) }));
    let Some((&chosen, less_trusted)) = fresh.split_first() else {
        return Err(NoSource { stale: stale.collect() });
    };
    let mut others: Vec<PassedOver> = less_trusted
        .iter()
        .map(|&source| {
            let contradicts = is_contradicted(chosen, source);
            let why =
                if contradicts { WhyPassedOver::Contradicts } else { WhyPassedOver::LessTrusted };
            passed_over(source, why)
        })
        .collect();
    let contradictions = others.iter().filter(|it| it.why == WhyPassedOver::Contradicts).count();
    others.extend(stale);
    others.sort_by_key(|it| std::cmp::Reverse(it.source));
    let confidence = Confidence::from_percent(aged_trust(chosen) >> contradictions);
    let Source { kind: source, demand: size, age } = chosen;
    let demand = Demand { size, source, age, confidence };
    Ok(Fused { demand, passed_over: others })
}

fn passed_over(
    Source { kind: source, demand: size, age }: Source,
    why: WhyPassedOver,
) -> PassedOver {
    PassedOver { source, size, age, why }
}

fn best_of(kind: DemandSource, sources: &[Source]) -> Option<Source> {
    let of_kind = sources.iter().copied().filter(|source| source.kind == kind);
    of_kind.min_by_key(|source| (source.age, std::cmp::Reverse(source.demand)))
}

/// All of the kind's trust when fresh, half of it when all but stale.
fn aged_trust(source: Source) -> u8 {
    let whole = age_max(source.kind).as_millis() * 2;
    let left = whole.saturating_sub(source.age.as_millis());
    // No more than the trust itself.
    (u128::from(trust(source.kind)) * left / whole.max(1)) as u8
}

/// Whether `other`, of a kind trusted less, speaks against `chosen`.
fn is_contradicted(chosen: Source, other: Source) -> bool {
    const FACTOR: u64 = 2;
    const APART_MIN: Bytes = Bytes::mib(64);
    let twice = |demand: Bytes| Bytes::new(demand.get().saturating_mul(FACTOR));
    let is_over_twice = |more: Source, less: Source| more.demand > twice(less.demand);
    chosen.demand.abs_diff(other.demand) >= APART_MIN
        && match other.kind {
            DemandSource::Committed => false,
            DemandSource::Used => is_over_twice(chosen, other),
            DemandSource::Probing | DemandSource::WorkingSet => {
                is_over_twice(chosen, other) || is_over_twice(other, chosen)
            }
        }
}

impl fmt::Display for Fused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.demand)?;
        self.passed_over.iter().try_for_each(|other| write!(f, "; {other}"))
    }
}

impl fmt::Display for NoSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.stale.is_empty() {
            return write!(f, "nothing tells its demand");
        }
        write!(f, "nothing tells its demand any more")?;
        self.stale.iter().try_for_each(|other| write!(f, "; {other}"))
    }
}

impl std::error::Error for NoSource {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn source(kind: DemandSource, mib: u64, age_s: u64) -> Source {
        Source { kind, demand: Bytes::mib(mib), age: Duration::from_secs(age_s) }
    }

    fn told(sources: &[Source]) -> String {
        fuse(sources).map_or_else(|none| none.to_string(), |fused| fused.to_string())
    }

    #[test]
    fn the_most_trusted_wins_and_the_others_are_told() {
        let all = [
            source(DemandSource::Committed, 1500, 0),
            source(DemandSource::Used, 800, 0),
            source(DemandSource::Probing, 520, 0),
            source(DemandSource::WorkingSet, 512, 0),
        ];
        assert_eq!(
            told(&all),
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
    fn what_is_stale_is_set_aside() {
        let old = source(DemandSource::WorkingSet, 512, 30);
        assert_eq!(
            told(&[source(DemandSource::Used, 800, 1), old]),
            "used memory 800MiB 1.0s old (confidence 57%); \
             tracked working set 512MiB 30.0s old: stale, believed for 30.0s"
        );
        assert_eq!(
            told(&[old]),
            "nothing tells its demand any more; \
             tracked working set 512MiB 30.0s old: stale, believed for 30.0s"
        );
        assert_eq!(told(&[]), "nothing tells its demand");
    }

    #[test]
    fn contradictions_halve_the_confidence_each() {
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
        // Over twice as much, and yet nothing: less than 64 MiB apart.
        let fused = fuse(&[source(WorkingSet, 100, 0), source(Used, 40, 0)]).unwrap();
        assert_eq!(fused.demand.confidence, Confidence::from_percent(95));
    }

    #[test]
    fn of_one_kind_the_freshest_stands_then_the_larger() {
        let kind = DemandSource::Used;
        let all = [source(kind, 900, 2), source(kind, 300, 1), source(kind, 400, 1)];
        let fused = fuse(&all).unwrap();
        assert_eq!((fused.demand.size, fused.passed_over), (all[2].demand, vec![]));
    }

    fn any_source() -> impl Strategy<Value = Source> {
        let kind = prop::sample::select(DemandSource::ALL.to_vec());
        let age = prop_oneof![0..40_000u64, any::<u64>()].prop_map(Duration::from_millis);
        (kind, any::<u64>(), age).prop_map(|(kind, demand, age)| Source {
            kind,
            demand: Bytes::new(demand),
            age,
        })
    }

    proptest! {
        #[test]
        fn the_answer_is_one_of_the_sources_whatever_their_order(
            (one, other) in prop::collection::vec(any_source(), 0..12)
                .prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        ) {
            let fused = fuse(&one);
            prop_assert_eq!(&fused, &fuse(&other));
            match fused {
                Ok(fused) => {
                    let Demand { size: demand, source: kind, age, .. } = fused.demand;
                    let chosen = Source { kind, demand, age };
                    prop_assert!(one.contains(&chosen) && fused.passed_over.len() < 4);
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

        /// An older figure is never relied on more.
        #[test]
        fn confidence_falls_with_age(source in any_source(), older in 0..60_000u64) {
            let aged = Source { age: source.age.saturating_add(Duration::from_millis(older)), ..source };
            if let (Ok(now), Ok(later)) = (fuse(&[source]), fuse(&[aged])) {
                prop_assert!(later.demand.confidence <= now.demand.confidence);
                prop_assert!(later.demand.confidence.percent() >= trust(source.kind) / 2);
            }
        }
    }
}
