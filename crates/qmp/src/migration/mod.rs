//! Live migration of a guest from one QEMU to another.
//!
//! Idea: [`progress`] parses QEMU's report of a migration and combines it with the run state into
//! the state of a guest's hypervisor: empty, listening, loaded, running, or left. [`client`] has
//! the commands, [`dirty_rate`] the rate at which a guest writes to its memory. Which guest moves,
//! and when, is decided elsewhere. With the capability `return-path` the source reports a migration
//! as complete only once the destination has loaded all of it. A destination that was started with
//! `-S` then leaves the guest paused, so that it runs on neither side until the caller starts it on
//! one.
//!
//! Source: `qapi/migration.json`, `migration/migration.c` of QEMU 7.2.
//! Limits: memory crosses the network unencrypted, so the hosts need a network of their own. Guests
//! have shared storage or none.

pub mod client;
pub mod dirty_rate;
pub mod progress;

pub use client::{CopyLimits, MigrationClient};
pub use dirty_rate::DirtyRate;
pub use progress::{GuestMigration, MigrationProgress, MigrationStage, Origin, event_stage};
