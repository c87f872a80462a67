//! The thread that takes requests from a client and checks that the client is alive.
//!
//! One client at a time. The session ends, and all permissions are restored, when the client
//! disconnects, dies, is silent for [`SILENCE_MAX`], does not read its replies, or sends an invalid
//! message. Then the next client may connect.
//!
//! A child of this process inherits the socket but no thread; [`Tracker::take_over`] lets one child
//! continue in the parent's place.
//!
//! Cost: ten wake-ups a second while a client is connected, none otherwise.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ballast_tracker_proto::{
    Frame, RefusalReason, TrackerAddress, TrackerRefusal, TrackerReply, TrackerRequest, WireError,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::after_fork;
use crate::session::TrackerSession;
use crate::socket::{ClientSocket, FILES_MAX, Listener, Packet, Received};
use crate::threads;

/// Longest silence of a client. With the check period, permissions are restored within a second.
const SILENCE_MAX: Duration = Duration::from_millis(850);
/// Time between two checks of the client.
const CHECK_PERIOD: Duration = Duration::from_millis(100);
/// Longest wait of the hypervisor, when it ends, for the thread to end first.
const END_MAX: Duration = Duration::from_millis(900);

/// A tracker that listens for clients. Dropping it restores all permissions and ends its thread, or
/// leaves the thread behind if that takes longer than a second.
pub struct Tracker {
    stop: Arc<StopSignal>,
    listener: Arc<Listener>,
    thread: Option<JoinHandle<()>>,
}

/// An eventfd that becomes readable when the thread must end. A child can signal its parent's
/// thread with it.
struct StopSignal(OwnedFd);

impl StopSignal {
    fn set(&self) {
        // Cannot overflow: the counter holds 2^64 - 2.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    fn is_set(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }
}

impl Tracker {
    /// Starts a tracker that listens at `address` for root and for the user with the number `user`,
    /// by default this process's own.
    ///
    /// # Errors
    /// It cannot listen there, or cannot start a thread.
    pub fn start(address: &TrackerAddress, user: Option<u32>) -> io::Result<Tracker> {
        after_fork::prepare();
        Tracker::at(Listener::bind(address, user)?)
    }

    fn at(listener: Listener) -> io::Result<Tracker> {
        let listener = Arc::new(listener);
        let stop = Arc::new(StopSignal(eventfd(0, EventfdFlags::CLOEXEC)?));
        let shared = (Arc::clone(&listener), Arc::clone(&stop));
        let thread = threads::spawn("ballast-track", move || serve(&shared.0, &shared.1))?;
        Ok(Tracker { stop, listener, thread: Some(thread) })
    }

    /// Moves the tracker from the parent process to this one.
    ///
    /// # Errors
    /// This process cannot start a thread; then the tracker is lost.
    pub(crate) fn take_over(self) -> io::Result<Tracker> {
        self.stop.set();
        let listener = self.listener.duplicate();
        // The thread, and its reference to the listener, belong to the parent.
        std::mem::forget(self);
        Tracker::at(listener?)
    }

    /// Whether it was stopped, for example by a child that took it over.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_set()
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        self.stop.set();
        let Some(thread) = self.thread.take() else { return };
        let end = Instant::now() + END_MAX;
        while !thread.is_finished() {
            if Instant::now() >= end {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = thread.join();
    }
}

fn serve(listener: &Listener, stop: &StopSignal) {
    while !stop.is_set() {
        listener.wait(&stop.0);
        if stop.is_set() {
            return;
        }
        let mut next = listener.accept();
        while let Some(connection) = next {
            next = if listener.permits(&connection) {
                ClientConnection {
                    connection,
                    listener,
                    stop,
                    session: None,
                    received_at: Instant::now(),
                }
                .serve()
            } else {
                connection.send(0, refuse(RefusalReason::Peer));
                None
            };
        }
    }
}

fn refuse(reason: RefusalReason) -> TrackerReply {
    TrackerReply::Refused(reason.into())
}

struct ClientConnection<'a> {
    connection: ClientSocket,
    listener: &'a Listener,
    stop: &'a StopSignal,
    session: Option<TrackerSession>,
    received_at: Instant,
}

/// Whether to continue serving the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextStep {
    Continue,
    End,
}

impl ClientConnection<'_> {
    /// Serves the client until it ends; returns a client that connected at that moment.
    fn serve(mut self) -> Option<ClientSocket> {
        while !self.stop.is_set() {
            self.connection.wait(self.listener, CHECK_PERIOD);
            // Another client is refused, unless this one has disconnected before.
            if let Some(other) = self.listener.accept() {
                if !self.connection.status().0 {
                    return Some(other);
                }
                other.send(0, refuse(RefusalReason::Busy));
            }
            let next = match self.connection.receive() {
                Received::Packet(packet) => {
                    self.received_at = Instant::now();
                    self.handle(packet)
                }
                Received::Nothing => NextStep::Continue,
                Received::Gone => NextStep::End,
            };
            if next == NextStep::End || self.check() == NextStep::End {
                return None;
            }
        }
        None
    }

    /// Reports failures and lost regions, and checks that the client is alive.
    fn check(&mut self) -> NextStep {
        if let Some(session) = &mut self.session {
            session.report_alive();
            if let Some(errno) = session.failure() {
                let refused = TrackerRefusal { reason: RefusalReason::Unresolved, errno };
                self.connection.send(0, TrackerReply::Refused(refused));
                return NextStep::End;
            }
            while let Some(id) = session.take_gone() {
                if !self.connection.send(0, TrackerReply::RegionGone(id)) {
                    return NextStep::End;
                }
            }
        }
        let (is_connected, has_packet) = self.connection.status();
        if is_connected && !has_packet && self.received_at.elapsed() > SILENCE_MAX {
            self.session = None;
            self.connection.send(0, refuse(RefusalReason::Silent));
            return NextStep::End;
        }
        NextStep::Continue
    }

    /// Carries out a request and answers it.
    fn handle(&mut self, packet: Box<Packet>) -> NextStep {
        let frame = match Frame::<TrackerRequest>::decode(packet.bytes()) {
            Ok(frame) => frame,
            Err(error) => {
                let refusal = match error {
                    WireError::Version(_) => RefusalReason::Version,
                    _ => RefusalReason::Malformed,
                };
                self.connection.send(0, refuse(refusal));
                return NextStep::End;
            }
        };
        let reply = match frame.message {
            TrackerRequest::Hello => Ok(TrackerReply::Hello { pid: std::process::id() }),
            TrackerRequest::Attach => self.attach(packet.files),
            TrackerRequest::Detach => {
                self.session = None;
                Ok(TrackerReply::Done)
            }
            TrackerRequest::Heartbeat if self.session.is_none() => Ok(TrackerReply::Done),
            request => self.handle_in_session(request),
        };
        let is_sent =
            self.connection.send(frame.number, reply.unwrap_or_else(TrackerReply::Refused));
        if is_sent { NextStep::Continue } else { NextStep::End }
    }

    fn attach(&mut self, files: Vec<OwnedFd>) -> Result<TrackerReply, TrackerRefusal> {
        if self.session.is_some() {
            return Err(RefusalReason::Attached.into());
        }
        if files.len() > FILES_MAX {
            return Err(RefusalReason::Ring.into());
        }
        let mut files = files.into_iter();
        let ring = files.next().ok_or(RefusalReason::Ring)?;
        let session = TrackerSession::begin(ring, files.next())?;
        let attached = session.attached();
        self.session = Some(session);
        Ok(attached)
    }

    fn handle_in_session(
        &mut self,
        request: TrackerRequest,
    ) -> Result<TrackerReply, TrackerRefusal> {
        let ClientConnection { connection, stop, session, received_at, .. } = self;
        let session = session.as_mut().ok_or(RefusalReason::NotAttached)?;
        match request {
            TrackerRequest::AddRegion(region) => session.add_region(region)?,
            TrackerRequest::RemoveRegion(id) => session.remove_region(id)?,
            TrackerRequest::SetMode(mode) => session.set_mode(mode)?,
            TrackerRequest::SetHotSet(granules) => session.set_hot_set(granules),
            TrackerRequest::Rest => session.rest(),
            TrackerRequest::Revoke(interval) => {
                // Revoking a large guest takes long; the client may disconnect before it is done.
                let go_on = &mut || {
                    let (is_connected, has_packet) = connection.status();
                    is_connected
                        && !stop.is_set()
                        && (has_packet || received_at.elapsed() <= SILENCE_MAX)
                };
                return session.revoke(interval, go_on);
            }
            TrackerRequest::Heartbeat => return Ok(TrackerReply::Counters(session.counters())),
            TrackerRequest::Hello | TrackerRequest::Attach | TrackerRequest::Detach => {}
        }
        Ok(TrackerReply::Done)
    }
}
