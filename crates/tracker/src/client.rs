//! The client of a tracker.
//!
//! The client sends a request and waits for its answer; events that arrive before it are queued.
//! The event that tracking has ended becomes the error of the next request. While it waits, the
//! client sends heartbeats: revoking some GiB takes longer than the tracker tolerates silence.
//!
//! Whoever may write to the folder of the socket can listen in place of the hypervisor. So the
//! client asks the kernel which process listens. It also checks in `/proc` that the thread named by
//! the tracker belongs to the hypervisor.
//!
//! Limits: [`EVENTS_MAX`] events are queued; more are an error.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ballast_tracker_proto::{
    Frame, MESSAGE_MAX, REGIONS_MAX, RegionSpec, RingConsumer, RingEntry, TrackerAddress,
    TrackerCounters, TrackerReply, TrackerRequest, WatchMode, WireError,
};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::error::TrackerError;
use crate::ring_file::RingFile;

/// How often the client must contact the tracker, which gives up after a second of silence.
pub const HEARTBEAT_PERIOD: Duration = Duration::from_millis(250);
/// Most queued events: each region can vanish once.
const EVENTS_MAX: usize = REGIONS_MAX;
/// Most unanswered heartbeats: as many as fit in [`ANSWER_TIME_MAX`].
const HEARTBEATS_MAX: usize = 80;
/// Longest wait for an answer: revoking a guest of a TiB takes seconds.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(20);

/// The result of a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// Granules revoked.
    pub granules: u64,
    /// Its duration in the hypervisor's process.
    pub took: Duration,
}

/// A connection to a guest's tracker, and its ring. Dropping it restores all permissions.
#[derive(Debug)]
pub struct TrackerClient {
    socket: OwnedFd,
    ring: RingFile,
    consumer: RingConsumer,
    number: u32,
    /// Numbers of unanswered heartbeats.
    heartbeats: VecDeque<u32>,
    /// Regions that the hypervisor has unmapped.
    unmapped: VecDeque<u8>,
    pid: u32,
    handler_tid: u32,
}

impl TrackerClient {
    /// Connects to the tracker of process `pid` at `address` and sends it a ring of `capacity`
    /// entries. With `device`, an open `/dev/userfaultfd`, the hypervisor needs no privilege of its
    /// own.
    ///
    /// # Errors
    /// Nothing listens, or another process does; the tracker refuses, with the reason and the
    /// remedy; or it names a thread as its own that is not.
    pub fn connect(
        address: &TrackerAddress,
        pid: u32,
        capacity: u64,
        device: Option<BorrowedFd<'_>>,
    ) -> Result<TrackerClient, TrackerError> {
        let socket = open(address)?;
        check_listener(&socket, address, pid)?;
        let mut client = TrackerClient::from_socket(socket, capacity)?;
        client.pid = pid;
        match client.exchange(TrackerRequest::Hello, "a greeting", &[])? {
            // Its own process number is ignored: in a PID namespace it differs from ours.
            TrackerReply::Hello { .. } => {}
            _ => return Err(TrackerError::WrongAnswer("a greeting")),
        }
        let file = rustix::io::fcntl_dupfd_cloexec(&client.ring.file, 0);
        let file = file.map_err(TrackerError::system("send the ring"))?;
        let files: Vec<BorrowedFd<'_>> = std::iter::once(file.as_fd()).chain(device).collect();
        match client.exchange(TrackerRequest::Attach, "a ring", &files)? {
            TrackerReply::Attached { handler_tid, .. } => {
                if !is_thread_of(Path::new("/proc"), pid, handler_tid) {
                    return Err(TrackerError::Thread { tid: handler_tid, pid });
                }
                client.handler_tid = handler_tid;
                Ok(client)
            }
            _ => Err(TrackerError::WrongAnswer("a ring")),
        }
    }

    /// A client with a new ring over `socket`; nothing is sent yet.
    fn from_socket(socket: OwnedFd, capacity: u64) -> Result<TrackerClient, TrackerError> {
        let ring = RingFile::create(capacity)?;
        let consumer = RingConsumer::new(ring.words())?;
        Ok(TrackerClient {
            socket,
            ring,
            consumer,
            number: 0,
            heartbeats: VecDeque::new(),
            unmapped: VecDeque::new(),
            pid: 0,
            handler_tid: 0,
        })
    }

    /// The hypervisor's process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The thread that answers faults; it belongs to the hypervisor's process.
    pub fn handler_tid(&self) -> u32 {
        self.handler_tid
    }

    /// Restricts the thread that answers faults to `cpus`. A trap takes 3 to 7 µs if that thread
    /// shares a processor with the virtual processor that trapped, and ten times as long if it must
    /// be woken on another. [`TrackingSession`](crate::TrackingSession) places it by itself.
    ///
    /// Done from outside, because a sandboxed hypervisor may not do it itself.
    ///
    /// # Errors
    /// The system refuses, for example because there are no such processors.
    pub fn pin(&self, cpus: &[usize]) -> Result<(), TrackerError> {
        let mut set = CpuSet::new();
        cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
        let tid = i32::try_from(self.handler_tid).ok().and_then(Pid::from_raw);
        sched_setaffinity(tid, &set).map_err(TrackerError::system("place the tracker's thread"))
    }

    /// Adds a region, from the next revocation on.
    ///
    /// # Errors
    /// The tracker refuses.
    pub fn add_region(&mut self, region: RegionSpec) -> Result<(), TrackerError> {
        self.request(TrackerRequest::AddRegion(region), "a region")
    }

    /// Removes a region.
    ///
    /// # Errors
    /// There is no region with this number.
    pub fn remove_region(&mut self, id: u8) -> Result<(), TrackerError> {
        self.request(TrackerRequest::RemoveRegion(id), "the end of a region")
    }

    /// Sets which granules are watched; tracking rests until the next revocation.
    ///
    /// # Errors
    /// There are too many granules.
    pub fn set_mode(&mut self, mode: WatchMode) -> Result<(), TrackerError> {
        self.request(TrackerRequest::SetMode(mode), "a mode")
    }

    /// Keeps only the last `granules` touched granules accessible; with 0, all touched granules
    /// stay accessible.
    ///
    /// # Errors
    /// The tracker is gone.
    pub fn set_hot_set(&mut self, granules: u32) -> Result<(), TrackerError> {
        self.request(TrackerRequest::SetHotSet(granules), "a hot set")
    }

    /// Revokes the permissions of all watched granules and begins the interval with this number.
    ///
    /// # Errors
    /// Revocation failed; then everything is accessible.
    pub fn revoke(&mut self, interval: u32) -> Result<Revocation, TrackerError> {
        match self.exchange(TrackerRequest::Revoke(interval), "a revocation", &[])? {
            TrackerReply::Revoked { interval: number, granules, took_ns } if number == interval => {
                Ok(Revocation { granules, took: Duration::from_nanos(took_ns) })
            }
            _ => Err(TrackerError::WrongAnswer("a revocation")),
        }
    }

    /// Restores all permissions, until the next revocation.
    ///
    /// # Errors
    /// The tracker is gone.
    pub fn rest(&mut self) -> Result<(), TrackerError> {
        self.request(TrackerRequest::Rest, "to rest")
    }

    /// Sends a heartbeat and returns the counters. Call it every [`HEARTBEAT_PERIOD`], unless other
    /// requests are sent.
    ///
    /// # Errors
    /// The tracker is gone or has ended tracking, with the reason.
    pub fn heartbeat(&mut self) -> Result<TrackerCounters, TrackerError> {
        match self.exchange(TrackerRequest::Heartbeat, "a heartbeat", &[])? {
            TrackerReply::Counters(counters) => Ok(counters),
            _ => Err(TrackerError::WrongAnswer("a heartbeat")),
        }
    }

    /// Takes the number of a region that the hypervisor has unmapped. Such events arrive with
    /// answers.
    pub fn take_unmapped_region(&mut self) -> Option<u8> {
        self.unmapped.pop_front()
    }

    /// Passes up to `entries_max` entries of the ring to `take`; returns their number.
    ///
    /// # Errors
    /// The ring has an invalid entry.
    pub fn read(
        &mut self,
        entries_max: usize,
        take: impl FnMut(RingEntry),
    ) -> Result<usize, TrackerError> {
        Ok(self.consumer.read(self.ring.words(), entries_max, take)?)
    }

    fn request(&mut self, request: TrackerRequest, what: &'static str) -> Result<(), TrackerError> {
        match self.exchange(request, what, &[])? {
            TrackerReply::Done => Ok(()),
            _ => Err(TrackerError::WrongAnswer(what)),
        }
    }

    /// Sends a request and waits for its answer.
    fn exchange(
        &mut self,
        request: TrackerRequest,
        what: &'static str,
        files: &[BorrowedFd<'_>],
    ) -> Result<TrackerReply, TrackerError> {
        let number = self.next_number();
        // If sending fails, a message the tracker sent before it closed explains more.
        let sent = send(self.socket.as_fd(), Frame { number, message: request }, files);
        let end = Instant::now() + ANSWER_TIME_MAX;
        loop {
            let heartbeat = Instant::now() + HEARTBEAT_PERIOD;
            let frame = match receive(self.socket.as_fd(), end.min(heartbeat)) {
                Ok(Some(frame)) => frame,
                Ok(None) if Instant::now() >= end => {
                    return Err(TrackerError::NoAnswer { what, waited: ANSWER_TIME_MAX });
                }
                Ok(None) => {
                    self.send_heartbeat();
                    continue;
                }
                Err(error) => return sent.and(Err(error)),
            };
            match frame.message {
                TrackerReply::Refused(refused) if [0, number].contains(&frame.number) => {
                    return Err(TrackerError::Refused(refused));
                }
                TrackerReply::RegionGone(id)
                    if frame.number == 0 && self.unmapped.len() < EVENTS_MAX =>
                {
                    self.unmapped.push_back(id);
                }
                reply if frame.number == number => return Ok(reply),
                // Answers come in the order of requests.
                _ if self.heartbeats.front() == Some(&frame.number) => {
                    self.heartbeats.pop_front();
                }
                _ => return Err(TrackerError::WrongAnswer(what)),
            }
        }
    }

    fn next_number(&mut self) -> u32 {
        self.number = self.number.checked_add(1).unwrap_or(1);
        self.number
    }

    /// Sends a heartbeat; its answer follows that of the pending request.
    fn send_heartbeat(&mut self) {
        if self.heartbeats.len() >= HEARTBEATS_MAX {
            return;
        }
        let number = self.next_number();
        let frame = Frame { number, message: TrackerRequest::Heartbeat };
        // A failure shows in the next receive.
        if send(self.socket.as_fd(), frame, &[]).is_ok() {
            self.heartbeats.push_back(number);
        }
    }
}

fn open(address: &TrackerAddress) -> Result<OwnedFd, TrackerError> {
    let refused = |source| TrackerError::Connect { address: address.to_string(), source };
    let name = SocketAddrUnix::new(address.path());
    let flags = SocketFlags::CLOEXEC;
    let kind = SocketType::SEQPACKET;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None);
    let socket = socket.map_err(refused)?;
    rustix::net::connect(&socket, &name.map_err(refused)?).map_err(refused)?;
    Ok(socket)
}

/// Checks with the kernel that process `pid` listens on `socket`.
fn check_listener(
    socket: &OwnedFd,
    address: &TrackerAddress,
    pid: u32,
) -> Result<(), TrackerError> {
    // rustix cannot represent a process outside this PID namespace.
    let peer = getsockopt(socket, PeerCredentials).map_err(|error| TrackerError::System {
        what: "ask who listens on the tracker's socket",
        source: Errno::from_raw_os_error(error as i32),
    })?;
    let found = u32::try_from(peer.pid()).unwrap_or(0);
    if found == pid && found != 0 {
        return Ok(());
    }
    Err(TrackerError::Peer { address: address.to_string(), found, pid })
}

/// Whether `tid` is a thread of process `pid`.
pub(crate) fn is_thread_of(proc: &Path, pid: u32, tid: u32) -> bool {
    let thread: PathBuf = [&pid.to_string(), "task", &tid.to_string()].iter().collect();
    proc.join(thread).exists()
}

fn send(
    socket: BorrowedFd<'_>,
    frame: Frame<TrackerRequest>,
    files: &[BorrowedFd<'_>],
) -> Result<(), TrackerError> {
    let (bytes, len) = frame.encode();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        // There are at most two.
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let bytes = [IoSlice::new(&bytes[..len])];
    match rustix::net::sendmsg(socket, &bytes, &mut control, SendFlags::NOSIGNAL) {
        Ok(_) => Ok(()),
        Err(Errno::PIPE | Errno::CONNRESET) => Err(TrackerError::Closed),
        Err(source) => Err(TrackerError::System { what: "write to the tracker", source }),
    }
}

/// Receives a packet; `None` if none came by `end`.
fn receive(
    socket: BorrowedFd<'_>,
    end: Instant,
) -> Result<Option<Frame<TrackerReply>>, TrackerError> {
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
    let received = match receive_now(socket) {
        // The tracker closed before it had read everything; its last packet may still be queued.
        Err(Errno::CONNRESET) => receive_now(socket),
        received => received,
    };
    match received {
        Ok(frame) => frame.map(Some),
        Err(Errno::CONNRESET) => Err(TrackerError::Closed),
        Err(source) => Err(TrackerError::System { what: "read from the tracker", source }),
    }
}

/// Receives and decodes one packet.
fn receive_now(socket: BorrowedFd<'_>) -> Result<Result<Frame<TrackerReply>, TrackerError>, Errno> {
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
        Frame::<TrackerReply>::decode(&bytes[..message.bytes]).map_err(TrackerError::from)
    })
}

#[cfg(test)]
mod tests {
    use rustix::net::socketpair;

    use super::*;

    #[test]
    fn a_thread_belongs_to_its_own_process_alone() {
        let (own, tid) = (std::process::id(), rustix::thread::gettid().as_raw_nonzero().get());
        let proc = Path::new("/proc");
        assert!(is_thread_of(proc, own, u32::try_from(tid).unwrap()));
        assert!(!is_thread_of(proc, own, 1) && !is_thread_of(proc, 1, own));
    }

    #[test]
    fn a_socket_of_another_process_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let address = TrackerAddress::new(folder.path().join("track"));
        let kind = SocketType::SEQPACKET;
        let listener =
            rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let listener = listener.unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(address.path()).unwrap()).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        let own = std::process::id();
        let refused = TrackerClient::connect(&address, own + 1, 1024, None).unwrap_err();
        let expected = format!("process {own} listens on {address}, not the hypervisor's");
        assert!(refused.to_string().contains(&expected), "{refused}");
        assert!(!refused.is_lasting());
    }

    fn answer(socket: BorrowedFd<'_>, number: u32, message: TrackerReply) {
        let (bytes, len) = Frame { number, message }.encode();
        rustix::net::send(socket, &bytes[..len], SendFlags::NOSIGNAL).unwrap();
    }

    fn request(socket: BorrowedFd<'_>) -> Frame<TrackerRequest> {
        let mut bytes = [0; MESSAGE_MAX];
        let (len, _) = rustix::net::recv(socket, &mut bytes, RecvFlags::empty()).unwrap();
        Frame::<TrackerRequest>::decode(&bytes[..len]).unwrap()
    }

    /// The fake tracker revokes until it has received two heartbeats, then answers these, as the
    /// real one does.
    #[test]
    fn a_client_sends_heartbeats_while_it_waits() {
        let pair =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (socket, other) = pair.unwrap();
        let mut client =
            TrackerClient::from_socket(socket, ballast_tracker_proto::CAPACITY_MIN).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let other = other.as_fd();
                let revoke = request(other);
                assert_eq!(revoke.message, TrackerRequest::Revoke(7));
                let heartbeats = [request(other), request(other)];
                let revoked = TrackerReply::Revoked { interval: 7, granules: 3, took_ns: 1 };
                answer(other, revoke.number, revoked);
                for heartbeat in heartbeats {
                    assert_eq!(heartbeat.message, TrackerRequest::Heartbeat);
                    answer(
                        other,
                        heartbeat.number,
                        TrackerReply::Counters(TrackerCounters::default()),
                    );
                }
                let rest = request(other);
                assert_eq!(rest.message, TrackerRequest::Rest);
                answer(other, rest.number, TrackerReply::Done);
                let rest = request(other);
                answer(other, rest.number + 1, TrackerReply::Done);
            });
            assert_eq!(client.revoke(7).unwrap().granules, 3);
            // The answers to the heartbeats come first.
            client.rest().unwrap();
            assert!(client.heartbeats.is_empty());
            assert!(
                matches!(client.rest(), Err(TrackerError::WrongAnswer(_))),
                "an answer with another number"
            );
        });
    }
}
