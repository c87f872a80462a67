//! Promises that were found broken, judged by the true state.

use std::fmt;
use std::time::Duration;

use ballast_model::GuestId;

/// A promise that was broken; sizes in MiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The checker refused a plan: guard and checker disagree.
    PlanRefused {
        /// What it found.
        why: String,
    },
    /// Memory was granted that does not exist.
    Overcommitted {
        /// What guests may come to occupy.
        takeable: u64,
        /// What exists, and what offenders took or hide.
        allowed: u64,
        /// The true state of each guest.
        guests: Vec<String>,
    },
    /// A guest was ordered below its floor.
    BelowFloor {
        /// The guest.
        guest: GuestId,
        /// What it was ordered to hold.
        target: u64,
        /// Its floor.
        floor: u64,
    },
    /// A guest was granted more than operators allow.
    AboveCeiling {
        /// The guest.
        guest: GuestId,
        /// What it was ordered to hold.
        target: u64,
        /// Its ceiling.
        ceiling: u64,
    },
    /// A guest was granted memory that its fence keeps from it.
    FencedIn {
        /// The guest.
        guest: GuestId,
        /// What its process needs to hold its grant.
        needs: u64,
        /// The height of its fence.
        height: u64,
    },
    /// The host was ordered to page a guest out without room in swap.
    PagedWithoutRoom {
        /// The guest.
        guest: GuestId,
    },
    /// A guest that its hypervisor moves or saves was paged out or given an order.
    TakenWhileMoved {
        /// The guest.
        guest: GuestId,
    },
    /// Memory and swap of the host are full although every guest keeps to its grant.
    Exhausted {
        /// Memory that guests could not touch.
        lacking: u64,
    },
    /// Questions of readers changed a decision.
    MovedByReaders {
        /// What changed.
        what: &'static str,
    },
    /// A guest was given an order although an operator had paused the daemon.
    ActsPaused {
        /// The guest.
        guest: GuestId,
    },
    /// A guest was taken for one that another owner moves.
    TakenForOwned {
        /// The guest.
        guest: GuestId,
    },
    /// Honest guests have less than they would have without lies.
    Interference {
        /// The guest that lost most.
        guest: GuestId,
        /// What it has.
        has: u64,
        /// What it has in the run without lies, as far as it needs that.
        due: u64,
        /// What honest guests lack in all.
        lacking: u64,
        /// What liars may gain in all.
        allowed: u64,
    },
    /// A guest was ordered to shrink on figures that were too old.
    OnStaleFigures {
        /// The guest.
        guest: GuestId,
        /// How old they were.
        age: Duration,
    },
    /// A guest visibly occupied more than its grant for too long.
    NotTakenBack {
        /// The guest.
        guest: GuestId,
        /// What it occupied.
        occupies: u64,
        /// What it was granted.
        granted: u64,
    },
    /// At the end, an honest guest has less than it needs and is entitled to.
    Squeezed {
        /// The guest.
        guest: GuestId,
        /// What it has.
        has: u64,
        /// What it needs or what it is entitled to, whichever is less.
        due: u64,
    },
    /// Something is still amiss long after the last fault.
    NotSettled {
        /// What.
        what: String,
    },
    /// The journal does not have what it must have, whatever happened to its disk.
    Journal {
        /// What is wrong.
        what: String,
    },
    /// A guest's agent got more than its ration.
    BeyondRation {
        /// The guest.
        guest: GuestId,
        /// What.
        what: String,
    },
    /// The daemon remembers more guests than there are.
    Unbounded {
        /// The number of guests whose limits it remembers.
        remembered: usize,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::PlanRefused { why } => write!(f, "the checker refused a plan: {why}"),
            Violation::Overcommitted { takeable, allowed, guests } => write!(
                f,
                "guests may take {takeable} MiB where {allowed} MiB are allowed ({})",
                guests.join("; ")
            ),
            Violation::BelowFloor { guest, target, floor } => {
                write!(f, "{guest} ordered to {target} MiB, below its floor of {floor} MiB")
            }
            Violation::AboveCeiling { guest, target, ceiling } => {
                write!(f, "{guest} ordered to {target} MiB, above its ceiling of {ceiling} MiB")
            }
            Violation::FencedIn { guest, needs, height } => {
                write!(
                    f,
                    "{guest} needs {needs} MiB for its grant, and has a fence of {height} MiB"
                )
            }
            Violation::PagedWithoutRoom { guest } => {
                write!(f, "{guest} is to be paged out where swap has no room")
            }
            Violation::TakenWhileMoved { guest } => {
                write!(f, "{guest} is not left alone while its hypervisor moves or saves it")
            }
            Violation::Exhausted { lacking } => write!(
                f,
                "guests that keep to their grants lack {lacking} MiB of memory, and swap is full"
            ),
            Violation::MovedByReaders { what } => write!(f, "readers were there: {what}"),
            Violation::ActsPaused { guest } => {
                write!(f, "{guest} ordered although an operator had paused")
            }
            Violation::TakenForOwned { guest } => {
                write!(f, "{guest} left alone as if somebody else moved it")
            }
            Violation::Interference { guest, has, due, lacking, allowed } => write!(
                f,
                "{guest} is left {has} MiB where it had {due} MiB if nobody lied; honest guests lack \
                 {lacking} MiB in all where lies may gain {allowed} MiB"
            ),
            Violation::OnStaleFigures { guest, age } => {
                write!(f, "{guest} ordered to shrink on figures {} s old", age.as_secs())
            }
            Violation::NotTakenBack { guest, occupies, granted } => {
                write!(f, "{guest} keeps {occupies} MiB where it was granted {granted} MiB")
            }
            Violation::Squeezed { guest, has, due } => {
                write!(f, "{guest} ends with {has} MiB where {due} MiB are due to it")
            }
            Violation::NotSettled { what } => write!(f, "not settled: {what}"),
            Violation::Journal { what } => write!(f, "the journal: {what}"),
            Violation::BeyondRation { guest, what } => write!(f, "the agent of {guest} {what}"),
            Violation::Unbounded { remembered } => {
                write!(f, "{remembered} guests' limits are remembered")
            }
        }
    }
}
