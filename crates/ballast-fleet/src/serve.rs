//! What a member answers on its host: the fleet, for the daemon's page, and metrics.
//!
//! Idea: the daemon may not use the network (its unit closes it) and has no access to etcd. So it
//! asks the member, on a socket beside its own that only root and the program's user may open.
//! Metrics may also have a TCP port, as Prometheus scrapes no Unix sockets. If a socket or port
//! cannot be opened, that is reported and tried again; nothing else depends on it.
//! Cost: each question about the fleet reads all keys. The daemon asks at most once in some
//! seconds, however many pages are open.
//! Limits: at most [`CONNECTIONS_MAX`] connections at once on each; further ones are closed. No
//! encryption.

use std::fs::Permissions;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use ballast_api::{ErrorReply, FleetReply, MetricsFormat, fleet_socket, path};
use ballast_etcd::EtcdClient;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::commands::{plan, read, status};
use crate::config::FleetConfig;
use crate::metrics::FleetMetrics;
use crate::status_log::StatusLog;
use crate::timed::TimedCoordinator;

/// Most connections at once on the socket, and on the port.
const CONNECTIONS_MAX: usize = 8;
/// Longest time for a request's head to arrive.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest duration of a connection: longer than any answer takes.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(90);
/// Most bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Time until a socket or port that could not be opened is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// Pause when the process has no file descriptors left, or a connection broke.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What answers are made from.
pub(crate) struct FleetService {
    /// etcd, for questions about the fleet.
    pub(crate) coordinator: TimedCoordinator<EtcdClient>,
    /// The configuration, which names the fleet.
    pub(crate) config: FleetConfig,
    /// What the metrics report.
    pub(crate) metrics: Arc<FleetMetrics>,
}

/// Serves the socket beside the daemon's, and the port for metrics if configured, for ever.
pub(crate) async fn serve(service: FleetService, daemon: &Path, status_log: &StatusLog) {
    let (port, service) = (service.config.metrics, Arc::new(service));
    let socket = fleet_socket(daemon);
    let figures = Router::new().route(path::METRICS, get(metrics)).with_state(service.clone());
    let all = figures.clone().route(path::FLEET, get(fleet).with_state(service));
    let on_socket = async {
        loop {
            let error = match listen(&socket).await {
                Ok(listener) => accept(async || Ok(listener.accept().await?.0), &all).await,
                Err(error) => error,
            };
            let file = socket.display();
            status_log.log("socket", &format!("the daemon's page shows no fleet: {file}: {error}"));
            sleep(RETRY_AFTER).await;
        }
    };
    let on_port = async {
        let Some(address) = port else { return std::future::pending().await };
        loop {
            let error = match TcpListener::bind(address).await {
                Ok(listener) => {
                    let at = listener.local_addr().unwrap_or(address);
                    status_log.log("metrics", &served(at));
                    accept(async || Ok(listener.accept().await?.0), &figures).await
                }
                Err(error) => error,
            };
            let text = format!("no metrics on {address}: {error} (metrics.listen)");
            status_log.log("metrics", &text);
            sleep(RETRY_AFTER).await;
        }
    };
    tokio::join!(on_socket, on_port);
}

fn served(at: SocketAddr) -> String {
    let all = match at.ip().is_loopback() {
        true => "",
        false => ", for everybody who reaches that address",
    };
    format!("metrics on http://{at}/metrics{all}")
}

/// Listens on `socket`, and replaces a socket that no program listens on any more.
async fn listen(socket: &Path) -> io::Result<UnixListener> {
    if std::fs::symlink_metadata(socket).is_ok_and(|it| it.file_type().is_socket()) {
        if UnixStream::connect(socket).await.is_ok() {
            return Err(io::Error::other("another ballast-fleet serves this daemon: end one"));
        }
        std::fs::remove_file(socket)?;
    }
    let listener = UnixListener::bind(socket)?;
    std::fs::set_permissions(socket, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Accepts connections until that fails for good.
async fn accept<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    accept: impl AsyncFn() -> io::Result<S>,
    router: &Router,
) -> io::Error {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Dropping the set closes all connections.
    let mut connections = JoinSet::new();
    let mut failures = 0;
    loop {
        let accepted = tokio::select! {
            Some(_) = connections.join_next() => continue,
            accepted = accept() => accepted,
        };
        match accepted {
            Ok(stream) => {
                failures = 0;
                let Ok(place) = places.clone().try_acquire_owned() else { continue };
                let router = router.clone();
                connections.spawn(async move {
                    converse(stream, router).await;
                    drop(place);
                });
            }
            Err(error) if failures >= CONNECTIONS_MAX => return error,
            Err(_) => {
                failures += 1;
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves one connection to its end. Its failures concern only its client.
async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router) {
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let _ = timeout(CONNECTION_TIME_MAX, pin!(connection)).await;
}

async fn metrics(State(service): State<Arc<FleetService>>, headers: HeaderMap) -> Response {
    let accepted = headers.get(ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let format = MetricsFormat::accepted(accepted);
    match service.metrics.encode() {
        Ok(text) => {
            let headers = [(CONTENT_TYPE, format.media_type())];
            (headers, format.of_open_metrics(text)).into_response()
        }
        Err(error) => refused(&error.to_string()),
    }
}

async fn fleet(State(service): State<Arc<FleetService>>) -> Response {
    match service.fleet().await {
        Ok(reply) => Json(reply).into_response(),
        Err(error) => refused(&format!("{error:#}")),
    }
}

fn refused(why: &str) -> Response {
    (StatusCode::BAD_GATEWAY, Json(ErrorReply::new("no-fleet", why))).into_response()
}

impl FleetService {
    async fn fleet(&self) -> anyhow::Result<FleetReply> {
        let view = read(&self.coordinator, &self.config).await?;
        let status = serde_json::to_value(status::fleet_status(&self.config, &view))?;
        // Before the first plan there is none; the status shows that.
        let plan = plan::shown(&view).ok().map(serde_json::to_value).transpose()?;
        Ok(FleetReply::of(status, plan))
    }
}
