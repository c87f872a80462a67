//! A storm of faults around the daemon's own engine, and whether its promises hold.
//!
//! Idea (deterministic simulation): the engine that the daemon runs is driven in virtual time over a
//! [`World`](ballast_daemon::engine::World) that keeps apart what is really so and what guests
//! claim. A seed draws host, guests, policy, which guests are offenders, and the rate of every kind
//! of [`Fault`]. After each tick promises are judged by what is really so; when the faults stop,
//! everything has to settle. A [`Sabotage`] takes one safety away: a storm that then finds nothing
//! would prove nothing.
//!
//! Cost: some 40 ms a seed. Limits: the engine, not the connections: hypervisors, agents and
//! trackers are heard through their samples, and the journal is memory. Not every seed holds yet: `docs/status.md` says which do not.
//!
//! Begin with `run.rs`.

#![forbid(unsafe_code)]

mod fault;
mod guest;
mod run;
mod sabotage;
mod violation;
mod world;

pub use fault::{Fault, Injected};
pub use run::{SeedReport, run_seed};
pub use sabotage::Sabotage;
pub use violation::Violation;
