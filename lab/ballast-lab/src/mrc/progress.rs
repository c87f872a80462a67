//! The progress of reading a trace, on standard error if that is a terminal.

use std::time::Duration;

use ballast_trace::Progress;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use ballast_report::figures::count;
use ballast_report::harmless_line;

/// Time between two redraws.
const PERIOD: Duration = Duration::from_millis(200);

/// The progress bar of one trace; it draws nothing if standard error is no terminal.
pub(crate) struct Bar {
    bar: ProgressBar,
    trace: String,
    is_sized: bool,
}

impl Bar {
    /// A bar for the trace called `trace`.
    pub(crate) fn new(trace: &str) -> Self {
        let bar = ProgressBar::new_spinner();
        bar.enable_steady_tick(PERIOD);
        Self { bar, trace: harmless_line(trace), is_sized: false }
    }

    /// Shows `progress`.
    pub(crate) fn show(&mut self, progress: Progress) {
        if self.bar.is_hidden() {
            return;
        }
        if let (Some(total), false) = (progress.bytes_total, self.is_sized) {
            self.is_sized = true;
            self.bar.set_length(total);
            let style = ProgressStyle::with_template("{wide_bar} {percent:>3} %  {msg}");
            self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        }
        self.bar.set_position(progress.bytes_read);
        let seconds = self.bar.elapsed().as_secs_f64();
        let references = progress.references as f64;
        let left = match self.is_sized && seconds > 1.0 {
            true => format!(", {} left", HumanDuration(self.bar.eta())),
            false => String::new(),
        };
        let speed = if seconds > 0.0 { references / seconds } else { 0.0 };
        let (references, speed) = (count(references), count(speed));
        let trace = &self.trace;
        self.bar.set_message(format!("{trace}: {references} references, {speed}/s{left}"));
    }

    /// Removes the bar.
    pub(crate) fn finish(self) {
        drop(self);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        // The bar must be gone before an error is printed.
        self.bar.finish_and_clear();
    }
}
