//! Decoding of statistics replies: the codec and its typed results, against a tree of JSON values
//! from the same bytes.

use std::hint::black_box;

use ballast_qmp::codec::{Decoder, QmpMessage};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde_json::Value;

/// A reply of QEMU 7.2, as recorded.
const REPLY: &[u8] = br#"{"return": {"stats": {"stat-htlb-pgalloc": 0, "stat-swap-out": 4096, "stat-available-memory": 871219200, "stat-htlb-pgfail": 0, "stat-free-memory": 861237248, "stat-minor-faults": 52911, "stat-major-faults": 117, "stat-total-memory": 1005273088, "stat-swap-in": 0, "stat-disk-caches": 45842432}, "last-update": 1795295577}, "id": 4711}
"#;

/// Replies decoded per iteration: those of one tick with a hundred guests.
const REPLIES: usize = 100;

fn decode(c: &mut Criterion) {
    let bytes = REPLY.repeat(REPLIES);
    let mut group = c.benchmark_group("guest-stats replies");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("codec", |b| {
        let mut decoder = Decoder::new();
        b.iter(|| {
            let (mut replies, mut rest) = (0, &bytes[..]);
            while !rest.is_empty() {
                rest = &rest[decoder.feed(rest)..];
                while let Some(message) = decoder.next_message().unwrap() {
                    let QmpMessage::Return { json, .. } = message else { panic!("{message:?}") };
                    black_box(ballast_qmp::guest::read_guest_stats(json).unwrap());
                    replies += 1;
                }
            }
            assert_eq!(replies, REPLIES);
        });
    });
    group.bench_function("serde_json::Value", |b| {
        b.iter(|| {
            let mut replies = 0;
            for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                black_box(serde_json::from_slice::<Value>(line).unwrap());
                replies += 1;
            }
            assert_eq!(replies, REPLIES);
        });
    });
    group.finish();
}

criterion_group!(benches, decode);
criterion_main!(benches);
