//! Client of the daemon's API.
//!
//! Idea: one connection per request over the daemon's Unix socket; every wait and every size has a
//! bound, and every failure says what to do about it.
//! Limits: needs a tokio runtime with I/O and time enabled.

use std::fmt::Display;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_model::GuestId;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use nix::unistd::{Gid, Group};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use crate::{
    CarriedReply, CarriedView, CommandReply, ErrorReply, ExplainReply, FleetReply, GuestChange,
    GuestsReply, ModeReply, PlanReply, Reserve, SetMode, SetPolicy, StatusReply, path,
};

/// Largest accepted reply. The status of 10,000 guests is about 10 MiB.
pub const REPLY_BYTES_MAX: usize = 64 << 20;

/// Default time limit of a request: longer than the daemon waits for its main loop, so that the
/// daemon's own refusal, which explains more, arrives first.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(15);

/// Most characters of an unreadable reply in an error.
const EXCERPT_CHARS_MAX: usize = 120;

/// Why a request failed or was refused.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no socket, or no daemon listens on it.
    #[error(
        "no daemon listens on {}: start one with `systemctl start ballast` or `ballast daemon --config \
         FILE`, or name its socket with --socket", .socket.display()
    )]
    NoDaemon {
        /// The socket's path.
        socket: PathBuf,
    },
    /// The socket may not be opened by this user.
    #[error("permission denied on {}: {remedy}", .socket.display())]
    PermissionDenied {
        /// The socket.
        socket: PathBuf,
        /// Who may open it.
        remedy: String,
    },
    /// The socket cannot be opened for another reason.
    #[error("cannot connect to {}: {source}", .socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// How it failed.
        source: io::Error,
    },
    /// The reply did not arrive in time.
    #[error("the daemon on {} did not answer within {}s", .socket.display(), .after.as_secs_f64())]
    TimedOut {
        /// The socket.
        socket: PathBuf,
        /// The time waited.
        after: Duration,
    },
    /// The connection broke.
    #[error("the daemon on {} closed the connection: {source}", .socket.display())]
    Broken {
        /// The socket.
        socket: PathBuf,
        /// How.
        source: hyper::Error,
    },
    /// The reply is larger than [`REPLY_BYTES_MAX`].
    #[error("the reply from {} is larger than {REPLY_BYTES_MAX} bytes", .socket.display())]
    TooLarge {
        /// The socket.
        socket: PathBuf,
    },
    /// The reply is not of this API: another program or another version answered.
    #[error(
        "the reply from {} cannot be read ({why}): is it a Ballast daemon of this version?",
        .socket.display()
    )]
    Unreadable {
        /// The socket.
        socket: PathBuf,
        /// What is wrong with the reply.
        why: String,
    },
    /// The daemon refused the request.
    #[error("{}", .reply.error.text)]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The daemon's reply.
        reply: Box<ErrorReply>,
    },
}

/// A client of one daemon. Every request may fail as [`ClientError`] says.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    timeout: Duration,
}

impl Client {
    /// A client of the daemon on `socket`. Each request opens a connection.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Client { socket: socket.into(), timeout: TIMEOUT_DEFAULT }
    }

    /// Limits each request to `timeout`.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Client { timeout, ..self }
    }

    /// The socket it connects to.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Host and guests in summary.
    pub async fn status(&self) -> Result<StatusReply, ClientError> {
        self.get(path::STATUS).await
    }

    /// Only the guests.
    pub async fn guests(&self) -> Result<GuestsReply, ClientError> {
        self.get(path::GUESTS).await
    }

    /// Every step of the last decision about one guest.
    pub async fn explain(&self, guest: &GuestId) -> Result<ExplainReply, ClientError> {
        self.get(&of_guest(path::EXPLAIN, guest)).await
    }

    /// The latest plan.
    pub async fn plan(&self) -> Result<PlanReply, ClientError> {
        self.get(path::PLAN).await
    }

    /// A dry run: a plan made as if a decision were due and Ballast were balancing. Nothing of it
    /// is carried out.
    pub async fn dry_run(&self) -> Result<PlanReply, ClientError> {
        self.get(&format!("{}?dry_run=true", path::PLAN)).await
    }

    /// The fleet that the host is in.
    pub async fn fleet(&self) -> Result<FleetReply, ClientError> {
        self.get(path::FLEET).await
    }

    /// Figures in the classic text format of Prometheus.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        let body = self.exchange(Method::GET, path::METRICS, Bytes::new()).await?;
        String::from_utf8(body.to_vec()).map_err(|error| self.unreadable(&error, &body))
    }

    /// Pauses Ballast.
    pub async fn pause(&self) -> Result<CommandReply, ClientError> {
        self.post(path::PAUSE, &()).await
    }

    /// Resumes Ballast.
    pub async fn resume(&self) -> Result<CommandReply, ClientError> {
        self.post(path::RESUME, &()).await
    }

    /// The mode in force.
    pub async fn mode(&self) -> Result<ModeReply, ClientError> {
        self.get(path::MODE).await
    }

    /// Sets another mode.
    pub async fn set_mode(&self, change: &SetMode) -> Result<CommandReply, ClientError> {
        self.post(path::MODE, change).await
    }

    /// Changes one guest's bounds.
    pub async fn set_guest(
        &self,
        guest: &GuestId,
        change: &GuestChange,
    ) -> Result<CommandReply, ClientError> {
        self.post(&of_guest(path::SET_GUEST, guest), change).await
    }

    /// Changes one guest's bounds, and also writes them to where the guest itself is defined.
    pub async fn persist_guest(
        &self,
        guest: &GuestId,
        change: &GuestChange,
    ) -> Result<CommandReply, ClientError> {
        self.post(&of_guest(path::PERSIST_GUEST, guest), change).await
    }

    /// What goes along with a guest to another host.
    pub async fn carried(&self, guest: &GuestId) -> Result<CarriedReply, ClientError> {
        self.get(&of_guest(path::CARRIED, guest)).await
    }

    /// Has the daemon continue with a guest where another host's daemon left off. Idempotent.
    pub async fn take_carried(
        &self,
        guest: &GuestId,
        carried: &CarriedView,
    ) -> Result<CommandReply, ClientError> {
        self.post(&of_guest(path::CARRIED, guest), carried).await
    }

    /// Changes the policy.
    pub async fn set_policy(&self, change: &SetPolicy) -> Result<CommandReply, ClientError> {
        self.post(path::POLICY, change).await
    }

    /// Keeps memory free for `guest`, which is about to start.
    pub async fn reserve(
        &self,
        guest: &GuestId,
        reserve: &Reserve,
    ) -> Result<CommandReply, ClientError> {
        self.post(&of_guest(path::RESERVE, guest), reserve).await
    }

    /// Ends such a reservation.
    pub async fn unreserve(&self, guest: &GuestId) -> Result<CommandReply, ClientError> {
        self.post(&of_guest(path::UNRESERVE, guest), &()).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.read(&self.exchange(Method::GET, path, Bytes::new()).await?)
    }

    async fn post(&self, path: &str, change: &impl Serialize) -> Result<CommandReply, ClientError> {
        let sent = serde_json::to_vec(change).map_err(|error| self.unreadable(&error, &[]))?;
        self.read(&self.exchange(Method::POST, path, sent.into()).await?)
    }

    fn read<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(body).map_err(|error| self.unreadable(&error, body))
    }

    /// Sends one request and returns the body of its reply; a refusal is an error.
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Bytes, ClientError> {
        let exchange = async {
            let stream = UnixStream::connect(&self.socket).await.map_err(|e| self.connect(e))?;
            let response = self.send(stream, method, path, body).await?;
            let (status, body) = response.into_parts();
            if status.status.is_success() {
                Ok(body)
            } else {
                Err(self.refused(status.status, &body))
            }
        };
        match tokio::time::timeout(self.timeout, exchange).await {
            Ok(done) => done,
            Err(_) => {
                Err(ClientError::TimedOut { socket: self.socket.clone(), after: self.timeout })
            }
        }
    }

    async fn send(
        &self,
        stream: UnixStream,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Bytes>, ClientError> {
        let broken = |source| ClientError::Broken { socket: self.socket.clone(), source };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // Dropping the set at the end of this call closes the connection.
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|error| self.unreadable(&error, &[]))?;
        let (parts, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
        match Limited::new(body, REPLY_BYTES_MAX).collect().await {
            Ok(body) => Ok(Response::from_parts(parts, body.to_bytes())),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(ClientError::TooLarge { socket: self.socket.clone() })
            }
            Err(error) => match error.downcast::<hyper::Error>() {
                Ok(source) => Err(broken(*source)),
                Err(error) => Err(self.unreadable(&error, &[])),
            },
        }
    }

    fn connect(&self, source: io::Error) -> ClientError {
        let socket = self.socket.clone();
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ClientError::NoDaemon { socket }
            }
            io::ErrorKind::PermissionDenied => {
                let remedy = remedy(&socket);
                ClientError::PermissionDenied { socket, remedy }
            }
            _ => ClientError::Connect { socket, source },
        }
    }

    fn refused(&self, status: StatusCode, body: &[u8]) -> ClientError {
        match serde_json::from_slice::<ErrorReply>(body) {
            Ok(reply) => ClientError::Refused { status: status.as_u16(), reply: Box::new(reply) },
            Err(_) => self.unreadable(&format_args!("HTTP status {status}"), body),
        }
    }

    fn unreadable(&self, why: &dyn Display, body: &[u8]) -> ClientError {
        let text = String::from_utf8_lossy(body);
        let excerpt: String = text.trim().chars().take(EXCERPT_CHARS_MAX).collect();
        let why = if excerpt.is_empty() { why.to_string() } else { format!("{why}: {excerpt:?}") };
        ClientError::Unreadable { socket: self.socket.clone(), why }
    }
}

/// Guest names need no escaping in a path: see [`GuestId`].
fn of_guest(path: &str, guest: &GuestId) -> String {
    path.replace("{id}", guest.as_str())
}

/// Which users may open `socket`, according to its file mode.
fn remedy(socket: &Path) -> String {
    const GROUP_WRITE: u32 = 0o020;
    let Ok(file) = std::fs::metadata(socket) else {
        return "its folder is closed to this user: run as the daemon's user or as root".to_owned();
    };
    if file.mode() & GROUP_WRITE == 0 {
        return "it is open to the daemon's user and root alone; a `group` in the daemon's \
                configuration opens it for reading"
            .to_owned();
    }
    let group = Group::from_gid(Gid::from_raw(file.gid())).ok().flatten().map(|group| group.name);
    match group {
        Some(name) => format!("join the group `{name}`, or run as the daemon's user or as root"),
        None => format!("join the group {}, or run as the daemon's user or as root", file.gid()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Root may open every socket, so only the text of the refusal is tested.
    #[test]
    fn without_permission_the_error_says_whom_to_be() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("ballast.sock");
        let client = Client::new(&socket);
        let refusal = || client.connect(io::ErrorKind::PermissionDenied.into()).to_string();
        assert!(refusal().contains("its folder is closed to this user"), "{}", refusal());
        std::fs::write(&socket, "").unwrap();
        let set_mode = |mode| {
            std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set_mode(0o600);
        assert!(refusal().contains("open to the daemon's user and root alone"), "{}", refusal());
        set_mode(0o660);
        let group = Group::from_gid(Gid::current()).unwrap().unwrap().name;
        assert!(refusal().contains(&format!("join the group `{group}`")), "{}", refusal());
    }
}
