//! What comes of planning: migrations with their reasons, and needs that none could meet.
//!
//! Limits: a plan is of one moment. What it leaves waiting is decided again with the next one.

use std::fmt;
use std::time::Duration;

use ballast_model::{Bytes, GuestId, Timestamp};

use crate::{HostId, Stays};

/// What is to be moved, and what cannot be mended by moving.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationPlan {
    /// To be started now, the most urgent first. None needs another one to end.
    pub migrations: Vec<Migration>,
    /// As good as those, and beyond what may run at once.
    pub waiting: Vec<Migration>,
    /// Hosts whose needs remain when all of the above are done, by name.
    pub unmet: Vec<UnmetNeed>,
    /// Hosts whose records are too old, by name: nothing was planned for them.
    pub stale_hosts: Vec<HostId>,
}

/// The move of one guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The guest.
    pub guest: GuestId,
    /// Where it is.
    pub from: HostId,
    /// Where it is to go.
    pub to: HostId,
    /// Its target before it is copied: less to copy. `None`: it gives nothing.
    pub shrink_to: Option<Bytes>,
    /// What the destination reserves before anything is copied.
    pub reserve: Bytes,
    /// How much more its host's memory it occupies while it is copied.
    pub fills: Bytes,
    /// What is copied once.
    pub bytes: Bytes,
    /// What is copied in all, with the pages it writes meanwhile.
    pub traffic: Bytes,
    /// How long that takes, as far as bandwidth was measured.
    pub takes: Duration,
    /// What it is good for.
    pub reason: MigrationReason,
}

/// What a migration is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MigrationReason {
    /// Floors on its host add up to more than there is.
    Floors {
        /// How much more.
        short: Bytes,
    },
    /// Its host is to be drained.
    Drain,
    /// What the guests of its host need for floors and objectives is more than there is.
    Objectives {
        /// How much more.
        short: Bytes,
    },
    /// It saves more misses than it costs.
    Benefit {
        /// Misses saved over the horizon.
        misses_saved: u64,
        /// Misses that it has to save.
        misses_asked: u64,
    },
}

/// What a host needs and no migration of the plan gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmetNeed {
    /// The host.
    pub host: HostId,
    /// What is not met.
    pub kind: UnmetKind,
    /// How many of its guests could not go, by why not.
    pub obstacles: Vec<(Obstacle, usize)>,
}

/// What is not met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmetKind {
    /// Floors, by so many bytes.
    Floors(Bytes),
    /// Guests that are still to leave.
    Drain(usize),
    /// Objectives, by so many bytes.
    Objectives(Bytes),
}

/// Why a guest could not be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// It has to stay.
    Stays(Stays),
    /// It was moved a short while ago.
    Rests {
        /// Until when.
        until: Timestamp,
    },
    /// It writes pages faster than they can be copied.
    WritesTooFast,
    /// Its copy fills more memory than its host has free.
    FillsTooMuch,
    /// No other host is compatible, and none of those has room, runs nothing of its group, and has
    /// no guest of its name.
    NoDestination,
    /// It could go, and its host would still be short.
    NotEnough,
}

impl MigrationReason {
    /// Stable word for machines.
    pub const fn code(self) -> &'static str {
        match self {
            MigrationReason::Floors { .. } => "floors",
            MigrationReason::Drain => "drain",
            MigrationReason::Objectives { .. } => "objectives",
            MigrationReason::Benefit { .. } => "benefit",
        }
    }
}

impl fmt::Display for Migration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Migration { guest, from, to, fills, bytes, traffic, takes, reason, .. } = self;
        write!(f, "{guest} from {from} to {to}: {reason}; copies {bytes}")?;
        if traffic > bytes {
            write!(f, ", {traffic} with what it writes meanwhile")?;
        }
        write!(f, ", in about {} s", takes.as_secs().max(1))?;
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
            MigrationReason::Floors { short } => {
                write!(f, "its host is {short} short of its guests' floors")
            }
            MigrationReason::Drain => f.write_str("its host is to be drained"),
            MigrationReason::Objectives { short } => {
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
            UnmetKind::Drain(guests) => write!(f, "{host} keeps {guests} guests to be drained")?,
            UnmetKind::Objectives(short) => write!(f, "{host} stays {short} short of objectives")?,
        }
        for (at, (obstacle, guests)) in self.obstacles.iter().enumerate() {
            let separator = if at == 0 { ": " } else { ", " };
            let noun = if *guests == 1 { "guest" } else { "guests" };
            write!(f, "{separator}{guests} {noun} {obstacle}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Stays(stays) => stays.fmt(f),
            Obstacle::Rests { until } => write!(f, "moved lately: at rest until {until}"),
            Obstacle::WritesTooFast => f.write_str("writing faster than can be copied"),
            Obstacle::FillsTooMuch => f.write_str("whose copy fills more memory here than is free"),
            Obstacle::NoDestination => f.write_str("without a compatible host that has room"),
            Obstacle::NotEnough => f.write_str("free to go, which would not be enough"),
        }
    }
}
