//! The mechanisms that move memory, and why one was chosen.

use ballast_model::{Hotplug, Move, Paging, Regret, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Coded;
use crate::tick::millis;

/// One mechanism's part in moving a guest's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MoveView {
    /// `balloon`, `virtio-mem`, `dimm`, `page-out` or `page-in`.
    pub mechanism: String,
    /// The sentence for people.
    pub text: String,
    /// The mechanism's amount before: memory the balloon leaves the guest, plugged memory, or
    /// resident memory.
    pub from_bytes: u64,
    /// The same amount after.
    pub to_bytes: u64,
    /// Why this mechanism.
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

/// An order to page a guest out or in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PagingView {
    /// The guest.
    pub guest: String,
    /// `page-out` or `page-in`.
    pub mechanism: String,
    /// The resident memory its process should have.
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

/// Memory that can be hotplugged into a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HotplugView {
    /// `virtio-mem` or `dimm`.
    pub kind: String,
    /// Memory plugged in now.
    pub plugged_bytes: u64,
    /// Amount last requested.
    pub requested_bytes: u64,
    /// Most memory that can be plugged in.
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

/// What a guest's last evaluated reductions cost it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RegretView {
    /// Memory taken.
    pub taken_bytes: u64,
    /// Memory it read back from swap and files for lack of it.
    pub read_back_bytes: u64,
    /// Read back by taken, in hundredths of a percent.
    pub basis_points: u64,
    /// Reductions undone because of that.
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
