//! The daemon's API and its page: HTTP over a Unix socket and, if configured, over a loopback port.
//!
//! Idea: the server serves the daemon's latest view and passes commands to its main loop; it knows
//! nothing else of the daemon ([`Handle`]). On the socket, access is by Unix users: the socket's
//! mode keeps strangers out, and each connection's peer credentials are checked as well. On the
//! port, access is by tokens (`page/`). If the port cannot be opened, that is reported and only the
//! socket is served. Metrics may also have a TCP port of their own ([`MetricsPort`]).
//!
//! Use: [`Server::bind`] while the daemon starts (it fails while another daemon listens), then
//! [`Server::run`] as a task or on a thread with its own runtime. Dropping the server removes the
//! socket's file.

mod access;
mod connections;
#[cfg(any(test, feature = "testing"))]
#[allow(missing_docs, reason = "for tests")]
pub mod fixture;
mod fleet;
mod metrics;
mod metrics_port;
mod page;
mod reply;
mod route;
pub mod routes;
mod socket;
mod what_if;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::{Router, middleware};
use ballast_config::PageSettings;
use nix::unistd::{Gid, Group};
use tokio::sync::Semaphore;

pub use self::access::{Access, AccessPolicy, Peer};
pub use self::metrics_port::MetricsPort;
pub use self::page::{Explain, PortError};
use self::page::{Keys, Listeners, Port, Site, Tokens};
pub use self::socket::SocketError;
pub use self::what_if::ReplayProgram;
use crate::view::Handle;

/// Where the API listens, who may use it, and what the page shows.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Path of the socket; a missing parent folder is created.
    pub socket: PathBuf,
    /// Name or number of the group that may read; `None`: only the daemon's user and root.
    pub group: Option<String>,
    /// The page's port and names.
    pub page: PageSettings,
    /// The journal with which the page's plots begin; `None`: they begin when the page is opened.
    pub journal: Option<PathBuf>,
    /// The program that replays that journal under other policies.
    pub replay: ReplayProgram,
    /// Renders an explanation for the page.
    pub explain: Explain,
    /// A TCP port for metrics only; `None`: only the socket has them.
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
    /// The kernel gives no random bytes for the page's secrets.
    #[error("cannot make the page's secrets: {0}")]
    Secret(std::io::Error),
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

/// A listening socket that is not served yet; connections wait in its queue.
pub struct Server {
    socket: socket::Socket,
    policy: AccessPolicy,
    port: Option<Port>,
    port_error: Option<PortError>,
    config: ServerConfig,
}

impl Server {
    /// Opens the socket, replacing a stale one, and restricts it to the daemon's user and the
    /// group. Then opens the page's port, if configured. Needs no runtime.
    ///
    /// # Errors
    /// Another daemon listens, the group is unknown, or the socket cannot be created. A port that
    /// cannot be opened is not an error here ([`Server::port_error`]).
    pub fn bind(config: &ServerConfig) -> Result<Server, ServerError> {
        let group = config.group.as_deref().map(find_group).transpose()?;
        let socket = socket::Socket::bind(&config.socket, group)?;
        let owner = rustix::process::geteuid().as_raw();
        let policy = AccessPolicy { owner, group: group.map(Gid::as_raw) };
        let opened = config.page.port.as_ref().map(Port::open).transpose();
        let (port, port_error) = match opened {
            Ok(port) => (port, None),
            Err(error) => (None, Some(error)),
        };
        Ok(Server { socket, policy, port, port_error, config: config.clone() })
    }

    /// The path of the socket.
    pub fn socket(&self) -> &Path {
        self.socket.path()
    }

    /// The address of the page's port; `None`: it is not open.
    pub fn port(&self) -> Option<std::net::SocketAddr> {
        self.port.as_ref().map(|port| port.address)
    }

    /// Why the page's port is not open although it is configured.
    pub fn port_error(&self) -> Option<&PortError> {
        self.port_error.as_ref()
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
        self.run_for(Peer::of, handle, shutdown).await
    }

    /// As [`Server::run`], with another way to identify a connection's peer.
    async fn run_for(
        self,
        identify: impl Fn(&tokio::net::UnixStream) -> std::io::Result<Peer>,
        handle: Handle,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServerError> {
        let Server { socket, policy, port, config, .. } = self;
        let (listener, tokens, number) = match port {
            Some(Port { listener, address, tokens }) => {
                (Some(listener), tokens, Some(address.port()))
            }
            None => (None, Tokens::default(), None),
        };
        let keys = Keys::new(config.page.hosts, tokens, number).map_err(ServerError::Secret)?;
        let listeners = Arc::new(Listeners::default());
        let view = handle.view.clone();
        let only_metrics = routes::only_metrics(handle.clone());
        let metrics = metrics_port::serve_if_any(config.metrics.as_ref(), only_metrics);
        let asked = what_if::router(config.replay, config.journal.clone())
            .merge(fleet::router(&config.socket));
        let site = Site {
            handle,
            keys: Arc::new(keys),
            listeners: Arc::clone(&listeners),
            explain: config.explain,
            journal: config.journal,
            journal_reader: Arc::new(Semaphore::new(1)),
            wrong_tokens: Arc::default(),
        };
        let router = site_router(site, asked);
        let entrances = connections::Entrances { socket: &socket, policy, port: listener.as_ref() };
        let feeding = async {
            listeners.feed(view).await;
            std::future::pending().await
        };
        let served = tokio::select! {
            served = connections::serve(entrances, identify, router, shutdown) => served,
            never = feeding => never,
            never = metrics => match never {},
        };
        served.map_err(|source| ServerError::Accept { socket: config.socket, source })
    }
}

/// The API and the page behind one admission. Routes in `asked` are answered by other programs.
fn site_router(site: Site, asked: Router) -> Router {
    let keys = Arc::clone(&site.keys);
    routes::router(site.handle.clone())
        .merge(asked)
        .merge(page::router(site))
        .layer(middleware::from_fn_with_state(keys, page::admit))
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
