//! Hosts and guests as numbers, under the planner of migrations and its rivals.
//!
//! Idea: a day of a fleet whose operators raise and lower floors and whose guests' working sets
//! wander, played once for each way to balance; counted are the bytes copied, and how long hosts
//! were short of floors. Every host divides its memory by a simple rule in the same way for all.
//! Limits: no figure of it is measured. There is no hypervisor, no network and no etcd: a migration
//! ends within its round and never fails. Rivals follow their published rules, not their code.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod day;
mod planned;
pub mod rivals;
mod world;

pub use day::{DaySpec, Figures, play};
pub use planned::Planned;
pub use world::{SimGuest, SimHost, World};

use std::fmt::Debug;

/// One way to balance a fleet.
pub trait Balancer: Debug {
    /// Its name, with its settings.
    fn name(&self) -> String;

    /// Which guests to move to which hosts in this round, by place: at most `most` of them, each
    /// once. They are carried out in order.
    fn migrations(&mut self, world: &World, round: u64, most: usize) -> Vec<(usize, usize)>;

    /// Whether a guest is shrunk to what it needs before it is copied.
    fn shrinks_first(&self) -> bool {
        false
    }
}
