//! How the connection between the daemon and a guest's agent is made.
//!
//! Idea: with virtio-serial, the daemon connects to a port of the guest. With vsock, the agent
//! connects to the daemon. Vsock connections of QEMU's guests come through the host's kernel, which
//! reports the guest's number (CID); two guests cannot have the same one, and the hypervisor says
//! which guest has it. Cloud Hypervisor and Firecracker connect to a Unix socket that the daemon
//! opens for each guest ([`HybridSocket`]); the kernel reports the connecting process. So no guest
//! can speak for another.
//!
//! Source: vsock(7); docs/vsock.md of Cloud Hypervisor and of Firecracker. Limits: any program in a
//! guest may connect by vsock, not only root's; it speaks for its own guest. All guests share one
//! vsock listener: while one guest floods it, others may have to try more than once.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ballast_agent_proto::wire::VSOCK_PORT;
use ballast_qmp::client::peer_pid;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, VsockAddr, bind, getpeername, listen, socket,
};
use rustix::net::{SocketFlags, accept_with};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tracing::info;

use super::connection_limiter::ConnectionLimiter;
use super::hybrid_socket::HybridSocket;
use super::latest::Shared;
use crate::clock;
use crate::worker::lock;

/// Vsock connections of the kernel that may wait to be accepted.
const BACKLOG: i32 = 64;
/// Pause after a connection could not be accepted, for example for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// Refused connections before a pause, and that pause. They limit a flood to 12 800 refusals a
/// second, of some microseconds each, so that other guests' connections still get accepted.
const REFUSALS_MAX: u32 = 64;
const REFUSALS_PAUSE: Duration = Duration::from_millis(5);
/// Most contexts (CIDs) of no known guest that the log names.
const STRANGERS_MAX: usize = 64;
/// Listen on any context.
const CID_ANY: u32 = u32::MAX;

/// Where the connection of a guest's agent comes from.
#[derive(Debug)]
pub(super) enum AgentTransport {
    /// The daemon connects to the guest's port, a socket of its hypervisor.
    Port(PathBuf),
    /// The hypervisor connects to a socket of the daemon.
    Hybrid(HybridSocket),
    /// The kernel accepts vsock connections; the daemon passes them on.
    Vsock(mpsc::Receiver<UnixStream>),
}

impl AgentTransport {
    /// Waits for a connection. `None`: there is none now, or it must not be used.
    pub(super) async fn open(&mut self, shared: &Shared) -> Option<UnixStream> {
        match self {
            AgentTransport::Port(path) => {
                let stream = UnixStream::connect(&*path).await.ok()?;
                let pid = peer_pid(&stream);
                shared.admits(pid, path, clock::now()).then_some(stream)
            }
            AgentTransport::Hybrid(socket) => socket.accept(shared).await,
            AgentTransport::Vsock(streams) => match streams.recv().await {
                Some(stream) => Some(stream),
                None => std::future::pending().await,
            },
        }
    }
}

/// Where a guest's vsock connections go.
#[derive(Debug)]
struct RouteEntry {
    sender: mpsc::Sender<UnixStream>,
    limiter: ConnectionLimiter,
}

/// Routes of vsock connections, by context.
type Routes = Arc<Mutex<BTreeMap<u32, RouteEntry>>>;

/// Accepts the vsock connections of all guests from the kernel.
#[derive(Debug)]
pub(super) struct VsockListener {
    routes: Routes,
    task: AbortHandle,
}

/// The route of one guest's connections. Dropping it closes it.
#[derive(Debug)]
pub(super) struct VsockRoute {
    cid: u32,
    routes: Routes,
}

impl Drop for VsockRoute {
    fn drop(&mut self) {
        lock(&self.routes).remove(&self.cid);
    }
}

impl Drop for VsockListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl VsockListener {
    /// Listens on the agents' port. Needs a tokio runtime.
    ///
    /// # Errors
    /// The kernel has no vsock, or another process listens there.
    pub(super) fn start() -> io::Result<VsockListener> {
        VsockListener::start_at(VSOCK_PORT)
    }

    /// One to which nobody connects.
    #[cfg(test)]
    pub(super) fn unconnected() -> VsockListener {
        let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
        VsockListener { routes: Routes::default(), task }
    }

    fn start_at(port: u32) -> io::Result<VsockListener> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Vsock, SockType::Stream, flags, None)?;
        bind(fd.as_raw_fd(), &VsockAddr::new(CID_ANY, port))?;
        listen(&fd, Backlog::new(BACKLOG)?)?;
        let routes = Routes::default();
        let task = tokio::spawn(accept_all(tokio_stream(fd)?, Arc::clone(&routes))).abort_handle();
        Ok(VsockListener { routes, task })
    }

    /// Takes the connections of the guest with this context from now on. `None`: another guest has
    /// the context.
    pub(super) fn route(&self, cid: u32) -> Option<(VsockRoute, mpsc::Receiver<UnixStream>)> {
        let mut routes = lock(&self.routes);
        if routes.contains_key(&cid) {
            return None;
        }
        // One more connection may wait until the earlier one is found to be over.
        let (sender, receiver) = mpsc::channel(1);
        routes.insert(cid, RouteEntry { sender, limiter: ConnectionLimiter::default() });
        Some((VsockRoute { cid, routes: Arc::clone(&self.routes) }, receiver))
    }
}

/// Accepts connections and passes each on to its guest. Never ends.
async fn accept_all(listener: UnixStream, routes: Routes) {
    let mut strangers = Vec::new();
    let mut refusals = 0;
    loop {
        let accepted = listener.async_io(Interest::READABLE, || accept(&listener)).await;
        let Ok((cid, socket)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let mut is_stranger = true;
        if let Some(cid) = cid
            && let Some(route) = lock(&routes).get_mut(&cid)
        {
            is_stranger = false;
            if route.limiter.admits(clock::now()) {
                if let Ok(stream) = tokio_stream(socket) {
                    drop(route.sender.try_send(stream));
                }
                continue;
            }
        }
        drop(socket);
        refusals += 1;
        if refusals == REFUSALS_MAX {
            refusals = 0;
            tokio::time::sleep(REFUSALS_PAUSE).await;
        }
        if let Some(cid) = cid
            && is_stranger
            && strangers.len() < STRANGERS_MAX
            && !strangers.contains(&cid)
        {
            strangers.push(cid);
            info!("refused a connection by vsock: no guest is known to have context {cid}");
        }
    }
}

/// Accepts a connection. Returns it with its context; `None`: the peer has closed it already.
fn accept(listener: &UnixStream) -> io::Result<(Option<u32>, OwnedFd)> {
    let fd = accept_with(listener.as_fd(), SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    let cid = getpeername::<VsockAddr>(fd.as_raw_fd()).ok().map(|peer| peer.cid());
    Ok((cid, fd))
}

/// A socket as tokio's stream. tokio does not know vsock, but treats all stream sockets alike.
fn tokio_stream(socket: OwnedFd) -> io::Result<UnixStream> {
    UnixStream::from_std(std::os::unix::net::UnixStream::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    /// The context of this machine itself, which exists with the module `vsock_loopback`.
    const CID_LOCAL: u32 = 1;
    /// A port of no agent.
    const PORT: u32 = 29_873;

    #[tokio::test]
    async fn connections_by_vsock_go_to_the_guest_of_their_context() {
        let listener = match VsockListener::start_at(PORT) {
            Ok(listener) => listener,
            Err(error) => return println!("SKIPPED: this kernel has no vsock: {error}"),
        };
        let (route, mut streams) = listener.route(CID_LOCAL).unwrap();
        assert!(listener.route(CID_LOCAL).is_none(), "it has one");
        let connect = || {
            let kind = SockType::Stream;
            let fd = socket(AddressFamily::Vsock, kind, SockFlag::SOCK_CLOEXEC, None).unwrap();
            let done = nix::sys::socket::connect(fd.as_raw_fd(), &VsockAddr::new(CID_LOCAL, PORT));
            done.map(|()| fd)
        };
        let connected = tokio::task::spawn_blocking(connect);
        let Ok(Ok(Ok(outside))) = tokio::time::timeout(Duration::from_secs(5), connected).await
        else {
            return println!("SKIPPED: this kernel has no vsock_loopback");
        };
        let mut inside = streams.recv().await.unwrap();
        nix::unistd::write(&outside, b"agent").unwrap();
        let mut read = [0; 5];
        inside.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"agent");
        drop(route);
        let Ok(mut refused) = connect() else { panic!("the listener is gone") };
        let mut read = [0; 5];
        let len = nix::unistd::read(&mut refused, &mut read).unwrap_or(0);
        assert_eq!(len, 0, "its guest is gone");
    }
}
