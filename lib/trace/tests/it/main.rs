//! The integration tests of `ballast-trace`.

mod files;
mod lines;
mod pieces;
