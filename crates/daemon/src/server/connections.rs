//! Accepts connections and limits their number and duration.
//!
//! Idea: each connection's peer is identified and takes one of a bounded number of places. Readers
//! and the page's port have separate places, so they cannot keep the owner out. Every connection
//! has a time limit, even if its client does not read; one that is answering a request then ends
//! after the answer. Any client can cause refusals, so their log lines are rate-limited.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::access::{Access, AccessPolicy, Peer};
use super::page::Entrance;
use super::socket::Socket;
use crate::rate_limited::RateLimited;

/// Most concurrent connections of the daemon's user and root.
const WRITERS_MAX: usize = 32;
/// Most concurrent connections of other users.
pub(super) const READERS_MAX: usize = 32;
/// Most concurrent connections through the page's port, which anyone with an account on this
/// machine can open.
pub(super) const VISITORS_MAX: usize = 32;
/// Time limit for receiving a request's head.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a connection takes requests; after that, a polling client opens a new one.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(105);
/// Time for the last answer after that.
const LAST_ANSWER_TIME_MAX: Duration = Duration::from_secs(15);
/// How long a connection sends live events: less than it takes requests, so that they end in order.
pub(super) const STREAM_TIME_MAX: Duration = Duration::from_secs(100);
/// Most bytes of a request's head, and of its buffered body.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Pause when the process has no file descriptors left.
pub(super) const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
/// Time open connections have to finish at shutdown.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);

/// When a connection was accepted; its requests have this as an extension.
#[derive(Clone, Copy, Debug)]
pub(super) struct Began(pub(super) Instant);

/// Where connections come from.
pub(super) struct Entrances<'a> {
    /// The API's socket.
    pub(super) socket: &'a Socket,
    /// What its peers may do.
    pub(super) policy: AccessPolicy,
    /// The page's port, if there is one.
    pub(super) port: Option<&'a std::net::TcpListener>,
}

/// A stream of any kind: one type, so that the program has the server's code only once.
pub(super) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Places for connections of one kind.
struct Places {
    free: Arc<Semaphore>,
    /// Limits the log lines about connections that found no place.
    refusals: RateLimited,
}

impl Places {
    fn new(most: usize) -> Places {
        Places { free: Arc::new(Semaphore::new(most)), refusals: RateLimited::default() }
    }
}

/// A connection, by its entrance.
enum ClientStream {
    Socket(UnixStream),
    Port(TcpStream),
}

/// Serves `router` at the entrances until `shutdown` completes. `identify` returns a connection's
/// peer.
pub(super) async fn serve(
    entrances: Entrances<'_>,
    identify: impl Fn(&UnixStream) -> io::Result<Peer>,
    router: Router,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let socket = entrances.socket.listener()?;
    let mut port = entrances.port.map(|it| TcpListener::from_std(it.try_clone()?)).transpose()?;
    let [mut writers, mut readers, mut visitors] =
        [WRITERS_MAX, READERS_MAX, VISITORS_MAX].map(Places::new);
    let [mut unaccepted, mut unidentified] = <[RateLimited; 2]>::default();
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        let taken = tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => continue,
            taken = socket.accept() => taken.map(|(stream, _)| ClientStream::Socket(stream)),
            taken = accepted(port.as_ref()) => match taken {
                // Whatever happens to the port, the socket is served.
                Err(error) if !is_temporary(&error) => {
                    tracing::warn!("the page's port takes no more connections: {error}");
                    port = None;
                    continue;
                }
                taken => taken.map(ClientStream::Port),
            },
        };
        let stream = match taken {
            Ok(stream) => stream,
            Err(error) if is_temporary(&error) => {
                unaccepted.warn(format!("the API cannot accept a connection: {error}"));
                tokio::time::sleep(EXHAUSTED_PAUSE).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        let (entrance, places, who) = match &stream {
            ClientStream::Port(_) => {
                (Entrance::Port, &mut visitors, "somebody at the page's port".to_owned())
            }
            ClientStream::Socket(stream) => match identify(stream) {
                Ok(peer) => {
                    let access = entrances.policy.access(&peer);
                    let places = if access == Access::Write { &mut writers } else { &mut readers };
                    (
                        Entrance::Socket { access, uid: peer.uid },
                        places,
                        format!("user {}", peer.uid),
                    )
                }
                Err(error) => {
                    unidentified.warn(format!("the API cannot identify a peer: {error}"));
                    continue;
                }
            },
        };
        // Close the connection at once: waiting would let readers keep the owner out.
        let Ok(place) = Arc::clone(&places.free).try_acquire_owned() else {
            places.refusals.warn(format!("the API refuses {who}: too many connections"));
            continue;
        };
        let stream: Box<dyn Connection> = match stream {
            ClientStream::Socket(stream) => Box::new(stream),
            ClientStream::Port(stream) => Box::new(stream),
        };
        connections.spawn(converse(stream, Some(entrance), router.clone(), place));
    }
    let drained = async { while connections.join_next().await.is_some() {} };
    // Dropping the set closes the connections that remain.
    let _ = tokio::time::timeout(DRAIN_TIME_MAX, drained).await;
    Ok(())
}

/// The next connection to the port; without a port, none ever comes.
async fn accepted(port: Option<&TcpListener>) -> io::Result<TcpStream> {
    let Some(port) = port else { return std::future::pending().await };
    let (stream, _) = port.accept().await?;
    // Events are small and must not be delayed.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Serves one connection to its end, and then frees its place. Its requests get `entrance` as an
/// extension; `None`: the router has no admission. Errors concern only the client, so they are
/// logged as debug.
pub(super) async fn converse(
    stream: Box<dyn Connection>,
    entrance: Option<Entrance>,
    router: Router,
    _place: OwnedSemaphorePermit,
) {
    let (began, router) = (Began(Instant::now()), TowerToHyperService::new(router));
    let answer = move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(began);
        if let Some(entrance) = entrance {
            request.extensions_mut().insert(entrance);
        }
        router.call(request)
    };
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    let mut connection = std::pin::pin!(connection);
    let mut ended = tokio::time::timeout(CONNECTION_TIME_MAX, connection.as_mut()).await;
    if ended.is_err() {
        connection.as_mut().graceful_shutdown();
        ended = tokio::time::timeout(LAST_ANSWER_TIME_MAX, connection).await;
    }
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("a connection to the API ended: {error}"),
        Err(_) => tracing::debug!("a connection to the API reached its time limit"),
    }
}

/// Whether accepting connections may work again later.
pub(super) fn is_temporary(error: &io::Error) -> bool {
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    // Errors of a TCP connection before it was accepted, as Linux reports them.
    let of_network = [Errno::NETDOWN, Errno::PROTO, Errno::HOSTUNREACH, Errno::NETUNREACH];
    Errno::from_io_error(error)
        .is_some_and(|code| exhausted.contains(&code) || of_network.contains(&code))
        || matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}
