//! Connections to etcd's members: one request, one answer or a stream.
//!
//! Idea: connections are kept and used again; a request takes one that rests, or makes one. What
//! goes wrong with one closes it. A new one is first asked for its cluster: nothing is ever written
//! to another than that which answered first.
//! Limits: HTTP/1.1, with TLS or without. Every body is at most [`BODY_BYTES_MAX`], every line of a
//! stream, too.

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
use crate::wire::{Plain, excerpt, parse, refused};

/// Largest body, and largest line of a stream: a page of 500 keys, or the events of one answer.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 20;

/// The path of watches.
pub(crate) const WATCH: &str = "/v3/watch";

/// Most connections that rest.
const RESTING_MAX: usize = 4;

/// One connection; dropping it closes it.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Drives it.
    driver: JoinSet<()>,
}

/// Connections to one member.
pub(crate) struct Member {
    /// `HOST:PORT`.
    pub(crate) address: String,
    /// `None`: plain HTTP.
    tls: Option<Arc<EtcdTls>>,
    /// The cluster that answered first, of all members.
    cluster: Arc<OnceLock<u64>>,
    resting: Mutex<Vec<Connection>>,
}

/// Answers that come one after the other, each a line.
pub(crate) struct Stream {
    body: Incoming,
    read: Vec<u8>,
    /// Keeps the connection.
    _driver: JoinSet<()>,
}

impl Member {
    pub(crate) fn new(
        address: String,
        tls: Option<Arc<EtcdTls>>,
        cluster: Arc<OnceLock<u64>>,
    ) -> Member {
        Member { address, tls, cluster, resting: Mutex::new(Vec::new()) }
    }

    /// One request and its whole answer.
    pub(crate) async fn ask(
        &self,
        path: &str,
        body: Vec<u8>,
        token: Option<&str>,
    ) -> Result<Vec<u8>, CoordinatorError> {
        let (response, connection) = self.send(path, body, token).await?;
        let answer = self.whole(response).await?;
        let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        if resting.len() < RESTING_MAX {
            resting.push(connection);
        }
        answer
    }

    /// The body of an answer, or why it was refused; the outer error is the connection's.
    async fn whole(
        &self,
        response: Response<Incoming>,
    ) -> Result<Result<Vec<u8>, CoordinatorError>, CoordinatorError> {
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
        let body = body.map_err(|error| self.broken(&*error))?.to_bytes();
        Ok(match parts.status.is_success() {
            true => Ok(body.into()),
            false => Err(refused(parts.status.as_u16(), &body)),
        })
    }

    /// One request and an answer that does not end.
    pub(crate) async fn stream(
        &self,
        path: &str,
        body: Vec<u8>,
        token: Option<&str>,
    ) -> Result<Stream, CoordinatorError> {
        let (response, connection) = self.send(path, body, token).await?;
        if !response.status().is_success() {
            let why = self.whole(response).await?.err();
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
    ) -> Result<(Response<Incoming>, Connection), CoordinatorError> {
        let mut connection = loop {
            let Some(mut rested) = self.rested() else { break self.connect().await? };
            // The other side may have closed it while it rested.
            if rested.sender.ready().await.is_ok() {
                break rested;
            }
        };
        let response = self.request(&mut connection, path, body, token).await?;
        Ok((response, connection))
    }

    async fn request(
        &self,
        connection: &mut Connection,
        path: &str,
        body: Vec<u8>,
        token: Option<&str>,
    ) -> Result<Response<Incoming>, CoordinatorError> {
        let mut request = Request::post(path).header(HOST, &self.address);
        // A partitioned member ends the watch, instead of staying silent.
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
        response.map_err(|error| self.broken(&error))
    }

    fn rested(&self) -> Option<Connection> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    async fn connect(&self) -> Result<Connection, CoordinatorError> {
        let stream = TcpStream::connect(&self.address).await.map_err(|error| {
            CoordinatorError::Unreachable(format!("cannot connect to {}: {error}", self.address))
        })?;
        // Requests are one packet each.
        stream.set_nodelay(true).map_err(|error| self.broken(&error))?;
        let mut connection = match &self.tls {
            Some(tls) => self.drive(tls.shake_hands(&self.address, stream).await?).await?,
            None => self.drive(stream).await?,
        };
        match self.ask_for_cluster(&mut connection).await {
            Ok(()) => Ok(connection),
            // A member with TLS ends a connection without it, and says nothing.
            Err(CoordinatorError::Unreachable(why)) if self.tls.is_none() => {
                let hint = "if etcd has TLS there, its endpoint begins with https://";
                Err(CoordinatorError::Unreachable(format!("{why}; {hint}")))
            }
            Err(error) => Err(error),
        }
    }

    /// Speaks HTTP over `stream`.
    async fn drive(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Connection, CoordinatorError> {
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|error| self.broken(&error))?;
        let mut driver = JoinSet::new();
        driver.spawn(async {
            // How it ends, the request learns.
            let _ = connection.await;
        });
        Ok(Connection { sender, driver })
    }

    async fn ask_for_cluster(&self, connection: &mut Connection) -> Result<(), CoordinatorError> {
        let path = "/v3/maintenance/status";
        let response = self.request(connection, path, b"{}".to_vec(), None).await?;
        let Plain { header } = parse(&self.whole(response).await??)?;
        connection.sender.ready().await.map_err(|error| self.broken(&error))?;
        let (expected, found) =
            (*self.cluster.get_or_init(|| header.cluster_id), header.cluster_id);
        match expected == found {
            true => Ok(()),
            false => Err(CoordinatorError::OtherCluster { expected, found }),
        }
    }

    fn broken(&self, error: &(dyn Error + 'static)) -> CoordinatorError {
        // A server that refuses a client's certificate says so after its handshake.
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
