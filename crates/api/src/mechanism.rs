//! By which mechanisms memory is moved, and why by these.

use ballast_model::{Hotplug, Move, Paging, Regret, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Coded;
use crate::tick::millis;

/// How a guest's memory is moved by one mechanism.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveView {
    /// `balloon`, `virtio-mem`, `dimm`, `page-out` or `page-in`.
    pub mechanism: String,
    /// The whole for people.
    pub text: String,
    /// What the mechanism governs, before: memory the balloon leaves the guest, memory plugged in, or resident memory.
    pub from_bytes: u64,
    /// The same, after.
    pub to_bytes: u64,
    /// Why by this one.
    pub why: Coded,
}

impl From<&Move> for MoveView {
    fn from(moved: &Move) -> Self {
        MoveView {
            mechanism: moved.mechanism.code().to_owned(),
            text: moved.to_string(),
            from_bytes: moved.from.get(),
            to_bytes: moved.to.get(),
            why: Coded::new(moved.why.code(), &moved.why),
        }
    }
}

/// Whom the host pages out or in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagingView {
    /// The guest.
    pub guest: String,
    /// `page-out` or `page-in`.
    pub mechanism: String,
    /// Resident memory its process is to have.
    pub resident_bytes: u64,
    /// Time after the decision in which it may be gone on with.
    pub deadline_ms: u64,
}

impl PagingView {
    pub(crate) fn new(paging: &Paging, decided_at: Timestamp) -> Self {
        PagingView {
            guest: paging.guest.to_string(),
            mechanism: paging.mechanism.code().to_owned(),
            resident_bytes: paging.resident.get(),
            deadline_ms: millis(paging.deadline.saturating_since(decided_at)),
        }
    }
}

/// Memory that can be plugged into a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotplugView {
    /// `virtio-mem` or `dimm`.
    pub kind: String,
    /// Plugged in now.
    pub plugged_bytes: u64,
    /// Asked for last.
    pub requested_bytes: u64,
    /// The most that can be plugged in.
    pub max_bytes: u64,
    /// Amounts are whole multiples of this.
    pub block_bytes: u64,
}

impl From<&Hotplug> for HotplugView {
    fn from(hotplug: &Hotplug) -> Self {
        HotplugView {
            kind: hotplug.kind.code().to_owned(),
            plugged_bytes: hotplug.plugged.get(),
            requested_bytes: hotplug.requested.get(),
            max_bytes: hotplug.max.get(),
            block_bytes: hotplug.block.get(),
        }
    }
}

/// What taking memory from a guest cost it, over its last reductions that were looked back upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegretView {
    /// Memory taken.
    pub taken_bytes: u64,
    /// Memory read back for lack of that.
    pub read_back_bytes: u64,
    /// The one of the other, in hundredths of a percent.
    pub basis_points: u64,
    /// Reductions undone for that reason.
    pub undone: u64,
}

impl From<&Regret> for RegretView {
    fn from(regret: &Regret) -> Self {
        RegretView {
            taken_bytes: regret.taken.get(),
            read_back_bytes: regret.read_back.get(),
            basis_points: regret.basis_points(),
            undone: regret.undone,
        }
    }
}
