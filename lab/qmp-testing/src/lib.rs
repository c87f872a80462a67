//! A peer that speaks QMP over a Unix socket, for tests and benchmarks.
//!
//! Idea: to its client a [`Peer`] is QEMU 7.2 with a balloon, and memory devices if wanted, and a
//! guest that follows them: greeting, negotiation, the replies and errors of the real thing, one
//! client at a time. [`Misbehaviour`] makes it do what broken, hostile or hanging hypervisors do.
//!
//! Limits: only the commands Ballast sends; the guest is a figure that moves at a given rate.

#![forbid(unsafe_code)]

mod failure;
mod machine;
mod peer_config;
mod plugged;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use ballast_model::Bytes;
use ballast_qmp::codec::MESSAGE_BYTES_MAX;
use machine::Machine;

pub use peer_config::{Misbehaviour, PeerConfig, PeerHotplug};

/// How often a moving balloon is announced, at most; QEMU's own limit.
const BALLOON_CHANGE_INTERVAL: Duration = Duration::from_secs(1);

/// A running peer. Dropping it closes its socket and removes it.
#[derive(Debug)]
pub struct Peer {
    path: PathBuf,
    shared: Arc<Shared>,
    task: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    machine: Mutex<Machine>,
    event: Notify,
}

impl Shared {
    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer {
    /// Listens on `path` and serves clients one after the other, on the current tokio runtime.
    ///
    /// # Errors
    /// When it cannot listen there.
    pub fn spawn(path: &Path, config: PeerConfig) -> std::io::Result<Peer> {
        let listener = UnixListener::bind(path)?;
        let machine = Mutex::new(Machine::new(config, Instant::now()));
        let shared = Arc::new(Shared { machine, event: Notify::new() });
        let task = tokio::spawn(serve_all(listener, Arc::clone(&shared))).abort_handle();
        Ok(Peer { path: path.to_owned(), shared, task })
    }

    /// Misbehaves like this until the next call.
    pub fn misbehave(&self, misbehaviour: Misbehaviour) {
        self.shared.machine().set_misbehaviour(misbehaviour);
    }

    /// Memory the guest holds.
    pub fn allocation(&self) -> Bytes {
        self.shared.machine().holds(Instant::now())
    }

    /// How many pieces of memory there are for modules, plugged in or not.
    pub fn module_memory_count(&self) -> usize {
        self.shared.machine().module_memory_count()
    }

    /// From now on another hypervisor answers as far as memory devices go; `None`: it has none.
    pub fn replace_hotplug(&self, hotplug: Option<PeerHotplug>) {
        self.shared.machine().replace_hotplug(hotplug, Instant::now());
    }

    /// Boot memory that the last balloon command leaves the guest.
    pub fn target(&self) -> Bytes {
        self.shared.machine().target()
    }

    /// Sends an event of this name, such as `GUEST_PANICKED`, to the client.
    pub fn send_event(&self, name: &str) {
        self.shared.machine().queue_event(name);
        self.shared.event.notify_one();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
        // It may have been removed by whoever made the folder.
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn serve_all(listener: UnixListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        // How a client leaves is its own affair.
        let _ = serve(stream, &shared).await;
    }
}

/// Serves one client until it leaves, or until misbehaviour ends it.
async fn serve(mut stream: UnixStream, shared: &Shared) -> std::io::Result<()> {
    let greeting = shared.machine().greet();
    match greeting {
        Some(greeting) => stream.write_all(greeting.as_bytes()).await?,
        None => return wait_for_end(&mut stream).await,
    }
    let mut received = Vec::new();
    loop {
        let mut bytes = [0; 4096];
        let is_moving = shared.machine().is_moving(Instant::now());
        tokio::select! {
            read = stream.read(&mut bytes) => match read? {
                0 => return Ok(()),
                count => received.extend_from_slice(&bytes[..count]),
            },
            () = shared.event.notified() => {}
            () = tokio::time::sleep(BALLOON_CHANGE_INTERVAL), if is_moving => {
                shared.machine().queue_balloon_change(Instant::now());
            }
        }
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let answer = shared.machine().receive(&mut received, Instant::now(), wall.as_secs());
        if answer.is_empty() {
            continue;
        }
        let misbehaviour = shared.machine().misbehaviour();
        match misbehaviour {
            Misbehaviour::Silent => {}
            Misbehaviour::Slow(by) => {
                tokio::time::sleep(by).await;
                stream.write_all(&answer).await?;
            }
            Misbehaviour::Garbage => stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?,
            Misbehaviour::NotUtf8 => stream.write_all(b"{\"return\": \"\xff\xfe\"}\r\n").await?,
            Misbehaviour::Deep => stream.write_all(&b"{\"return\":[".repeat(10_000)).await?,
            Misbehaviour::Oversize => {
                stream.write_all(b"{\"return\": \"").await?;
                stream.write_all(&vec![b'x'; 2 * MESSAGE_BYTES_MAX]).await?;
            }
            Misbehaviour::ClosesMidMessage => {
                return stream.write_all(&answer[..answer.len() / 2]).await;
            }
            Misbehaviour::None
            | Misbehaviour::NoGreeting
            | Misbehaviour::WrongIds
            | Misbehaviour::FrozenStatistics => stream.write_all(&answer).await?,
        }
    }
}

async fn wait_for_end(stream: &mut UnixStream) -> std::io::Result<()> {
    let mut bytes = [0; 64];
    while stream.read(&mut bytes).await? > 0 {}
    Ok(())
}
