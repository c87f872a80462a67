//! Connections to QMP sockets.
//!
//! Idea: [`connect`] tells the ways in which a socket can be unusable apart; [`Client`] is one
//! connection for a few commands, one caller at a time. [`crate::fleet`] is for many guests.
//!
//! Limits: QEMU serves one client per socket. A second one is let into the queue and hears nothing
//! until the first leaves; a third may find the queue full. Both are [`LinkDown::Taken`].

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use ballast_model::{LinkDown, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::Instant;

use crate::codec::ErrorReply;
use crate::command::Command;
use crate::session::{Event, Input, Phase, SendError, Session, SessionError};

/// Bytes read at once; a reply with statistics has about 600.
pub(crate) const READ_BYTES: usize = 16 << 10;

/// Opens a socket.
///
/// # Errors
/// [`LinkDown::Refused`] where nobody listens, [`LinkDown::PermissionDenied`], [`LinkDown::Taken`]
/// where its queue is full, [`LinkDown::Closed`] with the system's words for everything else.
pub async fn connect(path: &Path) -> Result<UnixStream, LinkDown> {
    UnixStream::connect(path).await.map_err(|error| unusable(&error))
}

fn unusable(error: &std::io::Error) -> LinkDown {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => LinkDown::Refused,
        ErrorKind::PermissionDenied => LinkDown::PermissionDenied,
        ErrorKind::WouldBlock => LinkDown::Taken,
        _ => LinkDown::Closed(error.to_string()),
    }
}

/// The process that listens at the other end, where the system tells.
///
/// It is the process that began to listen: a manager that hands a listening socket to QEMU appears
/// here itself.
pub fn peer_pid(stream: &UnixStream) -> Option<u32> {
    let pid = stream.peer_cred().ok()?.pid()?;
    u32::try_from(pid).ok().filter(|pid| *pid != 0)
}

/// Why a command brought no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The connection is unusable, for this reason.
    #[error("{0}")]
    Link(LinkDown),
    /// The hypervisor refused the command.
    #[error("{command} failed: {error}")]
    Refused {
        /// The command.
        command: &'static str,
        /// Why.
        error: ErrorReply,
    },
    /// It was not sent.
    #[error(transparent)]
    NotSent(#[from] SendError),
}

/// One connection. After a [`CallError::Link`] it must be dropped.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    session: Session,
    origin: Instant,
    timeout: Duration,
}

impl Client {
    /// Connects and negotiates; each step, and each call later, may take `timeout`.
    ///
    /// # Errors
    /// Says what is wrong with the socket; [`LinkDown::Taken`] where no greeting comes.
    pub async fn connect(path: &Path, timeout: Duration) -> Result<Client, LinkDown> {
        let stream = connect(path).await?;
        let origin = Instant::now();
        let session = Session::new(Timestamp::ZERO, timeout);
        let mut client = Client { stream, session, origin, timeout };
        while client.session.phase() != Phase::Ready {
            match client.step().await {
                Err(LinkDown::TimedOut) if client.session.phase() == Phase::Greeting => {
                    return Err(LinkDown::Taken);
                }
                other => other?,
            };
        }
        Ok(client)
    }

    /// The process that listens, where it is known.
    pub fn pid(&self) -> Option<u32> {
        peer_pid(&self.stream)
    }

    /// Sends one command and waits for its result, as JSON.
    ///
    /// # Errors
    /// When the connection fails or the command is refused.
    pub async fn call(&mut self, command: &Command<'_>) -> Result<String, CallError> {
        let id = self.session.send(command, self.now() + self.timeout)?;
        loop {
            let reply = self.step().await.map_err(CallError::Link)?;
            match reply {
                Some((answered, Ok(json))) if answered == id => return Ok(json),
                Some((answered, Err(error))) if answered == id => {
                    return Err(CallError::Refused { command: command.name(), error });
                }
                _ => {}
            }
        }
    }

    /// The oldest event that came during calls and was not taken.
    pub fn pop_event(&mut self) -> Option<Event> {
        self.session.pop_event()
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.origin.elapsed()
    }

    /// Writes what is to be written, then handles one message, reading where none is there.
    async fn step(
        &mut self,
    ) -> Result<Option<(crate::session::CommandId, Result<String, ErrorReply>)>, LinkDown> {
        let closed = |error: std::io::Error| LinkDown::Closed(error.to_string());
        let protocol = |error: SessionError| LinkDown::Protocol(error.to_string());
        loop {
            let now = self.now();
            if let Some(input) = self.session.poll(now).map_err(protocol)? {
                return Ok(match input {
                    Input::Reply { id, result } => Some((id, result.map(str::to_owned))),
                    _ => None,
                });
            }
            let deadline = self.session.next_deadline().unwrap_or(now + self.timeout);
            let left = deadline.saturating_since(now);
            let mut bytes = [0; READ_BYTES];
            let room = self.session.room().min(READ_BYTES);
            let progress = async {
                while !self.session.outgoing().is_empty() {
                    let written = self.stream.write(self.session.outgoing()).await?;
                    self.session.mark_written(written);
                }
                self.stream.read(&mut bytes[..room]).await
            };
            match tokio::time::timeout(left, progress).await {
                Err(_) => return Err(LinkDown::TimedOut),
                Ok(Err(error)) => return Err(closed(error)),
                Ok(Ok(0)) => return Err(LinkDown::Closed("end of stream".to_owned())),
                Ok(Ok(count)) => self.session.receive(&bytes[..count]),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Error;

    #[test]
    fn ways_in_which_a_socket_is_unusable_are_told_apart() {
        // Numbers, because root is never denied and a full queue needs a server: errno(3).
        for (errno, expected) in [
            (2, LinkDown::Refused),
            (111, LinkDown::Refused),
            (13, LinkDown::PermissionDenied),
            (1, LinkDown::PermissionDenied),
            (11, LinkDown::Taken),
        ] {
            assert_eq!(unusable(&Error::from_raw_os_error(errno)), expected, "errno {errno}");
        }
        let other = unusable(&Error::from_raw_os_error(91));
        assert!(matches!(other, LinkDown::Closed(_)), "{other:?}");
    }
}
