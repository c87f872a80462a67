//! Named examples for every policy, in MiB.

use ballast_model::{Bytes, PolicyName, Signals, Tax};
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
    division.wanted.iter().map(|wanted| mib(wanted.target)).collect()
}

fn global(tax: TaxRule) -> Box<dyn Policy> {
    build(PolicyName::Global, PolicySettings { tax, ..PolicySettings::default() })
}

const WIDE: (u64, u64) = (0, 1 << 20);

fn uses(used: u64) -> Guest {
    (used, WIDE.0, WIDE.1, 1000)
}

#[test]
fn global_with_a_dynamic_tax_matches_hand_calculations() {
    let cases: &[(&str, u64, &[Guest], &[u64])] = &[
        ("no guest short: each gets its part", 1024, &[uses(100), uses(200)], &[512, 512]),
        ("all equal: no tax, no division by zero", 1024, &[uses(500), uses(500)], &[512, 512]),
        ("one short: exactly its reserve", 1024, &[uses(600), uses(100)], &[700, 324]),
        ("idle memory runs out: full tax", 1024, &[uses(750), uses(100)], &[837, 187]),
        ("three guests", 1536, &[uses(700), uses(100), uses(100)], &[800, 368, 368]),
        ("one guest", 1024, &[uses(100)], &[1024]),
        ("no guests", 1024, &[], &[]),
    ];
    for (name, budget, guests, expected) in cases {
        let found = targets(&mut *global(TaxRule::Dynamic), &problem(*budget, guests));
        assert_eq!(found, *expected, "{name}");
    }
}

#[test]
fn global_with_a_fixed_tax_matches_hand_calculations() {
    let guests = [uses(600), uses(100)];
    for (tax, expected) in [
        (Tax::ZERO, [512, 512]),
        (Tax::from_fraction(1 << 31), [637, 387]),
        (Tax::from_fraction(3 << 30), [700, 325]),
        (Tax::ONE, [762, 262]),
    ] {
        let found = targets(&mut *global(TaxRule::Fixed(tax)), &problem(1024, &guests));
        let near = found.iter().zip(expected).all(|(a, b)| a.abs_diff(b) <= 1);
        assert!(near, "{tax}: {found:?}, expected {expected:?}");
    }
}

#[test]
fn global_respects_floors_and_ceilings() {
    let cases: &[(&str, u64, &[Guest], &[u64])] = &[
        (
            "the floor of the idle guest limits the tax",
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
        ("ceilings leave memory unused", 1024, &[(9, 0, 100, 1), (9, 0, 200, 1)], &[100, 200]),
        ("floors exceed the budget", 100, &[(9, 80, 100, 1), (9, 90, 200, 1)], &[80, 90]),
    ];
    for (name, budget, guests, expected) in cases {
        let found = targets(&mut *global(TaxRule::Dynamic), &problem(*budget, guests));
        assert_eq!(found, *expected, "{name}");
    }
    let short = global(TaxRule::Dynamic).divide(&problem(100, &[(9, 80, 100, 1), (9, 90, 200, 1)]));
    assert_eq!(short.shortfall, Bytes::mib(70));
}

/// Cases in which more shares cost memory; `properties.rs` covers those in which they do not.
#[test]
fn more_shares_may_cost_memory_under_global() {
    let with = |shares| (0, 0, 1 << 20, shares);
    let others = [(705, 0, 1 << 20, 2000), (100, 0, 1 << 20, 446)];
    let dynamic = |shares| {
        let guests = [with(shares), others[0], others[1]];
        targets(&mut *global(TaxRule::Dynamic), &problem(2078, &guests))
    };
    // The third has 208 and needs 200: no tax. With more shares for the first it would have 157, so
    // the tax is full, and the first, which uses nothing, pays most: (2078 - 805) * 3453 / 5899.
    assert_eq!(dynamic(2000), [935, 935, 208]);
    assert_eq!(dynamic(3453), [745, 1137, 196]);
    // 200 of 1200 in use are lacking: both lose 100, or the first three quarters of the shortage.
    let full = |shares| {
        let guests = [(900, 0, 1 << 20, shares), (300, 0, 1 << 20, 1000)];
        targets(&mut *global(TaxRule::Dynamic), &problem(1000, &guests))
    };
    assert_eq!((full(1000), full(3000)), (vec![800, 200], vec![750, 250]));
}

#[test]
fn shares_divide_idle_memory() {
    let three_to_one = [(100, 0, 4096, 3000), (100, 0, 4096, 1000)];
    let budget = problem(1024, &three_to_one);
    assert_eq!(
        targets(&mut *build(PolicyName::Static, PolicySettings::default()), &budget),
        [768, 256]
    );
    // Both have their 100 MiB reserve: no tax, so the same.
    assert_eq!(targets(&mut *global(TaxRule::Dynamic), &budget), [768, 256]);
    // The one with fewer shares is short: it gets what it uses plus the reserve.
    let needy = problem(1024, &[(100, 0, 4096, 3000), (400, 0, 4096, 1000)]);
    assert_eq!(targets(&mut *global(TaxRule::Dynamic), &needy), [524, 500]);
}

#[test]
fn self_scheduling_switches_to_global_and_back() {
    let mut policy = build(PolicyName::SelfScheduling, PolicySettings::default());
    let fits = problem(1024, &[uses(500), uses(100)]);
    let too_much = problem(1024, &[uses(800), uses(100)]);
    let nearly_fits = problem(1024, &[uses(700), uses(100)]);
    assert_eq!(targets(&mut *policy, &fits), [600, 200]);
    assert_eq!(targets(&mut *policy, &nearly_fits), [800, 200], "fits without a margin");
    assert_eq!(targets(&mut *policy, &too_much), [862, 162], "like global: divides everything");
    assert_eq!(targets(&mut *policy, &nearly_fits), [800, 224], "still like global");
    assert_eq!(targets(&mut *policy, &fits), [600, 200], "switched back");
}

/// (committed or probed, shares), in MiB; between 128 MiB and 2 GiB, and using 300 MiB.
fn known(name: PolicyName, budget_mib: u64, guests: &[(Option<u64>, u32)]) -> Problem {
    let contenders = guests.iter().enumerate().map(|(i, &(known, shares))| {
        let known = known.map(Bytes::mib);
        let signals = match name {
            PolicyName::Tws => Signals { probed: known, ..Signals::default() },
            // Plus the reserve, it wants the same.
            _ => Signals {
                committed: known.map(|size| size.saturating_sub(Bytes::mib(100))),
                ..Signals::default()
            },
        };
        Contender {
            floor: Bytes::mib(128),
            ceiling: Bytes::gib(2),
            shares,
            signals,
            ..Contender::new(format!("g{i}").parse().unwrap(), Bytes::mib(300))
        }
    });
    Problem::new(Bytes::mib(budget_mib), contenders.collect())
}

#[test]
fn self_balloon_and_tws_meet_wants_that_fit() {
    type Case = (&'static str, u64, &'static [(Option<u64>, u32)], &'static [u64]);
    let cases: &[Case] = &[
        ("wants fit: nothing more", 2048, &[(Some(700), 1), (Some(500), 1)], &[700, 500]),
        ("within bounds", 4096, &[(Some(10), 1), (Some(3000), 1)], &[128, 2048]),
        ("not known: in use plus 100", 2048, &[(None, 1), (Some(500), 1)], &[400, 500]),
        // The parts are 341 each; the second wants less, the others halve 1024 - 200.
        ("too much", 1024, &[(Some(700), 1), (Some(200), 1), (Some(900), 1)], &[412, 200, 412]),
        // The first has a part of 768 but wants less.
        ("shares", 1024, &[(Some(700), 3), (Some(900), 1)], &[700, 324]),
        ("shares divide the budget", 1024, &[(Some(900), 3), (Some(900), 1)], &[768, 256]),
        ("floors first", 300, &[(Some(900), 9), (Some(900), 1)], &[172, 128]),
    ];
    for name in [PolicyName::SelfBalloon, PolicyName::Tws] {
        for (case, budget, guests, expected) in cases {
            let problem = known(name, *budget, guests);
            let found = targets(&mut *build(name, PolicySettings::default()), &problem);
            assert_eq!(found, *expected, "{name}: {case}");
        }
    }
}

#[test]
fn divisions_have_reasons_and_notes() {
    let reasons = |name, budget, guests: &[(Option<u64>, u32)]| -> Vec<String> {
        let problem = known(name, budget, guests);
        let division = build(name, PolicySettings::default()).divide(&problem);
        let notes = division.notes.iter().map(ToString::to_string);
        division.wanted.iter().map(|w| w.reason.to_string()).chain(notes).collect()
    };
    assert_eq!(
        reasons(PolicyName::SelfBalloon, 2048, &[(Some(700), 1), (None, 1)]),
        [
            "its kernel has promised 600MiB to processes",
            "its Committed_AS is not known: needs 300MiB, and 100MiB in reserve",
            "no Committed_AS is known of 1 guest (a program in the guest would provide it): they \
             want what they use plus the reserve",
        ]
    );
    assert_eq!(
        reasons(PolicyName::Tws, 1024, &[(Some(900), 3), (Some(200), 1)]),
        [
            "probing found a working set of 900MiB; cut from 900MiB to its part by 3 shares: all \
             together want more than there is",
            "probing found a working set of 200MiB",
        ]
    );
}

/// (used, priority), in MiB, with floors of 100 MiB.
fn ranked(budget_mib: u64, guests: &[(u64, u8)]) -> Problem {
    let contenders = guests.iter().enumerate().map(|(i, &(used, priority))| Contender {
        floor: Bytes::mib(100),
        ceiling: Bytes::gib(2),
        priority,
        ..Contender::new(format!("g{i}").parse().unwrap(), Bytes::mib(used))
    });
    Problem::new(Bytes::mib(budget_mib), contenders.collect())
}

#[test]
fn priority_takes_from_the_lowest_first_down_to_their_floors() {
    type Case = (&'static str, &'static [(u64, u8)], &'static [u64]);
    // 900 MiB under `static`: 300 for each of three. The need is the use plus 100.
    let cases: &[Case] = &[
        ("equal priorities change nothing", &[(800, 4), (10, 4), (10, 4)], &[300, 300, 300]),
        ("needs no more than it has", &[(200, 4), (200, 0), (200, 0)], &[300, 300, 300]),
        ("equal guests give equally", &[(400, 1), (10, 0), (10, 0)], &[500, 200, 200]),
        ("the lowest gives first", &[(400, 2), (10, 1), (10, 0)], &[500, 300, 100]),
        ("then the next", &[(500, 2), (10, 1), (10, 0)], &[600, 200, 100]),
        ("down to the floors", &[(900, 2), (10, 1), (10, 0)], &[700, 100, 100]),
        ("the giver's use does not matter", &[(900, 1), (700, 0), (700, 0)], &[700, 100, 100]),
        // 400 and 200 lacking, 200 available.
        ("takers share what is available", &[(600, 1), (400, 1), (10, 0)], &[433, 367, 100]),
        ("the next priority takes the rest", &[(350, 2), (400, 1), (10, 0)], &[450, 350, 100]),
    ];
    for (case, guests, expected) in cases {
        let mut policy = build(PolicyName::Static, PolicySettings::default());
        assert_eq!(targets(&mut *policy, &ranked(900, guests)), *expected, "{case}");
    }
}

#[test]
fn priority_takes_memory_left_over_first() {
    let problem = known(PolicyName::SelfBalloon, 1000, &[(Some(200), 1), (Some(500), 1)]);
    let mut guests = problem.contenders().to_vec();
    guests[0].priority = 3;
    let problem = Problem::new(problem.budget(), guests);
    let division = build(PolicyName::SelfBalloon, PolicySettings::default()).divide(&problem);
    let rendered: Vec<String> =
        division.wanted.iter().map(|w| format!("{}: {}", w.target, w.reason)).collect();
    assert_eq!(
        rendered,
        [
            "400MiB: needs 400MiB and has priority 3: 200MiB more, left over by the others (its kernel \
             has promised 100MiB to processes)",
            "500MiB: its kernel has promised 400MiB to processes",
        ]
    );
}

#[test]
fn priority_reasons_name_giver_and_taker() {
    let problem = ranked(900, &[(500, 2), (10, 1), (10, 0)]);
    let division = build(PolicyName::Static, PolicySettings::default()).divide(&problem);
    let rendered: Vec<String> = division.wanted.iter().map(|w| w.reason.to_string()).collect();
    assert_eq!(
        rendered,
        [
            "needs 600MiB and has priority 2: 300MiB more, taken from g2 and 1 more (1000 of 3000 shares \
             of 900MiB)",
            "gives 100MiB to g0 above its priority 1 (1000 of 3000 shares of 900MiB)",
            "gives 200MiB to g0 above its priority 0 (1000 of 3000 shares of 900MiB)",
        ]
    );
}
