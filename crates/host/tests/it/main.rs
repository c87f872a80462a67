//! The integration tests of `ballast-host`.

mod facts;
mod memory_limits;
mod numa;
mod own_resources;
mod readers;
