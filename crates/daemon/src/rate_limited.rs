//! Rate limit for repeated log lines.
//!
//! Idea: the first line is logged at once. Lines within [`AGAIN_AFTER`] of it are only counted, and
//! the next logged line has their number. So whoever can cause such lines cannot fill the log.

use std::time::Duration;

use ballast_model::Timestamp;
use tracing::warn;

use crate::clock;

/// Shortest time between two logged lines.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Log lines of one kind.
#[derive(Debug, Default)]
pub(crate) struct RateLimited {
    logged_at: Option<Timestamp>,
    suppressed: u64,
}

impl RateLimited {
    /// The line to log for `text` at `now`; `None`: it is suppressed.
    pub(crate) fn line(&mut self, text: String, now: Timestamp) -> Option<String> {
        if self.logged_at.is_some_and(|at| now.saturating_since(at) < AGAIN_AFTER) {
            self.suppressed += 1;
            return None;
        }
        self.logged_at = Some(now);
        match std::mem::take(&mut self.suppressed) {
            0 => Some(text),
            more => Some(format!("{text} (and {more} similar lines before)")),
        }
    }

    /// Warns of `text` now, unless that is suppressed.
    pub(crate) fn warn(&mut self, text: String) {
        if let Some(line) = self.line(text, clock::now()) {
            warn!("{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_passes_and_repeats_are_counted() {
        let mut lines = RateLimited::default();
        let mut line = |s: u64| lines.line("x".to_owned(), Timestamp::from_millis(s * 1000));
        assert_eq!(line(5).as_deref(), Some("x"));
        assert_eq!((line(5), line(64)), (None, None));
        assert_eq!(line(65).as_deref(), Some("x (and 2 similar lines before)"));
        assert_eq!(line(300).as_deref(), Some("x"));
    }
}
