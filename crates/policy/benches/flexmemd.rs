//! What one decision of each policy of flexmemd costs with 10,000 guests.
//!
//! Goal: under 5 ms. Each decision has a period end: rents are settled, balances are taxed, demand
//! is found from statistics or requests, and memory is divided. `short` has guests that want more
//! than there is, so that prices are sought and rents paid; `ample` has room for all wants.

use std::hint::black_box;

use ballast_model::{Bytes, Timestamp};
use ballast_policy::flexmemd::{Algorithm, Driver, Request, Settings, Statistics, Tenant};
use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};

const GUESTS: u64 = 10_000;

/// A number that looks random and is always the same.
fn mixed(n: u64) -> u64 {
    let mut x = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Guests of 1 to 8 GiB, at most an eighth of it free, half of them swapping, a tenth asking.
fn tenants(turn: u64) -> Vec<Tenant> {
    let tenant = |i: u64| {
        let at = |what: u64| mixed(i ^ (turn << 32) ^ (what << 48));
        let floor = Bytes::mib(256 + mixed(i) % 1792).to_pages();
        let allocation = floor + Bytes::mib(at(1) % 6144).to_pages();
        let ask = (at(2) % 1024) as i64 - 256;
        let request = Request { bytes: ask << 20, number: turn };
        Tenant {
            id: format!("guest-{i:05}").parse().unwrap(),
            floor,
            ceiling: Bytes::gib(64).to_pages(),
            shares: 1000 + (mixed(i) % 3) as u32,
            allocation,
            held: allocation,
            statistics: Statistics {
                free: Some(Bytes::pages(at(3) % (allocation / 8))),
                swaps_per_second: Some(at(4) % 180),
            },
            request: at(5).is_multiple_of(10).then_some(request),
            emergency: false,
        }
    };
    (0..GUESTS).map(tenant).collect()
}

fn decide(c: &mut Criterion) {
    let mut group = c.benchmark_group("flexmemd");
    group.sample_size(20);
    let turns: Vec<Vec<Tenant>> = (0..4).map(tenants).collect();
    for &algorithm in Algorithm::ALL {
        for (name, each) in [("short", 2048), ("ample", 16 * 1024)] {
            let rentable = Bytes::mib(GUESTS * each).to_pages();
            let new = Driver::new(algorithm, Settings::default());
            let mut driver = new.expect("a combination of the paper");
            for turn in 0..3 {
                let now = Timestamp::from_millis(turn * 1000);
                driver.decide(now, rentable, &turns[turn as usize]);
            }
            let now = Timestamp::from_millis(3000);
            group.bench_function(BenchmarkId::new(algorithm.as_str(), name), |b| {
                b.iter_batched_ref(
                    || driver.clone(),
                    |driver| black_box(driver.decide(now, rentable, &turns[3])),
                    BatchSize::LargeInput,
                );
            });
        }
    }
    group.finish();
}

criterion_group!(benches, decide);
criterion_main!(benches);
