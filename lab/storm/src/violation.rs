//! Promises that were found broken, judged by the true state.

use std::time::Duration;

use ballast_model::GuestId;

/// A promise that was broken; sizes in MiB.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The checker refused a plan and says why: guard and checker disagree.
    #[error("the checker refused a plan: {0}")]
    PlanRefused(String),
    /// Memory was granted that does not exist.
    #[error(
        "guests may take {takeable} MiB where {allowed} MiB are allowed ({})",
        .guests.join("; ")
    )]
    Overcommitted {
        /// What guests may come to occupy.
        takeable: u64,
        /// What exists, and what offenders took or hide.
        allowed: u64,
        /// The true state of each guest.
        guests: Vec<String>,
    },
    /// A guest was ordered below its floor.
    #[error("{guest} ordered to {target} MiB, below its floor of {floor} MiB")]
    BelowFloor {
        /// The guest.
        guest: GuestId,
        /// What it was ordered to hold.
        target: u64,
        /// Its floor.
        floor: u64,
    },
    /// A guest was granted more than operators allow.
    #[error("{guest} ordered to {target} MiB, above its ceiling of {ceiling} MiB")]
    AboveCeiling {
        /// The guest.
        guest: GuestId,
        /// What it was ordered to hold.
        target: u64,
        /// Its ceiling.
        ceiling: u64,
    },
    /// A guest was granted memory that its fence keeps from it.
    #[error("{guest} needs {needs} MiB for its grant, and has a fence of {height} MiB")]
    FencedIn {
        /// The guest.
        guest: GuestId,
        /// What its process needs to hold its grant.
        needs: u64,
        /// The height of its fence.
        height: u64,
    },
    /// The host was ordered to page a guest out without room in swap.
    #[error("{0} is to be paged out where swap has no room")]
    PagedWithoutRoom(GuestId),
    /// A guest that its hypervisor moves or saves was paged out or given an order.
    #[error("{0} is not left alone while its hypervisor moves or saves it")]
    TakenWhileMoved(GuestId),
    /// Memory and swap of the host are full although every guest keeps to its grant; guests could
    /// not touch this much.
    #[error("guests that keep to their grants lack {0} MiB of memory, and swap is full")]
    Exhausted(u64),
    /// Questions of readers changed a decision in this way.
    #[error("readers were there: {0}")]
    MovedByReaders(&'static str),
    /// A guest was given an order although an operator had paused the daemon.
    #[error("{0} ordered although an operator had paused")]
    ActsPaused(GuestId),
    /// A guest was taken for one that another owner moves.
    #[error("{0} left alone as if somebody else moved it")]
    TakenForOwned(GuestId),
    /// Honest guests have less than they would have without lies.
    #[error(
        "{guest} is left {has} MiB where it had {due} MiB if nobody lied; honest guests lack \
         {lacking} MiB in all where lies may gain {allowed} MiB"
    )]
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
    #[error("{guest} ordered to shrink on figures {} s old", .age.as_secs())]
    OnStaleFigures {
        /// The guest.
        guest: GuestId,
        /// How old they were.
        age: Duration,
    },
    /// A guest visibly occupied more than its grant for too long.
    #[error("{guest} keeps {occupies} MiB where it was granted {granted} MiB")]
    NotTakenBack {
        /// The guest.
        guest: GuestId,
        /// What it occupied.
        occupies: u64,
        /// What it was granted.
        granted: u64,
    },
    /// At the end, an honest guest has less than it needs and is entitled to.
    #[error("{guest} ends with {has} MiB where {due} MiB are due to it")]
    Squeezed {
        /// The guest.
        guest: GuestId,
        /// What it has.
        has: u64,
        /// What it needs or what it is entitled to, whichever is less.
        due: u64,
    },
    /// This is still amiss long after the last fault.
    #[error("not settled: {0}")]
    NotSettled(String),
    /// The journal does not have what it must have, whatever happened to its disk; what is wrong.
    #[error("the journal: {0}")]
    Journal(String),
    /// A guest's agent got more than its ration.
    #[error("the agent of {guest} {what}")]
    BeyondRation {
        /// The guest.
        guest: GuestId,
        /// What.
        what: String,
    },
    /// The daemon remembers the limits of this many guests, more than there are.
    #[error("{0} guests' limits are remembered")]
    Unbounded(usize),
}
