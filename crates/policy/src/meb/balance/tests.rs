//! Examples calculated by hand, and properties of every decision.

use std::sync::Arc;

use ballast_model::{Confidence, Demand, DemandSource};
use proptest::prelude::*;

use super::*;
use crate::meb::Weighting;

const MIB: u64 = 256;

fn mib(size: u64) -> Bytes {
    Bytes::mib(size)
}

fn guest(name: &str, held: u64, demand: u64) -> Contender {
    let demand = Demand {
        size: mib(demand),
        source: DemandSource::WorkingSet,
        age: Duration::ZERO,
        confidence: Confidence::USED,
    };
    Contender {
        allocation: mib(held),
        demand: Some(demand),
        ..Contender::new(name.parse().unwrap(), mib(held))
    }
}

/// Misses per MiB from 0 on, in five seconds.
fn curve(misses: impl Fn(u64) -> u64) -> Option<Arc<MissCurve>> {
    let misses = (0..4000).map(misses).collect();
    Some(Arc::new(MissCurve::new(mib(1), Duration::from_secs(5), misses).unwrap()))
}

/// Balances with the default settings.
fn balance(problem: &Problem) -> Balance {
    super::balance(problem, &MebSettings::default())
}

fn range(contender: &Contender) -> SizeRange {
    SizeRange::new(contender, &MebSettings::default())
}

fn sizes(budget: u64, contenders: &[Contender]) -> Vec<u64> {
    let balance = balance(&Problem::new(mib(budget), contenders.to_vec()));
    balance.targets.iter().map(|target| target.size.to_pages()).collect()
}

#[test]
fn the_bonus_is_divided_by_demand_and_shares() {
    // A bonus of 40, divided one to three.
    let mut guests = [guest("a", 100, 100), guest("b", 300, 300)];
    assert_eq!(sizes(440, &guests), [110 * MIB, 330 * MIB]);
    // Three times the shares make up for a third of the demand: 20 each.
    guests[0].shares *= 3;
    assert_eq!(sizes(440, &guests), [120 * MIB, 320 * MIB]);
}

/// Limits twice as wide, steps of 8 MiB, and equal weights.
#[test]
fn settings_change_limits_step_and_weighting() {
    let settings = MebSettings {
        step: mib(8),
        shrink_basis_points: 2_000,
        grow_basis_points: 6_000,
        weighting: Weighting::Equal,
    };
    let sizes = |budget: u64, contenders: &[Contender]| {
        let balance = super::balance(&Problem::new(mib(budget), contenders.to_vec()), &settings);
        balance.targets.iter().map(|target| target.size.to_pages() / MIB).collect::<Vec<_>>()
    };
    let mut guests = [guest("a", 100, 100), guest("b", 100, 100)];
    guests[0].shares *= 7;
    assert_eq!(sizes(800, &guests), [160, 160], "at most six tenths more");
    assert_eq!(sizes(240, &guests), [120, 120], "the bonus depends on demand alone");
    // Both demand more than there is; `a` has twice the misses of `b` at any size.
    for (guest, factor) in guests.iter_mut().zip([2, 1]) {
        guest.curve = curve(move |mib| factor * 4000u64.saturating_sub(mib));
        guest.allocation = mib(1000);
        guest.ceiling = mib(4000);
        guest.demand.iter_mut().for_each(|demand| demand.size = mib(4000));
    }
    // `b` shrinks by at most 20 %; `a` gets the rest.
    assert_eq!(sizes(2000, &guests), [1200, 800]);
}

/// Without clamping, as the paper prints it, each would get 400; at most 130 are allowed.
#[test]
fn misprint_a_bonus_stays_within_the_limits() {
    let guests = [guest("a", 100, 100), guest("b", 100, 100)];
    assert_eq!(sizes(800, &guests), [130 * MIB, 130 * MIB]);
    // What the first cannot have goes to the second.
    let guests = [guest("a", 100, 100), guest("b", 400, 100)];
    assert_eq!(sizes(600, &guests), [130 * MIB, 470 * MIB]);
}

#[test]
fn memory_is_taken_where_it_costs_the_fewest_misses() {
    let mut guests = [guest("a", 100, 200), guest("b", 100, 200)];
    // 10 and 1 misses for each MiB below 200.
    guests[0].curve = curve(|size| 10 * 200_u64.saturating_sub(size));
    guests[1].curve = curve(|size| 200_u64.saturating_sub(size));
    assert_eq!(sizes(200, &guests), [110 * MIB, 90 * MIB]);
    // With twenty times the shares of `b` it is the other way round.
    guests[1].shares *= 20;
    assert_eq!(sizes(200, &guests), [90 * MIB, 110 * MIB]);
    // `a` gains nothing below 131 MiB, which is out of reach.
    guests[0].curve = curve(|size| if size < 131 { 1000 } else { 0 });
    guests[1].shares /= 20;
    assert_eq!(sizes(200, &guests), [90 * MIB, 110 * MIB]);
    guests[0].curve = curve(|size| if size < 110 { 1000 } else { 0 });
    assert_eq!(sizes(200, &guests), [110 * MIB, 90 * MIB]);
}

/// The misses of losing a MiB count an eighth more than those of gaining one, and one more.
#[test]
fn memory_stays_where_moving_it_gains_too_little() {
    let mut guests = [guest("a", 100, 200), guest("b", 100, 200)];
    let mut with_misses = |of_a: u64, of_b: u64| {
        guests[0].curve = curve(move |size| of_a * 200_u64.saturating_sub(size));
        guests[1].curve = curve(move |size| of_b * 200_u64.saturating_sub(size));
        sizes(200, &guests)
    };
    let (stay, move_on) = ([100 * MIB, 100 * MIB], [110 * MIB, 90 * MIB]);
    for (of_a, of_b, expected) in
        [(0, 0, stay), (1, 0, stay), (2, 0, move_on), (112, 100, stay), (115, 100, move_on)]
    {
        assert_eq!(with_misses(of_a, of_b), expected, "{of_a} and {of_b} misses a MiB");
    }
}

/// Present sizes are not whole numbers of steps above the lower bounds.
#[test]
fn sizes_off_the_grid_stay() {
    let mut guests = [guest("a", 100, 300), guest("b", 100, 300), guest("c", 100, 300)];
    for (guest, pages) in guests.iter_mut().zip([101, 150, 5]) {
        guest.allocation = mib(200) + Bytes::pages(pages);
        guest.curve = curve(|size| 100 * 300_u64.saturating_sub(size));
    }
    let budget = mib(600) + Bytes::pages(256);
    let decided = balance(&Problem::new(budget, guests.to_vec()));
    for (target, guest) in decided.targets.iter().zip(&guests) {
        assert_eq!(target.size, guest.allocation, "{}", guest.id);
    }
}

#[test]
fn without_curves_all_lack_the_same_part() {
    // 300 of the 400 MiB demanded: three quarters each.
    assert_eq!(sizes(300, &[guest("a", 100, 100), guest("b", 300, 300)]), [75 * MIB, 225 * MIB]);
    let guests = [guest("a", 80, 100), guest("b", 220, 300)];
    let found = sizes(300, &guests);
    assert_eq!(found.iter().sum::<u64>(), 300 * MIB);
    // What `a` has counts an eighth more, so it keeps 2 MiB of it.
    assert!(found[0].abs_diff(77 * MIB) <= MIB, "{found:?}");
}

#[test]
fn a_remainder_below_a_step_is_allocated_too() {
    let mut guests = [guest("a", 100, 200), guest("b", 100, 200)];
    guests[0].curve = curve(|size| 10 * 200_u64.saturating_sub(size));
    let budget = mib(200) + Bytes::pages(101);
    let balance = balance(&Problem::new(budget, guests.to_vec()));
    assert_eq!(balance.targets.iter().map(|target| target.size).sum::<Bytes>(), budget);
}

#[test]
fn lower_bounds_fall_to_floors_before_a_shortfall() {
    let mut guests = [guest("a", 100, 100), guest("b", 100, 100)];
    guests.iter_mut().for_each(|guest| guest.floor = mib(50));
    assert_eq!(sizes(120, &guests), [60 * MIB, 60 * MIB]);
    let infeasible = balance(&Problem::new(mib(90), guests.to_vec()));
    assert_eq!(infeasible.shortfall, mib(10));
    for target in infeasible.targets {
        assert_eq!((target.size, target.rule), (mib(50), TargetRule::Floor));
    }
}

#[test]
fn unmet_objectives_are_reported() {
    let mut guests = [guest("a", 100, 200), guest("b", 100, 200), guest("c", 100, 200)];
    for guest in &mut guests {
        // One miss a second for each MiB below 120.
        guest.curve = curve(|size| 5 * 120_u64.saturating_sub(size));
    }
    // The misses of `b` weigh a hundred times as much, but `a` has an objective.
    guests[1].shares *= 100;
    guests[0].miss_rate_max = Some(15);
    let problem = |guests: &[Contender]| Problem::new(mib(300), guests.to_vec());
    let met = balance(&problem(&guests));
    assert_eq!(met.violations, []);
    assert_eq!(met.targets[0].size, mib(105));
    // Two objectives need 15 and 20 MiB of 30 available: the cheaper one is met.
    guests[2].miss_rate_max = Some(10);
    let one = balance(&problem(&guests));
    assert_eq!(one.targets[0].size, mib(105));
    let violation = |name: &str, most, found| ObjectiveViolation {
        id: name.parse().unwrap(),
        misses_per_s_max: most,
        misses_per_s: found,
    };
    assert_eq!(one.violations.len(), 1);
    assert_eq!(one.violations[0].id.as_str(), "c");
    // With a higher priority the other one is met.
    guests[2].priority = 1;
    let other = balance(&problem(&guests));
    assert_eq!(other.targets[2].size, mib(110));
    assert_eq!(other.violations[0].id.as_str(), "a");
    // Without a curve the objective cannot be checked.
    guests[2].curve = None;
    assert!(balance(&problem(&guests)).violations.contains(&violation("c", 10, None)));
}

#[test]
fn an_objective_out_of_reach_is_approached() {
    let mut guests = [guest("a", 100, 200), guest("b", 100, 200), guest("c", 100, 200)];
    for guest in &mut guests {
        guest.curve = curve(|size| 5 * 200_u64.saturating_sub(size));
    }
    guests[1].shares *= 100;
    // It needs 195 MiB, and a decision goes no further than 130 MiB.
    guests[0].miss_rate_max = Some(5);
    let decided = balance(&Problem::new(mib(330), guests.to_vec()));
    assert_eq!(decided.targets[0].size, mib(130));
    assert_eq!(decided.violations.len(), 1);
}

fn contender() -> impl Strategy<Value = Contender> {
    let falls = prop::collection::vec(prop_oneof![0..50_u64, Just(0), 0..5000_u64], 1..40);
    let curve = (falls, 1..8_u64, 1..10_u64).prop_map(|(falls, step, seconds)| {
        let mut misses = vec![0];
        falls.iter().for_each(|fall| misses.push(misses[misses.len() - 1] + fall));
        misses.reverse();
        Arc::new(MissCurve::new(mib(step), Duration::from_secs(seconds), misses).unwrap())
    });
    let figures = (0..40_000_u64, 0..60_000_u64, 0..20_000_u64, 0..60_000_u64, 1..2000_u32);
    (figures, prop::option::of(curve), prop::option::of(0..3000_u64), 0..3_u8).prop_map(
        |((held, demand, floor, room, shares), curve, miss_rate_max, priority)| Contender {
            allocation: Bytes::pages(held),
            floor: Bytes::pages(floor),
            ceiling: Bytes::pages(floor + room),
            demand: Some(Demand {
                size: Bytes::pages(demand),
                source: DemandSource::Used,
                age: Duration::ZERO,
                confidence: Confidence::USED,
            }),
            shares,
            curve,
            miss_rate_max,
            priority,
            ..Contender::new("g".parse().unwrap(), Bytes::pages(demand))
        },
    )
}

fn named(mut contenders: Vec<Contender>) -> Vec<Contender> {
    for (number, contender) in contenders.iter_mut().enumerate() {
        contender.id = format!("g{number}").parse().unwrap();
    }
    contenders
}

/// A guest that demands more than there is, and its true misses at multiples of a step.
fn steady() -> impl Strategy<Value = (u64, Vec<u64>)> {
    let falls = prop::collection::vec(prop_oneof![0..50_u64, Just(0), 0..5000_u64], 20..80);
    (10_000..40_000_u64, falls).prop_map(|(held, falls)| {
        let mut misses = vec![0];
        // So large that rounding after an error is much smaller than the error.
        falls.iter().for_each(|fall| misses.push(misses[misses.len() - 1] + 1000 * fall));
        misses.reverse();
        (held, misses)
    })
}

proptest! {
    /// So errors cannot move memory back and forth.
    #[test]
    fn errors_never_move_memory_for_more_true_misses(
        guests in prop::collection::vec(steady(), 2..5),
        errors in prop::collection::vec([-58..=58_i64, -58..=58, -58..=58, -58..=58], 1..20),
    ) {
        let seen_curve = |misses: &[u64], error: i64| {
            let seen = misses.iter().map(|misses| misses * (1000 + error) as u64 / 1000);
            Arc::new(MissCurve::new(mib(3), Duration::from_secs(5), seen.collect()).unwrap())
        };
        let truth: Vec<_> = guests.iter().map(|(_, misses)| seen_curve(misses, 0)).collect();
        let mut held: Vec<Bytes> = guests.iter().map(|(held, _)| Bytes::pages(*held)).collect();
        let budget = held.iter().copied().sum();
        let missed = |held: &[Bytes]| -> u64 {
            held.iter().zip(&truth).map(|(held, curve)| curve.misses(*held)).sum()
        };
        for errors in errors {
            let contender = |at: usize| Contender {
                allocation: held[at],
                ceiling: Bytes::gib(4),
                curve: Some(seen_curve(&guests[at].1, errors[at])),
                ..guest(&format!("g{at}"), 0, 4000)
            };
            let contenders = (0..guests.len()).map(contender).collect();
            let decided = balance(&Problem::new(budget, contenders));
            let after: Vec<Bytes> = decided.targets.iter().map(|target| target.size).collect();
            let rounding = 4 * guests.len() as u64;
            prop_assert!(missed(&after) <= missed(&held) + rounding, "{:?} to {:?}", held, after);
            held = after;
        }
    }

    #[test]
    fn bounds_hold_and_the_budget_is_used(
        contenders in prop::collection::vec(contender(), 0..9), budget in 0..300_000_u64,
    ) {
        let contenders = named(contenders);
        let problem = Problem::new(Bytes::pages(budget), contenders.clone());
        let decided = balance(&problem);
        prop_assert_eq!(decided.targets.len(), contenders.len());
        let given: Bytes = decided.targets.iter().map(|target| target.size).sum();
        let ranges: Vec<SizeRange> = contenders.iter().map(range).collect();
        let uppers: Bytes = ranges.iter().map(|range| Bytes::pages(range.upper)).sum();
        if decided.shortfall > Bytes::ZERO {
            prop_assert!(decided.targets.iter().all(|target| target.rule == TargetRule::Floor));
        } else {
            prop_assert_eq!(given, uppers.min(problem.budget()));
        }
        for (target, (contender, range)) in
            decided.targets.iter().zip(contenders.iter().zip(&ranges))
        {
            prop_assert!(target.size >= contender.floor && target.size <= contender.ceiling);
            if decided.shortfall == Bytes::ZERO {
                prop_assert!(target.size.to_pages() <= range.upper);
            }
            if lowers(&ranges) <= budget {
                prop_assert!(target.size.to_pages() >= range.lower);
            }
        }
        for contender in &contenders {
            let is_named = decided.violations.iter().any(|one| one.id == contender.id);
            prop_assert!(!is_named || contender.miss_rate_max.is_some());
        }

        prop_assert_eq!(&balance(&problem), &decided);
        let mut reversed = contenders;
        reversed.reverse();
        prop_assert_eq!(&balance(&Problem::new(Bytes::pages(budget), reversed)), &decided);
    }

    #[test]
    fn more_shares_never_cost_memory_while_demands_fit(
        contenders in prop::collection::vec(contender(), 1..7),
        more in 1..500_u32,
        spare in 0..99_999_u64,
    ) {
        let mut contenders = named(contenders);
        let demands: Bytes =
            contenders.iter().map(|one| one.demand().min(one.ceiling).max(one.floor)).sum();
        let size = |contenders: &[Contender]| {
            let budget = demands + Bytes::pages(spare);
            balance(&Problem::new(budget, contenders.to_vec())).targets[0]
        };
        let before = size(&contenders);
        contenders[0].shares += more;
        // Rounding by largest remainder may move a page.
        let after = size(&contenders).size + Bytes::pages(1);
        let is_bonus = before.rule == TargetRule::Bonus;
        // If the demands, raised to the lower bounds, exceed the budget, weights take memory away.
        let clamped = |contender: &Contender| {
            let range = range(contender);
            range.demand.clamp(range.lower, range.upper)
        };
        let needed: u64 = contenders.iter().map(clamped).sum();
        let is_enough = needed <= (demands + Bytes::pages(spare)).to_pages();
        let no_objectives = contenders.iter().all(|one| one.miss_rate_max.is_none());
        prop_assert!(!(is_bonus && is_enough && no_objectives) || after >= before.size);
    }
}
