//! Moving a guest out of one QEMU and into another one.
//!
//! Idea: [`progress`] reads what QEMU says of a migration, and with its run state makes of that
//! what a guest's hypervisor is: empty, listening, loaded, running, or left. [`client`] has the
//! commands, [`dirty_rate`] what a guest writes meanwhile. Who moves when is decided elsewhere.
//! With the capability `return-path` the source calls a migration complete only once the
//! destination has loaded all of it. A destination that was started with `-S` leaves the guest
//! paused then, so that neither runs until somebody says which.
//!
//! Source: `qapi/migration.json`, `migration/migration.c` of QEMU 7.2.
//! Limits: memory goes over the network as it is: a network of the hosts' own is needed. Storage is
//! shared, or there is none.

pub mod client;
pub mod dirty_rate;
pub mod progress;

pub use client::{CopyLimits, MigrationClient};
pub use dirty_rate::DirtyRate;
pub use progress::{GuestMigration, MigrationProgress, MigrationStage, Origin, event_stage};
