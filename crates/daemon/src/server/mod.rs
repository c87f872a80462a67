//! The daemon's API: HTTP over a Unix socket.
//!
//! Idea: the server serves the daemon's latest view and passes commands to its main loop; it knows
//! nothing else of the daemon ([`Handle`]). Access control is by Unix users: the socket's mode
//! keeps strangers out, and each connection's peer credentials are checked again. Metrics alone may
//! have a TCP port beside it ([`MetricsPort`]).
//!
//! Use: [`Server::bind`] while the daemon starts (it fails while another daemon listens), then
//! [`Server::run`] as a task or on a thread with its own runtime. Dropping the server removes the
//! socket's file.

mod access;
mod connections;
#[cfg(any(test, feature = "testing"))]
#[allow(missing_docs, reason = "for tests")]
pub mod fixture;
mod metrics;
mod metrics_port;
mod reply;
pub mod routes;
mod socket;

use std::future::Future;
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Group};

pub use self::access::{Access, AccessPolicy, Peer};
pub use self::metrics_port::MetricsPort;
pub use self::socket::SocketError;
use crate::view::Handle;

/// Where the API listens and who may use it.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Path of the socket; a missing parent folder is created.
    pub socket: PathBuf,
    /// Name or number of the group that may read; `None`: only the daemon's user and root.
    pub group: Option<String>,
    /// A TCP port for metrics alone; `None`: only the socket has them.
    pub metrics: Option<MetricsPort>,
}

/// Why the API cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The configured group does not exist.
    #[error("group `{0}` does not exist on this machine: create it, or name another")]
    UnknownGroup(String),
    /// The group could not be looked up.
    #[error("cannot look up group `{group}`: {source}")]
    GroupLookup {
        /// The group.
        group: String,
        /// The cause.
        source: nix::Error,
    },
    /// The socket cannot be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The server's runtime cannot be made.
    #[error("cannot make a runtime for the API: {0}")]
    Runtime(std::io::Error),
    /// Accepting connections failed.
    #[error("the API on {} cannot take connections: {source}", .socket.display())]
    Accept {
        /// The socket.
        socket: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

/// A listening socket that is not served yet: connections wait in its queue.
#[derive(Debug)]
pub struct Server {
    socket: socket::Socket,
    policy: AccessPolicy,
    metrics: Option<MetricsPort>,
}

impl Server {
    /// Opens the socket, replacing a stale one, and restricts it to the daemon's user and the
    /// group. Needs no runtime.
    ///
    /// # Errors
    /// Another daemon listens, the group is unknown, or the socket cannot be created.
    pub fn bind(config: &ServerConfig) -> Result<Server, ServerError> {
        let group = config.group.as_deref().map(find_group).transpose()?;
        let socket = socket::Socket::bind(&config.socket, group)?;
        let owner = rustix::process::geteuid().as_raw();
        let policy = AccessPolicy { owner, group: group.map(Gid::as_raw) };
        Ok(Server { socket, policy, metrics: config.metrics.clone() })
    }

    /// The path of the socket.
    pub fn socket(&self) -> &Path {
        self.socket.path()
    }

    /// Serves until `shutdown` completes, then removes the socket and closes open connections
    /// within a bounded time.
    ///
    /// # Errors
    /// Accepting connections fails permanently.
    pub async fn run(
        self,
        handle: Handle,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServerError> {
        let only_metrics = routes::only_metrics(handle.clone());
        let metrics = metrics_port::serve_if_any(self.metrics.as_ref(), only_metrics);
        let router = routes::router(handle);
        let api = connections::serve(&self.socket, self.policy, Peer::of, router, shutdown);
        let served = tokio::select! {
            served = api => served,
            never = metrics => match never {},
        };
        served.map_err(|source| ServerError::Accept { socket: self.socket().to_owned(), source })
    }
}

/// [`Server::bind`] and [`Server::run`] in one.
///
/// # Errors
/// As [`Server::bind`] and [`Server::run`].
pub async fn serve(
    handle: Handle,
    config: ServerConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServerError> {
    Server::bind(&config)?.run(handle, shutdown).await
}

fn find_group(group: &str) -> Result<Gid, ServerError> {
    if let Ok(number) = group.parse() {
        return Ok(Gid::from_raw(number));
    }
    match Group::from_name(group) {
        Ok(Some(found)) => Ok(found.gid),
        Ok(None) => Err(ServerError::UnknownGroup(group.to_owned())),
        Err(source) => Err(ServerError::GroupLookup { group: group.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests;
