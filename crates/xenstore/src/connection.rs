//! A connection to the socket of xenstored.
//!
//! Idea: bytes are read and written only while the caller waits for something. No byte is lost if a
//! wait is dropped.

use std::io;
use std::path::Path;
use std::time::Duration;

use ballast_model::LinkDown;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};

use crate::path::StorePath;
use crate::request::Request;
use crate::session::{Answer, RequestId, XenstoreSession};

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
/// Most reads in a row before other tasks get their turn.
const READS_MAX: usize = 64;

/// A connection.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    buffer: Vec<u8>,
    /// The protocol's state: requests, answers and events.
    pub session: XenstoreSession,
}

impl Connection {
    /// Connects to `socket`, before `until`.
    ///
    /// # Errors
    /// The reason why it cannot connect.
    pub async fn open(socket: &Path, until: Instant) -> Result<Connection, LinkDown> {
        match timeout_at(until, UnixStream::connect(socket)).await {
            Err(_) => Err(LinkDown::TimedOut),
            Ok(Err(error)) => Err(match error.kind() {
                io::ErrorKind::PermissionDenied => LinkDown::PermissionDenied,
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => LinkDown::Refused,
                _ => LinkDown::Closed(error.to_string()),
            }),
            Ok(Ok(stream)) => Ok(Connection {
                stream,
                buffer: vec![0; READ_BYTES],
                session: XenstoreSession::new(),
            }),
        }
    }

    /// Waits until the socket is ready, then reads and writes what it takes now. No byte is lost if
    /// the future is dropped.
    ///
    /// # Errors
    /// The connection must be closed.
    pub async fn exchange(&mut self) -> Result<(), LinkDown> {
        let interest = match self.session.outgoing().is_empty() {
            true => Interest::READABLE,
            false => Interest::READABLE | Interest::WRITABLE,
        };
        let ready = self.stream.ready(interest).await;
        let ready = ready.map_err(|error| LinkDown::Closed(error.to_string()))?;
        if ready.is_writable() {
            let written = self.stream.try_write(self.session.outgoing());
            self.session.mark_written(count(written)?.unwrap_or(0));
        }
        if !ready.is_readable() {
            return Ok(());
        }
        for _ in 0..READS_MAX {
            match count(self.stream.try_read(&mut self.buffer))? {
                Some(0) => return Err(LinkDown::Closed("end of stream".to_owned())),
                Some(read) => self.session.receive(&self.buffer[..read])?,
                None => break,
            }
        }
        Ok(())
    }

    /// Sends a request, and waits for its answer; other answers are dropped meanwhile. For a
    /// connection with one user only.
    ///
    /// # Errors
    /// The connection must be closed, or the answer does not come in time.
    pub async fn ask(&mut self, request: Request, until: Instant) -> Result<Answer, LinkDown> {
        let asked: RequestId = self.session.request(request).ok_or(LinkDown::TimedOut)?;
        loop {
            while let Some((id, answer)) = self.session.next_answer() {
                if id == asked {
                    return Ok(answer);
                }
            }
            match timeout_at(until, self.exchange()).await {
                Ok(moved) => moved?,
                Err(_) => return Err(LinkDown::TimedOut),
            }
        }
    }
}

/// Whether a xenstore answers on `socket` within `timeout`: it lists the root.
///
/// # Errors
/// No answer comes in time, or something other than xenstored answers.
pub async fn is_xenstore(socket: &Path, timeout: Duration) -> Result<(), LinkDown> {
    let until = Instant::now() + timeout;
    let root: StorePath = "/".parse().map_err(|_| LinkDown::Connecting)?;
    let answer =
        Connection::open(socket, until).await?.ask(Request::Directory(root), until).await?;
    answer.map(drop).map_err(|error| LinkDown::Closed(error.to_string()))
}

/// The number of bytes moved; `None` if the socket is not ready.
fn count(moved: io::Result<usize>) -> Result<Option<usize>, LinkDown> {
    match moved {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(LinkDown::Closed(error.to_string())),
    }
}
