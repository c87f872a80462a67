//! The integration tests of `ballast-api`.

mod client;
mod golden;
