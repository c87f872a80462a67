//! The integration tests of `ballast-agent`.

mod talk;
mod unit;
