//! A small storm without a violation, and that every sabotage is found.

use ballast_storm::{Injected, Sabotage, run_seed};

/// Seeds of the storm in every `make test`.
const SEEDS: u64 = 250;
/// Within so many seeds a sabotage has to be found.
const SABOTAGE_SEEDS: u64 = 500;

#[test]
fn no_seed_breaks_a_promise() {
    let mut injected = Injected::default();
    for seed in 0..SEEDS {
        let report = run_seed(seed, None);
        if let Some((tick, violation)) = &report.violation {
            panic!("seed {seed}, tick {tick}: {violation}");
        }
        injected.add(&report.injected);
    }
    for (fault, count) in injected.by_kind() {
        assert!(count > 0, "{} never struck", fault.code());
    }
    assert!(injected.total() > 10_000, "{} faults", injected.total());
}

#[test]
fn every_sabotage_is_found() {
    // What claims cost others shows when a seed is compared with itself without them.
    for sabotage in Sabotage::ALL.into_iter().filter(|it| *it != Sabotage::Belief) {
        // What a seed finds without it as well is no proof.
        let is_found = |seed| {
            run_seed(seed, Some(sabotage)).violation.is_some()
                && run_seed(seed, None).violation.is_none()
        };
        assert!((0..SABOTAGE_SEEDS).any(is_found), "{} is not found", sabotage.code());
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in [3, 17] {
        assert_eq!(format!("{:?}", run_seed(seed, None)), format!("{:?}", run_seed(seed, None)));
    }
}
