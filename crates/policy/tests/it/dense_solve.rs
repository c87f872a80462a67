//! Compares the closed form with the paper's own linear equations (Global §3.3, equation 4).
//!
//! The paper writes the targets as the solution of n equations and solves them in O(n³). The tests
//! do so in floating point by Gaussian elimination. The exact closed form must agree to a page.

use ballast_model::{Bytes, PolicyName, Tax};
use ballast_policy::{Contender, PolicySettings, Problem, TaxRule, build};
use proptest::prelude::*;

/// Solves `matrix · x = rhs` by elimination with partial pivoting.
fn solve(mut matrix: Vec<Vec<f64>>, mut rhs: Vec<f64>) -> Vec<f64> {
    let n = rhs.len();
    for column in 0..n {
        let pivot = (column..n)
            .max_by(|&a, &b| matrix[a][column].abs().total_cmp(&matrix[b][column].abs()))
            .unwrap();
        matrix.swap(column, pivot);
        rhs.swap(column, pivot);
        for row in column + 1..n {
            let factor = matrix[row][column] / matrix[column][column];
            let (above, below) = matrix.split_at_mut(row);
            for (cell, pivot_cell) in below[0].iter_mut().zip(&above[column]) {
                *cell -= factor * pivot_cell;
            }
            rhs[row] -= factor * rhs[column];
        }
    }
    let mut x = vec![0.0; n];
    for row in (0..n).rev() {
        let known: f64 = (row + 1..n).map(|k| matrix[row][k] * x[k]).sum();
        x[row] = (rhs[row] - known) / matrix[row][row];
    }
    x
}

/// Equation 4: the sum is N, and `Nt_1 − Nt_i = τ (A_1 − A_i)` for every other guest.
fn equation_4(budget: f64, used: &[f64], tau: f64) -> Vec<f64> {
    let n = used.len();
    let mut matrix = vec![vec![0.0; n]; n];
    matrix[0] = vec![1.0; n];
    let mut rhs = vec![budget];
    for i in 1..n {
        matrix[i][0] = 1.0;
        matrix[i][i] = -1.0;
        rhs.push(tau * (used[0] - used[i]));
    }
    solve(matrix, rhs)
}

/// The paper's dynamic tax (Global §3.4) at equal shares.
fn dynamic_tax(budget: f64, used: &[f64], reserve: f64) -> f64 {
    let n = used.len() as f64;
    let largest = used.iter().copied().fold(0.0, f64::max);
    let mean = used.iter().sum::<f64>() / n;
    if largest - mean < 1e-9 {
        return 0.0;
    }
    ((reserve + largest - budget / n) / (largest - mean)).clamp(0.0, 1.0)
}

proptest! {
    #[test]
    fn the_closed_form_solves_equation_4(
        used in prop::collection::vec(0..200_000u64, 2..12),
        spare in 0..1_000_000u64,
        fixed in prop::option::of(0..=1u64 << 32),
    ) {
        // With a budget above the memory in use, every target is positive, as the paper assumes.
        let budget = used.iter().sum::<u64>() + spare;
        let settings = PolicySettings {
            tax: fixed.map_or(TaxRule::Dynamic, |n| TaxRule::Fixed(Tax::from_fraction(n))),
            ..PolicySettings::default()
        };
        let contenders = used.iter().enumerate().map(|(i, &used)| Contender {
            floor: Bytes::ZERO,
            ceiling: Bytes::pages(1 << 30),
            shares: 1000,
            ..Contender::new(format!("g{i:02}").parse().unwrap(), Bytes::pages(used))
        });
        let problem = Problem::new(Bytes::pages(budget), contenders.collect());
        let found = build(PolicyName::Global, settings.clone()).divide(&problem);

        let used: Vec<f64> = used.iter().map(|&u| u as f64).collect();
        let reserve = settings.reserve.to_pages() as f64;
        let tau = fixed.map_or_else(
            || dynamic_tax(budget as f64, &used, reserve),
            |n| n as f64 / (1u64 << 32) as f64,
        );
        for (wanted, expected) in found.wanted.iter().zip(equation_4(budget as f64, &used, tau)) {
            let pages = wanted.target.to_pages() as f64;
            prop_assert!((pages - expected).abs() <= 1.01, "{} {}", pages, expected);
        }
    }
}
