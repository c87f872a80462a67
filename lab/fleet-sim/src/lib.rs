//! Simulates a fleet of hosts and guests as numbers, under the planner of migrations and its
//! rivals.
//!
//! Idea: a day of a fleet is played once for each way to balance: a day in which operators raise
//! and lower floors ([`FloorDay`]), and a day in which load follows the time of day ([`LoadDay`]).
//! Every host divides its memory by a daemon's policy in the same way; only who moves guests
//! differs. Counted are the bytes copied, how long hosts were short of floors, and how long guests
//! missed more than their objective; [`most_guests`] finds the greatest number of guests that meet
//! it.
//! Limits: no figure is measured. There is no hypervisor, no network and no etcd: a migration ends
//! within its round and never fails. Rivals follow their published rules, not their code.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod floor_day;
mod load_day;
mod miss_model;
mod planner;
mod play;
mod policy_host;
pub mod rivals;
mod search;
mod world;

pub use floor_day::{FloorDay, FloorSpec};
pub use load_day::{LoadDay, LoadSpec, Placement};
pub use planner::FleetPlanner;
pub use play::{Figures, Scene, play};
pub use policy_host::Division;
pub use search::{SLOW_PPM_MAX, SearchResult, WORST_PPM_MAX, most_guests};
pub use world::{SimGuest, SimHost, World};

use std::fmt::Debug;

/// A way to balance a fleet.
pub trait Balancer: Debug {
    /// The name, with its settings.
    fn name(&self) -> String;

    /// The migrations of this round as (guest, host) indices: at most `most` guests, each once.
    /// They are carried out in this order.
    fn migrations(&mut self, world: &World, round: u64, most: usize) -> Vec<(usize, usize)>;

    /// Whether a guest is shrunk to its need before it is copied.
    fn shrinks_first(&self) -> bool {
        false
    }
}
