//! What a hypervisor needs beside its guest's memory, as far as that is believed.
//!
//! Idea: a measured need is believed no further than one is assumed, because a guest can make its
//! hypervisor need more: what is taken for the hypervisor's the guest can hide.
//!
//! Limits: the checker of plans has figures of its own.

use crate::Bytes;

/// Least that any hypervisor may need.
const MIN: Bytes = Bytes::mib(64);

/// What it is assumed to need beyond that, as a part of its guest's memory: QEMU's emulator keeps
/// up to an eighth as translated code.
const PART: (u64, u64) = (1, 8);

/// A measured need may grow by this before it is measured again.
const MARGIN: Bytes = Bytes::mib(16);

/// What the hypervisor of a guest with this much memory is assumed to need where that cannot be
/// measured.
pub fn overhead_assumed(memory: Bytes) -> Bytes {
    MIN.saturating_add(memory.fraction(PART.0, PART.1))
}

/// The most that it may need, by what was last `measured`.
pub fn overhead_at_most(measured: Option<Bytes>, memory: Bytes) -> Bytes {
    let assumed = overhead_assumed(memory);
    measured.map_or(assumed, |own| own.saturating_add(MARGIN).min(assumed))
}
