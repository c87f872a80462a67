//! A connection to the socket of xenstored.
//!
//! Idea: bytes move while the caller waits for something, and only then. Nothing is lost if a wait
//! is given up.

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
/// Most times that bytes are read before something else has its turn.
const READS_MAX: usize = 64;

/// A connection.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    buffer: Vec<u8>,
    /// What is asked and answered.
    pub session: XenstoreSession,
}

impl Connection {
    /// Connects to `socket`, before `until`.
    ///
    /// # Errors
    /// Why it could not.
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

    /// Reads and writes once, whenever that can be done. Nothing is lost if it is given up.
    ///
    /// # Errors
    /// The connection is of no use any more.
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

    /// Asks, and waits for the answer; other answers that come meanwhile are dropped. For a
    /// connection that nobody else uses.
    ///
    /// # Errors
    /// The connection is of no use, or the answer does not come in time.
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
/// Nobody answers in time, or something else.
pub async fn is_xenstore(socket: &Path, timeout: Duration) -> Result<(), LinkDown> {
    let until = Instant::now() + timeout;
    let root: StorePath = "/".parse().map_err(|_| LinkDown::Connecting)?;
    let answer =
        Connection::open(socket, until).await?.ask(Request::Directory(root), until).await?;
    answer.map(drop).map_err(|error| LinkDown::Closed(error.to_string()))
}

/// How many bytes were moved; `None`: none can be now.
fn count(moved: io::Result<usize>) -> Result<Option<usize>, LinkDown> {
    match moved {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(LinkDown::Closed(error.to_string())),
    }
}
