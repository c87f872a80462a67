//! The properties that `lib.rs` promises, for every policy, on random problems; and the bounded
//! division against a naive oracle.

use ballast_model::{Bytes, PolicyName, Reason, Tax};
use ballast_policy::{Contender, Division, PolicySettings, Problem, TaxRule, build};
use proptest::prelude::*;

fn contender() -> impl Strategy<Value = Contender> {
    (0..40_000u64, 0..20_000u64, 0..60_000u64, 1..5000u32).prop_map(
        |(used, floor, room, shares)| Contender {
            used: Bytes::pages(used),
            floor: Bytes::pages(floor),
            ceiling: Bytes::pages(floor + room),
            shares,
            ..Contender::new("x".parse().unwrap(), Bytes::ZERO)
        },
    )
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
    (0..50_000u64, tax)
        .prop_map(|(reserve, tax)| PolicySettings { reserve: Bytes::pages(reserve), tax })
}

fn name() -> impl Strategy<Value = PolicyName> {
    prop::sample::select(PolicyName::ALL.to_vec())
}

fn total(division: &Division) -> Bytes {
    division.wanted.iter().map(|w| w.desired.target).sum()
}

/// For a given tax: the common price λ found by bisection, everybody clamped on its own. Slow,
/// obvious, and independent of the rounds.
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
            prop_assert_eq!(&wanted.id, &contender.id);
            prop_assert!(wanted.desired.target >= contender.floor);
            prop_assert!(wanted.desired.target <= contender.ceiling);
            prop_assert_eq!(wanted.desired.target.page_floor(), wanted.desired.target);
        }
        prop_assert_eq!(division.shortfall, problem.shortfall());
        if division.shortfall == Bytes::ZERO {
            prop_assert!(total(&division) <= problem.budget());
        }
    }

    #[test]
    fn everything_is_divided(problem in problem(), settings in settings()) {
        let ceilings: Bytes = problem.contenders().iter().map(|c| c.ceiling).sum();
        for name in [PolicyName::Static, PolicyName::Global] {
            let division = build(name, settings.clone()).divide(&problem);
            if division.shortfall == Bytes::ZERO {
                prop_assert_eq!(total(&division), problem.budget().min(ceilings));
            }
        }
    }

    #[test]
    fn order_does_not_matter(problem in problem(), settings in settings(), name in name()) {
        let mut reversed = problem.contenders().to_vec();
        reversed.reverse();
        let reversed = Problem::new(problem.budget(), reversed);
        let divide = |problem| build(name, settings.clone()).divide(problem);
        prop_assert_eq!(divide(&problem), divide(&reversed));
    }

    #[test]
    fn deciding_twice_decides_the_same(
        problem in problem(), settings in settings(), name in name()
    ) {
        let mut policy = build(name, settings);
        policy.divide(&problem);
        let second = policy.divide(&problem);
        prop_assert_eq!(policy.divide(&problem), second);
    }

    /// With the dynamic tax below one, whoever uses more than its part has its reserve.
    #[test]
    fn the_neediest_keeps_its_reserve(mut problem in problem(), reserve in 0..50_000u64) {
        // Without bounds, and with a budget that covers what is used.
        let unbounded: Vec<Contender> = problem.contenders().iter().cloned().map(|c| Contender {
            floor: Bytes::ZERO,
            ceiling: Bytes::pages(1 << 30),
            ..c
        }).collect();
        let used: Bytes = unbounded.iter().map(|c| c.used).sum();
        problem = Problem::new(problem.budget().max(used), unbounded);
        let settings = PolicySettings {
            reserve: Bytes::pages(reserve), tax: TaxRule::Dynamic
        };
        let division = build(PolicyName::Global, settings.clone()).divide(&problem);
        let shares: u64 = problem.contenders().iter().map(|c| u64::from(c.shares)).sum();
        for (wanted, c) in division.wanted.iter().zip(problem.contenders()) {
            let beyond_part = u128::from(c.used.get()) * u128::from(shares)
                > u128::from(c.shares) * u128::from(used.get());
            let Reason::IdleTax { tax, .. } = wanted.desired.reason else { continue };
            if tax < Tax::ONE && beyond_part {
                prop_assert!(wanted.desired.target + Bytes::pages(1) >= c.used + settings.reserve);
            }
        }
    }

    #[test]
    fn rounds_agree_with_bisection(
        any in problem(), tax in 0..=1u64 << 32, part in 0..=1000u64
    ) {
        // A budget between the floors and the ceilings, where there is something to decide.
        let floors: Bytes = any.contenders().iter().map(|c| c.floor).sum();
        let ceilings: Bytes = any.contenders().iter().map(|c| c.ceiling).sum();
        let budget = floors + (ceilings - floors).fraction(part, 1000);
        let problem = Problem::new(budget, any.contenders().to_vec());
        let tax = Tax::from_fraction(tax);
        let settings = PolicySettings {
            reserve: Bytes::ZERO,
            tax: TaxRule::Fixed(tax),
        };
        let division = build(PolicyName::Global, settings).divide(&problem);
        for (wanted, expected) in division.wanted.iter().zip(by_bisection(&problem, tax)) {
            let pages = wanted.desired.target.to_pages() as f64;
            prop_assert!((pages - expected).abs() <= 1.5, "{} {}", pages, expected);
        }
    }
}

#[test]
fn extreme_figures_neither_overflow_nor_panic() {
    let extreme = |i: usize| Contender {
        floor: if i.is_multiple_of(2) { Bytes::ZERO } else { Bytes::pages(1) },
        ceiling: Bytes::MAX,
        shares: if i.is_multiple_of(3) { u32::MAX } else { 0 },
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
