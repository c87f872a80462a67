//! The integration tests of `ballast-qmp`.

mod block_stats;
mod garbage;
mod hotplug;
mod migration;
mod peers;
mod transcripts;
