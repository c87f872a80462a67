//! The integration tests of `ballast-qmp`.

mod garbage;
mod hotplug;
mod peers;
mod transcripts;
