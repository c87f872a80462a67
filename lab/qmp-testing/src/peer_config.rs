//! How a peer is set up, and what it does wrong.

use std::time::Duration;

use ballast_model::{Bytes, HotplugKind};
use ballast_qmp::guest::MODULE;

/// How a peer is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// Memory the guest is booted with.
    pub boot_memory: Bytes,
    /// Whether it has a balloon device.
    pub has_balloon: bool,
    /// How fast the guest follows its target, in either direction.
    pub rate_per_sec: Bytes,
    /// Memory in use in the guest: what its statistics say is not available.
    pub used: Bytes,
    /// The number of its vsock device, which it may have.
    pub vsock_cid: Option<u32>,
    /// Memory that can be plugged into it.
    pub hotplug: Option<PeerHotplug>,
    /// Whether it waits for a guest to come in, as with `-S -incoming defer`.
    pub is_incoming: bool,
    /// What it does wrong.
    pub misbehaviour: Misbehaviour,
}

impl Default for PeerConfig {
    fn default() -> Self {
        PeerConfig {
            boot_memory: Bytes::gib(1),
            has_balloon: true,
            rate_per_sec: Bytes::mib(256),
            used: Bytes::mib(200),
            vsock_cid: None,
            hotplug: None,
            is_incoming: false,
            misbehaviour: Misbehaviour::None,
        }
    }
}

/// Memory that can be plugged into a peer's guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerHotplug {
    /// By what.
    pub kind: HotplugKind,
    /// The most of it.
    pub max: Bytes,
    /// In blocks, or modules, of this.
    pub block: Bytes,
    /// How fast the guest follows what is asked of its virtio-mem device.
    pub rate_per_sec: Bytes,
    /// What it does not let go of once it has it.
    pub keeps: Bytes,
    /// Whether its kernel uses what is plugged in: its `MemTotal` grows.
    pub onlines: bool,
}

impl PeerHotplug {
    /// A guest that does quickly all that it is asked to.
    pub fn new(kind: HotplugKind, max: Bytes) -> Self {
        let block = match kind {
            HotplugKind::VirtioMem => Bytes::mib(2),
            HotplugKind::Dimm => MODULE,
        };
        let rate_per_sec = Bytes::gib(8);
        PeerHotplug { kind, max, block, rate_per_sec, keeps: Bytes::ZERO, onlines: true }
    }
}

/// What a peer does wrong. All but the first two begin after negotiation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Misbehaviour {
    /// Nothing.
    #[default]
    None,
    /// Sends no greeting, like QEMU while it serves another client.
    NoGreeting,
    /// Answers nothing.
    Silent,
    /// Answers every command after this long.
    Slow(Duration),
    /// Answers what is no JSON.
    Garbage,
    /// Answers bytes that are no text.
    NotUtf8,
    /// Answers a message nested without end.
    Deep,
    /// Answers a message that never ends.
    Oversize,
    /// Answers with ids that were never sent.
    WrongIds,
    /// Answers half a message and closes.
    ClosesMidMessage,
    /// The guest has stopped sending statistics.
    FrozenStatistics,
}
