//! A storm of faults around the daemon's own engine, and whether its promises hold.
//!
//! Idea (deterministic simulation): the engine that the daemon runs is driven in virtual time over
//! a [`World`](ballast_daemon::engine::World) that keeps apart what is really so and what guests
//! claim. A seed draws host, guests, policy, which guests are offenders, and the rate of every kind
//! of [`Fault`]. After each tick promises are judged by what is really so; when the faults stop,
//! everything has to settle. A seed whose offenders lie runs once more with the same guests honest:
//! no other guest may be worse off for the lies. A [`Sabotage`] takes one safety away: a storm that
//! then finds nothing would prove nothing. [`story_of`] tells a failure with as few faults as it
//! needs.
//!
//! One seed in ten has its journal on a faulty disk, written by the daemon's own writer
//! (`disk.rs`). One in three runs once more on a wire: there the daemon's own QMP code hears each
//! guest from the bytes of a fake machine (`wire.rs`), and its own agents' code from those of an
//! agent (`agent.rs`). One in four runs once more on a hard host, some of them with a wire, a disk
//! or both: there the host's memory and swap end (`host.rs`), guests exit, panic and are moved, the
//! daemon dies before any of a tick's effects, operators set bounds, and every policy is in
//! force.
//!
//! Cost: some 30 ms of processor time a run, and ten times that with a disk. Limits: of the fleet
//! its sockets and folders are left out, and libvirt and trackers are; no guest has memory to plug
//! in; bytes move at ticks, and a wait for an answer takes no time. Readers ask the engine, and no
//! socket: that readers hold up no tick is for the bench of the tick's latency.
//!
//! Judged is by what can be known. Of a guest that is not heard, by whatever cause, nobody knows
//! that it rebooted. Until its silence is noticed, after two seconds, the last that was heard
//! counts as what it holds, and it may be granted again what it gave since. Statistics by QMP have
//! whole seconds, so they may be acted on a second longer.
//!
//! | file | what |
//! |---|---|
//! | `drawn`, `strike` | what a seed draws: guests, host, settings, strikes |
//! | `seed` | one seed: its run and its honest twin's |
//! | `run` | one run: storm, lull, calm |
//! | `inject` | one strike |
//! | `disk` | the journal on a faulty disk, and whether it keeps what it says |
//! | `journal_files` | its files, and what happens to them between two daemons |
//! | `world` | the outside of the engine, with faults at its seams |
//! | `wire`, `tamper` | one guest's QMP: bytes between the daemon's code and a machine, and what happens to them |
//! | `guest` | one guest: what is so, and what it claims |
//! | `host` | the host's memory and swap |
//! | `agent` | one guest's agent, and the daemon's side of it |
//! | `judge`, `twin` | whether the promises hold |
//! | `due` | what guests are due |
//! | `story`, `trace` | a failure, shrunk, and what was so in each of its ticks |
//! | `sabotage` | safeties that can be taken away |
//!
//! Begin with `seed.rs`.

#![forbid(unsafe_code)]

mod agent;
mod disk;
mod drawn;
mod due;
mod fault;
mod guest;
mod host;
mod inject;
mod journal_files;
mod judge;
mod run;
mod sabotage;
mod seed;
mod story;
mod strike;
mod tamper;
mod trace;
mod twin;
mod violation;
mod wire;
mod world;

pub use fault::{Fault, Injected};
pub use sabotage::Sabotage;
pub use seed::{SeedReport, run_seed};
pub use story::{Story, story_of};
pub use strike::Strike;
pub use violation::Violation;
