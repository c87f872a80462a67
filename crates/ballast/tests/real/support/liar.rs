//! An agent that lies to get the most memory: impossible figures, requests for all memory,
//! emergencies all the time, repeated messages, and noise between them.
//!
//! Idea: the daemon accepts an agent only from the guest's hypervisor. So the liar takes a copy of
//! QEMU's own listening socket, as a guest that has broken out would, and answers instead of QEMU.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use ballast_agent_proto::wire::message::{decode, encode};
use ballast_agent_proto::wire::{
    FrameReader, GuestFrame, GuestGreeting, GuestMessage, HostFrame, HostMessage, RequestReason,
    RequestRule, Statistics, WireRequestKind,
};
use ballast_lab_host::Guest;

use super::monitor::Monitor;
use super::qemu_socket::taken_over;

/// Time between two rounds of lies.
const PERIOD: Duration = Duration::from_millis(100);

/// Lies to every client of the socket of `guest`'s agent, as long as this process lives.
pub fn lie(guest: &Guest) {
    let socket = guest.agent_socket().unwrap();
    let mut monitor = Monitor::connect(guest.lab_qmp_socket());
    let (listener, first) = taken_over(guest.pid(), socket, &mut monitor);
    std::thread::spawn(move || {
        let _first = first;
        loop {
            match listener.accept() {
                // The daemon may hang up on a liar at any time.
                Ok((stream, _)) => drop(lie_to(stream)),
                // QEMU has made the socket non-blocking, and so the copy is too.
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(PERIOD),
                Err(_) => return,
            }
        }
    });
}

fn lie_to(mut stream: UnixStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PERIOD))?;
    let (mut reader, mut chunk) = (FrameReader::new(), [0; 4096]);
    let (mut liar, mut is_up) = (Liar { began: Instant::now(), seq: 0 }, false);
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(len) => reader.push(&chunk[..len]),
            Err(_) => {}
        }
        for frame in std::iter::from_fn(|| reader.next_frame()).flatten() {
            if let Ok(HostFrame { message: HostMessage::Hello { session, .. }, .. }) =
                decode(&frame)
            {
                stream.write_all(&liar.says(hello(session)))?;
                is_up = true;
            }
        }
        if is_up {
            let figures = liar.says(GuestMessage::Statistics(Box::new(impossible())));
            stream.write_all(&figures)?;
            let more = liar.asks(WireRequestKind::More);
            stream.write_all(&more)?;
            stream.write_all(b"noise that is no frame")?;
            let cry = liar.asks(WireRequestKind::Emergency);
            stream.write_all(&cry)?;
            // The same message again.
            stream.write_all(&figures)?;
        }
    }
}

struct Liar {
    began: Instant,
    seq: u64,
}

impl Liar {
    fn says(&mut self, message: GuestMessage) -> Vec<u8> {
        self.seq += 1;
        let uptime_ms = 60_000 + u64::try_from(self.began.elapsed().as_millis()).unwrap();
        encode(&GuestFrame { seq: self.seq, uptime_ms, message }).unwrap()
    }

    /// A request for a pebibyte.
    fn asks(&mut self, kind: WireRequestKind) -> Vec<u8> {
        let why =
            RequestReason { rule: RequestRule::ReclaimFails, text: "it wants all".to_owned() };
        self.says(GuestMessage::Request { number: self.seq + 1, kind, bytes: 1 << 50, why })
    }
}

/// Statistics with more memory promised than any machine has, and nothing free.
fn impossible() -> Statistics {
    let mut it = Statistics::default();
    it.memory.total_bytes = Some(1 << 50);
    it.memory.free_bytes = Some(0);
    it.memory.available_bytes = Some(0);
    it.memory.committed_bytes = Some(1 << 52);
    it.memory.active_bytes = Some(1 << 50);
    it.memory.swap_total_bytes = Some(1 << 50);
    it.memory.swap_free_bytes = Some(0);
    it
}

fn hello(session: u64) -> GuestMessage {
    let agent = "liar".to_owned();
    GuestMessage::Hello(GuestGreeting { session, instance: 1, agent, ..GuestGreeting::default() })
}
