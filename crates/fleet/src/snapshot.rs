//! What hosts say of themselves and their guests.
//!
//! Idea: plain data, as each host sends it and the planner's host dates it. Moments are on the
//! clock of whoever plans: no two hosts have the same one.
//! Limits: a figure that a host does not know is left out where it is an `Option`; the others it
//! has to know.

use std::fmt;
use std::time::Duration;

use ballast_model::{Bytes, GuestId, Timestamp};

use crate::{CompactCurve, HostId, Label};

/// One host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRecord {
    /// Its name.
    pub id: HostId,
    /// When this was seen.
    pub seen_at: Timestamp,
    /// What all its guests together may be allocated.
    pub budget: Bytes,
    /// Memory that stays available to the host itself.
    pub reserve: Bytes,
    /// What guests hold or were promised, and what is reserved: at least the allocations and
    /// reservations below.
    pub committed: Bytes,
    /// Memory that is free on the host, or becomes so without swapping.
    pub free: Bytes,
    /// Bytes a second that a migration copies, as measured; more than none.
    pub bandwidth_per_s: Bytes,
    /// What runs there, and what it can reach.
    pub compatibility: Compatibility,
    /// Whether it carries out orders to move guests; else its plans are for its operator.
    pub carries_moves: bool,
    /// All guests are to leave.
    pub is_draining: bool,
    /// Memory that is kept for guests that are about to come.
    pub reservations: Vec<ReservationRecord>,
    /// Its guests.
    pub guests: Vec<GuestRecord>,
}

/// Memory that is kept for a guest that is about to start, or to come from another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationRecord {
    /// The guest.
    pub guest: GuestId,
    /// How much is kept.
    pub size: Bytes,
    /// How much of that is occupied already.
    pub resident: Bytes,
    /// The guest's group: whoever plans may not see the host that it comes from.
    pub group: Option<Label>,
}

/// One guest of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestRecord {
    /// Its name, unique on its host.
    pub id: GuestId,
    /// Least memory its operator guarantees.
    pub floor: Bytes,
    /// What it holds.
    pub allocation: Bytes,
    /// What it should have by the evidence.
    pub demand: Bytes,
    /// Its misses by memory, if known.
    pub curve: Option<CompactCurve>,
    /// Objective: at most so many misses a second.
    pub misses_per_s_max: Option<u64>,
    /// Host memory that its process occupies.
    pub resident: Bytes,
    /// Host memory that its process occupies at most while it is copied: more than `resident` where
    /// a copy fills memory that it left empty. No more than that: copying takes none.
    pub copied_resident: Bytes,
    /// Bytes a second that it writes to pages.
    pub dirty_per_s: Bytes,
    /// Whether it gives memory when asked: its balloon works, and the pages leave the host.
    pub gives: bool,
    /// Why it must not be moved, if so.
    pub stays: Option<Stays>,
    /// Where it is on its way to.
    pub moving_to: Option<HostId>,
    /// Guests with the same group never run on one host.
    pub group: Option<Label>,
    /// The storage it uses, sorted.
    pub storage: Vec<Label>,
    /// The networks it is on, sorted.
    pub networks: Vec<Label>,
    /// How often it was moved in the last 24 hours.
    pub moves_in_24h: u32,
    /// When it was moved last.
    pub last_move: Option<LastMove>,
}

impl GuestRecord {
    /// How much more of its host's memory it occupies while it is copied.
    pub fn filled_by_copy(&self) -> Bytes {
        self.copied_resident.saturating_sub(self.resident)
    }
}

/// A migration that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastMove {
    /// When it ended.
    pub at: Timestamp,
    /// How long it took.
    pub took: Duration,
}

/// Why a guest must not be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stays {
    /// Its operator says so.
    Operator,
    /// A device of its host, or encryption, keeps it there.
    Device,
    /// Its host does not see what it holds.
    Unseen,
}

/// What decides whether a guest of one host can run on another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Compatibility {
    /// The hypervisor: guests move between equal ones only.
    pub hypervisor: Label,
    /// Its version: guests never move to an older one.
    pub version: HypervisorVersion,
    /// The processor model that guests see: guests move between equal ones only.
    pub cpu_model: Label,
    /// The storage that can be reached, sorted.
    pub storage: Vec<Label>,
    /// The networks that are there, sorted.
    pub networks: Vec<Label>,
}

/// A version of a hypervisor, such as 7.2.19.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HypervisorVersion(pub [u32; 3]);

impl fmt::Display for HypervisorVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl fmt::Display for Stays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stays::Operator => "must stay: its operator says so",
            Stays::Device => "must stay: a device or encryption keeps it on its host",
            Stays::Unseen => "must stay: its host does not see what it holds",
        })
    }
}
