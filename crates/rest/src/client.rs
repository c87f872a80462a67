//! The calls of one exchange, by HTTP over a Unix socket.
//!
//! Idea: one connection carries the calls of one sample or one order, one after the other, and is
//! then closed. No connection stays open: a hypervisor serves few (Firecracker 10), and other
//! clients need theirs. The process at the other end is identified by the kernel, not by its own
//! claim.
//! Limits: every wait ends at the caller's deadline, and every body at [`BODY_BYTES_MAX`].

use std::io;
use std::path::Path;
use std::sync::Arc;

use ballast_model::LinkDown;
use ballast_pinned_socket::PinnedSocket;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::call::{Answer, BODY_BYTES_MAX, Call, shown};

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {why}")]
pub struct CallError {
    /// The call, or the first one if no connection was made.
    pub call: Call,
    /// Why.
    pub why: LinkDown,
}

/// The result of an exchange.
#[derive(Debug, PartialEq, Eq)]
pub struct ExchangeResult {
    /// The process that listens on the socket, if there was a connection.
    pub(crate) pid: Option<u32>,
    /// That socket, as this process named it.
    pub(crate) listens_at: Option<Arc<Path>>,
    /// The answered calls, in order, each with the time when it was made.
    pub(crate) answered: Vec<(Call, Instant, Answer)>,
    /// Why the exchange ended early; `None` if all calls were answered, or the last one was
    /// refused.
    pub(crate) error: Option<CallError>,
    /// How long it took.
    pub(crate) took: std::time::Duration,
}

impl ExchangeResult {
    /// The answers, and why the exchange ended early.
    pub fn into_answers(self) -> (Vec<(Call, Answer)>, Option<CallError>) {
        let answers = self.answered.into_iter().map(|(call, _, answer)| (call, answer));
        (answers.collect(), self.error)
    }
}

/// Makes `calls` on the socket, one after the other. Ends early at `until`, when a call gets no
/// answer, and, with `stops_when_refused`, when a call is refused.
pub async fn exchange(
    socket: &Path,
    calls: Vec<Call>,
    stops_when_refused: bool,
    until: Instant,
) -> ExchangeResult {
    let began = Instant::now();
    let mut done = ExchangeResult {
        pid: None,
        listens_at: None,
        answered: Vec::new(),
        error: None,
        took: began.elapsed(),
    };
    // Dropping it closes the connection.
    let mut driver = JoinSet::new();
    let mut sender: Option<SendRequest<Full<Bytes>>> = None;
    for call in calls {
        let asked_at = Instant::now();
        let answer = timeout_at(until, async {
            // The server may close a connection after each answer.
            if sender.as_ref().is_none_or(SendRequest::is_closed) {
                let stream = connect(socket).await?;
                (done.pid, done.listens_at) = (peer_pid(&stream), peer_socket(&stream));
                let io = TokioIo::new(stream);
                let (new, connection) =
                    hyper::client::conn::http1::handshake(io).await.map_err(broken)?;
                driver.spawn(connection);
                sender = Some(new);
            }
            let Some(sender) = &mut sender else { return Err(LinkDown::Connecting) };
            send(sender, &call).await
        });
        match answer.await.unwrap_or(Err(LinkDown::TimedOut)) {
            Ok(answer) => {
                let ends = stops_when_refused && !answer.is_success();
                done.answered.push((call, asked_at, answer));
                if ends {
                    break;
                }
            }
            Err(why) => {
                done.error = Some(CallError { call, why });
                break;
            }
        }
    }
    done.took = began.elapsed();
    done
}

async fn send(sender: &mut SendRequest<Full<Bytes>>, call: &Call) -> Result<Answer, LinkDown> {
    let mut request =
        Request::builder().method(call.method.as_str()).uri(call.path).header(HOST, "localhost");
    // Firecracker refuses a GET that announces a body.
    if !call.body.is_empty() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let request = request.body(Full::new(Bytes::from(call.body.clone())));
    let request = request.map_err(|error| LinkDown::Protocol(error.to_string()))?;
    sender.ready().await.map_err(broken)?;
    let (parts, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
    let body = match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes().to_vec(),
        Err(error) if error.is::<LengthLimitError>() => {
            let why = format!("{call} was answered with more than {BODY_BYTES_MAX} bytes");
            return Err(LinkDown::Protocol(why));
        }
        Err(error) => return Err(LinkDown::Closed(shown(&error.to_string()))),
    };
    Ok(Answer { status: parts.status.as_u16(), body })
}

/// Why a socket is not connected to.
const FOREIGN_SYMLINK: &str =
    "a symbolic link leads to the socket, and is neither root's nor of the socket's owner";

async fn connect(path: &Path) -> Result<UnixStream, LinkDown> {
    let socket = PinnedSocket::open(path).map_err(|error| unusable(&error))?;
    let socket = socket.ok_or_else(|| LinkDown::Protocol(FOREIGN_SYMLINK.to_owned()))?;
    UnixStream::connect(socket.path()).await.map_err(|error| unusable(&error))
}

/// The socket at the other end, as the process that listens on it named it.
fn peer_socket(stream: &UnixStream) -> Option<Arc<Path>> {
    let address = stream.peer_addr().ok()?;
    address.as_pathname().map(Arc::from)
}

/// The process at the other end: the one that called `listen`.
fn peer_pid(stream: &UnixStream) -> Option<u32> {
    let pid = stream.peer_cred().ok()?.pid()?;
    u32::try_from(pid).ok().filter(|pid| *pid != 0)
}

fn unusable(error: &io::Error) -> LinkDown {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => LinkDown::Refused,
        io::ErrorKind::PermissionDenied => LinkDown::PermissionDenied,
        // The queue is full: the listening process does not accept.
        io::ErrorKind::WouldBlock => LinkDown::TimedOut,
        _ => LinkDown::Closed(error.to_string()),
    }
}

fn broken(error: hyper::Error) -> LinkDown {
    let text = shown(&error.to_string());
    match error.is_parse() {
        true => LinkDown::Protocol(format!("no answer of HTTP: {text}")),
        false => LinkDown::Closed(text),
    }
}
