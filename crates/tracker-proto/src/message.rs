//! Messages, one per packet.
//!
//! ```text
//! version u16 · kind u16 · number u32 · fields, by kind
//! ```
//!
//! The daemon sends [`TrackerRequest`]s and counts up their numbers; the tracker answers each with
//! one [`TrackerReply`] of the same number. A reply with number 0 is an event. Everything but a
//! region's name has a fixed size, so no message is longer than [`MESSAGE_MAX`]; packets that are
//! too short or too long are errors. Files (the ring's memory, the userfaultfd device) are sent as
//! `SCM_RIGHTS`.
//!
//! All messages share one version. A tracker is as old as its guest, so its version may differ from
//! the daemon's. Either side refuses other versions. `Refused` has the same form in every version,
//! so that the daemon can always say what to do.

use std::fmt;

use crate::counters::TrackerCounters;
use crate::fields::{FieldReader, FieldWriter, MESSAGE_MAX};
use crate::granule::Granule;
use crate::refusal::RefusalReason;
use crate::region::{RegionError, RegionName, RegionSpec};
use crate::sample::{GranuleSample, HashKind};
use crate::wire_error::{VERSION, WireError};

/// Optional features of a tracker, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrackerCapabilities(pub u32);

impl TrackerCapabilities {
    /// One system call can revoke many ranges.
    pub const BATCH: TrackerCapabilities = TrackerCapabilities(1);

    /// Whether all bits of `other` are set.
    pub const fn has(self, other: TrackerCapabilities) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Which granules are watched, and their size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchMode {
    /// Pages that are revoked and restored together.
    pub granule: Granule,
    /// The watched granules.
    pub sample: GranuleSample,
}

/// A request from the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackerRequest {
    /// Asks for the hypervisor's process.
    Hello,
    /// Starts tracking. The ring's memory comes with it, and optionally an open `/dev/userfaultfd`.
    Attach,
    /// Adds a region.
    AddRegion(RegionSpec),
    /// Removes a region by its number.
    RemoveRegion(u8),
    /// Sets the watched granules. Tracking pauses until the next revocation.
    SetMode(WatchMode),
    /// Keeps this number of granules accessible, first in first out, and revokes each that leaves.
    /// With 0, touched granules stay accessible until the next revocation.
    SetHotSet(u32),
    /// Revokes the permissions of all watched granules and begins the interval of this number.
    Revoke(u32),
    /// Restores all permissions, until the next revocation.
    Rest,
    /// Keeps the connection alive and asks for the counters.
    Heartbeat,
    /// Restores all permissions and ends tracking.
    Detach,
}

/// A reply or event from the tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackerReply {
    /// Answers `Hello`.
    Hello {
        /// The hypervisor's process.
        pid: u32,
    },
    /// Answers `Attach`.
    Attached {
        /// The thread that answers faults, for the daemon to place beside the virtual processors.
        handler_tid: u32,
        /// Features that this kernel allows.
        capabilities: TrackerCapabilities,
    },
    /// The request was carried out.
    Done,
    /// The request was refused; as an event: tracking has ended.
    Refused(TrackerRefusal),
    /// Permissions are revoked.
    Revoked {
        /// The number of the interval.
        interval: u32,
        /// Granules revoked.
        granules: u64,
        /// Duration of the revocation, in nanoseconds.
        took_ns: u64,
    },
    /// Answers `Heartbeat`.
    Counters(TrackerCounters),
    /// Event: the hypervisor has unmapped a region.
    RegionGone(u8),
}

/// A refusal, with the system's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackerRefusal {
    /// The reason.
    pub reason: RefusalReason,
    /// The system's error number; 0 if there is none.
    pub errno: u32,
}

impl From<RefusalReason> for TrackerRefusal {
    fn from(reason: RefusalReason) -> TrackerRefusal {
        TrackerRefusal { reason, errno: 0 }
    }
}

impl fmt::Display for TrackerRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errno {
            0 => self.reason.fmt(f),
            errno => write!(f, "{} (system error {errno})", self.reason),
        }
    }
}

/// A message and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<M> {
    /// Counted up by the daemon from 1; 0 for an event.
    pub number: u32,
    /// The message.
    pub message: M,
}

const HELLO: u16 = 1;
const ATTACH: u16 = 2;
const ADD_REGION: u16 = 3;
const REMOVE_REGION: u16 = 4;
const SET_MODE: u16 = 5;
const SET_HOT_SET: u16 = 6;
const REVOKE: u16 = 7;
const REST: u16 = 8;
const HEARTBEAT: u16 = 9;
const DETACH: u16 = 10;

const HELLO_REPLY: u16 = 128;
const ATTACHED: u16 = 129;
const DONE: u16 = 130;
const REFUSED: u16 = 131;
const REVOKED: u16 = 132;
const COUNTERS: u16 = 133;
const REGION_GONE: u16 = 134;

const MULTIPLY_ADD: u8 = 1;
const MIX: u8 = 2;

fn header(kind: u16, number: u32) -> FieldWriter {
    FieldWriter::new().u16(VERSION).u16(kind).u32(number)
}

/// Splits a packet into kind, number and fields. `Refused` is accepted in any version.
fn split(packet: &[u8]) -> Result<(u16, u32, FieldReader<'_>), WireError> {
    let mut input = FieldReader::new(packet);
    let (version, kind, number) = (input.u16()?, input.u16()?, input.u32()?);
    if version != VERSION && kind != REFUSED {
        return Err(WireError::Version(version));
    }
    Ok((kind, number, input))
}

impl Frame<TrackerRequest> {
    /// Encodes the packet.
    pub fn encode(&self) -> ([u8; MESSAGE_MAX], usize) {
        let start = |kind| header(kind, self.number);
        let out = match self.message {
            TrackerRequest::Hello => start(HELLO),
            TrackerRequest::Attach => start(ATTACH),
            TrackerRequest::AddRegion(region) => put_region(start(ADD_REGION), &region),
            TrackerRequest::RemoveRegion(id) => start(REMOVE_REGION).u8(id),
            TrackerRequest::SetMode(mode) => put_mode(start(SET_MODE), mode),
            TrackerRequest::SetHotSet(granules) => start(SET_HOT_SET).u32(granules),
            TrackerRequest::Revoke(interval) => start(REVOKE).u32(interval),
            TrackerRequest::Rest => start(REST),
            TrackerRequest::Heartbeat => start(HEARTBEAT),
            TrackerRequest::Detach => start(DETACH),
        };
        out.finish()
    }

    /// Decodes a packet.
    ///
    /// # Errors
    /// [`WireError`] unless a daemon of this version could have sent it.
    pub fn decode(packet: &[u8]) -> Result<Self, WireError> {
        let (kind, number, mut input) = split(packet)?;
        let message = match kind {
            HELLO => TrackerRequest::Hello,
            ATTACH => TrackerRequest::Attach,
            ADD_REGION => TrackerRequest::AddRegion(take_region(&mut input)?),
            REMOVE_REGION => TrackerRequest::RemoveRegion(input.u8()?),
            SET_MODE => TrackerRequest::SetMode(take_mode(&mut input)?),
            SET_HOT_SET => TrackerRequest::SetHotSet(input.u32()?),
            REVOKE => TrackerRequest::Revoke(input.u32()?),
            REST => TrackerRequest::Rest,
            HEARTBEAT => TrackerRequest::Heartbeat,
            DETACH => TrackerRequest::Detach,
            _ => return Err(WireError::Kind(kind)),
        };
        input.finish()?;
        Ok(Frame { number, message })
    }
}

impl Frame<TrackerReply> {
    /// Encodes the packet.
    pub fn encode(&self) -> ([u8; MESSAGE_MAX], usize) {
        let start = |kind| header(kind, self.number);
        let out = match self.message {
            TrackerReply::Hello { pid } => start(HELLO_REPLY).u32(pid),
            TrackerReply::Attached { handler_tid, capabilities } => {
                start(ATTACHED).u32(handler_tid).u32(capabilities.0)
            }
            TrackerReply::Done => start(DONE),
            TrackerReply::Refused(TrackerRefusal { reason, errno }) => {
                start(REFUSED).u16(reason.code()).u32(errno)
            }
            TrackerReply::Revoked { interval, granules, took_ns } => {
                start(REVOKED).u32(interval).u64(granules).u64(took_ns)
            }
            TrackerReply::Counters(counters) => counters.encode(start(COUNTERS)),
            TrackerReply::RegionGone(id) => start(REGION_GONE).u8(id),
        };
        out.finish()
    }

    /// Decodes a packet.
    ///
    /// # Errors
    /// [`WireError`] unless a tracker of this version could have sent it.
    pub fn decode(packet: &[u8]) -> Result<Self, WireError> {
        let (kind, number, mut input) = split(packet)?;
        let message = match kind {
            HELLO_REPLY => TrackerReply::Hello { pid: input.u32()? },
            ATTACHED => {
                let handler_tid = input.u32()?;
                TrackerReply::Attached {
                    handler_tid,
                    capabilities: TrackerCapabilities(input.u32()?),
                }
            }
            DONE => TrackerReply::Done,
            REFUSED => {
                let code = input.u16()?;
                let reason = RefusalReason::from_code(code).ok_or(WireError::Refusal(code))?;
                TrackerReply::Refused(TrackerRefusal { reason, errno: input.u32()? })
            }
            REVOKED => TrackerReply::Revoked {
                interval: input.u32()?,
                granules: input.u64()?,
                took_ns: input.u64()?,
            },
            COUNTERS => TrackerReply::Counters(TrackerCounters::decode(&mut input)?),
            REGION_GONE => TrackerReply::RegionGone(input.u8()?),
            _ => return Err(WireError::Kind(kind)),
        };
        input.finish()?;
        Ok(Frame { number, message })
    }
}

fn put_region(out: FieldWriter, region: &RegionSpec) -> FieldWriter {
    let name = region.name.as_bytes();
    let out = out.u8(region.id).u32(region.device.0).u32(region.device.1).u64(region.inode);
    let out = out.u64(region.offset).u64(region.len).u64(region.first_page);
    // At most `RegionName::LEN_MAX`.
    out.u8(name.len() as u8).put(name)
}

fn take_region(input: &mut FieldReader<'_>) -> Result<RegionSpec, WireError> {
    let mut region = RegionSpec {
        id: input.u8()?,
        device: (input.u32()?, input.u32()?),
        inode: input.u64()?,
        offset: input.u64()?,
        len: input.u64()?,
        first_page: input.u64()?,
        name: RegionName::new(""),
    };
    let len = usize::from(input.u8()?);
    region.name = RegionName::from_bytes(input.take(len)?).ok_or(RegionError::Name)?;
    region.validate()?;
    Ok(region)
}

fn put_mode(out: FieldWriter, mode: WatchMode) -> FieldWriter {
    let (kind, factor, offset) = match mode.sample.hash {
        HashKind::MultiplyAdd { factor, offset } => (MULTIPLY_ADD, factor, offset),
        HashKind::Mix { seed } => (MIX, seed, 0),
    };
    // At most `Granule::PAGES_MAX`.
    let out = out.u32(mode.granule.pages() as u32);
    out.u8(kind).u64(factor).u64(offset).u64(mode.sample.limit)
}

fn take_mode(input: &mut FieldReader<'_>) -> Result<WatchMode, WireError> {
    let granule = Granule::new(input.u32()?)?;
    let (kind, factor, offset) = (input.u8()?, input.u64()?, input.u64()?);
    let hash = match (kind, factor % 2) {
        (MULTIPLY_ADD, 1) => HashKind::MultiplyAdd { factor, offset },
        (MIX, _) => HashKind::Mix { seed: factor },
        _ => return Err(WireError::Hash { kind, factor }),
    };
    Ok(WatchMode { granule, sample: GranuleSample { hash, limit: input.u64()? } })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::granule::NotAGranule;

    fn region(name: &str) -> RegionSpec {
        RegionSpec {
            id: 63,
            device: (0, 1),
            inode: 77,
            offset: 0,
            len: 4096,
            first_page: 1 << 20,
            name: RegionName::new(name),
        }
    }

    fn requests() -> Vec<TrackerRequest> {
        let mode = |hash| WatchMode {
            granule: Granule::new(512).unwrap(),
            sample: GranuleSample { hash, limit: u64::MAX - 3 },
        };
        vec![
            TrackerRequest::Hello,
            TrackerRequest::Attach,
            TrackerRequest::AddRegion(region("")),
            TrackerRequest::AddRegion(region(&"n".repeat(63))),
            TrackerRequest::RemoveRegion(255),
            TrackerRequest::SetMode(mode(HashKind::MultiplyAdd { factor: u64::MAX, offset: 9 })),
            TrackerRequest::SetMode(mode(HashKind::Mix { seed: 4 })),
            TrackerRequest::SetHotSet(1024),
            TrackerRequest::Revoke(u32::MAX),
            TrackerRequest::Rest,
            TrackerRequest::Heartbeat,
            TrackerRequest::Detach,
        ]
    }

    fn replies() -> Vec<TrackerReply> {
        let refused = |refusal: &RefusalReason| TrackerRefusal { reason: *refusal, errno: 13 };
        let mut all = vec![
            TrackerReply::Hello { pid: 5 },
            TrackerReply::Attached { handler_tid: 6, capabilities: TrackerCapabilities::BATCH },
            TrackerReply::Done,
            TrackerReply::Revoked { interval: 1, granules: u64::MAX, took_ns: 3 },
            TrackerReply::Counters(TrackerCounters {
                traps: u64::MAX,
                is_active: 1,
                ..TrackerCounters::default()
            }),
            TrackerReply::RegionGone(3),
        ];
        all.extend(RefusalReason::ALL.iter().map(|it| TrackerReply::Refused(refused(it))));
        all
    }

    #[test]
    fn messages_round_trip_and_their_prefixes_are_refused() {
        for message in requests() {
            let frame = Frame { number: 7, message };
            let (bytes, len) = frame.encode();
            assert_eq!(Frame::<TrackerRequest>::decode(&bytes[..len]), Ok(frame));
            for end in 0..len {
                assert!(
                    Frame::<TrackerRequest>::decode(&bytes[..end]).is_err(),
                    "{message:?} to {end}"
                );
            }
            let longer = Frame::<TrackerRequest>::decode(&bytes[..=len]);
            assert_eq!(longer, Err(WireError::TooLong { by: 1 }));
        }
        for message in replies() {
            let frame = Frame { number: 0, message };
            let (bytes, len) = frame.encode();
            assert_eq!(Frame::<TrackerReply>::decode(&bytes[..len]), Ok(frame));
            for end in 0..len {
                assert!(
                    Frame::<TrackerReply>::decode(&bytes[..end]).is_err(),
                    "{message:?} to {end}"
                );
            }
        }
    }

    #[test]
    fn only_refusals_are_accepted_in_any_version() {
        let other = |frame: ([u8; MESSAGE_MAX], usize)| {
            let (mut bytes, len) = frame;
            bytes[..2].copy_from_slice(&9_u16.to_le_bytes());
            bytes[..len].to_vec()
        };
        let refused = TrackerRefusal { reason: RefusalReason::Version, errno: 0 };
        let refused = other(Frame { number: 1, message: TrackerReply::Refused(refused) }.encode());
        assert!(Frame::<TrackerReply>::decode(&refused).is_ok());
        for request in requests() {
            let packet = other(Frame { number: 1, message: request }.encode());
            assert_eq!(Frame::<TrackerRequest>::decode(&packet), Err(WireError::Version(9)));
        }
    }

    #[test]
    fn fields_out_of_range_are_refused() {
        let (bytes, len) =
            Frame { number: 1, message: TrackerRequest::SetMode(requests_mode()) }.encode();
        let with = |at: usize, byte: u8| {
            let mut bytes = bytes;
            bytes[at] = byte;
            Frame::<TrackerRequest>::decode(&bytes[..len])
        };
        assert_eq!(with(8, 3), Err(WireError::Granule(NotAGranule { pages: 3 })));
        assert_eq!(with(12, 9), Err(WireError::Hash { kind: 9, factor: 1 }));
        assert_eq!(with(13, 2), Err(WireError::Hash { kind: 1, factor: 2 }));
        assert_eq!(with(2, 77), Err(WireError::Kind(77)));
        let (mut bytes, len) =
            Frame { number: 1, message: TrackerRequest::AddRegion(region("ab")) }.encode();
        bytes[8] = 64;
        let error = Frame::<TrackerRequest>::decode(&bytes[..len]);
        assert_eq!(error, Err(WireError::Region(RegionError::Id(64))));
    }

    fn requests_mode() -> WatchMode {
        WatchMode { granule: Granule::PAGE, sample: GranuleSample::ALL }
    }

    #[test]
    fn the_longest_message_fits() {
        let longest = |lens: Vec<usize>| lens.into_iter().max().unwrap();
        let requests =
            requests().into_iter().map(|message| Frame { number: 1, message }.encode().1);
        let replies = replies().into_iter().map(|message| Frame { number: 1, message }.encode().1);
        assert_eq!(longest(requests.collect()), 8 + 1 + 8 + 32 + 1 + 63);
        assert_eq!(longest(replies.collect()), 8 + 13 * 8);
    }

    proptest! {
        #[test]
        fn decoded_packets_encode_to_the_same_bytes(
            mut packet in prop::collection::vec(any::<u8>(), 0..300), kind in 0..12_u16, reply: bool,
        ) {
            // Otherwise hardly any packet gets past the header.
            if packet.len() >= 4 {
                packet[..2].copy_from_slice(&VERSION.to_le_bytes());
                let kind = if reply { kind + 128 } else { kind };
                packet[2..4].copy_from_slice(&kind.to_le_bytes());
            }
            if let Ok(frame) = Frame::<TrackerRequest>::decode(&packet) {
                let (bytes, len) = frame.encode();
                prop_assert_eq!(Frame::<TrackerRequest>::decode(&bytes[..len]), Ok(frame));
            }
            if let Ok(frame) = Frame::<TrackerReply>::decode(&packet) {
                let (bytes, len) = frame.encode();
                prop_assert_eq!(&bytes[2..len], &packet[2..]);
            }
        }
    }
}
