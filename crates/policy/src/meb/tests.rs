//! Compares the solvers with each other.

use proptest::prelude::*;

use super::*;

/// Curves of every kind, falling or flat, convex or not.
fn curve() -> impl Strategy<Value = Vec<u64>> {
    let fall = prop_oneof![
        4 => 0..4_u64,
        2 => Just(0),
        1 => 0..100_u64,
        1 => Just(1 << 60),
        1 => Just(u64::MAX / 8),
    ];
    let falls = prop_oneof![
        3 => prop::collection::vec(fall, 0..8),
        // Straight lines, for many ties.
        1 => (0..4_u64, 0..8_usize).prop_map(|(fall, len)| vec![fall; len]),
    ];
    let least = prop_oneof![3 => Just(0), 1 => 0..50_u64, 1 => Just(u64::MAX / 8)];
    (falls, least).prop_map(|(falls, least)| {
        let mut misses = vec![least];
        for fall in falls {
            misses.push(misses[misses.len() - 1].saturating_add(fall));
        }
        misses.reverse();
        misses
    })
}

pub(super) fn instance(guests_max: usize) -> impl Strategy<Value = Instance> {
    let sizes = (0..5_u64, curve()).prop_map(|(lower, misses)| Sizes { lower, misses });
    (prop::collection::vec(sizes, 0..=guests_max), 0.0..1.1_f64).prop_map(|(guests, part)| {
        let lowers: u64 = guests.iter().map(|sizes| sizes.lower).sum();
        let widths: usize = guests.iter().map(Sizes::width).sum();
        let spare = (widths as f64 * part).round() as u64;
        Instance::new(lowers + spare, guests).unwrap()
    })
}

fn solvers() -> [fn(&Instance) -> Solution; 3] {
    [brute_force::solve, dynamic_programme::solve, exact::solve]
}

#[test]
fn all_solvers_solve_examples_computed_by_hand() {
    type Example<'a> = (&'a str, u64, &'a [(u64, &'a [u64])], &'a [u64], u128);
    let examples: [Example; 9] = [
        ("no guests", 5, &[], &[], 0),
        ("one guest gets everything", 5, &[(2, &[9, 8, 7, 6, 5])], &[5], 6),
        ("upper bounds below the budget", 50, &[(2, &[9, 8]), (1, &[3])], &[3, 1], 11),
        // The steepest steps first: one of the first guest saves 10, two of the second 5 and 3.
        ("convex", 5, &[(1, &[20, 10, 9]), (1, &[20, 15, 12])], &[2, 3], 22),
        // Two steps down the steep fall save 100, any other two at most 30.
        ("a steep fall", 4, &[(1, &[50, 35, 30]), (1, &[100, 100, 0])], &[1, 3], 50),
        // The convex hull would stop half way down the fall.
        ("half a steep fall", 3, &[(1, &[50, 35, 30]), (1, &[100, 100, 0])], &[2, 1], 135),
        ("ties go to the last", 4, &[(1, &[5, 4, 3]), (1, &[5, 4, 3])], &[1, 3], 8),
        (
            "plateaus: the last gets the useless steps",
            4,
            &[(1, &[5, 5, 5]), (1, &[5, 5, 5])],
            &[1, 3],
            10,
        ),
        (
            "plateaus: the first gets what the last cannot have",
            4,
            &[(1, &[5, 5, 5]), (1, &[5, 5])],
            &[2, 2],
            10,
        ),
    ];
    for (name, budget, guests, steps, misses) in examples {
        let sizes = |&(lower, misses): &(u64, &[u64])| Sizes { lower, misses: misses.to_vec() };
        let instance = Instance::new(budget, guests.iter().map(sizes).collect()).unwrap();
        let expected = Solution { steps: steps.to_vec(), misses };
        for solve in solvers() {
            assert_eq!(solve(&instance), expected, "{name}");
        }
    }
}

/// The paper starts its trace at P, but its table has no entry above the sum of upper bounds or
/// between steps. The largest total with an entry is meant.
#[test]
fn misprint_the_trace_starts_at_an_existing_total() {
    let guests =
        vec![Sizes { lower: 3, misses: vec![7, 4] }, Sizes { lower: 2, misses: vec![5, 1] }];
    for (budget, steps) in [(5, [3, 2]), (6, [3, 3]), (7, [4, 3]), (8, [4, 3]), (1000, [4, 3])] {
        let instance = Instance::new(budget, guests.clone()).unwrap();
        for solve in solvers() {
            assert_eq!(solve(&instance).steps, steps, "{budget}");
        }
    }
}

/// Straight lines, sawtooths and convex curves with many steps: nearly every size is in some best
/// allocation.
#[test]
fn exact_solver_is_right_when_few_sizes_are_ruled_out() {
    type Curve = fn(u64) -> u64;
    let curves: [(&str, Curve); 5] = [
        ("straight", |steps| 1000 * steps),
        ("sawtooth", |steps| 1000 * steps + 100 * (steps % 2)),
        ("stairs", |steps| 1000 * (steps / 3)),
        ("convex", |steps| steps * steps),
        ("concave", |steps| 100_000 - (300 - steps) * (300 - steps)),
    ];
    for (name, curve) in curves {
        for part in 1..8 {
            let width = |guest: u64| 60 + 7 * guest;
            let sizes =
                |guest| Sizes { lower: 1, misses: (0..=width(guest)).rev().map(curve).collect() };
            let widths: u64 = (0..9).map(width).sum();
            let instance =
                Instance::new(9 + widths * part / 8, (0..9).map(sizes).collect()).unwrap();
            assert_eq!(
                exact::solve(&instance),
                dynamic_programme::solve(&instance),
                "{name} {part}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn all_solvers_agree_with_brute_force(instance in instance(5)) {
        let expected = brute_force::solve(&instance);
        prop_assert_eq!(&dynamic_programme::solve(&instance), &expected);
        prop_assert_eq!(&exact::solve(&instance), &expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_exact_solver_agrees_with_the_papers(instance in instance(24)) {
        prop_assert_eq!(exact::solve(&instance), dynamic_programme::solve(&instance));
    }
}
