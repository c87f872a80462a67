//! Steering a tracker.
//!
//! Idea: a request, its answer, and meanwhile events, which are kept until they are asked for. An event
//! that tracking has ended is an error of whatever is asked next. While an answer is waited for, the tracker is
//! sent signs of life: revoking some GiB takes longer than it bears with silence.
//!
//! Limits: [`EVENTS_MAX`] events are kept; a tracker that sends more is not one.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ballast_track_wire::{
    Address, Capabilities, Consumer, Counters, Entry, Frame, MESSAGE_MAX, Mode, REGIONS_MAX,
    RegionSpec, Reply, Request, WireError,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::TrackerError;
use crate::ring_file::RingFile;

/// How often a tracker wants to hear of its client. It gives up after a second without.
pub const HEARTBEAT_EVERY: Duration = Duration::from_millis(250);
/// Events kept: each region can vanish once.
const EVENTS_MAX: usize = REGIONS_MAX;
/// Signs of life that were not answered: as many as there are in [`PATIENCE`].
const BEATS_MAX: usize = 80;
/// How long an answer is waited for: revoking a guest of a TiB takes seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// What revoking came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revoked {
    /// Granules revoked.
    pub granules: u64,
    /// Time that took in the hypervisor's process.
    pub took: Duration,
}

/// A connection to a guest's tracker, and its ring. Dropped, all permissions are restored.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    ring: RingFile,
    consumer: Consumer,
    number: u32,
    /// Signs of life that were not answered yet, by number.
    beats: VecDeque<u32>,
    gone: VecDeque<u8>,
    pid: u32,
    handler_tid: u32,
    capabilities: Capabilities,
}

impl Client {
    /// Connects to the tracker at `address` and gives it a ring of `capacity` entries, and `device`, an
    /// open `/dev/userfaultfd`, where there is one: the hypervisor then needs no privilege of its own.
    ///
    /// # Errors
    /// When nobody listens, or the tracker refuses: with the reason and what to do.
    pub fn connect(
        address: &Address,
        capacity: u64,
        device: Option<BorrowedFd<'_>>,
    ) -> Result<Client, TrackerError> {
        let mut client = Client::over(open(address)?, capacity)?;
        match client.ask(Request::Hello, "a greeting", &[])? {
            Reply::Hello { pid } => client.pid = pid,
            _ => return Err(TrackerError::Answer("a greeting")),
        }
        let file = rustix::io::fcntl_dupfd_cloexec(&client.ring.file, 0);
        let file = file.map_err(TrackerError::system("send the ring"))?;
        let files: Vec<BorrowedFd<'_>> = std::iter::once(file.as_fd()).chain(device).collect();
        match client.ask(Request::Attach, "a ring", &files)? {
            Reply::Attached { handler_tid, capabilities } => {
                (client.handler_tid, client.capabilities) = (handler_tid, capabilities);
                Ok(client)
            }
            _ => Err(TrackerError::Answer("a ring")),
        }
    }

    /// With a ring of its own, and nobody greeted yet.
    fn over(socket: OwnedFd, capacity: u64) -> Result<Client, TrackerError> {
        let ring = RingFile::create(capacity)?;
        let consumer = Consumer::new(ring.words())?;
        Ok(Client {
            socket,
            ring,
            consumer,
            number: 0,
            beats: VecDeque::new(),
            gone: VecDeque::new(),
            pid: 0,
            handler_tid: 0,
            capabilities: Capabilities::default(),
        })
    }

    /// The hypervisor's process, as it says.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What the kernel lets the tracker do.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// The number of the thread that answers faults.
    pub fn handler_tid(&self) -> u32 {
        self.handler_tid
    }

    /// Lets the thread that answers faults run on `cpus` only. A trap takes 3 to 7 µs where that thread shares
    /// a processor with the virtual one that trapped, and ten times as long where it has to be woken
    /// on another. [`Tracking`](crate::Tracking) places it by itself.
    ///
    /// Done from outside, as a hypervisor in a sandbox may not do it itself.
    ///
    /// # Errors
    /// When the system refuses, for example because there are no such processors.
    pub fn pin(&self, cpus: &[usize]) -> Result<(), TrackerError> {
        let mut set = CpuSet::new();
        cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
        let tid = i32::try_from(self.handler_tid).ok().and_then(Pid::from_raw);
        sched_setaffinity(tid, &set).map_err(TrackerError::system("place the tracker's thread"))
    }

    /// Tracks a region too, from the next revocation on.
    ///
    /// # Errors
    /// When the tracker refuses.
    pub fn add_region(&mut self, region: RegionSpec) -> Result<(), TrackerError> {
        self.do_it(Request::AddRegion(region), "a region")
    }

    /// No longer tracks a region.
    ///
    /// # Errors
    /// When there is none of that number.
    pub fn remove_region(&mut self, id: u8) -> Result<(), TrackerError> {
        self.do_it(Request::RemoveRegion(id), "the end of a region")
    }

    /// Watches what `mode` says; tracking rests until the next revocation.
    ///
    /// # Errors
    /// When there are too many granules.
    pub fn set_mode(&mut self, mode: Mode) -> Result<(), TrackerError> {
        self.do_it(Request::SetMode(mode), "a mode")
    }

    /// Keeps the last so many touched granules accessible, and revokes those before them; 0: all that
    /// were touched stay accessible.
    ///
    /// # Errors
    /// When the tracker is gone.
    pub fn set_hot_set(&mut self, granules: u32) -> Result<(), TrackerError> {
        self.do_it(Request::SetHotSet(granules), "a hot set")
    }

    /// Revokes permission of everything that is watched: the interval of that number begins.
    ///
    /// # Errors
    /// When it cannot; then everything is accessible.
    pub fn revoke(&mut self, interval: u32) -> Result<Revoked, TrackerError> {
        match self.ask(Request::Revoke(interval), "a revocation", &[])? {
            Reply::Revoked { interval: number, granules, took_ns } if number == interval => {
                Ok(Revoked { granules, took: Duration::from_nanos(took_ns) })
            }
            _ => Err(TrackerError::Answer("a revocation")),
        }
    }

    /// Restores all permissions, until the next revocation.
    ///
    /// # Errors
    /// When the tracker is gone.
    pub fn rest(&mut self) -> Result<(), TrackerError> {
        self.do_it(Request::Rest, "to rest")
    }

    /// Says that this side lives, and asks what was done: to be called every [`HEARTBEAT_EVERY`] unless
    /// something else is.
    ///
    /// # Errors
    /// When the tracker is gone, or has given up: with the reason.
    pub fn heartbeat(&mut self) -> Result<Counters, TrackerError> {
        match self.ask(Request::Heartbeat, "a heartbeat", &[])? {
            Reply::Counters(counters) => Ok(counters),
            _ => Err(TrackerError::Answer("a heartbeat")),
        }
    }

    /// A region that the hypervisor has unmapped, of which nobody was told yet. They arrive with answers.
    pub fn take_gone_region(&mut self) -> Option<u8> {
        self.gone.pop_front()
    }

    /// Hands up to `entries_max` entries of the ring to `take`; says how many there were.
    ///
    /// # Errors
    /// When there is what no tracker writes.
    pub fn read(
        &mut self,
        entries_max: usize,
        take: impl FnMut(Entry),
    ) -> Result<usize, TrackerError> {
        Ok(self.consumer.read(self.ring.words(), entries_max, take)?)
    }

    fn do_it(&mut self, request: Request, what: &'static str) -> Result<(), TrackerError> {
        match self.ask(request, what, &[])? {
            Reply::Done => Ok(()),
            _ => Err(TrackerError::Answer(what)),
        }
    }

    /// Sends a request and waits for its answer.
    fn ask(
        &mut self,
        request: Request,
        what: &'static str,
        files: &[BorrowedFd<'_>],
    ) -> Result<Reply, TrackerError> {
        let number = self.next_number();
        // What the tracker said before it closed is the better reason.
        let sent = send(self.socket.as_fd(), Frame { number, message: request }, files);
        let end = Instant::now() + PATIENCE;
        loop {
            let beat = Instant::now() + HEARTBEAT_EVERY;
            let frame = match receive(self.socket.as_fd(), end.min(beat)) {
                Ok(Some(frame)) => frame,
                Ok(None) if Instant::now() >= end => {
                    return Err(TrackerError::Silent { what, waited: PATIENCE });
                }
                Ok(None) => {
                    self.beat();
                    continue;
                }
                Err(error) => return sent.and(Err(error)),
            };
            match frame.message {
                Reply::Refused(refused) if [0, number].contains(&frame.number) => {
                    return Err(TrackerError::Refused(refused));
                }
                Reply::RegionGone(id) if frame.number == 0 && self.gone.len() < EVENTS_MAX => {
                    self.gone.push_back(id);
                }
                reply if frame.number == number => return Ok(reply),
                // Answers come in the order of requests.
                _ if self.beats.front() == Some(&frame.number) => {
                    self.beats.pop_front();
                }
                _ => return Err(TrackerError::Answer(what)),
            }
        }
    }

    fn next_number(&mut self) -> u32 {
        self.number = self.number.checked_add(1).unwrap_or(1);
        self.number
    }

    /// Sends a sign of life; its answer comes after that of the request that is waited for.
    fn beat(&mut self) {
        if self.beats.len() >= BEATS_MAX {
            return;
        }
        let number = self.next_number();
        let frame = Frame { number, message: Request::Heartbeat };
        // Where it cannot be sent, that is told by whatever is received next.
        if send(self.socket.as_fd(), frame, &[]).is_ok() {
            self.beats.push_back(number);
        }
    }
}

fn open(address: &Address) -> Result<OwnedFd, TrackerError> {
    let refused = |source| TrackerError::Connect { address: address.to_string(), source };
    let name = match address {
        Address::Path(path) => SocketAddrUnix::new(path),
        Address::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
    };
    let flags = SocketFlags::CLOEXEC;
    let kind = SocketType::SEQPACKET;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None);
    let socket = socket.map_err(refused)?;
    rustix::net::connect(&socket, &name.map_err(refused)?).map_err(refused)?;
    Ok(socket)
}

fn send(
    socket: BorrowedFd<'_>,
    frame: Frame<Request>,
    files: &[BorrowedFd<'_>],
) -> Result<(), TrackerError> {
    let (bytes, len) = frame.encode();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        // There is room for two, and never are there more.
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let bytes = [IoSlice::new(&bytes[..len])];
    match rustix::net::sendmsg(socket, &bytes, &mut control, SendFlags::NOSIGNAL) {
        Ok(_) => Ok(()),
        Err(Errno::PIPE | Errno::CONNRESET) => Err(TrackerError::Closed),
        Err(source) => Err(TrackerError::System { what: "write to the tracker", source }),
    }
}

/// The next packet; `None` when none came by `end`.
fn receive(socket: BorrowedFd<'_>, end: Instant) -> Result<Option<Frame<Reply>>, TrackerError> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let time = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut fds = [PollFd::new(&socket, PollFlags::IN)];
        match poll(&mut fds, Some(&time)) {
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(source) => {
                return Err(TrackerError::System { what: "wait for the tracker", source });
            }
        }
    }
    match receive_now(socket) {
        // The tracker closed before it had read everything; what it said before still waits.
        Err(Errno::CONNRESET) => receive_now(socket),
        received => received,
    }
    .map_err(|source| match source {
        Errno::CONNRESET => TrackerError::Closed,
        source => TrackerError::System { what: "read from the tracker", source },
    })?
    .map(Some)
}

/// The packet that waits, or what is wrong with it.
fn receive_now(socket: BorrowedFd<'_>) -> Result<Result<Frame<Reply>, TrackerError>, Errno> {
    let mut bytes = [0; MESSAGE_MAX];
    let mut control = RecvAncillaryBuffer::default();
    let mut into = [IoSliceMut::new(&mut bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let message = rustix::net::recvmsg(socket, &mut into, &mut control, flags)?;
    Ok(if message.bytes == 0 {
        Err(TrackerError::Closed)
    } else if message.flags.contains(ReturnFlags::TRUNC) {
        Err(WireError::TooLong { by: 1 }.into())
    } else {
        Frame::<Reply>::decode(&bytes[..message.bytes]).map_err(TrackerError::from)
    })
}

#[cfg(test)]
mod tests {
    use rustix::net::socketpair;

    use super::*;

    fn answer(socket: BorrowedFd<'_>, number: u32, message: Reply) {
        let (bytes, len) = Frame { number, message }.encode();
        rustix::net::send(socket, &bytes[..len], SendFlags::NOSIGNAL).unwrap();
    }

    fn request(socket: BorrowedFd<'_>) -> Frame<Request> {
        let mut bytes = [0; MESSAGE_MAX];
        let (len, _) = rustix::net::recv(socket, &mut bytes, RecvFlags::empty()).unwrap();
        Frame::<Request>::decode(&bytes[..len]).unwrap()
    }

    /// A tracker that revokes for as long as it takes to hear two signs of life, and answers these afterwards,
    /// as the real one does.
    #[test]
    fn a_tracker_that_takes_long_hears_that_somebody_waits() {
        let pair =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (socket, other) = pair.unwrap();
        let mut client = Client::over(socket, ballast_track_wire::CAPACITY_MIN).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let other = other.as_fd();
                let revoke = request(other);
                assert_eq!(revoke.message, Request::Revoke(7));
                let beats = [request(other), request(other)];
                let revoked = Reply::Revoked { interval: 7, granules: 3, took_ns: 1 };
                answer(other, revoke.number, revoked);
                for beat in beats {
                    assert_eq!(beat.message, Request::Heartbeat);
                    answer(other, beat.number, Reply::Counters(Counters::default()));
                }
                let rest = request(other);
                assert_eq!(rest.message, Request::Rest);
                answer(other, rest.number, Reply::Done);
                let rest = request(other);
                answer(other, rest.number + 1, Reply::Done);
            });
            assert_eq!(client.revoke(7).unwrap().granules, 3);
            // What comes first are the answers to the signs of life.
            client.rest().unwrap();
            assert!(client.beats.is_empty());
            assert!(matches!(client.rest(), Err(TrackerError::Answer(_))), "nobody asked for that");
        });
    }
}
