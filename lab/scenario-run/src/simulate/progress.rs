//! The progress of a comparison, on standard error if that is a terminal.

use ballast_sim::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// The resolution of the bar: parts of a run.
const PARTS: u64 = 1000;

/// The progress bar; it draws nothing if standard error is no terminal.
pub struct Bar(ProgressBar);

impl Default for Bar {
    /// An empty bar.
    fn default() -> Bar {
        let bar = ProgressBar::new(PARTS);
        let style = ProgressStyle::with_template("{wide_bar} {percent:>3} %  {msg}  {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Bar(bar)
    }
}

impl Bar {
    /// Shows `progress`.
    pub fn show(&self, progress: Progress) {
        let whole = progress.duration.as_secs_f64().max(1e-9) * progress.runs as f64;
        let done = progress.duration.as_secs_f64() * progress.runs_done as f64
            + progress.now.as_secs_f64();
        self.0.set_position((done / whole * PARTS as f64) as u64);
        self.0.set_message(progress.policy.to_string());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        // The bar must be gone before anything else is printed.
        self.0.finish_and_clear();
    }
}
