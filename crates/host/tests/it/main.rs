//! The integration tests of `ballast-host`.

mod readers;
