//! The integration tests of `ballast-host`.

mod own_resources;
mod readers;
