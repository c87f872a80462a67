//! What hosts report of themselves and their guests.
//!
//! Idea: plain data, as each host sends it and the planner's host dates it. All times are on the
//! clock of the host that plans, because no two hosts share a clock.
//! Limits: figures that a host may not know are `Option`s. It has to know all others.

use std::fmt;
use std::time::Duration;

use ballast_model::{Bytes, GuestId, Timestamp};

use crate::{CompactCurve, HostId, Label};

/// One host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRecord {
    /// Its name.
    pub id: HostId,
    /// When the record was made.
    pub seen_at: Timestamp,
    /// What all its guests together may be allocated.
    pub budget: Bytes,
    /// Memory that stays available to the host itself.
    pub reserve: Bytes,
    /// What guests hold or were promised, and what is reserved: at least the allocations and
    /// reservations below.
    pub committed: Bytes,
    /// Memory that is free on the host, or can be freed without swapping.
    pub free: Bytes,
    /// Bytes a second that a migration copies, as measured; more than none.
    pub bandwidth_per_s: Bytes,
    /// What runs there, and which storage and networks it reaches.
    pub compatibility: Compatibility,
    /// Whether it carries out moves that are ordered; if not, plans are for its operator to read.
    pub executes_moves: bool,
    /// Whether all its guests are to leave.
    pub is_draining: bool,
    /// Memory that is kept for guests that are about to come.
    pub reservations: Vec<ReservationRecord>,
    /// Its guests.
    pub guests: Vec<GuestRecord>,
}

/// Memory that is kept for a guest that is about to start, or to come from another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationRecord {
    /// The guest that it is kept for.
    pub guest: GuestId,
    /// How much is kept.
    pub size: Bytes,
    /// How much of that the guest occupies already.
    pub resident: Bytes,
    /// The guest's group, as the planner may not see the host that the guest comes from.
    pub group: Option<Label>,
}

/// One guest of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestRecord {
    /// Its name, unique on its host.
    pub id: GuestId,
    /// Least memory its operator guarantees.
    pub floor: Bytes,
    /// Its present allocation.
    pub allocation: Bytes,
    /// What it should have by the evidence.
    pub demand: Bytes,
    /// Its misses a second by memory, if known.
    pub curve: Option<CompactCurve>,
    /// Its objective: at most this many misses a second.
    pub misses_per_s_max: Option<u64>,
    /// Host memory that its process occupies.
    pub resident: Bytes,
    /// The most host memory that its process occupies while it is copied: more than `resident` if a
    /// copy fills memory that the guest left empty. If it is not more, a copy fills nothing.
    pub copied_resident: Bytes,
    /// Its dirty rate: bytes of pages that it writes in a second.
    pub dirty_per_s: Bytes,
    /// Whether it gives memory when asked: its balloon works, and the pages leave the host.
    pub can_shrink: bool,
    /// Why it must not be moved; `None` if it may.
    pub pinned_by: Option<PinnedBy>,
    /// The host to which it is being moved now.
    pub moving_to: Option<HostId>,
    /// Guests with the same group never run on one host.
    pub group: Option<Label>,
    /// The storage it uses, sorted.
    pub storage: Vec<Label>,
    /// The networks it is on, sorted.
    pub networks: Vec<Label>,
    /// How often it was moved in the last 24 hours.
    pub moves_in_24h: u32,
    /// Its last migration.
    pub last_move: Option<LastMove>,
}

impl GuestRecord {
    /// How much more host memory it occupies while it is copied.
    pub fn filled_by_copy(&self) -> Bytes {
        self.copied_resident.saturating_sub(self.resident)
    }
}

/// A finished migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastMove {
    /// When it ended.
    pub at: Timestamp,
    /// How long it took.
    pub took: Duration,
}

/// Why a guest must not be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PinnedBy {
    /// Its operator says so.
    Operator,
    /// A device of its host, or memory encryption, keeps it there.
    Device,
    /// Its host does not see what it holds.
    Unseen,
}

/// What decides whether a guest of one host can run on another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Compatibility {
    /// The hypervisor: guests move only between hosts with the same one.
    pub hypervisor: Label,
    /// Its version: guests move only to the same or a newer one.
    pub version: HypervisorVersion,
    /// The processor model that guests see: guests move only between hosts with the same one.
    pub cpu_model: Label,
    /// The storage that the host reaches, sorted.
    pub storage: Vec<Label>,
    /// The networks that the host reaches, sorted.
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

impl fmt::Display for PinnedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PinnedBy::Operator => "must stay: its operator says so",
            PinnedBy::Device => "must stay: a device or encryption keeps it on its host",
            PinnedBy::Unseen => "must stay: its host does not see what it holds",
        })
    }
}
