//! The cost of one host sample and of reading a hundred processes. Run:
//! `cargo bench -p ballast-host --bench readers`.

use std::hint::black_box;
use std::path::Path;

use ballast_host::{HostReader, PROC, ProcessReader};
use criterion::{Criterion, criterion_group, criterion_main};

/// Guests whose processes are read in one tick.
const GUESTS: usize = 100;

fn readers(c: &mut Criterion) {
    let mut host = HostReader::new(Path::new(PROC));
    c.bench_function("host sample", |b| b.iter(|| black_box(host.sample())));

    // Each reader has its own descriptor, so the kernel does the work of a hundred processes.
    let mut processes: Vec<ProcessReader> = (0..GUESTS)
        .filter_map(|_| ProcessReader::open(Path::new(PROC), std::process::id()).ok().flatten())
        .collect();
    assert_eq!(processes.len(), GUESTS);
    let mut buffer = Vec::new();
    c.bench_function("memory of 100 processes", |b| {
        b.iter(|| {
            for process in &mut processes {
                black_box(process.read(&mut buffer).unwrap());
            }
        })
    });
}

criterion_group!(benches, readers);
criterion_main!(benches);
