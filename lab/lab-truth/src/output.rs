//! The plugin's output files.
//!
//! - `rows`: CSV, a line an interval with `end_ns` (monotonic clock of the host at its end),
//!   `wss_bytes` (distinct pages of 4 KiB touched), `accesses`, and `references` (those of the
//!   trace up to its end), by which trace and clock are matched.
//! - `trace`, if wanted: page numbers in order, 64 bits each, little endian, compressed by zstd.
//!
//! Idea: the guest passes rows and blocks to a writer thread over a short queue and waits if it is
//! full, so that the record has no gaps. Both files are always complete up to the latest row, so
//! that the files of a killed guest are readable.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::options::Options;
use crate::recorder::{Row, Sink};

/// Most rows and blocks (512 KiB each) in the queue.
const QUEUE: usize = 16;
/// The fastest level that compresses page numbers well.
const COMPRESSION_LEVEL: i32 = 1;
/// Bytes per page of the guest.
const PAGE_BYTES: u64 = 4096;

/// An item of the queue.
enum Item {
    Row(Row),
    References(Vec<u64>),
}

/// The recorder's end of the queue.
pub(crate) struct Queue {
    items: SyncSender<Item>,
}

impl Sink for Queue {
    // If the writer has failed, it has reported that; the guest continues.
    fn row(&mut self, row: Row) {
        let _ = self.items.send(Item::Row(row));
    }

    fn references(&mut self, block: Vec<u64>) {
        let _ = self.items.send(Item::References(block));
    }
}

/// The times of intervals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IntervalTimes {
    /// Start of the first interval, on the host's monotonic clock.
    pub(crate) origin_ns: u64,
    /// Length of each interval.
    pub(crate) interval_ns: u64,
}

/// Opens the files and starts their writer.
///
/// # Errors
/// When a file cannot be created.
pub(crate) fn start(
    options: &Options,
    times: IntervalTimes,
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
    let writer = writer.spawn(move || write(&queue, rows, trace, times))?;
    Ok((Queue { items }, writer))
}

fn create(path: &Path) -> io::Result<File> {
    File::create(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Writes until the other end of the queue is closed.
fn write(
    queue: &Receiver<Item>,
    mut rows: impl Write,
    mut trace: Option<zstd::Encoder<'static, File>>,
    times: IntervalTimes,
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
                let end_ns = times.origin_ns + (u64::from(interval) + 1) * times.interval_ns;
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
        let times = IntervalTimes { origin_ns: 500, interval_ns: 1000 };
        let (queue, writer) = start(&options, times).unwrap();
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
