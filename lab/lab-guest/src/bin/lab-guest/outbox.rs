//! What the guest has yet to say.
//!
//! Idea: a bounded queue of lines. Reports are worth nothing when they are late and are dropped while
//! nobody listens; results are kept for the next connection, and go out whole even if the last one
//! broke in their midst.
//! Limits: at most [`LINES_MAX`] lines; the oldest make room.

use std::collections::VecDeque;

/// Most lines kept: results of everything that may run at once, and some reports.
const LINES_MAX: usize = 64;

struct Line {
    text: String,
    keep: bool,
}

/// The queue.
#[derive(Default)]
pub(crate) struct Outbox {
    lines: VecDeque<Line>,
    /// Bytes of the first line already sent.
    sent: usize,
}

impl Outbox {
    /// Adds a line with its newline; `keep` it where a connection breaks?
    pub(crate) fn push(&mut self, text: String, keep: bool) {
        if self.lines.len() >= LINES_MAX {
            // Never the first: it may be half said.
            let victim = self.lines.iter().skip(1).position(|line| !line.keep);
            self.lines.remove(victim.unwrap_or(0) + 1);
        }
        self.lines.push_back(Line { text, keep });
    }

    /// A connection begins with these lines; what was half said is to be said again.
    pub(crate) fn begin(&mut self, greeting: impl DoubleEndedIterator<Item = String>) {
        self.interrupted();
        for text in greeting.rev() {
            self.lines.push_front(Line { text, keep: false });
        }
    }

    /// The connection is gone.
    pub(crate) fn interrupted(&mut self) {
        self.lines.retain(|line| line.keep);
        self.sent = 0;
    }

    /// What to send next; `None` when all is said.
    pub(crate) fn next(&self) -> Option<&[u8]> {
        self.lines.front().map(|line| &line.text.as_bytes()[self.sent..])
    }

    /// `n` bytes of what [`Outbox::next`] gave were sent.
    pub(crate) fn advance(&mut self, n: usize) {
        self.sent += n;
        if self.lines.front().is_some_and(|line| self.sent >= line.text.len()) {
            self.lines.pop_front();
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(outbox: &mut Outbox) -> String {
        let mut all = String::new();
        while let Some(bytes) = outbox.next() {
            all.push_str(std::str::from_utf8(bytes).unwrap());
            let n = bytes.len();
            outbox.advance(n);
        }
        all
    }

    #[test]
    fn results_survive_a_break_and_follow_the_greeting() {
        let mut outbox = Outbox::default();
        outbox.push("result\n".to_owned(), true);
        outbox.push("report\n".to_owned(), false);
        outbox.advance(3);
        assert_eq!(outbox.next(), Some(&b"ult\n"[..]));
        outbox.begin(["\nhello\n".to_owned(), "ready\n".to_owned()].into_iter());
        assert_eq!(said(&mut outbox), "\nhello\nready\nresult\n");
        assert_eq!(outbox.next(), None);
    }

    #[test]
    fn a_full_box_drops_reports_before_results_and_never_what_is_half_said() {
        let mut outbox = Outbox::default();
        outbox.push("first\n".to_owned(), false);
        outbox.advance(1);
        outbox.push("report\n".to_owned(), false);
        for n in 0..LINES_MAX {
            outbox.push(format!("{n}\n"), true);
        }
        let all = said(&mut outbox);
        assert!(all.starts_with("irst\n1\n2\n"), "{all}");
        assert_eq!(all.lines().count(), LINES_MAX);
        assert!(all.ends_with("63\n"));
    }
}
