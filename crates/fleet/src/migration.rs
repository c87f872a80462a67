//! The result of planning: migrations with their reasons, and needs that no migration meets.
//!
//! Limits: a plan is of one moment. Migrations that have to wait are decided again in the next
//! plan.

use std::fmt;
use std::time::Duration;

use ballast_model::{Bytes, GuestId, Timestamp};

use crate::{HostId, PinnedBy};

/// What to move, and which needs remain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationPlan {
    /// To be started now, the most urgent first. None depends on another one.
    pub migrations: Vec<Migration>,
    /// As justified as those, but beyond the number that may run at once.
    pub waiting: Vec<Migration>,
    /// Hosts, by name, whose needs remain when all migrations above are done.
    pub unmet: Vec<UnmetNeed>,
    /// Hosts whose records are too old, by name: nothing was planned for them.
    pub stale_hosts: Vec<HostId>,
}

/// A migration of one guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The guest.
    pub guest: GuestId,
    /// The host that it is on.
    pub from: HostId,
    /// The host that it is to go to.
    pub to: HostId,
    /// The balloon target to set before the copy, so that there is less to copy. `None`: the guest
    /// gives no memory.
    pub shrink_to: Option<Bytes>,
    /// What the destination reserves before anything is copied.
    pub reserve: Bytes,
    /// How much more memory of its host it occupies while it is copied: a copy may fill memory that
    /// the guest left empty.
    pub fills: Bytes,
    /// What is copied if the guest writes nothing meanwhile.
    pub bytes: Bytes,
    /// What is copied in all, including pages that it writes meanwhile.
    pub traffic: Bytes,
    /// How long the copy takes at the measured bandwidth.
    pub copy_time: Duration,
    /// Why it is moved.
    pub reason: MigrationReason,
}

/// Why a guest is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MigrationReason {
    /// The floors on its host add up to this much more than the host has for guests.
    Floors(Bytes),
    /// Its host is to be drained.
    Drain,
    /// Floors and objectives on its host need this much more than the host has for guests.
    Objectives(Bytes),
    /// It saves more misses than it costs.
    Benefit {
        /// Misses saved over the horizon.
        misses_saved: u64,
        /// Misses that it has to save to be worth the copy.
        misses_asked: u64,
    },
}

/// A need of a host that no migration of the plan meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmetNeed {
    /// The host.
    pub host: HostId,
    /// What is not met.
    pub kind: UnmetKind,
    /// Why its other guests could not go, with the number of guests for each reason.
    pub obstacles: Vec<(Obstacle, usize)>,
}

/// What is not met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmetKind {
    /// Floors are short by this.
    Floors(Bytes),
    /// This many guests are still to leave.
    Drain(usize),
    /// Floors and objectives are short by this.
    Objectives(Bytes),
}

/// Why a guest could not be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// It must not be moved.
    Pinned(PinnedBy),
    /// It was moved too recently; it rests until then.
    Rests(Timestamp),
    /// It writes pages faster than they can be copied.
    WritesTooFast,
    /// Its copy fills more memory than its host has free.
    FillsTooMuch,
    /// No compatible host has room for it and is without a guest of its group or name.
    NoDestination,
    /// It could go, but its host would still be short.
    NotEnough,
}

impl MigrationReason {
    /// Stable word for programs.
    pub const fn code(self) -> &'static str {
        match self {
            MigrationReason::Floors(_) => "floors",
            MigrationReason::Drain => "drain",
            MigrationReason::Objectives(_) => "objectives",
            MigrationReason::Benefit { .. } => "benefit",
        }
    }
}

impl fmt::Display for Migration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Migration { guest, from, to, fills, bytes, traffic, copy_time, reason, .. } = self;
        write!(f, "{guest} from {from} to {to}: {reason}; copies {bytes}")?;
        if traffic > bytes {
            write!(f, ", {traffic} with what it writes meanwhile")?;
        }
        write!(f, ", in about {} s", copy_time.as_secs().max(1))?;
        match self.shrink_to {
            Some(size) => write!(f, ", shrunk to {size} first")?,
            None => f.write_str(", not shrunk first, as it gives nothing")?,
        }
        match *fills {
            Bytes::ZERO => Ok(()),
            fills => write!(f, "; {from} has {fills} less meanwhile, which the copy fills"),
        }
    }
}

impl fmt::Display for MigrationReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MigrationReason::Floors(short) => {
                write!(f, "its host is {short} short of its guests' floors")
            }
            MigrationReason::Drain => f.write_str("its host is to be drained"),
            MigrationReason::Objectives(short) => {
                write!(f, "its host is {short} short of its guests' objectives")
            }
            MigrationReason::Benefit { misses_saved, misses_asked } => write!(
                f,
                "it saves {misses_saved} misses, and {misses_asked} would make it worth the copy"
            ),
        }
    }
}

impl fmt::Display for UnmetNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = &self.host;
        match self.kind {
            UnmetKind::Floors(short) => write!(f, "{host} stays {short} short of floors")?,
            UnmetKind::Drain(guests) => {
                write!(f, "{host} keeps {} to be drained", counted(guests))?;
            }
            UnmetKind::Objectives(short) => write!(f, "{host} stays {short} short of objectives")?,
        }
        for (at, (obstacle, guests)) in self.obstacles.iter().enumerate() {
            let separator = if at == 0 { ": " } else { ", " };
            write!(f, "{separator}{} {obstacle}", counted(*guests))?;
        }
        Ok(())
    }
}

/// A number of guests, in words.
fn counted(guests: usize) -> String {
    match guests {
        1 => "1 guest".to_owned(),
        _ => format!("{guests} guests"),
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Pinned(by) => by.fmt(f),
            Obstacle::Rests(until) => write!(f, "moved lately: at rest until {until}"),
            Obstacle::WritesTooFast => f.write_str("writing faster than can be copied"),
            Obstacle::FillsTooMuch => f.write_str("whose copy fills more memory here than is free"),
            Obstacle::NoDestination => f.write_str("without a compatible host that has room"),
            Obstacle::NotEnough => f.write_str("free to go, which would not be enough"),
        }
    }
}
