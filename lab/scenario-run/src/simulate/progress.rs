//! How far a comparison is, on standard error while it is a terminal.

use ballast_sim::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// The resolution of progress: parts of a run.
const PARTS: u64 = 1000;

/// The bar; it draws nothing where there is no terminal.
pub struct Bar(ProgressBar);

impl Default for Bar {
    /// At its beginning.
    fn default() -> Bar {
        let bar = ProgressBar::new(PARTS);
        let style = ProgressStyle::with_template("{wide_bar} {percent:>3} %  {msg}  {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Bar(bar)
    }
}

impl Bar {
    /// Shows how far it is.
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
        // Before anything else is printed.
        self.0.finish_and_clear();
    }
}
