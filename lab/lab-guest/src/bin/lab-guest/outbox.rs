//! The queue of messages to the host.
//!
//! Idea: a bounded queue of lines. Late reports are useless and are dropped while no host is
//! connected; results are kept for the next connection, and sent again in full if a connection
//! broke in the middle of one.
//! Limits: at most [`LINES_MAX`] lines; the oldest are dropped.

use std::collections::VecDeque;

use ballast_lab_guest::protocol::{ERROR_TEXT_LEN_MAX, FromGuest};

/// Most lines queued: the results of everything that may run at once, and some reports.
const LINES_MAX: usize = 64;

struct OutboxLine {
    text: String,
    keep: bool,
}

/// The queue.
#[derive(Default)]
pub(crate) struct Outbox {
    lines: VecDeque<OutboxLine>,
    /// Bytes of the first line already sent.
    sent: usize,
}

impl Outbox {
    /// Queues a line, which includes its newline. `keep`: whether it survives a broken connection.
    pub(crate) fn push(&mut self, text: String, keep: bool) {
        if self.lines.len() >= LINES_MAX {
            // Never the first, which may be partly sent.
            let victim = self.lines.iter().skip(1).position(|line| !line.keep);
            self.lines.remove(victim.unwrap_or(0) + 1);
        }
        self.lines.push_back(OutboxLine { text, keep });
    }

    /// Starts a connection with these lines; a line that was partly sent is sent again in full.
    pub(crate) fn begin(&mut self, greeting: impl DoubleEndedIterator<Item = String>) {
        self.disconnected();
        for text in greeting.rev() {
            self.lines.push_front(OutboxLine { text, keep: false });
        }
    }

    /// Records that the connection broke.
    pub(crate) fn disconnected(&mut self) {
        self.lines.retain(|line| line.keep);
        self.sent = 0;
    }

    /// The bytes to send next; `None` if the queue is empty.
    pub(crate) fn next(&self) -> Option<&[u8]> {
        self.lines.front().map(|line| &line.text.as_bytes()[self.sent..])
    }

    /// Records that `n` bytes of [`Outbox::next`] were sent.
    pub(crate) fn advance(&mut self, n: usize) {
        self.sent += n;
        if self.lines.front().is_some_and(|line| self.sent >= line.text.len()) {
            self.lines.pop_front();
            self.sent = 0;
        }
    }
}

/// An error message for the host, truncated to its longest length.
pub(crate) fn error_about(id: Option<String>, text: &impl ToString) -> FromGuest {
    let mut text = text.to_string();
    text.truncate(text.floor_char_boundary(ERROR_TEXT_LEN_MAX));
    FromGuest::Error { id, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(outbox: &mut Outbox) -> String {
        let mut all = String::new();
        while let Some(bytes) = outbox.next() {
            all.push_str(std::str::from_utf8(bytes).unwrap());
            let n = bytes.len();
            outbox.advance(n);
        }
        all
    }

    #[test]
    fn results_survive_a_broken_connection() {
        let mut outbox = Outbox::default();
        outbox.push("result\n".to_owned(), true);
        outbox.push("report\n".to_owned(), false);
        outbox.advance(3);
        assert_eq!(outbox.next(), Some(&b"ult\n"[..]));
        outbox.begin(["\nhello\n".to_owned(), "ready\n".to_owned()].into_iter());
        assert_eq!(drain(&mut outbox), "\nhello\nready\nresult\n");
        assert_eq!(outbox.next(), None);
    }

    #[test]
    fn full_queue_drops_reports_before_results() {
        let mut outbox = Outbox::default();
        outbox.push("first\n".to_owned(), false);
        outbox.advance(1);
        outbox.push("report\n".to_owned(), false);
        for n in 0..LINES_MAX {
            outbox.push(format!("{n}\n"), true);
        }
        let all = drain(&mut outbox);
        assert!(all.starts_with("irst\n1\n2\n"), "{all}");
        assert_eq!(all.lines().count(), LINES_MAX);
        assert!(all.ends_with("63\n"));
    }
}
