//! Named cases for every policy, in MiB.

use ballast_model::{Bytes, PolicyName, Tax};
use ballast_policy::{Contender, Policy, PolicySettings, Problem, TaxRule, build};

/// (used, floor, ceiling, shares), in MiB.
type Guest = (u64, u64, u64, u32);

fn problem(budget_mib: u64, guests: &[Guest]) -> Problem {
    let contenders =
        guests.iter().enumerate().map(|(i, &(used, floor, ceiling, shares))| Contender {
            floor: Bytes::mib(floor),
            ceiling: Bytes::mib(ceiling),
            shares,
            ..Contender::new(format!("g{i}").parse().unwrap(), Bytes::mib(used))
        });
    Problem::new(Bytes::mib(budget_mib), contenders.collect())
}

/// Targets in MiB, rounded to the nearest.
fn targets(policy: &mut dyn Policy, problem: &Problem) -> Vec<u64> {
    let division = policy.divide(problem);
    let mib = |bytes: Bytes| (bytes.as_mib_f64()).round() as u64;
    division.wanted.iter().map(|wanted| mib(wanted.desired.target)).collect()
}

fn global(tax: TaxRule) -> Box<dyn Policy> {
    build(PolicyName::Global, PolicySettings { tax, ..PolicySettings::default() })
}

const WIDE: (u64, u64) = (0, 1 << 20);

fn uses(used: u64) -> Guest {
    (used, WIDE.0, WIDE.1, 1000)
}

#[test]
fn global_with_a_dynamic_tax() {
    let cases: &[(&str, u64, &[Guest], &[u64])] = &[
        ("nobody short: everyone its part", 1024, &[uses(100), uses(200)], &[512, 512]),
        ("all alike: no tax, no division by zero", 1024, &[uses(500), uses(500)], &[512, 512]),
        ("one short: exactly its reserve", 1024, &[uses(600), uses(100)], &[700, 324]),
        ("idle memory runs out: full tax", 1024, &[uses(750), uses(100)], &[837, 187]),
        ("three guests", 1536, &[uses(700), uses(100), uses(100)], &[800, 368, 368]),
        ("alone", 1024, &[uses(100)], &[1024]),
        ("nobody", 1024, &[], &[]),
    ];
    for (name, budget, guests, expected) in cases {
        let found = targets(&mut *global(TaxRule::Dynamic), &problem(*budget, guests));
        assert_eq!(found, *expected, "{name}");
    }
}

#[test]
fn global_with_a_fixed_tax() {
    let guests = [uses(600), uses(100)];
    for (tax, expected) in [
        (Tax::ZERO, [512, 512]),
        (Tax::from_fraction(1 << 31), [637, 387]),
        (PolicySettings::TAX_ESX, [700, 325]),
        (Tax::ONE, [762, 262]),
    ] {
        let found = targets(&mut *global(TaxRule::Fixed(tax)), &problem(1024, &guests));
        let near = found.iter().zip(expected).all(|(a, b)| a.abs_diff(b) <= 1);
        assert!(near, "{tax}: {found:?}, expected {expected:?}");
    }
}

#[test]
fn global_within_bounds() {
    let cases: &[(&str, u64, &[Guest], &[u64])] = &[
        (
            "the floor of the idle guest stops the tax",
            1024,
            &[(900, 0, 4096, 1), (50, 256, 4096, 1)],
            &[768, 256],
        ),
        (
            "the ceiling of the busy guest leaves the rest to the other",
            1024,
            &[(900, 0, 600, 1), (50, 0, 4096, 1)],
            &[600, 424],
        ),
        ("ceilings leave memory over", 1024, &[(9, 0, 100, 1), (9, 0, 200, 1)], &[100, 200]),
        ("floors exceed the budget", 100, &[(9, 80, 100, 1), (9, 90, 200, 1)], &[80, 90]),
    ];
    for (name, budget, guests, expected) in cases {
        let found = targets(&mut *global(TaxRule::Dynamic), &problem(*budget, guests));
        assert_eq!(found, *expected, "{name}");
    }
    let short = global(TaxRule::Dynamic).divide(&problem(100, &[(9, 80, 100, 1), (9, 90, 200, 1)]));
    assert_eq!(short.shortfall, Bytes::mib(70));
}

#[test]
fn shares_weigh_idle_memory() {
    let three_to_one = [(100, 0, 4096, 3000), (100, 0, 4096, 1000)];
    let budget = problem(1024, &three_to_one);
    assert_eq!(
        targets(&mut *build(PolicyName::Static, PolicySettings::default()), &budget),
        [768, 256]
    );
    // Both have their 100 MiB reserve: no tax, so the same.
    assert_eq!(targets(&mut *global(TaxRule::Dynamic), &budget), [768, 256]);
    // The small one is short: it gets what it uses and the reserve.
    let needy = problem(1024, &[(100, 0, 4096, 3000), (400, 0, 4096, 1000)]);
    assert_eq!(targets(&mut *global(TaxRule::Dynamic), &needy), [524, 500]);
}

#[test]
fn self_scheduling_gives_what_is_asked_then_hands_over_and_takes_back() {
    let mut policy = build(PolicyName::SelfScheduling, PolicySettings::default());
    let fits = problem(1024, &[uses(500), uses(100)]);
    let too_much = problem(1024, &[uses(800), uses(100)]);
    let nearly_fits = problem(1024, &[uses(700), uses(100)]);
    assert_eq!(targets(&mut *policy, &fits), [600, 200]);
    assert_eq!(targets(&mut *policy, &nearly_fits), [800, 200], "fits without a margin");
    assert_eq!(targets(&mut *policy, &too_much), [862, 162], "handed over: divides everything");
    assert_eq!(targets(&mut *policy, &nearly_fits), [800, 224], "not taken back yet");
    assert_eq!(targets(&mut *policy, &fits), [600, 200], "taken back");
}
