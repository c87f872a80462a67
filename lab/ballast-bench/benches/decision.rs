//! The time of a decision: estimate, verdicts, policy, guard and check, for up to 10,000 guests.
//!
//! Goal: 10,000 guests within 10 ms on one core. `steady` is a host at rest, where nothing needs to
//! change. In `busy` every guest's demand changes at every tick, so that thousands of actions are
//! planned and checked.
//!
//! The rival in the same run is the linear solve of Global §3.3 (its equation 4 by elimination,
//! O(n³)), against the closed form used here, for as many guests as it can handle.

use std::hint::black_box;
use std::time::{Duration, Instant};

use ballast_control::{Controller, Settings};
use ballast_model::{
    Bytes, Capabilities, GuestSample, GuestStats, HostSample, LinkState, Measured, PolicyName,
    RunState, Snapshot, Timestamp,
};
use ballast_policy::{Contender, PolicySettings, Problem, build};
use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};

/// The number of single decisions that are timed for the best and the median.
const DECISIONS: usize = 100;

/// A pseudo-random number that is always the same for `n`.
fn mixed(n: u64) -> u64 {
    let mut x = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A host with `n` guests of 1 to 8 GiB, half of it allocated; the guests' use depends on `turn`.
fn snapshot(n: u64, turn: u64, now: Timestamp) -> Snapshot {
    let guest = |i: u64| {
        let boot = Bytes::mib(1024 + mixed(i) % 7168);
        let allocation = boot.fraction(1, 2).page_floor();
        let free = mixed(i ^ (turn << 32)) % 100;
        GuestSample {
            run_state: Some(RunState::Running),
            allocation: Some(Measured::fresh(allocation)),
            boot_memory: Some(boot),
            resident: Some(Measured::fresh(allocation)),
            stats: Some(Measured {
                value: GuestStats {
                    total: Some(boot),
                    available: Some(allocation.fraction(free, 100)),
                    ..GuestStats::default()
                },
                age: Duration::from_millis(500),
            }),
            capabilities: Capabilities { balloon: Some(true), ..Capabilities::default() },
            ..GuestSample::unknown(format!("guest-{i:05}").parse().unwrap(), LinkState::Up)
        }
    };
    let host = HostSample {
        memory_total: Some(Bytes::gib(64 * 1024)),
        memory_available: Some(Bytes::gib(32 * 1024)),
        ..HostSample::default()
    };
    Snapshot::new(now, host, (0..n).map(guest).collect())
}

fn settings(n: u64) -> Settings {
    let mut settings = Settings::new(PolicyName::Global);
    settings.interval = Some(Duration::from_secs(1));
    settings.guard.budget = Some(Bytes::mib(2400 * n));
    settings
}

fn at(second: u64) -> Timestamp {
    Timestamp::from_millis(second * 1000)
}

/// Prints the best and the median of many single decisions. Other load on the machine can only make
/// a decision slower, so the best is the closest to the true cost.
fn print_best(name: &str, guests: u64, controller: &Controller, next: &Snapshot) {
    let mut taken: Vec<Duration> = (0..DECISIONS)
        .map(|_| {
            let mut controller = controller.clone();
            let begun = Instant::now();
            let plan = black_box(controller.handle_sample(next));
            let taken = begun.elapsed();
            drop(plan);
            taken
        })
        .collect();
    taken.sort();
    println!(
        "decision/{name}/{guests}: best {:?}, median {:?} of {DECISIONS}",
        taken[0],
        taken[DECISIONS / 2]
    );
}

fn decision(c: &mut Criterion) {
    // As the daemon does.
    ballast_host::keep_freed_memory();
    let mut group = c.benchmark_group("decision");
    group.sample_size(20);
    for n in [100, 1000, 10_000] {
        for (name, turns) in [("steady", 0u64), ("busy", 1)] {
            let mut controller = Controller::new(settings(n), at(0));
            for second in 1..=3 {
                controller.handle_sample(&snapshot(n, second * turns, at(second)));
                while controller.poll_action().is_some() {}
            }
            let next = snapshot(n, 4 * turns, at(4));
            let plan = controller.clone().handle_sample(&next);
            println!("decision/{name}/{n}: {} actions planned", plan.actions.len());
            print_best(name, n, &controller, &next);
            group.bench_function(BenchmarkId::new(name, n), |b| {
                b.iter_batched_ref(
                    || controller.clone(),
                    |controller| black_box(controller.handle_sample(&next)),
                    BatchSize::LargeInput,
                );
            });
        }
    }
    group.finish();
}

fn spread(n: u64) -> Problem {
    let contender = |i: u64| Contender {
        floor: Bytes::ZERO,
        ceiling: Bytes::gib(1 << 20),
        ..Contender::new(
            format!("guest-{i:05}").parse().unwrap(),
            Bytes::mib(100 + mixed(i) % 4000),
        )
    };
    Problem::new(Bytes::mib(2200 * n), (0..n).map(contender).collect())
}

/// Global §3.3, equation 4, by elimination with partial pivoting.
fn dense_solve(problem: &Problem, tau: f64) -> Vec<f64> {
    let used: Vec<f64> = problem.contenders().iter().map(|c| c.used.to_pages() as f64).collect();
    let n = used.len();
    let mut rows: Vec<Vec<f64>> = vec![vec![1.0; n + 1]];
    rows[0][n] = problem.budget().to_pages() as f64;
    for (i, own) in used.iter().enumerate().skip(1) {
        let mut row = vec![0.0; n + 1];
        row[0] = 1.0;
        row[i] = -1.0;
        row[n] = tau * (used[0] - own);
        rows.push(row);
    }
    for column in 0..n {
        let pivot = (column..n)
            .max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs()))
            .unwrap_or(column);
        rows.swap(column, pivot);
        let (above, below) = rows.split_at_mut(column + 1);
        let pivot_row = &above[column];
        for row in below {
            let factor = row[column] / pivot_row[column];
            for (cell, pivot_cell) in row.iter_mut().zip(pivot_row).skip(column) {
                *cell -= factor * pivot_cell;
            }
        }
    }
    let mut x = vec![0.0; n];
    for row in (0..n).rev() {
        let known: f64 = (row + 1..n).map(|k| rows[row][k] * x[k]).sum();
        x[row] = (rows[row][n] - known) / rows[row][row];
    }
    x
}

fn division(c: &mut Criterion) {
    let mut group = c.benchmark_group("division");
    group.sample_size(10);
    for n in [100, 1000] {
        let problem = spread(n);
        let mut policy = build(PolicyName::Global, PolicySettings::default());
        group.bench_function(BenchmarkId::new("closed-form", n), |b| {
            b.iter(|| black_box(policy.divide(&problem)));
        });
        group.bench_function(BenchmarkId::new("rival-linear-solve", n), |b| {
            b.iter(|| black_box(dense_solve(&problem, 0.5)));
        });
    }
    group.finish();
}

criterion_group!(benches, decision, division);
criterion_main!(benches);
