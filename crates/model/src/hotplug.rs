//! Memory that can be plugged into a guest.
//!
//! Limits: all devices of a guest together.

use crate::Bytes;
#[cfg(feature = "serde")]
use crate::unit;

/// How memory is plugged into a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "kebab-case")
)]
pub enum HotplugKind {
    /// By a virtio-mem device, which plugs in and out block by block.
    VirtioMem,
    /// By memory modules (`pc-dimm`), which are plugged in and out whole.
    Dimm,
}

impl HotplugKind {
    /// Stable word for machines.
    pub const fn code(self) -> &'static str {
        match self {
            HotplugKind::VirtioMem => "virtio-mem",
            HotplugKind::Dimm => "dimm",
        }
    }
}

/// Memory that can be plugged into a guest while it runs, all its devices together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Hotplug {
    /// The kind of device.
    pub kind: HotplugKind,
    /// Memory plugged in now.
    #[cfg_attr(feature = "serde", serde(rename = "plugged_bytes", with = "unit"))]
    pub plugged: Bytes,
    /// Memory last requested. It differs from `plugged` while the guest works on it, or does not.
    #[cfg_attr(feature = "serde", serde(rename = "requested_bytes", with = "unit"))]
    pub requested: Bytes,
    /// The most that can be plugged in.
    #[cfg_attr(feature = "serde", serde(rename = "max_bytes", with = "unit"))]
    pub max: Bytes,
    /// The block size; amounts are whole multiples of it.
    #[cfg_attr(feature = "serde", serde(rename = "block_bytes", with = "unit"))]
    pub block: Bytes,
}
