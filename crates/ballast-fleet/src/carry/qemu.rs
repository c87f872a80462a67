//! Guests of plain QEMU, each with a QMP socket that no other program uses.
//!
//! Idea: Ballast talks to QEMU itself, but the operator's own program starts it, because only the
//! host knows how a guest's command line is made. The program is run without a shell, with the
//! guest's name as an argument, and returns once an empty QEMU exists.
//! Source: `docs/fleet.md`, "Moving guests of QEMU".
//! Limits: memory is sent unencrypted. A guest's disks have to be on storage that both hosts reach.
//! If a QEMU ends, no other program may start it again.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use ballast_fleet_move::{CopyState, Process};
use ballast_model::{Bytes, GuestId, LinkDown};
use ballast_qmp::migration::{
    CopyLimits, DirtyRate, GuestMigration, MigrationClient, MigrationProgress, MigrationStage,
    Origin,
};
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

use super::hypervisor::{
    CopyProgress, ERROR_BYTES_MAX, Hypervisor, HypervisorError, HypervisorView, error_excerpt,
};

/// Placeholder for the guest's name in paths and arguments.
pub(crate) const GUEST_PLACEHOLDER: &str = "{guest}";
/// Longest wait for an answer from QEMU.
const CALL_TIME_MAX: Duration = Duration::from_secs(5);
/// Longest run of the program that starts a QEMU.
const START_TIME_MAX: Duration = Duration::from_secs(60);
/// Time between two looks for a socket that is about to appear.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How guests of QEMU are moved to and from this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QemuConfig {
    /// The path of a guest's QMP socket, with `{guest}` for its name.
    pub qmp: String,
    /// The program that starts an empty QEMU, and its arguments.
    pub start: Vec<String>,
    /// The address at which it listens for a copy.
    pub listen: IpAddr,
    /// How long a guest may stand still at the end of a copy.
    pub downtime: Duration,
    /// Most bytes a second of a copy.
    pub bandwidth_per_s: Bytes,
}

/// Guests of QEMU.
#[derive(Clone, Debug)]
pub struct Qemu {
    config: QemuConfig,
}

impl Qemu {
    /// The guests of this host.
    pub fn new(config: QemuConfig) -> Qemu {
        Qemu { config }
    }

    fn socket(&self, guest: &GuestId) -> PathBuf {
        PathBuf::from(self.config.qmp.replace(GUEST_PLACEHOLDER, guest.as_str()))
    }

    async fn connect(&self, guest: &GuestId) -> Result<MigrationClient, LinkDown> {
        MigrationClient::connect(&self.socket(guest), CALL_TIME_MAX).await
    }

    async fn client(&self, guest: &GuestId) -> Result<MigrationClient, HypervisorError> {
        let socket = self.socket(guest);
        let client = self.connect(guest).await;
        client.map_err(|down| HypervisorError(format!("QEMU at {}: {down}", socket.display())))
    }

    /// Runs the operator's program that starts a QEMU.
    async fn start(&self, guest: &GuestId) -> Result<(), HypervisorError> {
        let name = guest.as_str();
        let mut words = self.config.start.iter().map(|word| word.replace(GUEST_PLACEHOLDER, name));
        let program = words.next().unwrap_or_default();
        let mut command = Command::new(&program);
        // The QEMU that it starts may inherit its output, so only its exit is waited for.
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        let failed = |why: String| HypervisorError(format!("`{program}`: {why}"));
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let stderr = child.stderr.take();
        let status = match timeout(START_TIME_MAX, child.wait()).await {
            Ok(status) => status.map_err(|error| failed(error.to_string()))?,
            Err(_) => {
                let s = START_TIME_MAX.as_secs();
                return Err(failed(format!("did not end within {s} s")));
            }
        };
        if status.success() {
            return Ok(());
        }
        let error = match stderr {
            Some(stderr) => read_error(stderr).await,
            None => String::new(),
        };
        Err(failed(format!("{status}: {error}")))
    }
}

/// Reads the beginning of a program's error output.
async fn read_error(mut from: tokio::process::ChildStderr) -> String {
    use tokio::io::AsyncReadExt;
    let mut bytes = [0; ERROR_BYTES_MAX];
    // The QEMU that it started may hold the other end open.
    let read = timeout(Duration::from_secs(1), from.read(&mut bytes)).await;
    let length = read.ok().and_then(Result::ok).unwrap_or(0);
    error_excerpt(&bytes[..length])
}

impl Hypervisor for Qemu {
    async fn look(&self, guest: &GuestId, origin: Origin) -> HypervisorView {
        let unknown = HypervisorView { process: Process::Unknown, copy: None };
        let mut client = match self.connect(guest).await {
            Ok(client) => client,
            Err(LinkDown::Refused) => {
                return HypervisorView { process: Process::Absent, copy: None };
            }
            Err(_) => return unknown,
        };
        let Ok((found, progress)) = client.look(origin).await else { return unknown };
        HypervisorView { process: process(found), copy: copy_progress(&progress) }
    }

    async fn writes_per_s(&self, guest: &GuestId) -> Option<Bytes> {
        let mut client = self.connect(guest).await.ok()?;
        let rate = client.dirty_rate().await.ok()?;
        if rate != DirtyRate::UnderWay {
            client.measure_dirty_rate().await.ok()?;
        }
        match rate {
            DirtyRate::Measured { per_s } => Some(per_s),
            DirtyRate::Nothing | DirtyRate::UnderWay => None,
        }
    }

    async fn listen(&self, guest: &GuestId) -> Result<(), HypervisorError> {
        if let Err(LinkDown::Refused) = self.connect(guest).await {
            self.start(guest).await?;
        }
        let until = Instant::now() + CALL_TIME_MAX;
        let mut client = loop {
            match self.client(guest).await {
                Ok(client) => break client,
                Err(error) if Instant::now() > until => return Err(error),
                Err(_) => sleep(LOOK_EVERY).await,
            }
        };
        client.listen(self.config.listen).await.map_err(|error| call_failed("listen", &error))
    }

    async fn copy(&self, guest: &GuestId, to: SocketAddr) -> Result<(), HypervisorError> {
        let QemuConfig { bandwidth_per_s, downtime, .. } = self.config;
        let mut client = self.client(guest).await?;
        let copying = client.copy(to, CopyLimits { bandwidth_per_s, downtime }).await;
        copying.map_err(|error| call_failed("copy the guest", &error))
    }

    async fn cancel(&self, guest: &GuestId) -> Result<(), HypervisorError> {
        let mut client = self.client(guest).await?;
        client.cancel().await.map_err(|error| call_failed("cancel the copy", &error))
    }

    async fn run(&self, guest: &GuestId) -> Result<(), HypervisorError> {
        let mut client = self.client(guest).await?;
        client.start().await.map_err(|error| call_failed("run the guest", &error))
    }

    async fn end(&self, guest: &GuestId) -> Result<(), HypervisorError> {
        let mut client = self.client(guest).await?;
        client.quit().await.map_err(|error| call_failed("end", &error))
    }
}

fn call_failed(what: &str, error: &impl std::fmt::Display) -> HypervisorError {
    HypervisorError(format!("QEMU did not {what}: {error}"))
}

fn process(found: GuestMigration) -> Process {
    match found {
        // It does not listen yet: `listen` is called again and goes on.
        GuestMigration::Empty => Process::Absent,
        GuestMigration::Listens(address) => Process::Waiting(address),
        GuestMigration::Loaded => Process::Loaded,
        GuestMigration::Runs => Process::Runs(CopyState::Nothing),
        GuestMigration::Copies => Process::Runs(CopyState::Partly),
        GuestMigration::CopyFailed => Process::Runs(CopyState::Failed),
        GuestMigration::Left => Process::Left,
        GuestMigration::Paused => Process::Paused,
    }
}

fn copy_progress(progress: &MigrationProgress) -> Option<CopyProgress> {
    let MigrationProgress { stage, sent, remaining, .. } = *progress;
    let bandwidth_per_s = progress.bandwidth_per_s();
    (stage != MigrationStage::Nothing && sent > Bytes::ZERO).then_some(CopyProgress {
        sent,
        remaining,
        bandwidth_per_s,
    })
}
