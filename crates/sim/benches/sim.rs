//! How much faster than real time a host is simulated.
//!
//! Guests that grow, jump, read files and visit at random on a host with half of what they want, so
//! that there is always something to do. `cargo bench -p ballast-sim`; the time shown is that of a
//! virtual minute, so 60 ms is 1,000 times real time.

use std::time::Duration;

use ballast_control::Settings;
use ballast_model::{Bytes, PolicyName};
use ballast_sim::{GuestSpec, HostSpec, Pattern, Scenario, Simulation, named};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

fn crowd(guests: usize) -> Scenario {
    let s = Duration::from_secs;
    let mib = Bytes::mib;
    let guest = |number: usize| {
        let pattern = match number % 4 {
            0 => Pattern::Mono {
                low: mib(50),
                high: mib(650),
                ramp: s(25),
                hold: s(35),
                cycles: None,
            },
            1 => Pattern::Flux { low: mib(100), high: mib(500), period: s(40) },
            2 => Pattern::RandomDrawn { low: mib(100), high: mib(600), period: s(30) },
            _ => Pattern::Zipf { size: mib(600), exponent: 0.8, file: true },
        };
        GuestSpec {
            start: Some(mib(480)),
            ..GuestSpec::new(format!("g{number:04}").parse().expect("a name"), Bytes::gib(1))
        }
        .with(s(number as u64 % 7), pattern)
    };
    let mut control = Settings::new(PolicyName::Global);
    control.guard.budget = Some(mib(512).fraction(guests as u64, 1));
    Scenario {
        name: "crowd".to_owned(),
        duration: s(60),
        seed: 1,
        block: Scenario::BLOCK_DEFAULT,
        host: HostSpec::new(Bytes::gib(1).fraction(guests as u64, 1)),
        control,
        guests: (0..guests).map(guest).collect(),
    }
}

fn minute(c: &mut Criterion) {
    let mut group = c.benchmark_group("a virtual minute");
    group.sample_size(10);
    for guests in [16, 1000] {
        let scenario = crowd(guests);
        for policy in [PolicyName::Static, PolicyName::Global] {
            let id = BenchmarkId::new(policy.as_str(), guests);
            group.bench_function(id, |b| {
                b.iter(|| {
                    let policy = named(&scenario, policy);
                    let mut simulation = Simulation::new(&scenario, policy).expect("valid");
                    while simulation.step() {}
                    simulation.report().work
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, minute);
criterion_main!(benches);
