//! Metrics on a TCP port, for Prometheus, which does not scrape Unix sockets.
//!
//! Idea: off unless configured. The port answers `GET /metrics` and nothing else, to everyone who
//! can reach it. A port that cannot be opened is reported in the log and the status, and tried
//! again every [`RETRY_AFTER`]; everything else goes on meanwhile.
//! Limits: at most [`SCRAPERS_MAX`] connections; further ones are closed. No encryption.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::connections::{EXHAUSTED_PAUSE, converse, is_temporary};
use crate::worker::lock;

/// Most concurrent connections; one Prometheus has one.
const SCRAPERS_MAX: usize = 8;
/// Time until a port that could not be opened is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// The port, and what is wrong with it.
#[derive(Clone, Debug)]
pub struct MetricsPort {
    address: SocketAddr,
    trouble: Arc<Mutex<Option<String>>>,
}

impl MetricsPort {
    /// The port at `address`; nothing listens there yet.
    pub fn new(address: SocketAddr) -> MetricsPort {
        MetricsPort { address, trouble: Arc::default() }
    }

    /// Why metrics are not served there at present; `None`: they are, or are about to be.
    pub fn trouble(&self) -> Option<String> {
        lock(&self.trouble).clone()
    }

    /// Serves `router` there forever.
    pub(super) async fn serve(&self, router: Router) -> Infallible {
        let mut warned = None;
        loop {
            let error = match TcpListener::bind(self.address).await {
                Ok(listener) => {
                    self.tell_of(&listener);
                    warned = None;
                    accept(&listener, &router).await
                }
                Err(error) => error,
            };
            let trouble = self.words(&error);
            if warned.as_ref() != Some(&trouble) {
                warn!("{trouble}");
            }
            self.set_trouble(Some(trouble.clone()));
            warned = Some(trouble);
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }

    fn tell_of(&self, listener: &TcpListener) {
        self.set_trouble(None);
        let address = listener.local_addr().unwrap_or(self.address);
        info!("metrics on http://{address}/metrics");
        if !address.ip().is_loopback() {
            warn!("metrics on {address} can be read by everybody who reaches that address");
        }
    }

    fn words(&self, error: &io::Error) -> String {
        let remedy = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "another program listens there: end it, or choose another port"
            }
            io::ErrorKind::AddrNotAvailable => "this host has no such address",
            io::ErrorKind::PermissionDenied => "the daemon may not listen there",
            _ => "it is tried again",
        };
        format!("no metrics on {}: {error}: {remedy} (metrics.listen)", self.address)
    }

    fn set_trouble(&self, trouble: Option<String>) {
        *lock(&self.trouble) = trouble;
    }
}

/// [`MetricsPort::serve`]; waits forever if no port is configured.
pub(super) async fn serve_if_any(port: Option<&MetricsPort>, router: Router) -> Infallible {
    match port {
        Some(port) => port.serve(router).await,
        None => pending().await,
    }
}

/// Takes connections until that fails permanently.
async fn accept(listener: &TcpListener, router: &Router) -> io::Error {
    let places = Arc::new(Semaphore::new(SCRAPERS_MAX));
    // Dropping this closes the connections.
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let Ok(place) = places.clone().try_acquire_owned() else { continue };
                connections.spawn(converse(Box::new(stream), None, router.clone(), place));
            }
            Err(error) if is_temporary(&error) => tokio::time::sleep(EXHAUSTED_PAUSE).await,
            Err(error) => return error,
        }
    }
}
