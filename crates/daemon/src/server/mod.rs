//! The daemon's API: HTTP over a Unix socket.
//!
//! Idea: the server shows the daemon's latest view and hands commands to its main loop; it knows
//! nothing else of the daemon ([`Handle`]). The kernel says who asks: the socket's mode keeps
//! strangers out, and every connection is checked once more by its peer credentials.
//!
//! Use: [`Server::bind`] while the daemon starts (it fails while another daemon listens), then
//! [`Server::run`] as a task or on a thread with a runtime of its own. The socket's file goes when
//! the server is dropped.

mod access;
mod connections;
#[cfg(test)]
pub(crate) mod fixture;
mod metrics;
mod reply;
pub(crate) mod routes;
mod socket;

use std::future::Future;
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Group};

pub use self::access::{Access, AccessPolicy, Peer};
pub(crate) use self::reply::nearest;
pub use self::socket::SocketError;
use crate::daemon::view::Handle;

/// Where the API listens and who may use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Path of the socket. A missing parent folder is created.
    pub socket: PathBuf,
    /// Name or number of the group that may read; `None`: only the daemon's user and root.
    pub group: Option<String>,
}

/// Why the API cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The configured group is not known to the system.
    #[error("group `{0}` does not exist on this machine: create it, or name another")]
    UnknownGroup(String),
    /// The group could not be looked up.
    #[error("cannot look up group `{group}`: {source}")]
    GroupLookup {
        /// The group.
        group: String,
        /// How it failed.
        source: nix::Error,
    },
    /// The socket cannot be had.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// No more connections can be taken.
    #[error("the API on {} cannot take connections: {source}", .socket.display())]
    Accept {
        /// The socket.
        socket: PathBuf,
        /// How it failed.
        source: std::io::Error,
    },
}

/// A bound socket that is not served yet: connections wait in its queue.
#[derive(Debug)]
pub struct Server {
    socket: socket::Socket,
    policy: AccessPolicy,
}

impl Server {
    /// Takes the socket: replaces one that nobody listens on, gives it to the group and opens it to
    /// nobody else. Needs no runtime.
    ///
    /// # Errors
    /// Another daemon listens, the group is unknown, or the socket cannot be made.
    pub fn bind(config: &ServerConfig) -> Result<Server, ServerError> {
        let group = config.group.as_deref().map(find_group).transpose()?;
        let socket = socket::Socket::bind(&config.socket, group)?;
        let owner = rustix::process::geteuid().as_raw();
        Ok(Server { socket, policy: AccessPolicy { owner, group: group.map(Gid::as_raw) } })
    }

    /// The path of the socket.
    pub fn socket(&self) -> &Path {
        self.socket.path()
    }

    /// Serves until `shutdown` is done, then removes the socket. Connections still open are closed
    /// within a bounded time.
    ///
    /// # Errors
    /// The socket stops taking connections for a reason that will not pass.
    pub async fn run(
        self,
        handle: Handle,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServerError> {
        connections::serve(&self.socket, self.policy, Peer::of, routes::router(handle), shutdown)
            .await
            .map_err(|source| ServerError::Accept { socket: self.socket().to_owned(), source })
    }
}

/// [`Server::bind`] and [`Server::run`] in one.
///
/// # Errors
/// Those of both.
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
