//! The integration tests of `ballast-qmp`.

mod garbage;
mod hotplug;
mod migration;
mod peers;
mod transcripts;
