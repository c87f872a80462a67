//! Fairness: examples calculated by hand, and properties for any problem.

use std::time::Duration;

use ballast_model::{Bytes, Confidence, Demand, DemandSource};
use ballast_policy::fairness::{Fairness, WINDOW_DECISIONS, jain, satisfactions};
use ballast_policy::{Contender, Problem};
use proptest::prelude::*;

/// (allocation, demand, shares), in MiB.
fn problem(budget_mib: u64, guests: &[(u64, u64, u32)]) -> Problem {
    let contenders =
        guests.iter().enumerate().map(|(i, &(allocation, demand, shares))| Contender {
            shares,
            allocation: Bytes::mib(allocation),
            demand: Some(Demand {
                size: Bytes::mib(demand),
                source: DemandSource::WorkingSet,
                age: Duration::ZERO,
                confidence: Confidence::from_percent(95),
            }),
            ..Contender::new(format!("g{i}").parse().unwrap(), Bytes::ZERO)
        });
    Problem::new(Bytes::mib(budget_mib), contenders.collect())
}

#[test]
fn satisfaction_and_index_match_hand_calculations() {
    type Case = (&'static str, &'static [(u64, u64, u32)], &'static [f64], f64);
    let cases: &[Case] = &[
        ("all have their demand", &[(700, 600, 1), (300, 300, 1)], &[1.0, 1.0], 1.0),
        ("idle memory does not count", &[(900, 300, 1), (100, 100, 1)], &[1.0, 1.0], 1.0),
        // Entitled to 300 and 700. (1/7 + 1)^2 / (2 (1/49 + 1)) = 64/100.
        ("one starves", &[(300, 300, 1), (100, 900, 1)], &[1.0, 1.0 / 7.0], 0.64),
        // Entitled to 500 each.
        ("at the expense of another", &[(750, 900, 1), (250, 900, 1)], &[1.5, 0.5], 0.8),
        ("fair by shares", &[(750, 900, 3), (250, 900, 1)], &[1.0, 1.0], 1.0),
        ("one has everything", &[(900, 900, 1), (0, 900, 1)], &[1.8, 0.0], 0.5),
        ("no demand", &[(500, 0, 1), (0, 0, 1)], &[1.0, 1.0], 1.0),
    ];
    for (name, guests, expected, index) in cases {
        let found = satisfactions(&problem(1000, guests));
        for (found, expected) in found.iter().zip(*expected) {
            assert!((found - expected).abs() < 1e-3, "{name}: {found} for {expected}");
        }
        let found = jain(&found).unwrap();
        assert!((found - index).abs() < 1e-3, "{name}: {found} for {index}");
    }
}

#[test]
fn the_mean_covers_the_last_decisions() {
    let mut fairness = Fairness::default();
    fairness.observe(&problem(1000, &[]));
    assert_eq!((fairness.mean(), fairness.latest(), fairness.decisions()), (None, None, 0));
    fairness.observe(&problem(1000, &[(900, 900, 1), (0, 900, 1)]));
    fairness.observe(&problem(1000, &[(500, 900, 1), (500, 900, 1)]));
    assert_eq!((fairness.mean(), fairness.latest()), (Some(0.75), Some(1.0)));
    for _ in 1..WINDOW_DECISIONS {
        fairness.observe(&problem(1000, &[(500, 900, 1), (500, 900, 1)]));
    }
    assert_eq!((fairness.mean(), fairness.decisions()), (Some(1.0), WINDOW_DECISIONS));
}

proptest! {
    #[test]
    fn the_index_is_between_one_in_n_and_one(
        guests in prop::collection::vec((0..2000u64, 0..2000u64, 1..100u32), 1..20),
        budget in 0..10_000u64,
    ) {
        let satisfactions = satisfactions(&problem(budget, &guests));
        prop_assert!(satisfactions.iter().all(|x| x.is_finite() && *x >= 0.0));
        if let Some(index) = jain(&satisfactions) {
            prop_assert!(index <= 1.0 + 1e-9 && index >= 1.0 / guests.len() as f64 - 1e-9);
        }
    }

    #[test]
    fn any_figures_give_a_valid_index_or_none(
        figures in prop::collection::vec(any::<f64>(), 0..9),
    ) {
        if let Some(index) = jain(&figures) {
            prop_assert!((0.0..=1.0 + 1e-9).contains(&index), "{}", index);
        }
    }
}
