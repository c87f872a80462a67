//! The files the plugin writes.
//!
//! - `rows`: CSV, a line an interval with `end_ns` (monotonic clock of the host at its end),
//!   `wss_bytes` (distinct pages of 4 KiB touched), `accesses`, and `references` (those of the trace up
//!   to its end), by which trace and clock are matched.
//! - `trace`, if wanted: page numbers in order, 64 bits each, little endian, compressed by zstd.
//!
//! Idea: the guest hands rows and blocks to one writer by a short queue and waits where it is full:
//! a truth with gaps would be none. Both files are complete to the latest row at any moment, so that a
//! guest that is killed leaves what can be read.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::options::Options;
use crate::recorder::{Row, Sink};

/// Rows and blocks (512 KiB each) that may wait for the writer.
const QUEUE: usize = 16;
/// The fastest that still compresses page numbers well.
const COMPRESSION_LEVEL: i32 = 1;
/// A page of the guest.
const PAGE_BYTES: u64 = 4096;

/// What is written next.
enum Item {
    Row(Row),
    References(Vec<u64>),
}

/// The recorder's end of the queue.
pub(crate) struct Queue {
    items: SyncSender<Item>,
}

impl Sink for Queue {
    // A writer that failed has said so and is gone; the guest goes on.
    fn row(&mut self, row: Row) {
        let _ = self.items.send(Item::Row(row));
    }

    fn references(&mut self, block: Vec<u64>) {
        let _ = self.items.send(Item::References(block));
    }
}

/// Times of intervals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    /// Start of the first, on the host's monotonic clock.
    pub(crate) origin_ns: u64,
    /// Length of each.
    pub(crate) interval_ns: u64,
}

/// Opens the files and starts their writer.
///
/// # Errors
/// A file cannot be made.
pub(crate) fn start(
    options: &Options,
    grid: Grid,
) -> io::Result<(Queue, JoinHandle<io::Result<()>>)> {
    let mut rows = BufWriter::new(create(&options.rows)?);
    writeln!(rows, "end_ns,wss_bytes,accesses,references")?;
    rows.flush()?;
    let trace = match &options.trace {
        Some(path) => Some(zstd::Encoder::new(create(path)?, COMPRESSION_LEVEL)?),
        None => None,
    };
    let (items, queue) = sync_channel(QUEUE);
    let writer = std::thread::Builder::new().name("truth".to_owned());
    let writer = writer.spawn(move || write(&queue, rows, trace, grid))?;
    Ok((Queue { items }, writer))
}

fn create(path: &Path) -> io::Result<File> {
    File::create(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Writes until the other end of the queue is gone.
fn write(
    queue: &Receiver<Item>,
    mut rows: impl Write,
    mut trace: Option<zstd::Encoder<'static, File>>,
    grid: Grid,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    for item in queue {
        match item {
            Item::References(block) => {
                bytes.clear();
                bytes.extend(block.iter().flat_map(|page| page.to_le_bytes()));
                if let Some(trace) = &mut trace {
                    trace.write_all(&bytes)?;
                }
            }
            Item::Row(row) => {
                if let Some(trace) = &mut trace {
                    trace.flush()?;
                }
                let Row { interval, pages, accesses, references } = row;
                let end_ns = grid.origin_ns + (u64::from(interval) + 1) * grid.interval_ns;
                let wss = pages * PAGE_BYTES;
                writeln!(rows, "{end_ns},{wss},{accesses},{references}")?;
                rows.flush()?;
            }
        }
    }
    match trace {
        Some(trace) => trace.finish().map(drop),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::recorder::Recorder;

    #[test]
    fn rows_and_references_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name);
        let options =
            Options { rows: path("a.csv"), trace: Some(path("a.pg.zst")), interval_ms: 1000 };
        let grid = Grid { origin_ns: 500, interval_ns: 1000 };
        let (queue, writer) = start(&options, grid).unwrap();
        let mut recorder = Recorder::new(queue, true);
        for (page, interval) in [(3, 0), (4, 0), (3, 1)] {
            recorder.access(page, interval);
        }
        recorder.advance(2);
        drop(recorder);
        writer.join().unwrap().unwrap();
        let rows = fs::read_to_string(path("a.csv")).unwrap();
        assert_eq!(rows, "end_ns,wss_bytes,accesses,references\n1500,8192,2,2\n2500,4096,1,3\n");
        let trace = zstd::decode_all(File::open(path("a.pg.zst")).unwrap());
        let expected: Vec<u8> = [3_u64, 4, 3].iter().flat_map(|page| page.to_le_bytes()).collect();
        assert_eq!(trace.unwrap(), expected);
    }
}
