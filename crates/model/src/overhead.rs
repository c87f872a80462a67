//! What a hypervisor needs besides its guest's memory, as far as that is believed.
//!
//! Idea: a measured need is believed only up to the assumed one, because a guest can make its
//! hypervisor need more, and can hide as much memory as is attributed to the hypervisor.
//!
//! Limits: the checker of plans has figures of its own.

use crate::Bytes;

/// The least that is assumed for any hypervisor.
const MIN: Bytes = Bytes::mib(64);

/// The part of its guest's memory that is assumed beyond that: QEMU's emulator keeps translated
/// code of up to an eighth.
const PART: (u64, u64) = (1, 8);

/// A measured need may grow by this much before it is measured again.
const MARGIN: Bytes = Bytes::mib(16);

/// The assumed need of a hypervisor whose guest has `memory`, where it cannot be measured.
pub fn overhead_assumed(memory: Bytes) -> Bytes {
    MIN.saturating_add(memory.fraction(PART.0, PART.1))
}

/// The most that it may need, given the last `measured` need.
pub fn overhead_at_most(measured: Option<Bytes>, memory: Bytes) -> Bytes {
    let assumed = overhead_assumed(memory);
    measured.map_or(assumed, |own| own.saturating_add(MARGIN).min(assumed))
}
