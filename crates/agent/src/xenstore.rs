//! The transport to the host on Xen: keys of xenstore.
//!
//! Idea: a guest of Xen has no channel to the host, but it has keys that it may write. This module
//! looks like a byte stream to the rest of the agent. The statistics and requests that the agent
//! writes become, without their frames, the values of two keys (flexmemd §3.1.2). The value of a
//! third key, which the host writes, becomes a frame that the agent reads. As nobody answers in a
//! conversation, the host's hello and heartbeats are made here.
//!
//! Cost: a message of 1 KB a second. Source: Xen's `docs/misc/xenstore.txt`; the kernel's
//! `xenbus_dev_frontend.c`, which takes one whole message a write.
//! Limits: the host cannot order shrinkers, and histograms of ages are not sent. At most
//! [`UNANSWERED_MAX`] messages wait for an answer; further ones are dropped.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use ballast_agent_proto::wire::message::{decode, encode};
use ballast_agent_proto::wire::{
    FrameReader, GuestFrame, GuestMessage, HostFrame, HostMessage, VERSION, VERSION_OLDEST,
};
use ballast_xenstore::{Reply, Request, RequestId, StorePath, XenstoreSession};

use crate::byte_stream::{Transport, open_device, would_block_as_none};

/// The device through which a guest's programs reach xenstore.
pub(crate) const XENBUS: &str = "/dev/xen/xenbus";

/// The keys of statistics, requests and answers, below the guest's own domain.
const STATS: &str = "data/mem_stats";
const REQUEST: &str = "data/mem_req";
const ANSWER: &str = "data/mem_answer";
const TOKEN: &str = "ballast-agent";

/// Interval of statistics, and shortest interval of emergencies, in milliseconds.
const PERIOD_MS: u64 = 1000;
/// Interval of the heartbeats that are made for the host.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Most messages to xenstore that wait for an answer.
const UNANSWERED_MAX: usize = 8;
/// Bytes of one read.
const READ_BYTES: usize = 4096;

/// The connection to xenstore.
pub(crate) struct Xenstore {
    device: File,
    session: XenstoreSession,
    /// Splits what the agent wrote into frames.
    sent: FrameReader,
    /// Bytes that the agent has not read yet.
    received: Vec<u8>,
    /// Number of the last frame for the agent.
    seq: u64,
    is_greeted: bool,
    last_frame_at: Instant,
    /// The pending read of the answer's key.
    reading: Option<RequestId>,
    /// The last value of the answer's key.
    answer: Vec<u8>,
}

impl Xenstore {
    /// Opens the device, or connects to a socket of xenstored.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn open(path: &Path) -> io::Result<Box<dyn Transport>> {
        let device = if fs::metadata(path)?.file_type().is_socket() {
            let socket = UnixStream::connect(path)?;
            socket.set_nonblocking(true)?;
            File::from(OwnedFd::from(socket))
        } else {
            open_device(path)?
        };
        let mut store = Xenstore::on(device)?;
        store.exchange()?;
        Ok(Box::new(store))
    }

    /// Starts a session over `device` and asks xenstore to watch the answer's key.
    fn on(device: File) -> io::Result<Xenstore> {
        let mut store = Xenstore {
            device,
            session: XenstoreSession::new(),
            sent: FrameReader::new(),
            received: Vec::new(),
            seq: 0,
            is_greeted: false,
            last_frame_at: Instant::now(),
            reading: None,
            answer: Vec::new(),
        };
        let watch = Request::Watch { path: path_of(ANSWER)?, token: TOKEN.to_owned() };
        store.session.request(watch);
        Ok(store)
    }

    /// Writes and reads as much as possible without blocking.
    fn exchange(&mut self) -> io::Result<()> {
        loop {
            let message = self.session.outgoing_message();
            if message.is_empty() {
                break;
            }
            let Some(written) = would_block_as_none(self.device.write(message))? else { break };
            self.session.mark_written(written);
        }
        let mut bytes = [0; READ_BYTES];
        while let Some(read) = would_block_as_none(self.device.read(&mut bytes))? {
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let taken = self.session.receive(bytes.get(..read).unwrap_or_default());
            taken.map_err(|down| io::Error::other(down.to_string()))?;
        }
        self.take_answers()
    }

    fn take_answers(&mut self) -> io::Result<()> {
        let mut is_changed = self.session.has_lost_events();
        while self.session.next_event().is_some() {
            is_changed = true;
        }
        if is_changed {
            self.reading = self.session.request(Request::Read(path_of(ANSWER)?));
        }
        while let Some((id, answer)) = self.session.next_answer() {
            match answer {
                Ok(Reply::Value(value)) if self.reading == Some(id) => self.take_answer(value),
                Ok(_) => {}
                // The key does not exist until a host has answered.
                Err(_) if self.reading == Some(id) => {}
                Err(error) => return Err(io::Error::other(error.to_string())),
            }
        }
        Ok(())
    }

    /// Takes in a new value of the answer's key; the same value counts once.
    fn take_answer(&mut self, value: Vec<u8>) {
        if value == self.answer {
            return;
        }
        let frame = str::from_utf8(&value).ok().and_then(|it| decode::<HostFrame>(it).ok());
        self.answer = value;
        if let Some(frame) = frame {
            self.deliver(frame.message);
        }
    }

    /// Adds a frame for the agent, as a host would send it.
    fn deliver(&mut self, message: HostMessage) {
        self.seq += 1;
        // Encoding cannot fail: these messages were made here or decoded before.
        if let Ok(frame) = encode(&HostFrame { seq: self.seq, message }) {
            self.received.extend(frame);
            self.last_frame_at = Instant::now();
        }
    }

    /// Handles a message that the agent wrote; `payload` is its JSON.
    fn publish(&mut self, message: &GuestMessage, payload: &str) -> io::Result<()> {
        let key = match message {
            GuestMessage::Hello(_) if !self.is_greeted => {
                self.is_greeted = true;
                self.deliver(HostMessage::Hello {
                    version: VERSION,
                    oldest: VERSION_OLDEST,
                    session: 1,
                    statistics_ms: PERIOD_MS,
                    emergency_ms: PERIOD_MS,
                });
                return Ok(());
            }
            GuestMessage::Statistics(_) => STATS,
            GuestMessage::Request { .. } => REQUEST,
            _ => return Ok(()),
        };
        if self.session.unanswered() < UNANSWERED_MAX {
            let (path, value) = (path_of(key)?, payload.as_bytes().to_vec());
            self.session.request(Request::Write { path, value });
        }
        Ok(())
    }
}

impl Transport for Xenstore {
    fn fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    fn is_open(&self) -> bool {
        true
    }

    fn read(&mut self, chunk: &mut [u8]) -> io::Result<Option<usize>> {
        self.exchange()?;
        if self.is_greeted && self.last_frame_at.elapsed() >= HEARTBEAT {
            self.deliver(HostMessage::Heartbeat {});
        }
        let count = self.received.len().min(chunk.len());
        for (to, byte) in chunk.iter_mut().zip(self.received.drain(..count)) {
            *to = byte;
        }
        Ok((count > 0).then_some(count))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sent.push(bytes);
        while let Some(payload) = self.sent.next_frame() {
            let Ok(payload) = payload else { continue };
            if let Ok(GuestFrame { message, .. }) = decode::<GuestFrame>(&payload) {
                self.publish(&message, &payload)?;
            }
        }
        self.exchange()?;
        Ok(bytes.len())
    }
}

fn path_of(key: &str) -> io::Result<StorePath> {
    key.parse().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use ballast_agent_proto::wire::{GuestGreeting, RequestOutcome, Statistics};
    use ballast_xenstore::testing::StorePeer;

    use super::*;

    /// A transport with a stand-in for xenstore at the other end of a socket.
    struct Pair {
        transport: Xenstore,
        peer: UnixStream,
        store: StorePeer,
        client: u32,
    }

    impl Pair {
        fn new() -> Pair {
            let folder = tempfile::tempdir().unwrap();
            let socket = folder.path().join("socket");
            let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
            let connect = std::thread::spawn(move || {
                let socket = UnixStream::connect(socket).unwrap();
                socket.set_nonblocking(true).unwrap();
                socket
            });
            let (peer, _) = listener.accept().unwrap();
            peer.set_nonblocking(true).unwrap();
            let device = File::from(OwnedFd::from(connect.join().unwrap()));
            let mut store = StorePeer::new();
            let (client, _) = store.connect();
            let transport = Xenstore::on(device).unwrap();
            Pair { transport, peer, store, client }
        }

        /// The stand-in answers what has arrived.
        fn answer_requests(&mut self) {
            let mut bytes = [0; READ_BYTES];
            while let Ok(read) = self.peer.read(&mut bytes) {
                self.store.receive(self.client, &bytes[..read]).unwrap();
            }
            self.peer.write_all(&self.store.take_outgoing(self.client)).unwrap();
        }

        fn deliver(&mut self, seq: u64, message: GuestMessage) {
            let frame = encode(&GuestFrame { seq, uptime_ms: seq, message }).unwrap();
            assert_eq!(self.transport.write(&frame).unwrap(), frame.len());
            self.answer_requests();
        }

        /// The messages that the agent then reads.
        fn receive_messages(&mut self) -> Vec<HostMessage> {
            // An answer of the store may lead to another request.
            for _ in 0..2 {
                self.transport.exchange().unwrap();
                self.answer_requests();
            }
            let mut reader = FrameReader::new();
            let mut chunk = [0; 64];
            while let Some(read) = self.transport.read(&mut chunk).unwrap() {
                reader.push(&chunk[..read]);
            }
            let mut messages = Vec::new();
            while let Some(payload) = reader.next_frame() {
                messages.push(decode::<HostFrame>(&payload.unwrap()).unwrap().message);
            }
            messages
        }
    }

    fn hello(session: u64) -> GuestMessage {
        GuestMessage::Hello(GuestGreeting { session, instance: 7, ..GuestGreeting::default() })
    }

    #[test]
    fn statistics_become_the_value_of_a_key() {
        let mut pair = Pair::new();
        pair.deliver(1, hello(0));
        assert!(matches!(pair.receive_messages()[..], [HostMessage::Hello { session: 1, .. }]));
        pair.deliver(2, hello(1));
        assert_eq!(pair.receive_messages(), [], "one greeting is enough");
        let mut statistics = Statistics::default();
        statistics.memory.total_bytes = Some(5);
        pair.deliver(3, GuestMessage::Statistics(Box::new(statistics)));
        let value = pair.store.read(STATS).unwrap().to_vec();
        let frame: GuestFrame = decode(str::from_utf8(&value).unwrap()).unwrap();
        assert_eq!((frame.seq, frame.message), (3, GuestMessage::Statistics(Box::new(statistics))));
        pair.deliver(4, GuestMessage::Heartbeat {});
        assert_eq!(pair.store.read(REQUEST), None);
    }

    #[test]
    fn an_answer_of_the_host_is_received_once() {
        let mut pair = Pair::new();
        pair.deliver(1, hello(0));
        pair.receive_messages();
        let answer = HostMessage::Answer {
            request: 1,
            outcome: RequestOutcome::Granted,
            bytes: 4096,
            why: None,
        };
        let text =
            r#"{"seq":9,"message":{"type":"answer","request":1,"outcome":"granted","bytes":4096}}"#;
        pair.store.write(ANSWER, text);
        pair.answer_requests();
        assert_eq!(pair.receive_messages(), [answer]);
        pair.store.write(ANSWER, text);
        pair.store.write(ANSWER, "rubbish");
        pair.answer_requests();
        assert_eq!(pair.receive_messages(), []);
    }

    #[test]
    fn a_store_that_does_not_answer_is_not_flooded() {
        let mut pair = Pair::new();
        for seq in 1..100 {
            let message = GuestMessage::Statistics(Box::default());
            let frame = encode(&GuestFrame { seq, uptime_ms: seq, message }).unwrap();
            pair.transport.write(&frame).unwrap();
        }
        assert_eq!(pair.transport.session.unanswered(), UNANSWERED_MAX);
        drop(pair.peer);
        assert!(pair.transport.read(&mut [0; 8]).is_err());
    }
}
