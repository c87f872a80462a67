//! Connections to etcd's members: one request, then one answer or a stream.
//!
//! Idea: connections are kept and reused. A request takes an idle one or opens a new one. A
//! connection that fails is closed. On a new connection the cluster's identity is read first, so
//! that nothing is ever written to another cluster than the one that answered first.
//! Limits: HTTP/1.1, with or without TLS. Every body, and every line of a stream, has at most
//! [`BODY_BYTES_MAX`] bytes.

use std::error::Error;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ballast_fleet_proto::CoordinatorError;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::tls::{EtcdTls, tls_cause};
use crate::wire::{HeaderOnly, error_of_body, excerpt, parse};

/// Largest body, and largest line of a stream, in bytes: a page of 500 keys, or the events of one
/// answer.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 20;

/// The path of watches.
pub(crate) const WATCH: &str = "/v3/watch";

/// Most idle connections that are kept.
const IDLE_MAX: usize = 4;

/// One connection; it is closed when this is dropped.
struct EtcdConnection {
    sender: SendRequest<Full<Bytes>>,
    /// The task that drives the connection.
    driver: JoinSet<()>,
}

/// Connections to one member.
pub(crate) struct Member {
    /// `HOST:PORT`.
    pub(crate) address: String,
    /// `None` for plain HTTP.
    tls: Option<Arc<EtcdTls>>,
    /// The cluster that answered first; shared by all members.
    cluster: Arc<OnceLock<u64>>,
    idle: Mutex<Vec<EtcdConnection>>,
}

/// A stream of answers, one a line.
pub(crate) struct Stream {
    body: Incoming,
    read: Vec<u8>,
    /// Keeps the connection open.
    _driver: JoinSet<()>,
}

impl Member {
    pub(crate) fn new(
        address: String,
        tls: Option<Arc<EtcdTls>>,
        cluster: Arc<OnceLock<u64>>,
    ) -> Member {
        Member { address, tls, cluster, idle: Mutex::new(Vec::new()) }
    }

    /// Sends one request and reads its whole answer.
    pub(crate) async fn ask(
        &self,
        path: &str,
        body: Vec<u8>,
        token: Option<&str>,
    ) -> Result<Vec<u8>, CoordinatorError> {
        let (response, connection) = self.send(path, body, token).await?;
        let answer = self.read_body(response).await?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
        answer
    }

    /// The body of an answer, or why etcd refused (inner error); the outer error is the
    /// connection's.
    async fn read_body(
        &self,
        response: Response<Incoming>,
    ) -> Result<Result<Vec<u8>, CoordinatorError>, CoordinatorError> {
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
        let body = body.map_err(|error| self.connection_error(&*error))?.to_bytes();
        Ok(match parts.status.is_success() {
            true => Ok(body.into()),
            false => Err(error_of_body(parts.status.as_u16(), &body)),
        })
    }

    /// Sends one request whose answer is a stream.
    pub(crate) async fn stream(
        &self,
        path: &str,
        body: Vec<u8>,
        token: Option<&str>,
    ) -> Result<Stream, CoordinatorError> {
        let (response, connection) = self.send(path, body, token).await?;
        if !response.status().is_success() {
            let why = self.read_body(response).await?.err();
            let why = why.unwrap_or(CoordinatorError::Protocol("no stream".to_owned()));
            return Err(why);
        }
        let body = response.into_body();
        Ok(Stream { body, read: Vec::new(), _driver: connection.driver })
    }

    async fn send(
        &self,
        path: &str,
        body: Vec<u8>,
        token: Option<&str>,
    ) -> Result<(Response<Incoming>, EtcdConnection), CoordinatorError> {
        let mut connection = loop {
            let Some(mut idle) = self.take_idle() else { break self.connect().await? };
            // etcd may have closed it while it was idle.
            if idle.sender.ready().await.is_ok() {
                break idle;
            }
        };
        let response = self.request(&mut connection, path, body, token).await?;
        Ok((response, connection))
    }

    async fn request(
        &self,
        connection: &mut EtcdConnection,
        path: &str,
        body: Vec<u8>,
        token: Option<&str>,
    ) -> Result<Response<Incoming>, CoordinatorError> {
        let mut request = Request::post(path).header(HOST, &self.address);
        // With this header a partitioned member ends the watch instead of staying silent.
        if path == WATCH {
            request = request.header("Grpc-Metadata-hasleader", "true");
        }
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| CoordinatorError::Protocol(error.to_string()))?;
        let response = connection.sender.send_request(request).await;
        response.map_err(|error| self.connection_error(&error))
    }

    fn take_idle(&self) -> Option<EtcdConnection> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    async fn connect(&self) -> Result<EtcdConnection, CoordinatorError> {
        let stream = TcpStream::connect(&self.address).await.map_err(|error| {
            CoordinatorError::Unreachable(format!("cannot connect to {}: {error}", self.address))
        })?;
        // Each request is one packet, so waiting for more only delays it.
        stream.set_nodelay(true).map_err(|error| self.connection_error(&error))?;
        let mut connection = match &self.tls {
            Some(tls) => self.start_http(tls.shake_hands(&self.address, stream).await?).await?,
            None => self.start_http(stream).await?,
        };
        match self.check_cluster(&mut connection).await {
            Ok(()) => Ok(connection),
            // A member with TLS closes a plain connection without an answer.
            Err(CoordinatorError::Unreachable(why)) if self.tls.is_none() => {
                let hint = "if etcd has TLS there, its endpoint begins with https://";
                Err(CoordinatorError::Unreachable(format!("{why}; {hint}")))
            }
            Err(error) => Err(error),
        }
    }

    /// Starts HTTP over `stream`.
    async fn start_http(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<EtcdConnection, CoordinatorError> {
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|error| self.connection_error(&error))?;
        let mut driver = JoinSet::new();
        driver.spawn(async {
            // The request gets the error.
            let _ = connection.await;
        });
        Ok(EtcdConnection { sender, driver })
    }

    async fn check_cluster(&self, connection: &mut EtcdConnection) -> Result<(), CoordinatorError> {
        let path = "/v3/maintenance/status";
        let response = self.request(connection, path, b"{}".to_vec(), None).await?;
        let HeaderOnly { header } = parse(&self.read_body(response).await??)?;
        connection.sender.ready().await.map_err(|error| self.connection_error(&error))?;
        let (expected, found) =
            (*self.cluster.get_or_init(|| header.cluster_id), header.cluster_id);
        match expected == found {
            true => Ok(()),
            false => Err(CoordinatorError::OtherCluster { expected, found }),
        }
    }

    fn connection_error(&self, error: &(dyn Error + 'static)) -> CoordinatorError {
        // A server refuses a client's certificate only after the handshake.
        if let (Some(tls), Some(cause)) = (&self.tls, tls_cause(error)) {
            return CoordinatorError::Unreachable(tls.explain(&self.address, cause));
        }
        let why = excerpt(&error.to_string());
        CoordinatorError::Unreachable(format!("connection to {} broke: {why}", self.address))
    }
}

impl Stream {
    /// The next line, without its end. Dropping the future loses nothing.
    pub(crate) async fn line(&mut self) -> Result<Vec<u8>, CoordinatorError> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.read[searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.read.split_off(searched + at + 1);
                let mut line = std::mem::replace(&mut self.read, rest);
                line.pop();
                return Ok(line);
            }
            searched = self.read.len();
            if searched > BODY_BYTES_MAX {
                let why = format!("a line of more than {BODY_BYTES_MAX} bytes");
                return Err(CoordinatorError::Protocol(why));
            }
            let frame = match self.body.frame().await {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    return Err(CoordinatorError::Unreachable(excerpt(&error.to_string())));
                }
                None => {
                    let why = "the member ended the stream".to_owned();
                    return Err(CoordinatorError::Unreachable(why));
                }
            };
            if let Ok(data) = frame.into_data() {
                self.read.extend_from_slice(&data);
            }
        }
    }
}
