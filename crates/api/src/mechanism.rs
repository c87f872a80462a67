//! The mechanisms that move memory, and why one was chosen.

use ballast_model::{Hotplug, Move, Paging, Regret, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Coded;
use crate::tick::millis;

/// What one mechanism does to move a guest's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MoveView {
    /// `balloon`, `virtio-mem`, `dimm`, `page-out` or `page-in`.
    pub mechanism: String,
    /// A sentence for people; its wording may change.
    pub text: String,
    /// The amount that the mechanism changes, before the change: memory that the balloon leaves the
    /// guest, plugged memory, or resident memory.
    pub from_bytes: u64,
    /// The same amount after the change.
    pub to_bytes: u64,
    /// Why this mechanism was chosen.
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

/// An order to page a guest's process out or in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PagingView {
    /// The guest's name.
    pub guest: String,
    /// `page-out` or `page-in`.
    pub mechanism: String,
    /// Resident memory of its process at which the paging is done.
    pub resident_bytes: u64,
    /// Time after the decision until which the paging may continue.
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

/// Memory that can be plugged into a guest while it runs, all its devices together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HotplugView {
    /// The kind of device: `virtio-mem` or `dimm`.
    pub kind: String,
    /// Memory that is plugged in now.
    pub plugged_bytes: u64,
    /// Memory that was last requested to be plugged in, in all.
    pub requested_bytes: u64,
    /// The most memory that can be plugged in.
    pub max_bytes: u64,
    /// The block size: amounts are whole multiples of it.
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

/// What the last reductions of a guest's memory cost it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RegretView {
    /// Memory that was taken from it.
    pub taken_bytes: u64,
    /// Memory that it then read back from swap and files because it lacked what was taken.
    pub read_back_bytes: u64,
    /// `read_back_bytes` as a share of `taken_bytes`, in hundredths of a percent; above 10,000 it
    /// read back more than was taken.
    pub basis_points: u64,
    /// Number of reductions that were undone for that reason, earlier ones included.
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
