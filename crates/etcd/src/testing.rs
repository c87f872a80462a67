//! Members of a real etcd for tests, and a proxy in front of them.
//!
//! Idea: Debian's `etcd` runs in a folder of its own on free ports of the loopback device, and ends
//! with its test. A test of a partition shuts the proxy, a `TestProxy`, in front of a member.
//! Limits: a port that was free when it was chosen may be taken a moment later; then other ports
//! are tried.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::TlsIdentity;
use crate::certificates::TestAuthority;

/// Longest wait for members to elect a leader.
const START_MAX: Duration = Duration::from_secs(60);
/// How often other ports are tried.
const TRIES: usize = 5;

/// Members of one cluster of etcd; they end when this is dropped.
pub struct EtcdCluster {
    members: Vec<EtcdMember>,
    scheme: &'static str,
    folder: TempDir,
}

struct EtcdMember {
    client: u16,
    /// Port at which it reports its health over plain HTTP.
    metrics: u16,
    arguments: Vec<String>,
    child: Option<Child>,
}

/// Whether `etcd` is installed; if not, a test says that it is skipped and returns.
pub fn is_installed() -> bool {
    let found = Command::new("etcd").arg("--version").stdout(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        eprintln!("SKIPPED: etcd is not installed: run scripts/setup");
    }
    is_there
}

impl EtcdCluster {
    /// Starts `count` members and waits until they answer.
    ///
    /// # Errors
    /// They do not start, or not in time.
    pub async fn start(count: usize) -> io::Result<EtcdCluster> {
        EtcdCluster::start_with(count, &[]).await
    }

    /// The same with more options of etcd.
    ///
    /// # Errors
    /// They do not start, or not in time.
    pub async fn start_with(count: usize, options: &[&str]) -> io::Result<EtcdCluster> {
        EtcdCluster::start_at("http", count, options).await
    }

    /// The same with TLS: members show `identity`, and require clients to show a certificate signed
    /// by `authority`.
    ///
    /// # Errors
    /// They do not start, or not in time.
    pub async fn start_tls(
        count: usize,
        authority: &TestAuthority,
        identity: &TlsIdentity,
    ) -> io::Result<EtcdCluster> {
        let option = |name: &str, file: &Path| format!("--{name}={}", file.display());
        let options = [
            option("cert-file", &identity.certificate),
            option("key-file", &identity.key),
            option("trusted-ca-file", &authority.certificate),
            "--client-cert-auth=true".to_owned(),
        ];
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        EtcdCluster::start_at("https", count, &options).await
    }

    async fn start_at(
        scheme: &'static str,
        count: usize,
        options: &[&str],
    ) -> io::Result<EtcdCluster> {
        let mut last = io::Error::other("no try");
        for _ in 0..TRIES {
            match EtcdCluster::try_start(scheme, count, options).await {
                Ok(cluster) => return Ok(cluster),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn try_start(
        scheme: &'static str,
        count: usize,
        options: &[&str],
    ) -> io::Result<EtcdCluster> {
        let folder = tempfile::tempdir()?;
        let ports = free_ports(3 * count)?;
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let client_url = |port: u16| format!("{scheme}://127.0.0.1:{port}");
        let peers: Vec<String> =
            (0..count).map(|at| format!("m{at}={}", url(ports[count + at]))).collect();
        let mut members = Vec::new();
        for at in 0..count {
            let data = folder.path().join(format!("m{at}")).display().to_string();
            let metrics = ports[2 * count + at];
            let mut arguments: Vec<String> = Vec::new();
            for (name, value) in [
                ("name", format!("m{at}")),
                ("data-dir", data),
                ("listen-client-urls", client_url(ports[at])),
                ("advertise-client-urls", client_url(ports[at])),
                ("listen-metrics-urls", url(metrics)),
                ("listen-peer-urls", url(ports[count + at])),
                ("initial-advertise-peer-urls", url(ports[count + at])),
                ("initial-cluster", peers.join(",")),
                ("initial-cluster-token", format!("t{}", ports[0])),
                // It does not wait for the disk, as the data are only a test's.
                ("unsafe-no-fsync", "true".to_owned()),
            ] {
                arguments.push(format!("--{name}={value}"));
            }
            arguments.extend(options.iter().map(|&option| option.to_owned()));
            members.push(EtcdMember { client: ports[at], metrics, arguments, child: None });
        }
        let mut cluster = EtcdCluster { members, scheme, folder };
        for at in 0..count {
            cluster.start_member(at)?;
        }
        for at in 0..count {
            cluster.wait_for(at).await?;
        }
        Ok(cluster)
    }

    /// Starts a member again.
    ///
    /// # Errors
    /// The program cannot be executed.
    pub fn start_member(&mut self, at: usize) -> io::Result<()> {
        let log = File::create(self.log(at))?;
        let member = &mut self.members[at];
        let mut command = Command::new("etcd");
        // The environment may set options of etcd (`ETCD_…`) that Debian's version lacks, such as
        // those of version 2 of the API.
        command.args(&member.arguments).env_clear().stdin(Stdio::null());
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        member.child = Some(command.stdout(log.try_clone()?).stderr(log).spawn()?);
        Ok(())
    }

    /// Kills a member.
    pub fn kill(&mut self, at: usize) {
        if let Some(mut child) = self.members[at].child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Waits until a member answers and has a leader.
    ///
    /// # Errors
    /// The member ended, or does not answer in time; the error has the end of its log.
    pub async fn wait_for(&mut self, at: usize) -> io::Result<()> {
        let began = Instant::now();
        loop {
            if health(self.members[at].metrics).await.unwrap_or(false) {
                return Ok(());
            }
            let child = self.members[at].child.as_mut();
            let ended = child.is_none_or(|child| !matches!(child.try_wait(), Ok(None)));
            if ended || began.elapsed() > START_MAX {
                return Err(io::Error::other(last_lines(&self.log(at))));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The endpoint of each member.
    pub fn endpoints(&self) -> Vec<String> {
        let scheme = self.scheme;
        self.members.iter().map(|it| format!("{scheme}://127.0.0.1:{}", it.client)).collect()
    }

    /// The folder of all members' files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn log(&self, at: usize) -> std::path::PathBuf {
        self.folder.path().join(format!("m{at}.log"))
    }
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        for at in 0..self.members.len() {
            self.kill(at);
        }
    }
}

fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    // All are held at once, so that they differ.
    let listeners: Vec<StdListener> = (0..count)
        .map(|_| StdListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .collect::<Result<_, _>>()?;
    listeners.iter().map(|it| Ok(it.local_addr()?.port())).collect()
}

/// Whether the member reports that it is healthy, which includes a leader.
async fn health(port: u16) -> io::Result<bool> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let ask = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n").await?;
        let mut answer = String::new();
        stream.take(4096).read_to_string(&mut answer).await?;
        Ok(answer.contains("\"true\""))
    };
    tokio::time::timeout(Duration::from_secs(2), ask).await.unwrap_or(Ok(false))
}

fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    format!("etcd does not answer: {}", lines.join(" | "))
}

/// A proxy in front of a member: it counts the bytes that pass, and can be shut.
pub struct TestProxy {
    address: SocketAddr,
    bytes_passed: Arc<AtomicU64>,
    inside: SocketAddr,
    connections: JoinSet<()>,
}

impl TestProxy {
    /// Opens a proxy in front of `endpoint`, `http://127.0.0.1:PORT`.
    ///
    /// # Errors
    /// There is no such endpoint, or no free port.
    pub async fn open(endpoint: &str) -> io::Result<TestProxy> {
        let inside = endpoint.trim_start_matches("http://").parse().map_err(io::Error::other)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let bytes_passed = Arc::new(AtomicU64::new(0));
        let mut proxy = TestProxy { address, bytes_passed, inside, connections: JoinSet::new() };
        proxy.serve(listener);
        Ok(proxy)
    }

    fn serve(&mut self, listener: TcpListener) {
        let (bytes_passed, inside) = (self.bytes_passed.clone(), self.inside);
        self.connections.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut outer, _)) = listener.accept().await {
                let bytes_passed = bytes_passed.clone();
                connections.spawn(async move {
                    let Ok(mut inner) = TcpStream::connect(inside).await else { return };
                    let mut counting = CountingStream { stream: &mut outer, bytes_passed };
                    // Either side may close at any moment.
                    let _ = copy_bidirectional(&mut counting, &mut inner).await;
                });
            }
        });
    }

    /// Shuts it: its connections end, and new ones are refused.
    pub async fn close(&mut self) {
        self.connections.shutdown().await;
    }

    /// Opens it again.
    ///
    /// # Errors
    /// Another program has taken its port.
    pub async fn reopen(&mut self) -> io::Result<()> {
        let listener = TcpListener::bind(self.address).await?;
        self.serve(listener);
        Ok(())
    }

    /// The endpoint at which clients connect to it.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Bytes that passed in both directions.
    pub fn bytes_passed(&self) -> u64 {
        self.bytes_passed.load(Ordering::Relaxed)
    }
}

/// Counts the bytes that are read and written.
struct CountingStream<'a> {
    stream: &'a mut TcpStream,
    bytes_passed: Arc<AtomicU64>,
}

impl tokio::io::AsyncRead for CountingStream<'_> {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = std::pin::Pin::new(&mut *self.stream).poll_read(context, buffer);
        let read = buffer.filled().len() - before;
        self.bytes_passed.fetch_add(read as u64, Ordering::Relaxed);
        result
    }
}

impl tokio::io::AsyncWrite for CountingStream<'_> {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        let result = std::pin::Pin::new(&mut *self.stream).poll_write(context, bytes);
        if let std::task::Poll::Ready(Ok(written)) = &result {
            self.bytes_passed.fetch_add(*written as u64, Ordering::Relaxed);
        }
        result
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut *self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut *self.stream).poll_shutdown(context)
    }
}
