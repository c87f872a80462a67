//! The thread that takes commands, and watches that somebody still gives them.
//!
//! Idea: one client at a time. As long as it is connected and heard of, it is obeyed; when it
//! disconnects, dies, falls silent for [`SILENCE_MAX`], does not take its replies, or says what cannot
//! be understood, its session ends, and with it everything that was revoked. The next may connect.
//!
//! A child of this process has the socket and no thread; what lets one of them go on in the parent's place
//! is [`Tracker::take_over`].
//!
//! Cost: a wake-up ten times a second while a client is connected, none otherwise.
//! Limits: nothing is decided here.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ballast_track_wire::{Address, Frame, Refusal, Refused, Reply, Request, WireError};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::after_fork;
use crate::session::Session;
use crate::socket::{Connection, FILES_MAX, Listener, Packet, Received};
use crate::threads;

/// How long nothing may be heard of a client. Permissions are restored within a second of its last sign:
/// this, and the wait between two looks.
const SILENCE_MAX: Duration = Duration::from_millis(850);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// A tracker that listens for a client. Dropped, it restores everything and is gone.
pub struct Tracker {
    stop: Arc<Stop>,
    listener: Arc<Listener>,
    thread: Option<JoinHandle<()>>,
}

/// Readable from when the thread is to end. It is a file, so that a child can tell its parent's thread.
struct Stop(OwnedFd);

impl Stop {
    fn set(&self) {
        // Its counter has room for 2^64 - 2 of them.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    fn is_set(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }
}

impl Tracker {
    /// Starts one that listens at `address`.
    ///
    /// # Errors
    /// When it cannot listen there, or have a thread.
    pub fn start(address: Address) -> io::Result<Tracker> {
        after_fork::prepare();
        Tracker::at(Listener::bind(address)?)
    }

    fn at(listener: Listener) -> io::Result<Tracker> {
        let listener = Arc::new(listener);
        let stop = Arc::new(Stop(eventfd(0, EventfdFlags::CLOEXEC)?));
        let theirs = (Arc::clone(&listener), Arc::clone(&stop));
        let thread = threads::spawn("ballast-track", move || serve(&theirs.0, &theirs.1))?;
        Ok(Tracker { stop, listener, thread: Some(thread) })
    }

    /// In a child of the process that started it: it listens here from now on, and there no longer.
    ///
    /// # Errors
    /// When there is no thread to be had; then it listens nowhere.
    pub(crate) fn take_over(self) -> io::Result<Tracker> {
        self.stop.set();
        let listener = self.listener.another();
        // What it has of threads is the parent's, and so is one of the counted uses of the listener.
        std::mem::forget(self);
        Tracker::at(listener?)
    }

    /// Whether it was told to stop, as by a child that took it over.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_set()
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &Listener, stop: &Stop) {
    while !stop.is_set() {
        listener.wait(&stop.0);
        if stop.is_set() {
            return;
        }
        let mut next = listener.accept();
        while let Some(connection) = next {
            next = if connection.is_permitted() {
                Client { connection, listener, stop, session: None, heard: Instant::now() }.serve()
            } else {
                connection.send(0, refuse(Refusal::Peer));
                None
            };
        }
    }
}

fn refuse(refusal: Refusal) -> Reply {
    Reply::Refused(Refused { refusal, errno: 0 })
}

/// Whoever is connected.
struct Client<'a> {
    connection: Connection,
    listener: &'a Listener,
    stop: &'a Stop,
    session: Option<Session>,
    heard: Instant,
}

/// Whether the client is served on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    On,
    End,
}

impl Client<'_> {
    /// Serves it to its end; whoever came in that moment is next.
    fn serve(mut self) -> Option<Connection> {
        while !self.stop.is_set() {
            self.connection.wait(self.listener, LOOK);
            // Somebody else: told that it must wait, and let go, unless this one went before it came.
            if let Some(other) = self.listener.accept() {
                if !self.connection.look().0 {
                    return Some(other);
                }
                other.send(0, refuse(Refusal::Busy));
            }
            let next = match self.connection.receive() {
                Received::Packet(packet) => {
                    self.heard = Instant::now();
                    self.take(packet)
                }
                Received::Nothing => Next::On,
                Received::Gone => Next::End,
            };
            if next == Next::End || self.look_after() == Next::End {
                return None;
            }
        }
        None
    }

    /// What happened meanwhile.
    fn look_after(&mut self) -> Next {
        if let Some(session) = &mut self.session {
            session.show();
            if let Some(errno) = session.failure() {
                let refused = Refused { refusal: Refusal::Unresolved, errno };
                self.connection.send(0, Reply::Refused(refused));
                return Next::End;
            }
            while let Some(id) = session.take_gone() {
                if !self.connection.send(0, Reply::RegionGone(id)) {
                    return Next::End;
                }
            }
        }
        let (is_there, waits) = self.connection.look();
        if is_there && !waits && self.heard.elapsed() > SILENCE_MAX {
            self.session = None;
            self.connection.send(0, refuse(Refusal::Silent));
            return Next::End;
        }
        Next::On
    }

    /// Carries a request out and answers it.
    fn take(&mut self, packet: Box<Packet>) -> Next {
        let frame = match Frame::<Request>::decode(packet.bytes()) {
            Ok(frame) => frame,
            Err(error) => {
                let refusal = match error {
                    WireError::Version(_) => Refusal::Version,
                    _ => Refusal::Malformed,
                };
                self.connection.send(0, refuse(refusal));
                return Next::End;
            }
        };
        let reply = match frame.message {
            Request::Hello => Ok(Reply::Hello { pid: std::process::id() }),
            Request::Attach => self.attach(packet.files),
            Request::Detach => {
                self.session = None;
                Ok(Reply::Done)
            }
            Request::Heartbeat if self.session.is_none() => Ok(Reply::Done),
            request => self.pass_on(request),
        };
        let is_sent = self.connection.send(frame.number, reply.unwrap_or_else(Reply::Refused));
        if is_sent { Next::On } else { Next::End }
    }

    fn attach(&mut self, files: Vec<OwnedFd>) -> Result<Reply, Refused> {
        let refused = |refusal| Refused { refusal, errno: 0 };
        if self.session.is_some() {
            return Err(refused(Refusal::Attached));
        }
        if files.len() > FILES_MAX {
            return Err(refused(Refusal::Ring));
        }
        let mut files = files.into_iter();
        let ring = files.next().ok_or(refused(Refusal::Ring))?;
        let session = Session::begin(ring, files.next())?;
        let attached = session.attached();
        self.session = Some(session);
        Ok(attached)
    }

    fn pass_on(&mut self, request: Request) -> Result<Reply, Refused> {
        let Client { connection, stop, session, heard, .. } = self;
        let not_attached = Refused { refusal: Refusal::NotAttached, errno: 0 };
        let session = session.as_mut().ok_or(not_attached)?;
        match request {
            Request::AddRegion(region) => session.add_region(region)?,
            Request::RemoveRegion(id) => session.remove_region(id)?,
            Request::SetMode(mode) => session.set_mode(mode)?,
            Request::SetHotSet(granules) => session.set_hot_set(granules),
            Request::Rest => session.rest(),
            Request::Revoke(interval) => {
                // A large guest takes long; whoever asked for it may be gone before it is over.
                let go_on = &mut || {
                    let (is_there, waits) = connection.look();
                    is_there && !stop.is_set() && (waits || heard.elapsed() <= SILENCE_MAX)
                };
                return session.revoke(interval, go_on);
            }
            Request::Heartbeat => return Ok(Reply::Counters(session.counters())),
            Request::Hello | Request::Attach | Request::Detach => {}
        }
        Ok(Reply::Done)
    }
}
