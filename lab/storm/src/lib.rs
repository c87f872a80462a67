//! A storm of faults around the daemon's own engine, to find out whether its promises hold.
//!
//! Idea (deterministic simulation): the daemon's engine runs in virtual time over a
//! [`World`](ballast_daemon::engine::World) that separates the true state from what guests claim. A
//! seed draws host, guests, policy, which guests are offenders, and the rate of every kind of
//! [`Fault`]. After each tick the promises are judged by the true state; when the faults stop,
//! everything has to settle. A seed whose offenders lie runs once more with the same guests honest:
//! no other guest may be worse off because of the lies. A [`Sabotage`] takes one safety away: a
//! storm that then finds nothing would prove nothing. [`story_of`] reduces a failure to as few
//! faults as it needs.
//!
//! One seed in ten has its journal on a faulty disk, written by the daemon's own writer
//! (`disk.rs`). One in three runs once more on a wire: the daemon's own QMP code hears each guest
//! as bytes from a fake machine (`wire.rs`), and its own agent code hears an agent (`agent.rs`).
//! One in four runs once more on a hard host, some of these with a wire, a disk or both: the host's
//! memory and swap run out (`host.rs`), guests exit, panic and are moved, the daemon dies before
//! any of a tick's effects, operators set bounds, and every policy occurs.
//!
//! Cost: some 30 ms of processor time a run, ten times that with a disk. Limits: of the fleet the
//! sockets and folders are left out; libvirt and trackers are left out; no guest has memory to plug
//! in; bytes move only at ticks, and waiting for an answer takes no time. Readers ask the engine
//! directly and not through a socket; the benchmark of the tick's latency shows that readers do not
//! delay ticks.
//!
//! Judgements allow for what the daemon cannot know. It cannot know that a guest it does not hear
//! has rebooted. Until it notices the silence, after two seconds, the last size it heard counts as
//! what the guest holds, and the guest may be granted again what it gave since then. Statistics
//! over QMP have whole seconds, so the daemon may act on them for a second longer.
//!
//! | file | what |
//! |---|---|
//! | `drawn`, `strike` | what a seed draws: guests, host, settings, strikes |
//! | `seed` | one seed: its run and its honest twin's |
//! | `run` | one run: storm, lull, calm |
//! | `inject` | one strike |
//! | `disk` | the journal on a faulty disk, and whether it keeps what it says |
//! | `journal_files` | the journal's files, and what happens to them between two daemons |
//! | `world` | the outside of the engine, with faults at its seams |
//! | `wire`, `tamper` | one guest's QMP: bytes between the daemon's code and a machine, and what happens to them |
//! | `guest` | one guest: its true state, and what it claims |
//! | `host` | the host's memory and swap |
//! | `agent` | one guest's agent, and the daemon's side of it |
//! | `judge`, `twin` | whether the promises hold |
//! | `due` | what guests are due |
//! | `story`, `trace` | a failure, reduced, and the true state in each of its ticks |
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
