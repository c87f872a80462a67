//! Checks the properties listed in `lib.rs` for every policy on random problems, and compares the
//! bounded division with a simple oracle.

use std::time::Duration;

use ballast_model::{
    Bytes, Confidence, Demand, DemandSource, Input, Note, PolicyName, Reason, Signals, Tax,
};
use ballast_policy::{Contender, Division, PolicySettings, Problem, TaxRule, build};
use proptest::prelude::*;

fn contender() -> impl Strategy<Value = Contender> {
    let size = || (0..60_000u64).prop_map(Bytes::pages);
    let known = (prop::option::of(size()), prop::option::of(size()), prop::option::of(size()));
    let floor = (0..20_000u64, prop_oneof![3 => Just(0), 1 => 0..20_000u64]);
    (0..40_000u64, floor, 0..60_000u64, 1..5000u32, 0..4u8, known).prop_map(
        |(used, (floor, unguaranteed), room, shares, priority, (committed, probed, demand))| {
            Contender {
                used: Bytes::pages(used),
                floor: Bytes::pages(floor),
                unguaranteed: Bytes::pages(unguaranteed),
                ceiling: Bytes::pages(floor + room),
                shares,
                priority,
                demand: demand.map(|size| Demand {
                    size,
                    source: DemandSource::WorkingSet,
                    age: Duration::ZERO,
                    confidence: Confidence::from_percent(95),
                }),
                signals: Signals { committed, probed, ..Signals::default() },
                ..Contender::new("x".parse().unwrap(), Bytes::ZERO)
            }
        },
    )
}

/// The same guests with equal priorities.
fn without_priorities(problem: &Problem) -> Problem {
    let equal = problem.contenders().iter().cloned().map(|c| Contender { priority: 7, ..c });
    Problem::new(problem.budget(), equal.collect())
}

fn problem() -> impl Strategy<Value = Problem> {
    (prop::collection::vec(contender(), 0..20), 0..1_000_000u64).prop_map(|(mut guests, budget)| {
        for (i, guest) in guests.iter_mut().enumerate() {
            guest.id = format!("g{i:02}").parse().unwrap();
        }
        Problem::new(Bytes::pages(budget), guests)
    })
}

fn settings() -> impl Strategy<Value = PolicySettings> {
    let tax = prop_oneof![
        Just(TaxRule::Dynamic),
        (0..=1u64 << 32).prop_map(|n| TaxRule::Fixed(Tax::from_fraction(n))),
    ];
    (0..50_000u64, tax).prop_map(|(reserve, tax)| PolicySettings {
        reserve: Bytes::pages(reserve),
        tax,
        ..PolicySettings::default()
    })
}

fn name() -> impl Strategy<Value = PolicyName> {
    prop::sample::select(PolicyName::ALL.to_vec())
}

fn total(division: &Division) -> Bytes {
    division.wanted.iter().map(|w| w.target).sum()
}

/// Divides under a given tax by bisecting the common price λ and clamping every guest on its own.
/// Slow, simple, and independent of the rounds.
fn by_bisection(problem: &Problem, tax: Tax) -> Vec<f64> {
    let tau = tax.numerator() as f64 / Tax::ONE.numerator() as f64;
    let at = |lambda: f64| -> Vec<f64> {
        let target = |c: &Contender| {
            (tau * c.used.to_pages() as f64 + lambda * f64::from(c.shares))
                .clamp(c.floor.to_pages() as f64, c.ceiling.to_pages() as f64)
        };
        problem.contenders().iter().map(target).collect()
    };
    let (mut low, mut high) = (-1e9, 1e9);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if at(middle).iter().sum::<f64>() > problem.budget().to_pages() as f64 {
            high = middle;
        } else {
            low = middle;
        }
    }
    at(low)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn bounds_hold_and_the_budget_is_not_exceeded(
        problem in problem(), settings in settings(), name in name()
    ) {
        let division = build(name, settings.clone()).divide(&problem);
        prop_assert_eq!(division.wanted.len(), problem.contenders().len());
        for (wanted, contender) in division.wanted.iter().zip(problem.contenders()) {
            prop_assert!(wanted.target >= contender.floor);
            prop_assert!(wanted.target <= contender.ceiling);
            prop_assert_eq!(wanted.target.page_floor(), wanted.target);
        }
        prop_assert_eq!(division.shortfall, problem.shortfall());
        if division.shortfall == Bytes::ZERO {
            prop_assert!(total(&division) <= problem.budget());
        }
    }

    #[test]
    fn static_and_global_divide_everything(problem in problem(), settings in settings()) {
        let ceilings: Bytes = problem.contenders().iter().map(|c| c.ceiling).sum();
        for name in [PolicyName::Static, PolicyName::Global] {
            let division = build(name, settings.clone()).divide(&problem);
            if division.shortfall == Bytes::ZERO {
                prop_assert_eq!(total(&division), problem.budget().min(ceilings));
            }
        }
    }

    #[test]
    fn the_order_of_guests_does_not_matter(
        problem in problem(), settings in settings(), name in name()
    ) {
        let mut reversed = problem.contenders().to_vec();
        reversed.reverse();
        let reversed = Problem::new(problem.budget(), reversed);
        let divide = |problem| build(name, settings.clone()).divide(problem);
        prop_assert_eq!(divide(&problem), divide(&reversed));
    }

    #[test]
    fn deciding_twice_gives_the_same_division(
        problem in problem(), settings in settings(), name in name()
    ) {
        let mut policy = build(name, settings);
        let first = policy.divide(&problem);
        prop_assert_eq!(policy.divide(&problem), first);
    }

    /// With the dynamic tax below one, every guest that uses more than its part has its reserve.
    #[test]
    fn guests_above_their_part_keep_their_reserve(
        mut problem in problem(), reserve in 0..50_000u64
    ) {
        // Without bounds, and with a budget that covers the memory in use.
        let unbounded: Vec<Contender> = problem.contenders().iter().cloned().map(|c| Contender {
            floor: Bytes::ZERO,
            ceiling: Bytes::pages(1 << 30),
            ..c
        }).collect();
        let used: Bytes = unbounded.iter().map(|c| c.used).sum();
        problem = without_priorities(&Problem::new(problem.budget().max(used), unbounded));
        let settings = PolicySettings {
            reserve: Bytes::pages(reserve), tax: TaxRule::Dynamic, ..PolicySettings::default()
        };
        let division = build(PolicyName::Global, settings.clone()).divide(&problem);
        let shares: u64 = problem.contenders().iter().map(|c| u64::from(c.shares)).sum();
        for (wanted, c) in division.wanted.iter().zip(problem.contenders()) {
            let beyond_part = u128::from(c.used.get()) * u128::from(shares)
                > u128::from(c.shares) * u128::from(used.get());
            let Reason::IdleTax { tax, .. } = wanted.reason else { continue };
            if tax < Tax::ONE && beyond_part {
                prop_assert!(wanted.target + Bytes::pages(1) >= c.used + settings.reserve);
            }
        }
    }

    #[test]
    fn rounds_agree_with_bisection(
        any in problem(), tax in 0..=1u64 << 32, part in 0..=1000u64
    ) {
        // A budget between the sums of floors and ceilings.
        let floors: Bytes = any.contenders().iter().map(|c| c.floor).sum();
        let ceilings: Bytes = any.contenders().iter().map(|c| c.ceiling).sum();
        let budget = floors + (ceilings - floors).fraction(part, 1000);
        let problem = without_priorities(&Problem::new(budget, any.contenders().to_vec()));
        let tax = Tax::from_fraction(tax);
        let settings = PolicySettings {
            reserve: Bytes::ZERO,
            tax: TaxRule::Fixed(tax),
            ..PolicySettings::default()
        };
        let division = build(PolicyName::Global, settings).divide(&problem);
        for (wanted, expected) in division.wanted.iter().zip(by_bisection(&problem, tax)) {
            let pages = wanted.target.to_pages() as f64;
            prop_assert!((pages - expected).abs() <= 1.5, "{} {}", pages, expected);
        }
    }
}

/// What a guest needs, by an independent copy of the rule of `priority.rs`.
fn need(c: &Contender, reserve: Bytes) -> Bytes {
    (c.demand.map_or(Bytes::ZERO, |demand| demand.size).max(c.used) + reserve).min(c.ceiling)
}

/// The memory a guest took and gave because of priority, according to its reasons.
fn moved(reason: &Reason) -> (Bytes, Bytes) {
    match reason {
        Reason::Raised { taken, because, .. } => (*taken, moved(because).1),
        Reason::Lowered { given, .. } => (Bytes::ZERO, *given),
        _ => (Bytes::ZERO, Bytes::ZERO),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_guest_lacks_memory_that_lower_priorities_could_give(
        problem in problem(), settings in settings(), name in name()
    ) {
        let reserve = settings.reserve;
        let division = build(name, settings).divide(&problem);
        let targets = || division.wanted.iter().map(|w| w.target);
        let guests = || problem.contenders().iter().zip(targets());
        for (high, has) in guests().filter(|(c, has)| *has < need(c, reserve)) {
            for (low, holds) in guests().filter(|(c, _)| c.priority < high.priority) {
                prop_assert_eq!(holds, low.floor, "{} has {} and lacks", &high.id, has);
            }
        }
    }

    #[test]
    fn priority_moves_the_stated_amounts_and_loses_nothing(
        problem in problem(), settings in settings(), name in name()
    ) {
        let plain = build(name, settings.clone()).divide(&without_priorities(&problem));
        let division = build(name, settings).divide(&problem);
        let (mut taken_of_all, mut given_of_all) = (Bytes::ZERO, Bytes::ZERO);
        for (wanted, plain) in division.wanted.iter().zip(&plain.wanted) {
            let (taken, given) = moved(&wanted.reason);
            prop_assert_eq!(wanted.target + given, plain.target + taken);
            taken_of_all += taken;
            given_of_all += given;
        }
        prop_assert_eq!(total(&division) + given_of_all, total(&plain) + taken_of_all);
        let lowest = problem.contenders().iter().map(|c| c.priority).min();
        for (wanted, c) in division.wanted.iter().zip(problem.contenders()) {
            let (taken, _) = moved(&wanted.reason);
            prop_assert!(Some(c.priority) != lowest || taken == Bytes::ZERO);
        }
    }

    /// Except for rounding, at most a page for each guest.
    #[test]
    fn a_higher_priority_never_costs_memory(
        problem in problem(), settings in settings(), name in name(), which: prop::sample::Index
    ) {
        prop_assume!(!problem.contenders().is_empty());
        let which = which.index(problem.contenders().len());
        let mut raised = problem.contenders().to_vec();
        raised[which].priority += 1;
        let raised = Problem::new(problem.budget(), raised);
        let target = |problem: &Problem| {
            build(name, settings.clone()).divide(problem).wanted[which].target
        };
        let slack = Bytes::pages(problem.contenders().len() as u64);
        prop_assert!(target(&raised) + slack >= target(&problem));
    }

    /// For policies with wants: all wants if they fit, otherwise parts by shares for guests that
    /// get less than they want, computed by bisection.
    #[test]
    fn wants_are_met_fairly(
        any in problem(), part in 0..=1200u64, settings in settings(),
        name in prop::sample::select(vec![PolicyName::SelfBalloon, PolicyName::Tws])
    ) {
        let want = |c: &Contender| {
            let promised = c.signals.committed.map(|size| size.saturating_add(settings.reserve));
            let known = if name == PolicyName::Tws { c.signals.probed } else { promised };
            known.unwrap_or(c.used + settings.reserve).clamp(c.floor, c.ceiling)
        };
        let wants: Bytes = any.contenders().iter().map(want).sum();
        let floors: Bytes = any.contenders().iter().map(|c| c.floor).sum();
        let budget = floors + (wants - floors).fraction(part, 1000);
        let problem = without_priorities(&Problem::new(budget, any.contenders().to_vec()));
        let division = build(name, settings.clone()).divide(&problem);
        prop_assert_eq!(total(&division), wants.min(problem.budget()));
        let capped = problem.contenders().iter().cloned().map(|c| Contender {
            ceiling: want(&c), ..c
        });
        let expected = by_bisection(&Problem::new(budget, capped.collect()), Tax::ZERO);
        for (wanted, expected) in division.wanted.iter().zip(expected) {
            let pages = wanted.target.to_pages() as f64;
            prop_assert!((pages - expected).abs() <= 1.5, "{} {}", pages, expected);
        }
    }

    /// For policies that divide a shortage by shares alone.
    #[test]
    fn more_shares_never_cost_memory(
        problem in problem(), settings in settings(), more in 1..5000u32,
        name in prop::sample::select(
            vec![PolicyName::Static, PolicyName::SelfBalloon, PolicyName::Tws]
        ),
        which: prop::sample::Index,
    ) {
        prop_assume!(!problem.contenders().is_empty());
        let problem = without_priorities(&problem);
        let which = which.index(problem.contenders().len());
        let mut richer = problem.contenders().to_vec();
        richer[which].shares += more;
        let richer = Problem::new(problem.budget(), richer);
        let target = |problem: &Problem| {
            build(name, settings.clone()).divide(problem).wanted[which].target
        };
        prop_assert!(target(&richer) + Bytes::pages(1) >= target(&problem));
    }

    /// While the taxed use of all guests fits within the bounds. Otherwise, and under a dynamic
    /// tax, more shares may cost memory: `tables.rs` has a case of each.
    #[test]
    fn more_shares_never_cost_memory_under_a_fixed_tax(
        any in problem(), tax in 0..=1u64 << 32, part in 0..=1000u64, more in 1..5000u32,
        which: prop::sample::Index,
    ) {
        prop_assume!(!any.contenders().is_empty());
        let tax = Tax::from_fraction(tax);
        let taxed = |c: &Contender| {
            let part = c.used.fraction(tax.numerator(), Tax::ONE.numerator());
            part.page_ceil().clamp(c.floor, c.ceiling)
        };
        let least: Bytes = any.contenders().iter().map(taxed).sum();
        let most: Bytes = any.contenders().iter().map(|c| c.ceiling).sum();
        let budget = least + (most - least).fraction(part, 1000);
        let problem = without_priorities(&Problem::new(budget, any.contenders().to_vec()));
        let settings = PolicySettings { tax: TaxRule::Fixed(tax), ..PolicySettings::default() };
        let which = which.index(problem.contenders().len());
        let mut richer = problem.contenders().to_vec();
        richer[which].shares += more;
        let richer = Problem::new(problem.budget(), richer);
        let target = |problem: &Problem| {
            build(PolicyName::Global, settings.clone()).divide(problem).wanted[which].target
        };
        prop_assert!(target(&richer) + Bytes::pages(2) >= target(&problem));
    }

    #[test]
    fn missing_data_is_noted_once_for_each_input(problem in problem(), settings in settings()) {
        for (name, what) in [
            (PolicyName::SelfBalloon, Input::Committed), (PolicyName::Tws, Input::Probed)
        ] {
            let division = build(name, settings.clone()).divide(&problem);
            let lacking = division.wanted.iter().zip(problem.contenders()).filter(|(_, c)| {
                match what {
                    Input::Committed => c.signals.committed.is_none(),
                    _ => c.signals.probed.is_none(),
                }
            });
            let lacking = lacking.count();
            let noted: Vec<usize> = division.notes.iter().map(|note| match note {
                Note::MissingInput { what: input, guests, .. } if *input == what => *guests,
                other => panic!("{other:?}"),
            }).collect();
            prop_assert_eq!(noted, if lacking == 0 { vec![] } else { vec![lacking] });
        }
    }
}

#[test]
fn extreme_figures_neither_overflow_nor_panic() {
    let extreme = |i: usize| Contender {
        floor: if i.is_multiple_of(2) { Bytes::ZERO } else { Bytes::pages(1) },
        ceiling: Bytes::MAX,
        shares: if i.is_multiple_of(3) { u32::MAX } else { 0 },
        priority: (i % 256) as u8,
        signals: Signals {
            committed: Some(Bytes::MAX),
            probed: Some(Bytes::MAX),
            ..Signals::default()
        },
        ..Contender::new(format!("g{i:05}").parse().unwrap(), Bytes::MAX)
    };
    for n in [1, 2, 1000, 1 << 16] {
        for budget in [Bytes::ZERO, Bytes::gib(1), Bytes::MAX] {
            let problem = Problem::new(budget, (0..n).map(extreme).collect());
            for name in PolicyName::ALL {
                let division = build(name, PolicySettings::default()).divide(&problem);
                assert_eq!(division.wanted.len(), n);
            }
        }
    }
}
