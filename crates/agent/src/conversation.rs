//! The agent's side of the conversation, without I/O.
//!
//! Idea: bytes of the host in, orders out; messages in, bytes out. Nothing but hello is said before the
//! host's hello, and nothing after [`SILENCE_MAX`] without a word of it.
//! Limits: [`FRAMES_MAX`] frames wait to be written, the oldest that is not begun gives way.

use std::collections::VecDeque;
use std::time::Duration;

use ballast_agent_wire::message::{NAMES_MAX, common_version, decode, encode, short};
use ballast_agent_wire::statistics::NUMBER_MAX;
use ballast_agent_wire::{
    FrameReader, GuestFrame, GuestMessage, HostFrame, HostMessage, VERSION, VERSION_OLDEST,
};
use ballast_model::Timestamp;

/// Most frames that wait to be written.
pub const FRAMES_MAX: usize = 32;
/// Time without a word of the host after which it is taken for gone.
pub const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Time without saying anything after which a heartbeat is due.
pub const HEARTBEAT_PERIOD: Duration = Duration::from_secs(5);
/// Bounds of the periods a host may wish for: as often as balloons move, and as rarely as an hour.
const PERIOD_MS: std::ops::RangeInclusive<u64> = 100..=3_600_000;

/// Who this agent is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// New for each start.
    pub instance: u64,
    /// The guest's kernel.
    pub system: String,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// What it can do.
    pub capabilities: Vec<String>,
    /// Its shrinkers.
    pub shrinkers: Vec<String>,
}

/// What the host wished for in its hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// Time between two statistics.
    pub statistics_period: Duration,
    /// Least time between two emergencies.
    pub emergency_period: Duration,
}

/// What the host said that something is to be done about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It greeted: the conversation begins anew.
    Greeted(Wishes),
    /// Anything but a hello.
    Message(HostMessage),
}

/// The conversation.
#[derive(Debug)]
pub struct Conversation {
    identity: Identity,
    reader: FrameReader,
    seq: u64,
    host_seq: u64,
    wishes: Option<Wishes>,
    /// The number of the host's last hello.
    session: u64,
    heard_at: Timestamp,
    said_at: Timestamp,
    frames: VecDeque<Vec<u8>>,
    /// Bytes of the first frame that are written.
    written: usize,
}

impl Conversation {
    /// One that has not begun.
    pub fn new(mut identity: Identity) -> Conversation {
        identity.instance &= NUMBER_MAX;
        identity.system = short(&identity.system);
        identity.shrinkers.truncate(NAMES_MAX);
        Conversation {
            identity,
            reader: FrameReader::new(),
            seq: 0,
            host_seq: 0,
            wishes: None,
            session: 0,
            heard_at: Timestamp::ZERO,
            said_at: Timestamp::ZERO,
            frames: VecDeque::new(),
            written: 0,
        }
    }

    /// The transport is open: knocks, so that a host that is there already greets at once.
    pub fn opened(&mut self, uptime: Duration, now: Timestamp) {
        self.closed();
        self.introduce(0, uptime, now);
    }

    /// The transport is closed: what was not written is of no more use.
    pub fn closed(&mut self) {
        self.reader = FrameReader::new();
        self.frames.clear();
        self.written = 0;
        self.wishes = None;
    }

    /// What the host wished for, while there is one.
    pub const fn wishes(&self) -> Option<Wishes> {
        self.wishes
    }

    /// Bytes of the host came.
    pub fn handle_bytes(&mut self, bytes: &[u8], uptime: Duration, now: Timestamp) -> Vec<Heard> {
        let mut heard = Vec::new();
        self.reader.push(bytes);
        while let Some(frame) = self.reader.next_frame() {
            // What cannot be read is what is left of another conversation, or was torn.
            let Ok(frame) = frame else { continue };
            match decode::<HostFrame>(&frame) {
                Ok(frame) => heard.extend(self.handle_frame(frame, uptime, now)),
                Err(error) if self.wishes.is_some() => {
                    let text = short(&error.to_string());
                    self.say(GuestMessage::Error { text }, uptime, now);
                }
                Err(_) => {}
            }
        }
        heard
    }

    fn handle_frame(
        &mut self,
        frame: HostFrame,
        uptime: Duration,
        now: Timestamp,
    ) -> Option<Heard> {
        if let HostMessage::Hello { version, oldest, session, statistics_ms, emergency_ms } =
            frame.message
        {
            self.introduce(session, uptime, now);
            self.host_seq = frame.seq;
            self.heard_at = now;
            // Repeated, since the answer took its time: nothing begins anew.
            if self.wishes.is_some() && session == self.session {
                return None;
            }
            self.session = session;
            let span =
                |ms: u64| Duration::from_millis(ms.clamp(*PERIOD_MS.start(), *PERIOD_MS.end()));
            self.wishes = common_version(version, oldest).map(|_| Wishes {
                statistics_period: span(statistics_ms),
                emergency_period: span(emergency_ms),
            });
            return self.wishes.map(Heard::Greeted);
        }
        if self.wishes.is_none() || frame.seq <= self.host_seq {
            return None;
        }
        self.host_seq = frame.seq;
        self.heard_at = now;
        Some(Heard::Message(frame.message))
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, uptime: Duration, now: Timestamp) {
        if self.wishes.is_none() {
            return;
        }
        if now.saturating_since(self.heard_at) >= SILENCE_MAX {
            self.wishes = None;
        } else if now.saturating_since(self.said_at) >= HEARTBEAT_PERIOD {
            self.say(GuestMessage::Heartbeat {}, uptime, now);
        }
    }

    /// Says something, if the host has greeted.
    pub fn say(&mut self, message: GuestMessage, uptime: Duration, now: Timestamp) {
        if self.wishes.is_some() {
            self.queue(message, uptime, now);
        }
    }

    /// Bytes to write.
    pub fn unwritten(&self) -> Option<&[u8]> {
        self.frames.front()?.get(self.written..)
    }

    /// So many of them are written.
    pub fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
        if self.frames.front().is_some_and(|frame| frame.len() <= self.written) {
            self.frames.pop_front();
            self.written = 0;
        }
    }

    fn introduce(&mut self, session: u64, uptime: Duration, now: Timestamp) {
        let identity = self.identity.clone();
        let hello = GuestMessage::Hello {
            version: VERSION,
            oldest: VERSION_OLDEST,
            session,
            instance: identity.instance,
            agent: concat!("ballast-agent ", env!("CARGO_PKG_VERSION")).to_owned(),
            system: identity.system,
            page_bytes: identity.page_bytes,
            capabilities: identity.capabilities,
            shrinkers: identity.shrinkers,
        };
        self.queue(hello, uptime, now);
    }

    fn queue(&mut self, message: GuestMessage, uptime: Duration, now: Timestamp) {
        let uptime_ms = u64::try_from(uptime.as_millis()).unwrap_or(NUMBER_MAX).min(NUMBER_MAX);
        let frame = GuestFrame { seq: self.seq + 1, uptime_ms, message };
        // A list of hooks whose excuses do not fit a frame; the host misses the answer and goes on.
        let Ok(bytes) = encode(&frame) else { return };
        self.seq += 1;
        self.said_at = now;
        if self.frames.len() >= FRAMES_MAX {
            self.frames.remove(usize::from(self.written > 0));
        }
        self.frames.push_back(bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NO_TIME: Duration = Duration::ZERO;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn conversation() -> Conversation {
        Conversation::new(Identity {
            instance: 7,
            system: "test".to_owned(),
            page_bytes: 4096,
            capabilities: vec![],
            shrinkers: vec![],
        })
    }

    fn host(seq: u64, message: HostMessage) -> Vec<u8> {
        encode(&HostFrame { seq, message }).unwrap()
    }

    fn hello(version: u32, oldest: u32) -> HostMessage {
        HostMessage::Hello { version, oldest, session: 3, statistics_ms: 1_000, emergency_ms: 1 }
    }

    fn said(conversation: &mut Conversation) -> Vec<GuestMessage> {
        let mut reader = FrameReader::new();
        while let Some(bytes) = conversation.unwritten().map(<[u8]>::to_vec) {
            // As a port does it that takes little at once.
            let some = &bytes[..bytes.len().min(10)];
            reader.push(some);
            conversation.wrote(some.len());
        }
        std::iter::from_fn(|| reader.next_frame())
            .map(|frame| decode::<GuestFrame>(&frame.unwrap()).unwrap().message)
            .collect()
    }

    #[test]
    fn nothing_but_hello_before_hello() {
        let mut it = conversation();
        it.opened(NO_TIME, at(0));
        it.say(GuestMessage::Heartbeat {}, NO_TIME, at(0));
        let knock = said(&mut it);
        assert!(matches!(knock[..], [GuestMessage::Hello { session: 0, .. }]), "{knock:?}");
        assert_eq!(it.handle_bytes(&host(1, HostMessage::Heartbeat {}), NO_TIME, at(1)), []);
        let heard = it.handle_bytes(&host(2, hello(1, 1)), NO_TIME, at(2));
        let wishes = Wishes {
            statistics_period: Duration::from_secs(1),
            emergency_period: Duration::from_millis(100),
        };
        assert_eq!(heard, [Heard::Greeted(wishes)]);
        it.say(GuestMessage::Heartbeat {}, NO_TIME, at(3));
        let answer = said(&mut it);
        assert!(matches!(
            answer[..],
            [GuestMessage::Hello { session: 3, .. }, GuestMessage::Heartbeat {}]
        ));
        // A repetition is answered, and nothing begins anew.
        assert_eq!(it.handle_bytes(&host(3, hello(1, 1)), NO_TIME, at(4)), []);
        assert!(matches!(said(&mut it)[..], [GuestMessage::Hello { session: 3, .. }]));
        it.closed();
        assert_eq!(it.wishes(), None);
    }

    #[test]
    fn a_host_of_another_time_is_answered_and_left_alone() {
        let mut it = conversation();
        assert_eq!(it.handle_bytes(&host(1, hello(9, 2)), NO_TIME, at(0)), []);
        it.say(GuestMessage::Heartbeat {}, NO_TIME, at(3));
        assert!(matches!(said(&mut it)[..], [GuestMessage::Hello { version: 1, .. }]));
    }

    #[test]
    fn repeated_orders_do_not_count_and_rubbish_is_told() {
        let mut it = conversation();
        it.handle_bytes(&host(1, hello(1, 1)), NO_TIME, at(0));
        let order = host(2, HostMessage::Release {});
        let heard = it.handle_bytes(&[order.clone(), order].concat(), NO_TIME, at(1));
        assert_eq!(heard, [Heard::Message(HostMessage::Release {})]);
        said(&mut it);
        let wrong = ballast_agent_wire::frame::encode("{\"seq\":\"three\"}").unwrap();
        it.handle_bytes(&wrong, NO_TIME, at(2));
        assert!(matches!(said(&mut it)[..], [GuestMessage::Error { .. }]));
    }

    #[test]
    fn a_silent_host_is_gone_and_a_silent_agent_beats() {
        let mut it = conversation();
        it.handle_bytes(&host(1, hello(1, 1)), NO_TIME, at(0));
        said(&mut it);
        it.handle_timeout(NO_TIME, at(4_999));
        assert_eq!(said(&mut it), []);
        it.handle_timeout(NO_TIME, at(5_000));
        assert_eq!(said(&mut it), [GuestMessage::Heartbeat {}]);
        it.handle_timeout(NO_TIME, at(30_000));
        assert_eq!((it.wishes(), said(&mut it)), (None, vec![]));
    }

    proptest! {
        /// However little is written, what waits is bounded, and what was begun is finished.
        #[test]
        fn what_waits_is_bounded(steps in prop::collection::vec((0..5u8, 0..40usize), 0..200)) {
            let mut it = conversation();
            it.handle_bytes(&host(1, hello(1, 1)), NO_TIME, at(0));
            let mut reader = FrameReader::new();
            let mut seqs = Vec::new();
            for (say, write) in steps {
                for _ in 0..say {
                    it.say(GuestMessage::Heartbeat {}, NO_TIME, at(1));
                }
                let bytes = it.unwritten().unwrap_or_default();
                let some = bytes[..bytes.len().min(write)].to_vec();
                reader.push(&some);
                it.wrote(some.len());
                prop_assert!(it.frames.len() <= FRAMES_MAX);
                while let Some(frame) = reader.next_frame() {
                    seqs.push(decode::<GuestFrame>(&frame.unwrap()).unwrap().seq);
                }
            }
            prop_assert_eq!(reader.skipped(), 0);
            prop_assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}
