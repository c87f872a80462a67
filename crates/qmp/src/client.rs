//! Connections to QMP sockets.
//!
//! Idea: [`connect`] says why a socket is unusable. [`QmpClient`] is one connection for a few
//! commands of one caller; [`crate::fleet`] is for many guests.
//!
//! Limits: QEMU serves one client per socket. A second client waits in the accept queue, without a
//! greeting, until the first leaves; a third may find the queue full. Both cases are
//! [`LinkDown::Taken`].

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ballast_model::{LinkDown, Timestamp};
use ballast_pinned_socket::PinnedSocket;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::Instant;

use crate::codec::ErrorReply;
use crate::command::QmpCommand;
use crate::session::{
    CommandId, QmpEvent, QmpSession, SendError, SessionError, SessionInput, SessionPhase,
};

/// Bytes per read; a reply with statistics has about 600.
pub(crate) const READ_BYTES: usize = 16 << 10;

/// Opens a socket.
///
/// # Errors
/// [`LinkDown::Refused`] if no process listens, [`LinkDown::PermissionDenied`],
/// [`LinkDown::Taken`] if the queue is full, [`LinkDown::Protocol`] if a symbolic link leads there
/// that is neither root's nor of the socket's owner, [`LinkDown::Closed`] with the system's message
/// for everything else.
pub async fn connect(path: &Path) -> Result<UnixStream, LinkDown> {
    let socket = PinnedSocket::open(path).map_err(|error| unusable(&error))?;
    let socket = socket.ok_or_else(|| LinkDown::Protocol(FOREIGN_SYMLINK.to_owned()))?;
    UnixStream::connect(socket.path()).await.map_err(|error| unusable(&error))
}

/// Why a socket is not connected to.
const FOREIGN_SYMLINK: &str =
    "a symbolic link leads to the socket, and is neither root's nor of the socket's owner";

fn unusable(error: &std::io::Error) -> LinkDown {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => LinkDown::Refused,
        ErrorKind::PermissionDenied => LinkDown::PermissionDenied,
        ErrorKind::WouldBlock => LinkDown::Taken,
        _ => LinkDown::Closed(error.to_string()),
    }
}

/// The process that listens at the other end, if the system says.
///
/// It is the process that called `listen`: a manager that passes a listening socket to QEMU appears
/// here itself.
pub fn peer_pid(stream: &UnixStream) -> Option<u32> {
    let pid = stream.peer_cred().ok()?.pid()?;
    u32::try_from(pid).ok().filter(|pid| *pid != 0)
}

/// The socket at the other end, as the process that listens on it named it; `None` if it has no
/// name in a file system.
pub fn peer_socket(stream: &UnixStream) -> Option<Arc<Path>> {
    let address = stream.peer_addr().ok()?;
    address.as_pathname().map(Arc::from)
}

/// Why a command has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The connection is unusable.
    #[error("{0}")]
    Link(LinkDown),
    /// The hypervisor refused the command.
    #[error("{command} failed: {error}")]
    Refused {
        /// The command.
        command: &'static str,
        /// The error.
        error: ErrorReply,
    },
    /// The command was not sent.
    #[error(transparent)]
    NotSent(#[from] SendError),
}

/// One connection. After a [`CallError::Link`] it must be dropped.
#[derive(Debug)]
pub struct QmpClient {
    stream: UnixStream,
    session: QmpSession,
    origin: Instant,
    timeout: Duration,
}

impl QmpClient {
    /// Connects and negotiates. Each step, and each later call, may take `timeout`.
    ///
    /// # Errors
    /// The socket is unusable; [`LinkDown::Taken`] if no greeting comes.
    pub async fn connect(path: &Path, timeout: Duration) -> Result<QmpClient, LinkDown> {
        let stream = connect(path).await?;
        let origin = Instant::now();
        let session = QmpSession::new(Timestamp::ZERO, timeout);
        let mut client = QmpClient { stream, session, origin, timeout };
        while client.session.phase() != SessionPhase::Ready {
            match client.step().await {
                Err(LinkDown::TimedOut) if client.session.phase() == SessionPhase::Greeting => {
                    return Err(LinkDown::Taken);
                }
                other => other?,
            };
        }
        Ok(client)
    }

    /// The process that listens, if known.
    pub fn pid(&self) -> Option<u32> {
        peer_pid(&self.stream)
    }

    /// Sends one command and waits for its result, as JSON.
    ///
    /// # Errors
    /// The connection fails, or the command is refused.
    pub async fn call(&mut self, command: &QmpCommand<'_>) -> Result<String, CallError> {
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

    /// Takes the oldest event received during calls.
    pub fn pop_event(&mut self) -> Option<QmpEvent> {
        self.session.pop_event()
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.origin.elapsed()
    }

    /// Writes all outgoing bytes, then handles one message, read from the socket if necessary.
    /// Returns the message if it is a reply.
    async fn step(&mut self) -> Result<Option<(CommandId, Result<String, ErrorReply>)>, LinkDown> {
        let closed = |error: std::io::Error| LinkDown::Closed(error.to_string());
        let protocol = |error: SessionError| LinkDown::Protocol(error.to_string());
        loop {
            let now = self.now();
            if let Some(input) = self.session.poll(now).map_err(protocol)? {
                return Ok(match input {
                    SessionInput::Reply { id, result } => Some((id, result.map(str::to_owned))),
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
    fn connect_errors_map_to_reasons() {
        // Error numbers, errno(3): root is never denied, and a full queue would need a server.
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
