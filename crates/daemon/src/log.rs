//! The daemon's log: to standard error, at the level of `BALLAST_LOG`.
//!
//! Idea: levels for all modules or by module (`info`, `ballast_qmp=debug`). Filters by span or
//! field would bring a regular expression engine into the daemon, a tenth of the program.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Logs to standard error from now on, in colour on a terminal. The level is `info` unless the
/// environment variable `BALLAST_LOG` names another.
pub fn start_log() {
    let named = std::env::var("BALLAST_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let filter = named.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .with_target(false);
    tracing_subscriber::registry().with(lines).with(filter).init();
}
