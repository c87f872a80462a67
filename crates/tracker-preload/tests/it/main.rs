//! The integration tests of `ballast-tracker-preload`.

mod common;
mod host;
mod in_process;
mod killed;
mod stopped;
