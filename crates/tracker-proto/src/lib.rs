//! The protocol between the page tracker inside a hypervisor and the daemon.
//!
//! Two channels:
//! - Messages ([`TrackerRequest`], [`TrackerReply`]) over a `SOCK_SEQPACKET` Unix socket, one per
//!   packet, each with a version, a kind, a number and fields of fixed size.
//! - Traps, up to a million a second, through a ring of 64-bit entries in shared memory
//!   ([`RingProducer`], [`RingConsumer`]).
//!
//! Neither side trusts the other: the tracker runs in a process that a guest may have taken over.
//! Every field is checked when it is decoded, no received number is used as an index, and every
//! length has a named bound.
//!
//! Begin here: `message.rs`, then `ring.rs`.
//! Limits: no I/O and no `unsafe`; callers pass the ring's memory as `&[AtomicU64]`.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod address;
mod counters;
mod fields;
mod granule;
mod mapping;
mod message;
mod refusal;
mod region;
mod ring;
mod sample;
mod wire_error;

pub use address::{AbstractAddress, SOCKET_VARIABLE, TrackerAddress, USER_VARIABLE};
pub use counters::TrackerCounters;
pub use fields::MESSAGE_MAX;
pub use granule::{Granule, NotAGranule, PAGE_SIZE};
pub use mapping::Mapping;
pub use message::{
    Frame, TrackerCapabilities, TrackerRefusal, TrackerReply, TrackerRequest, WatchMode,
};
pub use refusal::RefusalReason;
pub use region::{PAGES_MAX, REGIONS_MAX, RegionError, RegionName, RegionSpec};
pub use ring::{
    CAPACITY_DEFAULT, CAPACITY_MAX, CAPACITY_MIN, RingConsumer, RingEntry, RingError, RingProducer,
    initialize_ring, ring_bytes, ring_words,
};
pub use sample::{GranuleSample, HashKind};
pub use wire_error::{VERSION, WireError};
