//! A fake QEMU at a Unix socket.
//!
//! Idea: a task moves bytes between the socket and a [`Machine`], which decides everything, and
//! passes it the time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ballast_model::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::machine::{Answer, Machine};
use crate::peer_config::{Misbehaviour, PeerConfig, PeerHotplug};

/// The least time between two announcements of a moving balloon; QEMU's own limit.
const BALLOON_CHANGE_INTERVAL: Duration = Duration::from_secs(1);

/// A running peer. Dropping it closes its socket and removes it.
#[derive(Debug)]
pub struct Peer {
    path: PathBuf,
    shared: Arc<SharedPeer>,
    task: AbortHandle,
}

#[derive(Debug)]
struct SharedPeer {
    machine: Mutex<Machine>,
    event: Notify,
    /// The start of the machine's time.
    origin: Instant,
    /// An allocation of the guest's memory size, as far as the process can make it: the daemon
    /// reads how much memory is mapped.
    _mapped: Vec<u8>,
}

impl SharedPeer {
    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }
}

impl Peer {
    /// Listens on `path` and serves clients one after the other, on the current tokio runtime.
    ///
    /// # Errors
    /// It cannot listen there.
    pub fn spawn(path: &Path, config: PeerConfig) -> std::io::Result<Peer> {
        let listener = UnixListener::bind(path)?;
        let machine = Mutex::new(Machine::new(config, Duration::ZERO));
        let (event, origin) = (Notify::new(), Instant::now());
        let shared = Arc::new(SharedPeer { machine, event, origin, _mapped: mapped(&config) });
        let task = tokio::spawn(serve_all(listener, Arc::clone(&shared))).abort_handle();
        Ok(Peer { path: path.to_owned(), shared, task })
    }

    /// Misbehaves in this way until the next call.
    pub fn misbehave(&self, misbehaviour: Misbehaviour) {
        self.shared.machine().misbehave(misbehaviour);
    }

    /// Memory the guest holds.
    pub fn allocation(&self) -> Bytes {
        self.shared.machine().holds(self.shared.now())
    }

    /// The number of memory backends for modules, plugged in or not.
    pub fn module_memory_count(&self) -> usize {
        self.shared.machine().module_memory_count()
    }

    /// From now on the memory devices are those of another hypervisor process; `None`: it has none.
    pub fn replace_hotplug(&self, hotplug: Option<PeerHotplug>) {
        self.shared.machine().replace_hotplug(hotplug, self.shared.now());
    }

    /// The part of boot memory that the last balloon command leaves the guest.
    pub fn target(&self) -> Bytes {
        self.shared.machine().target()
    }

    /// The whole guest has arrived by migration: it is stopped, as with `-S`.
    pub fn arrive(&self) {
        self.shared.machine().arrive();
    }

    /// The migration out of this peer fails: the guest continues to run.
    pub fn fail_migration(&self) {
        self.shared.machine().fail_migration();
        self.shared.event.notify_one();
    }

    /// Sends the event `name`, such as `GUEST_PANICKED`, to the client.
    pub fn send_event(&self, name: &str) {
        self.shared.machine().queue_event(name);
        self.shared.event.notify_one();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
        // The test may already have removed it.
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn serve_all(listener: UnixListener, shared: Arc<SharedPeer>) {
    while let Ok((stream, _)) = listener.accept().await {
        // Errors are ignored: a client may leave in any way.
        let _ = serve(stream, &shared).await;
    }
}

/// Serves one client until it leaves, or until the misbehaviour ends the connection.
async fn serve(mut stream: UnixStream, shared: &SharedPeer) -> std::io::Result<()> {
    let greeting = shared.machine().connect();
    match greeting {
        Some(greeting) => stream.write_all(greeting.as_bytes()).await?,
        None => return wait_for_end(&mut stream).await,
    }
    loop {
        let (mut bytes, mut count) = ([0; 4096], 0);
        let is_moving = shared.machine().is_moving(shared.now());
        tokio::select! {
            read = stream.read(&mut bytes) => match read? {
                0 => return Ok(()),
                read => count = read,
            },
            () = shared.event.notified() => {}
            () = tokio::time::sleep(BALLOON_CHANGE_INTERVAL), if is_moving => {
                shared.machine().queue_balloon_change(shared.now());
            }
        }
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let answer = shared.machine().receive(&bytes[..count], shared.now(), wall.as_secs());
        let Answer { bytes, after, closes } = answer;
        if !after.is_zero() {
            tokio::time::sleep(after).await;
        }
        stream.write_all(&bytes).await?;
        if closes {
            return Ok(());
        }
    }
}

/// Address space of the size of the guest's memory.
fn mapped(config: &PeerConfig) -> Vec<u8> {
    let pluggable = config.hotplug.map_or(Bytes::ZERO, |hotplug| hotplug.max);
    let memory = config.boot_memory.saturating_add(pluggable).get();
    let mut mapped = Vec::new();
    // If that is refused, the guest claims memory that it cannot have.
    let _ = mapped.try_reserve_exact(usize::try_from(memory).unwrap_or(usize::MAX));
    mapped
}

async fn wait_for_end(stream: &mut UnixStream) -> std::io::Result<()> {
    let mut bytes = [0; 64];
    while stream.read(&mut bytes).await? > 0 {}
    Ok(())
}
