//! What the page tracker inside a hypervisor and the daemon say to each other.
//!
//! Idea: two channels. *Messages* ([`Request`], [`Reply`]) go over a Unix socket that keeps their
//! borders (`SOCK_SEQPACKET`), one a packet, each with a version, a kind, a number and fields of fixed
//! size. *Traps* go through a ring of 64-bit entries in memory that both have mapped ([`Producer`],
//! [`Consumer`]), because there may be a million a second.
//!
//! Neither side trusts the other: the tracker is inside a process that a guest may have taken over,
//! and whoever connects to the tracker is only known to have the right to. So every field is checked
//! when it is decoded, nothing that the other side writes is ever an index, and nothing is longer than
//! a named bound.
//!
//! Limits: no input or output, no `unsafe`; the memory of the ring is lent as `&[AtomicU64]`.

#![forbid(unsafe_code)]

mod address;
mod bytes;
mod counters;
mod granule;
mod mapping;
mod message;
mod refusal;
mod region;
mod ring;
mod sample;

pub use address::{Address, SOCKET_VARIABLE};
pub use counters::Counters;
pub use granule::{Granule, NotAGranule, PAGE_SIZE};
pub use mapping::Mapping;
pub use message::{
    Capabilities, Frame, MESSAGE_MAX, Mode, Refused, Reply, Request, VERSION, WireError,
};
pub use refusal::Refusal;
pub use region::{PAGES_MAX, REGIONS_MAX, RegionError, RegionName, RegionSpec};
pub use ring::{
    CAPACITY_DEFAULT, CAPACITY_MAX, CAPACITY_MIN, Consumer, Entry, Producer, RingError, begin,
    ring_bytes, ring_words,
};
pub use sample::{HashKind, Sample};
