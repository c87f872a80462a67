//! The agent's side of the conversation with the host, without I/O.
//!
//! Received bytes go in and orders come out; messages go in and bytes to write come out. The agent
//! sends nothing but hello before the host's hello, and nothing after [`SILENCE_MAX`] without a
//! message from the host.
//! Limits: [`FRAMES_MAX`] frames wait to be written; a full queue drops the oldest unwritten frame.

use std::collections::VecDeque;
use std::time::Duration;

use ballast_agent_proto::wire::message::{NAMES_MAX, common_version, decode, encode, truncated};
use ballast_agent_proto::wire::statistics::NUMBER_MAX;
use ballast_agent_proto::wire::{
    FrameReader, GuestFrame, GuestGreeting, GuestMessage, HostFrame, HostMessage,
};
use ballast_model::Timestamp;

/// Most frames in the write queue.
pub const FRAMES_MAX: usize = 32;
/// Time without messages after which the host counts as gone.
pub const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Time without sent messages after which a heartbeat is due.
pub const HEARTBEAT_PERIOD: Duration = Duration::from_secs(5);
/// Accepted periods: from the speed of balloons to an hour.
const PERIOD_MS: std::ops::RangeInclusive<u64> = 100..=3_600_000;

/// The parameters in the host's hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostParameters {
    /// Interval between statistics.
    pub statistics_period: Duration,
    /// Shortest interval between emergencies.
    pub emergency_period: Duration,
}

/// A message from the host that the agent must act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceivedMessage {
    /// A new hello: the conversation starts over.
    Greeted(HostParameters),
    /// Any other message.
    Message(HostMessage),
}

/// The state of the conversation.
#[derive(Debug)]
pub struct Conversation {
    hello: GuestGreeting,
    reader: FrameReader,
    seq: u64,
    host_seq: u64,
    parameters: Option<HostParameters>,
    /// Session number of the host's last hello.
    session: u64,
    received_at: Timestamp,
    queued_at: Timestamp,
    frames: VecDeque<Vec<u8>>,
    /// Bytes of the first frame already written.
    written: usize,
}

impl Conversation {
    /// A conversation that has not begun. What is too long in `hello` for a message is cut.
    pub fn new(mut hello: GuestGreeting) -> Conversation {
        hello.instance &= NUMBER_MAX;
        hello.system = truncated(&hello.system);
        hello.shrinkers.truncate(NAMES_MAX);
        Conversation {
            hello,
            reader: FrameReader::new(),
            seq: 0,
            host_seq: 0,
            parameters: None,
            session: 0,
            received_at: Timestamp::ZERO,
            queued_at: Timestamp::ZERO,
            frames: VecDeque::new(),
            written: 0,
        }
    }

    /// The transport is open. Sends hello, so that a host that is already there answers at once.
    pub fn opened(&mut self, uptime: Duration, now: Timestamp) {
        self.closed();
        self.send_hello(0, uptime, now);
    }

    /// The transport is closed. Discards the write queue.
    pub fn closed(&mut self) {
        self.reader = FrameReader::new();
        self.frames.clear();
        self.written = 0;
        self.parameters = None;
    }

    /// The host's parameters, while a conversation is open.
    pub const fn parameters(&self) -> Option<HostParameters> {
        self.parameters
    }

    /// Handles received bytes.
    pub fn handle_bytes(
        &mut self,
        bytes: &[u8],
        uptime: Duration,
        now: Timestamp,
    ) -> Vec<ReceivedMessage> {
        let mut received = Vec::new();
        self.reader.push(bytes);
        while let Some(frame) = self.reader.next_frame() {
            // Invalid frames are torn, or left over from an earlier conversation.
            let Ok(frame) = frame else { continue };
            match decode::<HostFrame>(&frame) {
                Ok(frame) => received.extend(self.handle_frame(frame, uptime, now)),
                Err(error) if self.parameters.is_some() => {
                    let text = truncated(&error.to_string());
                    self.send(GuestMessage::Error { text }, uptime, now);
                }
                Err(_) => {}
            }
        }
        received
    }

    fn handle_frame(
        &mut self,
        frame: HostFrame,
        uptime: Duration,
        now: Timestamp,
    ) -> Option<ReceivedMessage> {
        if let HostMessage::Hello { version, oldest, session, statistics_ms, emergency_ms } =
            frame.message
        {
            self.send_hello(session, uptime, now);
            self.host_seq = frame.seq;
            self.received_at = now;
            // The host repeated its hello because our answer was late: the conversation continues.
            if self.parameters.is_some() && session == self.session {
                return None;
            }
            self.session = session;
            let span =
                |ms: u64| Duration::from_millis(ms.clamp(*PERIOD_MS.start(), *PERIOD_MS.end()));
            self.parameters = common_version(version, oldest).map(|_| HostParameters {
                statistics_period: span(statistics_ms),
                emergency_period: span(emergency_ms),
            });
            return self.parameters.map(ReceivedMessage::Greeted);
        }
        if self.parameters.is_none() || frame.seq <= self.host_seq {
            return None;
        }
        self.host_seq = frame.seq;
        self.received_at = now;
        Some(ReceivedMessage::Message(frame.message))
    }

    /// Sends a heartbeat when due, and notices a silent host.
    pub fn handle_timeout(&mut self, uptime: Duration, now: Timestamp) {
        if self.parameters.is_none() {
            return;
        }
        if now.saturating_since(self.received_at) >= SILENCE_MAX {
            self.parameters = None;
        } else if now.saturating_since(self.queued_at) >= HEARTBEAT_PERIOD {
            self.send(GuestMessage::Heartbeat {}, uptime, now);
        }
    }

    /// Sends a message, if a conversation is open.
    pub fn send(&mut self, message: GuestMessage, uptime: Duration, now: Timestamp) {
        if self.parameters.is_some() {
            self.queue(message, uptime, now);
        }
    }

    /// The next bytes to write.
    pub fn unwritten(&self) -> Option<&[u8]> {
        self.frames.front()?.get(self.written..)
    }

    /// Marks `bytes` of them as written.
    pub fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
        if self.frames.front().is_some_and(|frame| frame.len() <= self.written) {
            self.frames.pop_front();
            self.written = 0;
        }
    }

    fn send_hello(&mut self, session: u64, uptime: Duration, now: Timestamp) {
        let hello = GuestGreeting { session, ..self.hello.clone() };
        self.queue(GuestMessage::Hello(hello), uptime, now);
    }

    fn queue(&mut self, message: GuestMessage, uptime: Duration, now: Timestamp) {
        let uptime_ms = u64::try_from(uptime.as_millis()).unwrap_or(NUMBER_MAX).min(NUMBER_MAX);
        let frame = GuestFrame { seq: self.seq + 1, uptime_ms, message };
        // Encoding fails if the texts of many hooks exceed a frame; the host then misses this
        // answer.
        let Ok(bytes) = encode(&frame) else { return };
        self.seq += 1;
        self.queued_at = now;
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
        Conversation::new(GuestGreeting { instance: 7, ..GuestGreeting::default() })
    }

    fn host(seq: u64, message: HostMessage) -> Vec<u8> {
        encode(&HostFrame { seq, message }).unwrap()
    }

    fn hello(version: u32, oldest: u32) -> HostMessage {
        HostMessage::Hello { version, oldest, session: 3, statistics_ms: 1_000, emergency_ms: 1 }
    }

    fn sent(conversation: &mut Conversation) -> Vec<GuestMessage> {
        let mut reader = FrameReader::new();
        while let Some(bytes) = conversation.unwritten().map(<[u8]>::to_vec) {
            // As a port that accepts few bytes at a time.
            let some = &bytes[..bytes.len().min(10)];
            reader.push(some);
            conversation.wrote(some.len());
        }
        std::iter::from_fn(|| reader.next_frame())
            .map(|frame| decode::<GuestFrame>(&frame.unwrap()).unwrap().message)
            .collect()
    }

    #[test]
    fn only_hello_is_sent_before_the_hosts_hello() {
        let mut it = conversation();
        it.opened(NO_TIME, at(0));
        it.send(GuestMessage::Heartbeat {}, NO_TIME, at(0));
        let first = sent(&mut it);
        assert!(
            matches!(first[..], [GuestMessage::Hello(GuestGreeting { session: 0, .. })]),
            "{first:?}"
        );
        assert_eq!(it.handle_bytes(&host(1, HostMessage::Heartbeat {}), NO_TIME, at(1)), []);
        let received = it.handle_bytes(&host(2, hello(1, 1)), NO_TIME, at(2));
        let parameters = HostParameters {
            statistics_period: Duration::from_secs(1),
            emergency_period: Duration::from_millis(100),
        };
        assert_eq!(received, [ReceivedMessage::Greeted(parameters)]);
        it.send(GuestMessage::Heartbeat {}, NO_TIME, at(3));
        let answer = sent(&mut it);
        assert!(matches!(
            answer[..],
            [GuestMessage::Hello(GuestGreeting { session: 3, .. }), GuestMessage::Heartbeat {}]
        ));
        // A repeated hello is answered and the conversation continues.
        assert_eq!(it.handle_bytes(&host(3, hello(1, 1)), NO_TIME, at(4)), []);
        assert!(matches!(
            sent(&mut it)[..],
            [GuestMessage::Hello(GuestGreeting { session: 3, .. })]
        ));
        it.closed();
        assert_eq!(it.parameters(), None);
    }

    #[test]
    fn an_unsupported_host_is_answered_and_then_ignored() {
        let mut it = conversation();
        assert_eq!(it.handle_bytes(&host(1, hello(9, 2)), NO_TIME, at(0)), []);
        it.send(GuestMessage::Heartbeat {}, NO_TIME, at(3));
        assert!(matches!(
            sent(&mut it)[..],
            [GuestMessage::Hello(GuestGreeting { version: 1, .. })]
        ));
    }

    #[test]
    fn repeated_orders_are_ignored_and_invalid_ones_reported() {
        let mut it = conversation();
        it.handle_bytes(&host(1, hello(1, 1)), NO_TIME, at(0));
        let order = host(2, HostMessage::Release {});
        let received = it.handle_bytes(&[order.clone(), order].concat(), NO_TIME, at(1));
        assert_eq!(received, [ReceivedMessage::Message(HostMessage::Release {})]);
        sent(&mut it);
        let invalid = ballast_agent_proto::wire::frame::encode("{\"seq\":\"three\"}").unwrap();
        it.handle_bytes(&invalid, NO_TIME, at(2));
        assert!(matches!(sent(&mut it)[..], [GuestMessage::Error { .. }]));
    }

    #[test]
    fn heartbeats_are_sent_until_the_host_is_silent() {
        let mut it = conversation();
        it.handle_bytes(&host(1, hello(1, 1)), NO_TIME, at(0));
        sent(&mut it);
        it.handle_timeout(NO_TIME, at(4_999));
        assert_eq!(sent(&mut it), []);
        it.handle_timeout(NO_TIME, at(5_000));
        assert_eq!(sent(&mut it), [GuestMessage::Heartbeat {}]);
        it.handle_timeout(NO_TIME, at(30_000));
        assert_eq!((it.parameters(), sent(&mut it)), (None, vec![]));
    }

    proptest! {
        /// However little is written, the queue is bounded, and a frame that was begun is finished.
        #[test]
        fn the_write_queue_is_bounded(steps in prop::collection::vec((0..5u8, 0..40usize), 0..200)) {
            let mut it = conversation();
            it.handle_bytes(&host(1, hello(1, 1)), NO_TIME, at(0));
            let mut reader = FrameReader::new();
            let mut seqs = Vec::new();
            for (messages, write) in steps {
                for _ in 0..messages {
                    it.send(GuestMessage::Heartbeat {}, NO_TIME, at(1));
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
