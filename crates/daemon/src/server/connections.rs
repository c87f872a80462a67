//! Accepts connections and limits their number and duration.
//!
//! Idea: each accepted connection's peer is identified and takes one of a bounded number of places.
//! Readers have separate places, so they cannot keep the owner out. Every connection has a time
//! limit, also one whose client does not read.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::access::{Access, AccessPolicy, Peer};
use super::socket::Socket;

/// Most concurrent connections of the daemon's user and root.
const WRITERS_MAX: usize = 32;
/// Most concurrent connections of everybody else.
pub(super) const READERS_MAX: usize = 32;
/// Time limit for receiving a request's head.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// Time limit of a connection; a polling client opens a new one.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(120);
/// Most bytes of a request's head, and of its buffered body.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Pause when the process has no file descriptors left.
pub(super) const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
/// Time open connections have to finish at shutdown.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);

/// Serves `router` on `socket` until `shutdown` completes. `identify` returns a connection's peer.
pub(super) async fn serve(
    socket: &Socket,
    policy: AccessPolicy,
    identify: impl Fn(&UnixStream) -> io::Result<Peer>,
    router: Router,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let listener = socket.listener()?;
    let writers = Arc::new(Semaphore::new(WRITERS_MAX));
    let readers = Arc::new(Semaphore::new(READERS_MAX));
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        let stream = tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => continue,
            taken = listener.accept() => match taken {
                Ok((stream, _)) => stream,
                Err(error) if is_temporary(&error) => {
                    tracing::warn!("the API cannot accept a connection: {error}");
                    tokio::time::sleep(EXHAUSTED_PAUSE).await;
                    continue;
                }
                Err(error) => return Err(error),
            },
        };
        let peer = match identify(&stream) {
            Ok(peer) => peer,
            Err(error) => {
                tracing::warn!("the API cannot identify a peer: {error}");
                continue;
            }
        };
        let access = policy.access(&peer);
        let places = if access == Access::Write { &writers } else { &readers };
        // Close the connection at once: waiting would let readers keep the owner out.
        let Ok(place) = places.clone().try_acquire_owned() else {
            tracing::warn!("the API refuses user {}: too many connections", peer.uid);
            continue;
        };
        let router = router.clone().layer(Extension(access));
        connections.spawn(async move {
            converse(stream, router).await;
            drop(place);
        });
    }
    let drained = async { while connections.join_next().await.is_some() {} };
    // Dropping the set closes the connections that remain.
    let _ = tokio::time::timeout(DRAIN_TIME_MAX, drained).await;
    Ok(())
}

/// Serves one connection to its end. Errors concern only the client, so they are logged as debug.
pub(super) async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
) {
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    match tokio::time::timeout(CONNECTION_TIME_MAX, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("a connection to the API ended: {error}"),
        Err(_) => tracing::debug!("a connection to the API reached its time limit"),
    }
}

/// Whether accepting connections may work again later.
pub(super) fn is_temporary(error: &io::Error) -> bool {
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|code| exhausted.contains(&code))
        || matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}
