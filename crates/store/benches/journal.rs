//! What recording costs: the writer's thread for one tick, the main loop for handing it over, and
//! how many bytes a tick takes. Run: `cargo bench -p ballast-store --bench journal`.

// Shared with the tests, which use all of it.
#[allow(dead_code)]
#[path = "../tests/it/support.rs"]
mod support;

use std::hint::black_box;

use ballast_store::{Journal, JournalConfig, Range, Reader, Writer};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

/// Guests per tick.
const GUESTS: u64 = 100;

/// Different ticks, so that a row never is its own neighbour.
const TICKS: u64 = 64;

fn journal(c: &mut Criterion) {
    let wholes: Vec<_> = (0..TICKS).map(|nth| support::realistic(nth, GUESTS)).collect();
    let folder = tempfile::tempdir().unwrap();

    let json: usize =
        wholes.iter().map(|whole| serde_json::to_vec(&whole.tick()).unwrap().len()).sum();
    let path = folder.path().join("size.db");
    let mut writer = Writer::open(&path, JournalConfig::default(), support::start()).unwrap();
    let before = writer.file_bytes().get();
    for whole in wholes.iter().cycle().take(1024) {
        writer.record(&whole.tick()).unwrap();
    }
    println!(
        "bytes per tick of {GUESTS} guests: {} in the file, {} as plain JSON",
        (writer.file_bytes().get() - before) / 1024,
        json as u64 / TICKS
    );

    let mut next = wholes.iter().cycle();
    c.bench_function("Writer::record, 100 guests", |b| {
        b.iter(|| writer.record(&next.next().unwrap().tick()).unwrap())
    });

    // The writer's thread empties the queue between batches; what is timed is the main loop's part.
    let path = folder.path().join("handed-over.db");
    let journal = Journal::open(&path, JournalConfig::default(), support::start()).unwrap();
    c.bench_function("Journal::record, 100 guests", |b| {
        b.iter_batched(
            || {
                let recorded = journal.status().ticks_recorded;
                let _ = journal.record(&wholes[0].tick());
                while journal.status().ticks_recorded == recorded {
                    std::thread::yield_now();
                }
            },
            |()| journal.record(&wholes[1].tick()).unwrap(),
            BatchSize::PerIteration,
        )
    });

    let reader = Reader::open(&folder.path().join("size.db")).unwrap();
    c.bench_function("read 100 ticks of 100 guests", |b| {
        b.iter(|| {
            reader
                .ticks(Range::default())
                .take(100)
                .for_each(|entry| drop(black_box(entry.unwrap())))
        })
    });
}

criterion_group!(benches, journal);
criterion_main!(benches);
