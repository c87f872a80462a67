//! A queue for log lines on their way to a file that may block: a full pipe, or a journal service
//! that hangs.
//!
//! Idea: a thread that logs puts its line into a buffer and goes on; another thread writes the
//! buffer to the file. While the buffer is full, lines are dropped and counted, and the writing
//! thread reports their number in their place. The file stays blocking, because `O_NONBLOCK` would
//! apply to every process that has it open.
//!
//! Cost: a lock and a copy per line; twice [`HELD_MAX`] of memory once the buffer was full.
//! Limits: the lock is one of the operating system's; a logging thread holds it for a copy.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::worker::lock;

/// Most bytes that wait: some ten thousand lines.
const HELD_MAX: usize = 1 << 20;

/// A queue between all threads that log and the one that writes.
pub(crate) struct LogQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
    dropped: AtomicU64,
}

struct QueueState {
    lines: Vec<u8>,
    /// Lines dropped after these.
    dropped: u64,
    /// Whether lines that were taken out are not written yet.
    is_writing: bool,
}

impl LogQueue {
    pub(crate) const fn new() -> LogQueue {
        let state = QueueState { lines: Vec::new(), dropped: 0, is_writing: false };
        LogQueue { state: Mutex::new(state), changed: Condvar::new(), dropped: AtomicU64::new(0) }
    }

    /// Adds `line`, or drops it.
    pub(crate) fn push(&self, line: &[u8]) {
        let mut state = lock(&self.state);
        if state.dropped > 0 || state.lines.len() + line.len() > HELD_MAX {
            state.dropped += 1;
            self.dropped.fetch_add(1, Relaxed);
        } else {
            state.lines.extend_from_slice(line);
        }
        self.changed.notify_all();
    }

    /// Lines dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Waits at most `wait` until everything is written. Returns whether it is.
    pub(crate) fn flush(&self, wait: Duration) -> bool {
        let is_busy = |state: &mut QueueState| state.is_writing || !state.is_empty();
        let waited = self.changed.wait_timeout_while(lock(&self.state), wait, is_busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Writes all lines to `file`, forever.
    pub(crate) fn write_to(&self, mut file: impl Write) -> ! {
        let mut lines = Vec::new();
        loop {
            let dropped = self.take(&mut lines);
            // If the file is closed or refuses lines, it gets the later ones.
            let _ = file.write_all(&lines);
            if dropped > 0 {
                let _ =
                    writeln!(file, "({dropped} lines of this log were dropped: nobody read it)");
            }
            let mut state = lock(&self.state);
            state.is_writing = false;
            self.changed.notify_all();
        }
    }

    /// Waits for lines, swaps them with `lines`, and returns how many were dropped after them.
    fn take(&self, lines: &mut Vec<u8>) -> u64 {
        lines.clear();
        let waited = self.changed.wait_while(lock(&self.state), |state| state.is_empty());
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut state.lines, lines);
        state.is_writing = true;
        std::mem::take(&mut state.dropped)
    }
}

impl QueueState {
    fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.dropped == 0
    }
}

impl fmt::Debug for LogQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogQueue").finish_non_exhaustive()
    }
}

/// Each call is a line, as `tracing`'s subscribers make them.
impl Write for &LogQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, PipeReader, pipe};
    use std::sync::Arc;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A queue that is written to a pipe.
    fn piped() -> (Arc<LogQueue>, BufReader<PipeReader>) {
        let queue = Arc::new(LogQueue::new());
        let (reader, writer) = pipe().unwrap();
        let writing = Arc::clone(&queue);
        std::thread::spawn(move || writing.write_to(writer));
        (queue, BufReader::new(reader))
    }

    #[test]
    fn lines_arrive_in_order() {
        let (queue, reader) = piped();
        for number in 0..100 {
            queue.push(format!("line {number}\n").as_bytes());
        }
        assert!(queue.flush(PATIENCE));
        let lines: Vec<String> = reader.lines().take(100).map(Result::unwrap).collect();
        let expected: Vec<String> = (0..100).map(|number| format!("line {number}")).collect();
        assert_eq!((lines, queue.dropped()), (expected, 0));
    }

    #[test]
    fn what_a_full_pipe_has_no_room_for_is_counted() {
        let (queue, mut reader) = piped();
        let line = [[b'a'; 1023].as_slice(), b"\n"].concat();
        // More than the pipe, the thread and the queue together hold.
        let sent = 4 * HELD_MAX / line.len();
        for _ in 0..sent {
            queue.push(&line);
        }
        assert!(!queue.flush(SHORT), "nobody reads");
        let dropped = queue.dropped();
        let (mut read, mut said) = (0, 0);
        while read + said < sent as u64 {
            let mut text = String::new();
            reader.read_line(&mut text).unwrap();
            match text.strip_prefix('(') {
                Some(note) => said += note.split_once(' ').unwrap().0.parse::<u64>().unwrap(),
                None => read += 1,
            }
        }
        assert!(said > 0);
        assert_eq!(said, dropped);
        assert!(queue.flush(PATIENCE));
        queue.push(b"afterwards\n");
        assert_eq!(reader.lines().next().unwrap().unwrap(), "afterwards");
    }
}
