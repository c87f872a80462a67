//! The configuration of a peer, and its misbehaviour.

use std::time::Duration;

use ballast_model::{Bytes, DiskReads, HotplugKind};
use ballast_qmp::guest::MODULE;

/// The configuration of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// The guest's boot memory.
    pub boot_memory: Bytes,
    /// Whether it has a balloon device.
    pub has_balloon: bool,
    /// How fast the guest follows its target, in either direction.
    pub rate_per_sec: Bytes,
    /// Memory in use in the guest: not available by its statistics.
    pub used: Bytes,
    /// What was read from its disk; `None`: its QEMU lacks the command that says so.
    pub disk_reads: Option<DiskReads>,
    /// The number (CID) of its vsock device, if it has one.
    pub vsock_cid: Option<u32>,
    /// Memory that can be plugged into the guest.
    pub hotplug: Option<PeerHotplug>,
    /// Whether it waits for a guest to arrive, as with `-S -incoming defer`.
    pub is_incoming: bool,
    /// Its misbehaviour.
    pub misbehaviour: Misbehaviour,
}

impl Default for PeerConfig {
    fn default() -> Self {
        PeerConfig {
            boot_memory: Bytes::gib(1),
            has_balloon: true,
            rate_per_sec: Bytes::mib(256),
            used: Bytes::mib(200),
            disk_reads: Some(DiskReads::default()),
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
    /// The mechanism.
    pub kind: HotplugKind,
    /// The greatest amount.
    pub max: Bytes,
    /// The size of a block, or of a module.
    pub block: Bytes,
    /// How fast the guest follows requests of its virtio-mem device, bytes a second.
    pub rate_per_sec: Bytes,
    /// Memory that it never gives back once it has it.
    pub keeps: Bytes,
    /// Whether its kernel onlines plugged memory, so that its `MemTotal` grows.
    pub onlines: bool,
}

impl PeerHotplug {
    /// A guest that quickly does everything it is asked to.
    pub fn new(kind: HotplugKind, max: Bytes) -> Self {
        let block = match kind {
            HotplugKind::VirtioMem => Bytes::mib(2),
            HotplugKind::Dimm => MODULE,
        };
        let rate_per_sec = Bytes::gib(8);
        PeerHotplug { kind, max, block, rate_per_sec, keeps: Bytes::ZERO, onlines: true }
    }
}

/// The misbehaviour of a peer. All but the first two begin after negotiation.
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
    /// Answers with text that is not JSON.
    Garbage,
    /// Answers with bytes that are not UTF-8.
    NotUtf8,
    /// Answers with an endlessly nested message.
    Deep,
    /// Answers with a message that never ends.
    Oversize,
    /// Answers with ids that were never sent.
    WrongIds,
    /// Answers with half a message and closes the connection.
    ClosesMidMessage,
    /// The guest no longer sends statistics.
    FrozenStatistics,
}
