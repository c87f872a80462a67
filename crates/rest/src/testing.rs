//! An HTTP server on a Unix socket, whose answers a test determines, for tests without a
//! hypervisor.
//!
//! Limits: it reads only requests as this crate's client and curl send them, with a length for
//! every body.

mod hostile;

use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::call::{Call, Method};

pub use hostile::{try_rest_guest, try_rest_guest_near};

/// Longest request.
const REQUEST_BYTES_MAX: usize = 64 << 10;

/// A real hypervisor, killed when dropped.
#[derive(Debug)]
pub struct RealProgram(pub Child);

impl Drop for RealProgram {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A status, and a body of JSON; an empty one is none.
    Json(u16, String),
    /// A page, as a web server sends it.
    Html(u16),
    /// These bytes, and the end of the connection.
    Raw(Vec<u8>),
    /// Nothing, ever.
    Hang,
}

/// A request, as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedRequest {
    /// The method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The body.
    pub body: String,
}

impl ReceivedRequest {
    /// Whether it has this method and path, whatever its body.
    pub fn is(&self, method: Method, path: &str) -> bool {
        self.method == method.as_str() && self.path == path
    }

    /// Method, path and body on one line.
    pub fn line(&self) -> String {
        format!("{} {} {}", self.method, self.path, self.body).trim_end().to_owned()
    }
}

impl From<&Call> for ReceivedRequest {
    fn from(call: &Call) -> ReceivedRequest {
        let method = call.method.as_str().to_owned();
        ReceivedRequest { method, path: call.path.to_owned(), body: call.body.clone() }
    }
}

/// A server. Dropping it closes its socket and removes it.
#[derive(Debug)]
pub struct RestServer {
    path: PathBuf,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    _tasks: JoinSet<()>,
}

impl Drop for RestServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl RestServer {
    /// Serves at `path`, with the answers of `answer`. Needs a tokio runtime.
    ///
    /// # Panics
    /// The socket cannot be made.
    pub fn start(
        path: &Path,
        answer: impl FnMut(&ReceivedRequest) -> Reply + Send + 'static,
    ) -> RestServer {
        let listener = std::os::unix::net::UnixListener::bind(path).expect("a folder");
        RestServer::serve(path, listener, answer)
    }

    /// The same with a socket that listens at `path` already.
    ///
    /// # Panics
    /// It is not such a socket.
    pub fn serve(
        path: &Path,
        listener: std::os::unix::net::UnixListener,
        answer: impl FnMut(&ReceivedRequest) -> Reply + Send + 'static,
    ) -> RestServer {
        listener.set_nonblocking(true).expect("a socket");
        let listener = UnixListener::from_std(listener).expect("a socket that listens");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (log, answer) = (Arc::clone(&requests), Arc::new(Mutex::new(answer)));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                connections.spawn(answer_all(stream, move |request| {
                    log.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
                    (answer.lock().unwrap_or_else(PoisonError::into_inner))(request)
                }));
            }
        });
        RestServer { path: path.to_owned(), requests, _tasks: tasks }
    }

    /// Takes the requests since the last call, in order.
    pub fn take_requests(&self) -> Vec<ReceivedRequest> {
        std::mem::take(&mut self.requests.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The requests that change something since the last call, each on one line.
    pub fn take_changes(&self) -> Vec<String> {
        let requests = self.take_requests();
        requests.iter().filter(|it| it.method != "GET").map(ReceivedRequest::line).collect()
    }
}

/// Answers the requests of one connection.
async fn answer_all(mut stream: UnixStream, mut answer: impl FnMut(&ReceivedRequest) -> Reply) {
    let mut bytes = Vec::new();
    loop {
        let request = loop {
            if let Some((request, len)) = read_request(&bytes) {
                bytes.drain(..len);
                break request;
            }
            let mut chunk = [0; 4096];
            match stream.read(&mut chunk).await {
                Ok(len) if len > 0 && bytes.len() < REQUEST_BYTES_MAX => {
                    bytes.extend_from_slice(&chunk[..len]);
                }
                _ => return,
            }
        };
        let (status, kind, body) = match answer(&request) {
            Reply::Json(status, body) => (status, "application/json", body),
            Reply::Html(status) => {
                (status, "text/html", "<!doctype html><h1>It works!</h1>".to_owned())
            }
            Reply::Raw(bytes) => {
                let _ = stream.write_all(&bytes).await;
                return;
            }
            Reply::Hang => std::future::pending().await,
        };
        // An answer without content (204) has no length either.
        let length = match status {
            204 => String::new(),
            _ => format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len()),
        };
        let text = format!("HTTP/1.1 {status} Status\r\n{length}\r\n{body}");
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The first request in `bytes` and its length; `None` if it is not complete.
fn read_request(bytes: &[u8]) -> Option<(ReceivedRequest, usize)> {
    let end = bytes.windows(4).position(|it| it == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let len = end + length.unwrap_or(0_usize);
    let body = String::from_utf8_lossy(bytes.get(end..len)?).into_owned();
    Some((ReceivedRequest { method, path, body }, len))
}
