//! What recording costs: time on the writer's thread for one tick, time on the main loop for
//! handing it over, bytes of a tick, whole and as a difference, and bytes of a week of a thousand
//! guests. Run: `cargo bench -p ballast-store --bench journal`.

// Shared with the tests, which use all of it.
#[allow(dead_code)]
#[path = "../tests/it/support.rs"]
mod support;

use std::hint::black_box;
use std::path::Path;

use ballast_model::Bytes;
use ballast_store::{DELTAS_MAX, Journal, JournalConfig, Range, Reader, Writer};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

/// Guests per tick.
const GUESTS: u64 = 100;

/// Guests of the largest host, and ticks recorded of it: five whole ones and their differences.
const GUESTS_MANY: u64 = 1_000;
const TICKS_OF_MANY: u64 = 5 * (DELTAS_MAX as u64 + 1);

/// How many different ticks are recorded in turn, so that no row equals the one before.
const TICKS: u64 = 64;

/// Bytes in the file per tick of [`GUESTS_MANY`] guests, a second apart.
fn bytes_per_tick(path: &Path, all_whole: bool) -> u64 {
    let retention = JournalConfig { bytes_max: Bytes::gib(64), ..JournalConfig::default() };
    let mut writer = Writer::open(path, retention, support::start()).unwrap();
    if all_whole {
        writer.write_all_whole();
    }
    let before = writer.file_bytes();
    for nth in 0..TICKS_OF_MANY {
        writer.record(&support::realistic(nth, GUESTS_MANY).tick()).unwrap();
    }
    (writer.file_bytes() - before).get() / TICKS_OF_MANY
}

fn size(folder: &Path) {
    let whole = bytes_per_tick(&folder.join("whole.db"), true);
    let delta = bytes_per_tick(&folder.join("delta.db"), false);
    let week = Bytes::new(delta * 7 * 24 * 3600);
    println!(
        "bytes per tick of {GUESTS_MANY} guests in the file: {whole} whole, {delta} as written; a week at a \
         tick a second: {week} of {} that are kept by default",
        JournalConfig::default().bytes_max
    );
}

fn journal(c: &mut Criterion) {
    let recorded: Vec<_> = (0..TICKS).map(|nth| support::realistic(nth, GUESTS)).collect();
    let folder = tempfile::tempdir().unwrap();
    size(folder.path());

    let json: usize =
        recorded.iter().map(|owned| serde_json::to_vec(&owned.tick()).unwrap().len()).sum();
    let path = folder.path().join("size.db");
    let mut writer = Writer::open(&path, JournalConfig::default(), support::start()).unwrap();
    let before = writer.file_bytes().get();
    for owned in recorded.iter().cycle().take(1024) {
        writer.record(&owned.tick()).unwrap();
    }
    println!(
        "bytes per tick of {GUESTS} guests: {} in the file, {} as plain JSON",
        (writer.file_bytes().get() - before) / 1024,
        json as u64 / TICKS
    );

    let mut next = recorded.iter().cycle();
    c.bench_function("Writer::record, 100 guests", |b| {
        b.iter(|| writer.record(&next.next().unwrap().tick()).unwrap())
    });

    // The writer's thread empties the queue between batches, so only the main loop's part is timed.
    let path = folder.path().join("handed-over.db");
    let journal = Journal::open(&path, JournalConfig::default(), support::start()).unwrap();
    c.bench_function("Journal::record, 100 guests", |b| {
        b.iter_batched(
            || {
                let before = journal.status().ticks_recorded;
                let _ = journal.record(&recorded[0].tick());
                while journal.status().ticks_recorded == before {
                    std::thread::yield_now();
                }
            },
            |()| journal.record(&recorded[1].tick()).unwrap(),
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
