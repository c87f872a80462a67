//! Messages, one a packet.
//!
//! ```text
//! version u16 · kind u16 · number u32 · fields, by kind
//! ```
//!
//! Idea: the daemon sends [`Request`]s with numbers it counts up, and the tracker answers each with one
//! [`Reply`] of the same number; a reply of number 0 is an event. Everything is of fixed size but a
//! region's name, so nothing can be longer than [`MESSAGE_MAX`], and what is too short or too long is
//! an error. Files (the ring's memory, the userfaultfd device) go along as `SCM_RIGHTS`.
//!
//! The version is that of all messages together: the tracker is as old as the guest, so its version may
//! differ from the daemon's. It refuses what is of another one, and `Refused` keeps its form in every
//! version, so that the daemon can say what is to be done.

use std::fmt;

use thiserror::Error;

use crate::bytes::{Reader, Writer};
use crate::{
    Counters, Granule, HashKind, NotAGranule, Refusal, RegionError, RegionName, RegionSpec, Sample,
};

/// The version of messages and ring.
pub const VERSION: u16 = 1;
/// Longest message, in bytes.
pub const MESSAGE_MAX: usize = 256;

/// What a tracker can do beyond the least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(pub u32);

impl Capabilities {
    /// Many ranges are revoked with one system call.
    pub const BATCH: Capabilities = Capabilities(1);

    /// Whether it has all that `other` has.
    pub const fn has(self, other: Capabilities) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What is watched, and in what pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Pages revoked and restored as one.
    pub granule: Granule,
    /// Which of the granules.
    pub sample: Sample,
}

/// What the daemon asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Who are you?
    Hello,
    /// Track for me. With it comes the ring's memory, and then, if there is one, an open
    /// `/dev/userfaultfd`.
    Attach,
    /// Track this too.
    AddRegion(RegionSpec),
    /// No longer track that.
    RemoveRegion(u8),
    /// Watch this. Tracking rests afterwards until the next revocation.
    SetMode(Mode),
    /// Keep so many granules accessible, first in first out, and revoke each that leaves; 0: no hot
    /// set, what was touched stays accessible until the next revocation.
    SetHotSet(u32),
    /// Revoke permission of everything that is watched: the interval of this number begins.
    Revoke(u32),
    /// Restore all permissions, and expect no faults until the next revocation.
    Rest,
    /// I am alive; what have you done?
    Heartbeat,
    /// Restore all permissions and forget me.
    Detach,
}

/// What the tracker answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Here I am.
    Hello {
        /// The hypervisor's process.
        pid: u32,
    },
    /// Tracking for you.
    Attached {
        /// The thread that answers faults, for the daemon to place beside the virtual processors.
        handler_tid: u32,
        /// What this kernel lets the tracker do.
        capabilities: Capabilities,
    },
    /// It is done.
    Done,
    /// It is not done, or, as an event, tracking has ended by itself.
    Refused(Refused),
    /// Permissions are revoked.
    Revoked {
        /// The number of the interval.
        interval: u32,
        /// Granules revoked.
        granules: u64,
        /// Time that took, in nanoseconds.
        took_ns: u64,
    },
    /// What was done so far.
    Counters(Counters),
    /// Event: the hypervisor has unmapped a region.
    RegionGone(u8),
}

/// Why not, and what the system said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub refusal: Refusal,
    /// The system's error number; 0 where it has none.
    pub errno: u32,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errno {
            0 => self.refusal.fmt(f),
            errno => write!(f, "{} (system error {errno})", self.refusal),
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

/// Why a packet is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// It ends within a field.
    #[error("a message that ends within a field")]
    TooShort,
    /// There is more than the fields.
    #[error("a message that is {by} bytes too long")]
    TooLong {
        /// What is too much.
        by: usize,
    },
    /// Of another version.
    #[error("a message of version {0}: expected {VERSION}")]
    Version(u16),
    /// Of a kind that this side does not know.
    #[error("a message of unknown kind {0}")]
    Kind(u16),
    /// A refusal without a known reason.
    #[error("a refusal of unknown reason {0}")]
    Refusal(u16),
    /// A granule that is none.
    #[error(transparent)]
    Granule(#[from] NotAGranule),
    /// A hash of an unknown kind, or with an even factor.
    #[error("a hash of kind {kind} and factor {factor}: expected kind 1 with an odd factor, or 2")]
    Hash {
        /// The kind.
        kind: u8,
        /// The factor or seed.
        factor: u64,
    },
    /// A region that is none.
    #[error(transparent)]
    Region(#[from] RegionError),
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

const IS_HELLO: u16 = 128;
const ATTACHED: u16 = 129;
const DONE: u16 = 130;
const REFUSED: u16 = 131;
const REVOKED: u16 = 132;
const COUNTERS: u16 = 133;
const REGION_GONE: u16 = 134;

const MULTIPLY_ADD: u8 = 1;
const MIX: u8 = 2;

fn header(kind: u16, number: u32) -> Writer {
    let mut out = Writer::new();
    out.u16(VERSION);
    out.u16(kind);
    out.u32(number);
    out
}

/// Kind, number and fields. `Refused` is read in any version.
fn split(packet: &[u8]) -> Result<(u16, u32, Reader<'_>), WireError> {
    let mut input = Reader::new(packet);
    let (version, kind, number) = (input.u16()?, input.u16()?, input.u32()?);
    if version != VERSION && kind != REFUSED {
        return Err(WireError::Version(version));
    }
    Ok((kind, number, input))
}

impl Frame<Request> {
    /// The packet.
    pub fn encode(&self) -> ([u8; MESSAGE_MAX], usize) {
        let of = |kind| header(kind, self.number);
        let out = match self.message {
            Request::Hello => of(HELLO),
            Request::Attach => of(ATTACH),
            Request::AddRegion(region) => {
                let mut out = of(ADD_REGION);
                put_region(&mut out, &region);
                out
            }
            Request::RemoveRegion(id) => {
                let mut out = of(REMOVE_REGION);
                out.u8(id);
                out
            }
            Request::SetMode(mode) => {
                let mut out = of(SET_MODE);
                put_mode(&mut out, mode);
                out
            }
            Request::SetHotSet(granules) => {
                let mut out = of(SET_HOT_SET);
                out.u32(granules);
                out
            }
            Request::Revoke(interval) => {
                let mut out = of(REVOKE);
                out.u32(interval);
                out
            }
            Request::Rest => of(REST),
            Request::Heartbeat => of(HEARTBEAT),
            Request::Detach => of(DETACH),
        };
        out.finish()
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// [`WireError`] for what no daemon of this version sends.
    pub fn decode(packet: &[u8]) -> Result<Self, WireError> {
        let (kind, number, mut input) = split(packet)?;
        let message = match kind {
            HELLO => Request::Hello,
            ATTACH => Request::Attach,
            ADD_REGION => Request::AddRegion(take_region(&mut input)?),
            REMOVE_REGION => Request::RemoveRegion(input.u8()?),
            SET_MODE => Request::SetMode(take_mode(&mut input)?),
            SET_HOT_SET => Request::SetHotSet(input.u32()?),
            REVOKE => Request::Revoke(input.u32()?),
            REST => Request::Rest,
            HEARTBEAT => Request::Heartbeat,
            DETACH => Request::Detach,
            _ => return Err(WireError::Kind(kind)),
        };
        input.finish()?;
        Ok(Frame { number, message })
    }
}

impl Frame<Reply> {
    /// The packet.
    pub fn encode(&self) -> ([u8; MESSAGE_MAX], usize) {
        let of = |kind| header(kind, self.number);
        let out = match self.message {
            Reply::Hello { pid } => {
                let mut out = of(IS_HELLO);
                out.u32(pid);
                out
            }
            Reply::Attached { handler_tid, capabilities } => {
                let mut out = of(ATTACHED);
                out.u32(handler_tid);
                out.u32(capabilities.0);
                out
            }
            Reply::Done => of(DONE),
            Reply::Refused(Refused { refusal, errno }) => {
                let mut out = of(REFUSED);
                out.u16(refusal.code());
                out.u32(errno);
                out
            }
            Reply::Revoked { interval, granules, took_ns } => {
                let mut out = of(REVOKED);
                out.u32(interval);
                out.u64(granules);
                out.u64(took_ns);
                out
            }
            Reply::Counters(counters) => {
                let mut out = of(COUNTERS);
                counters.encode(&mut out);
                out
            }
            Reply::RegionGone(id) => {
                let mut out = of(REGION_GONE);
                out.u8(id);
                out
            }
        };
        out.finish()
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// [`WireError`] for what no tracker of this version sends.
    pub fn decode(packet: &[u8]) -> Result<Self, WireError> {
        let (kind, number, mut input) = split(packet)?;
        let message = match kind {
            IS_HELLO => Reply::Hello { pid: input.u32()? },
            ATTACHED => {
                let handler_tid = input.u32()?;
                Reply::Attached { handler_tid, capabilities: Capabilities(input.u32()?) }
            }
            DONE => Reply::Done,
            REFUSED => {
                let code = input.u16()?;
                let refusal = Refusal::from_code(code).ok_or(WireError::Refusal(code))?;
                Reply::Refused(Refused { refusal, errno: input.u32()? })
            }
            REVOKED => Reply::Revoked {
                interval: input.u32()?,
                granules: input.u64()?,
                took_ns: input.u64()?,
            },
            COUNTERS => Reply::Counters(Counters::decode(&mut input)?),
            REGION_GONE => Reply::RegionGone(input.u8()?),
            _ => return Err(WireError::Kind(kind)),
        };
        input.finish()?;
        Ok(Frame { number, message })
    }
}

fn put_region(out: &mut Writer, region: &RegionSpec) {
    out.u8(region.id);
    out.u32(region.device.0);
    out.u32(region.device.1);
    out.u64(region.inode);
    out.u64(region.offset);
    out.u64(region.len);
    out.u64(region.first_page);
    let name = region.name.as_bytes();
    // At most `RegionName::LEN_MAX`.
    out.u8(name.len() as u8);
    out.put(name);
}

fn take_region(input: &mut Reader<'_>) -> Result<RegionSpec, WireError> {
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

fn put_mode(out: &mut Writer, mode: Mode) {
    // At most `Granule::PAGES_MAX`.
    out.u32(mode.granule.pages() as u32);
    let (kind, factor, offset) = match mode.sample.hash {
        HashKind::MultiplyAdd { factor, offset } => (MULTIPLY_ADD, factor, offset),
        HashKind::Mix { seed } => (MIX, seed, 0),
    };
    out.u8(kind);
    out.u64(factor);
    out.u64(offset);
    out.u64(mode.sample.limit);
}

fn take_mode(input: &mut Reader<'_>) -> Result<Mode, WireError> {
    let granule = Granule::new(input.u32()?)?;
    let (kind, factor, offset) = (input.u8()?, input.u64()?, input.u64()?);
    let hash = match (kind, factor % 2) {
        (MULTIPLY_ADD, 1) => HashKind::MultiplyAdd { factor, offset },
        (MIX, _) => HashKind::Mix { seed: factor },
        _ => return Err(WireError::Hash { kind, factor }),
    };
    Ok(Mode { granule, sample: Sample { hash, limit: input.u64()? } })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

    fn requests() -> Vec<Request> {
        let mode = |hash| Mode {
            granule: Granule::new(512).unwrap(),
            sample: Sample { hash, limit: u64::MAX - 3 },
        };
        vec![
            Request::Hello,
            Request::Attach,
            Request::AddRegion(region("")),
            Request::AddRegion(region(&"n".repeat(63))),
            Request::RemoveRegion(255),
            Request::SetMode(mode(HashKind::MultiplyAdd { factor: u64::MAX, offset: 9 })),
            Request::SetMode(mode(HashKind::Mix { seed: 4 })),
            Request::SetHotSet(1024),
            Request::Revoke(u32::MAX),
            Request::Rest,
            Request::Heartbeat,
            Request::Detach,
        ]
    }

    fn replies() -> Vec<Reply> {
        let refused = |refusal: &Refusal| Refused { refusal: *refusal, errno: 13 };
        let mut all = vec![
            Reply::Hello { pid: 5 },
            Reply::Attached { handler_tid: 6, capabilities: Capabilities::BATCH },
            Reply::Done,
            Reply::Revoked { interval: 1, granules: u64::MAX, took_ns: 3 },
            Reply::Counters(Counters { traps: u64::MAX, is_active: 1, ..Counters::default() }),
            Reply::RegionGone(3),
        ];
        all.extend(Refusal::ALL.iter().map(|it| Reply::Refused(refused(it))));
        all
    }

    #[test]
    fn every_message_comes_back_whole_and_no_part_of_it_does() {
        for message in requests() {
            let frame = Frame { number: 7, message };
            let (bytes, len) = frame.encode();
            assert_eq!(Frame::<Request>::decode(&bytes[..len]), Ok(frame));
            for end in 0..len {
                assert!(Frame::<Request>::decode(&bytes[..end]).is_err(), "{message:?} to {end}");
            }
            let longer = Frame::<Request>::decode(&bytes[..=len]);
            assert_eq!(longer, Err(WireError::TooLong { by: 1 }));
        }
        for message in replies() {
            let frame = Frame { number: 0, message };
            let (bytes, len) = frame.encode();
            assert_eq!(Frame::<Reply>::decode(&bytes[..len]), Ok(frame));
            for end in 0..len {
                assert!(Frame::<Reply>::decode(&bytes[..end]).is_err(), "{message:?} to {end}");
            }
        }
    }

    #[test]
    fn a_refusal_is_read_in_any_version_and_nothing_else() {
        let other = |frame: ([u8; MESSAGE_MAX], usize)| {
            let (mut bytes, len) = frame;
            bytes[..2].copy_from_slice(&9_u16.to_le_bytes());
            bytes[..len].to_vec()
        };
        let refused = Refused { refusal: Refusal::Version, errno: 0 };
        let refused = other(Frame { number: 1, message: Reply::Refused(refused) }.encode());
        assert!(Frame::<Reply>::decode(&refused).is_ok());
        for request in requests() {
            let packet = other(Frame { number: 1, message: request }.encode());
            assert_eq!(Frame::<Request>::decode(&packet), Err(WireError::Version(9)));
        }
    }

    #[test]
    fn fields_out_of_range_are_refused() {
        let (bytes, len) = Frame { number: 1, message: Request::SetMode(requests_mode()) }.encode();
        let with = |at: usize, byte: u8| {
            let mut bytes = bytes;
            bytes[at] = byte;
            Frame::<Request>::decode(&bytes[..len])
        };
        assert_eq!(with(8, 3), Err(WireError::Granule(NotAGranule { pages: 3 })));
        assert_eq!(with(12, 9), Err(WireError::Hash { kind: 9, factor: 1 }));
        assert_eq!(with(13, 2), Err(WireError::Hash { kind: 1, factor: 2 }));
        assert_eq!(with(2, 77), Err(WireError::Kind(77)));
        let (mut bytes, len) =
            Frame { number: 1, message: Request::AddRegion(region("ab")) }.encode();
        bytes[8] = 64;
        let error = Frame::<Request>::decode(&bytes[..len]);
        assert_eq!(error, Err(WireError::Region(RegionError::Id(64))));
    }

    fn requests_mode() -> Mode {
        Mode { granule: Granule::PAGE, sample: Sample::ALL }
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
        fn whatever_is_understood_is_what_was_sent(
            mut packet in prop::collection::vec(any::<u8>(), 0..300), kind in 0..12_u16, reply: bool,
        ) {
            // Else nearly nothing gets beyond the header.
            if packet.len() >= 4 {
                packet[..2].copy_from_slice(&VERSION.to_le_bytes());
                let kind = if reply { kind + 128 } else { kind };
                packet[2..4].copy_from_slice(&kind.to_le_bytes());
            }
            if let Ok(frame) = Frame::<Request>::decode(&packet) {
                let (bytes, len) = frame.encode();
                prop_assert_eq!(Frame::<Request>::decode(&bytes[..len]), Ok(frame));
            }
            if let Ok(frame) = Frame::<Reply>::decode(&packet) {
                let (bytes, len) = frame.encode();
                prop_assert_eq!(&bytes[2..len], &packet[2..]);
            }
        }
    }
}
