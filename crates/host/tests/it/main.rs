//! The integration tests of `ballast-host`.

mod facts;
mod own_resources;
mod readers;
