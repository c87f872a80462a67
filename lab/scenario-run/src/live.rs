//! The progress of a run, shown while it runs.
//!
//! Idea: on a terminal, a few lines that are redrawn every second, one for each guest; elsewhere
//! one line every [`LOG_EVERY_S`] seconds, so that a log stays readable. All output goes to
//! standard error.
//! Limits: lines above the last progress message are never redrawn.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use super::figures::{self, count, size};
use super::record::{InsideSample, OutsideSample};
use super::turns::Turn;

/// Time between two lines where there is no terminal, in seconds.
const LOG_EVERY_S: u64 = 5;
/// Columns assumed for a terminal that does not report its width.
const COLUMNS_DEFAULT: usize = 100;
/// Shown for a figure that is unknown.
const UNKNOWN: &str = "?";

/// A guest now.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct GuestStatus {
    pub(super) name: String,
    pub(super) outside: Option<OutsideSample>,
    pub(super) inside: Option<InsideSample>,
    /// Page touches a second since the previous report.
    pub(super) touches_per_s: Option<f64>,
    /// Major faults a second since the previous report.
    pub(super) faults_per_s: Option<f64>,
}

/// The output for progress.
#[derive(Debug)]
pub struct Live {
    columns: Option<usize>,
    lines_drawn: usize,
}

impl Default for Live {
    /// Progress on standard error, redrawn if that is a terminal.
    fn default() -> Live {
        let terminal = io::stderr().is_terminal().then(|| {
            let size = rustix::termios::tcgetwinsize(io::stderr());
            size.map_or(COLUMNS_DEFAULT, |size| usize::from(size.ws_col).max(1))
        });
        Live { columns: terminal, lines_drawn: 0 }
    }
}

impl Live {
    /// Prints a line that stays.
    pub fn say(&mut self, line: &str) {
        self.lines_drawn = 0;
        write(&format!("{}\n", harmless(line)));
    }

    /// Shows the guests at time `at` of a schedule of length `duration`.
    pub(super) fn show(
        &mut self,
        turn: &Turn,
        at: Duration,
        duration: Duration,
        guests: &[GuestStatus],
    ) {
        let [second, duration_s] = [at, duration].map(|it| it.as_secs_f64().round() as u64);
        let title = title(turn, second, duration_s);
        if let Some(columns) = self.columns {
            let mut lines = vec![title];
            lines.extend(guests.iter().map(|guest| format!("  {}", line(guest))));
            let mut out = String::new();
            if self.lines_drawn > 0 {
                out.push_str(&format!("\x1b[{}A", self.lines_drawn));
            }
            for line in &lines {
                let shown: String = harmless(line).chars().take(columns - 1).collect();
                out.push_str(&format!("\r\x1b[K{shown}\n"));
            }
            self.lines_drawn = lines.len();
            write(&out);
        } else if second.is_multiple_of(LOG_EVERY_S) {
            let guests: Vec<String> = guests.iter().map(line).collect();
            write(&harmless(&format!("{title} | {}\n", guests.join(" | "))));
        }
    }
}

/// Errors are ignored: a run does not fail because standard error is closed.
fn write(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// `text` without control characters other than line ends: parts of it come from a guest.
fn harmless(text: &str) -> String {
    let shown = |c: char| if c.is_control() && c != '\n' { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(shown).collect()
}

fn title(turn: &Turn, second: u64, duration_s: u64) -> String {
    let run = match turn.of {
        1 => String::new(),
        of => format!(" (run {} of {of})", turn.number),
    };
    format!("{}{run} {second:>3} s of {duration_s} s", turn.variant.name)
}

/// One guest in one line.
fn line(guest: &GuestStatus) -> String {
    let outside = guest.outside.clone().unwrap_or_default();
    let bytes = |bytes: Option<u64>| bytes.map_or(UNKNOWN.to_owned(), |bytes| size(bytes as f64));
    let rate = |rate: Option<f64>| rate.map_or(UNKNOWN.to_owned(), count);
    let swap = guest.inside.as_ref().and_then(|inside| inside.swap_used_bytes);
    let mut line = format!(
        "{} {:>7}→{:<7} used {:>7} swap {:>7} {:>7} touches/s {:>6} majflt/s",
        guest.name,
        bytes(outside.allocation_bytes),
        outside.target_bytes.map_or(figures::NONE.to_owned(), |bytes| size(bytes as f64)),
        bytes(outside.used_bytes),
        bytes(swap),
        rate(guest.touches_per_s),
        rate(guest.faults_per_s),
    );
    if let Some(doing) = outside.doing_text.or(outside.doing) {
        line.push_str(&format!("  {doing}"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use ballast_lab_host::Variant;
    use expect_test::expect;

    fn guest() -> GuestStatus {
        GuestStatus {
            name: "a".to_owned(),
            outside: Some(OutsideSample {
                allocation_bytes: Some(512 << 20),
                target_bytes: Some(761 << 20),
                used_bytes: Some(490 << 20),
                tracking: None,
                doing: Some("grow".to_owned()),
                doing_text: Some("grow by 249MiB".to_owned()),
            }),
            inside: Some(InsideSample {
                swap_used_bytes: Some(12 << 20),
                ..InsideSample::default()
            }),
            touches_per_s: Some(1_234_567.0),
            faults_per_s: Some(340.4),
        }
    }

    #[test]
    fn a_guest_is_one_line_and_unknown_is_not_zero() {
        let text = line(&guest());
        let (figures, doing) = text.split_at(text.len() - "  grow by 249MiB".len());
        expect!["a  512MiB→761MiB  used  490MiB swap   12MiB  1.23 M touches/s    340 majflt/s"]
            .assert_eq(figures);
        assert_eq!(doing, "  grow by 249MiB");
        let unknown = GuestStatus { name: "b".to_owned(), ..GuestStatus::default() };
        expect!["b       ?→–       used       ? swap       ?       ? touches/s      ? majflt/s"]
            .assert_eq(&line(&unknown));
    }

    #[test]
    fn the_title_says_which_run_it_is() {
        let variant = Variant { name: "global".to_owned(), ..Variant::default() };
        let turn = Turn { variant, repetition: 1, number: 2, of: 2 };
        assert_eq!(title(&turn, 42, 95), "global (run 2 of 2)  42 s of 95 s");
        assert_eq!(title(&Turn { of: 1, ..turn }, 42, 95), "global  42 s of 95 s");
    }

    #[test]
    fn a_guest_cannot_command_the_terminal() {
        assert_eq!(harmless("a\x1b[2Jb\n"), "a\u{fffd}[2Jb\n");
    }
}
