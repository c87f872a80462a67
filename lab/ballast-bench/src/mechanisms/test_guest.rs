//! A real guest whose memory is moved, and the connection that moves it.
//!
//! Idea: one guest of the lab and the benchmark's own QMP connection, without the daemon, so that
//! only the mechanism is timed. Every wait is for QEMU's report that the guest has done something.
//! Limits: polls every [`POLL_PERIOD`], which limits the resolution of times. An emulated guest is
//! slower than a real one in everything that its kernel does.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ballast_host::PROC;
use ballast_lab_guest::protocol::LabReport;
use ballast_lab_guest::workload::{Pattern, WorkloadSpec};
use ballast_lab_host::{Accel, AccelChoice, GuestSpec};
use ballast_model::Bytes;
use ballast_qmp::client::QmpClient;
use ballast_qmp::command::QmpCommand;
use ballast_reclaim::{GuestMemory, GuestRam};
use serde::Deserialize;
use tokio::runtime::{Builder, Runtime};

use crate::lab_guest::LabGuest;

/// Time between two polls of a guest's progress.
const POLL_PERIOD: Duration = Duration::from_millis(5);
/// Far longer than moving some hundred MiB takes.
const PATIENCE: Duration = Duration::from_secs(180);
/// The lab's virtio-mem device.
const DEVICE: &str = "/machine/peripheral/plug0";
/// The mappings of a guest's memory are at least this large.
const RAM_MIN: Bytes = Bytes::mib(64);
/// The name of the workload.
const WORKLOAD: &str = "w";

/// The guest.
pub(super) struct TestGuest {
    pub(super) lab: LabGuest,
    client: QmpClient,
    runtime: Runtime,
}

#[derive(Deserialize)]
struct BalloonReply {
    actual: u64,
}

impl TestGuest {
    /// Boots a guest with `memory`; `change` adds its other properties.
    ///
    /// # Errors
    /// Something needed is missing, or it does not get ready.
    pub(super) fn start(
        memory: Bytes,
        change: impl FnOnce(&mut GuestSpec),
        say: &dyn Fn(&str),
    ) -> anyhow::Result<TestGuest> {
        let lab = LabGuest::start("mechanisms", memory, AccelChoice::Auto, change, say)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let socket = lab.guest()?.lab_qmp_socket().to_owned();
        let client = runtime
            .block_on(QmpClient::connect(&socket, PATIENCE))
            .map_err(|error| anyhow::anyhow!("{}: {error}", socket.display()))?;
        Ok(TestGuest { lab, client, runtime })
    }

    /// How guests execute on this machine.
    pub(super) fn accel(&self) -> Accel {
        self.lab.run.accel()
    }

    fn call(&mut self, command: &QmpCommand<'_>) -> anyhow::Result<String> {
        Ok(self.runtime.block_on(self.client.call(command))?)
    }

    /// The memory that the guest holds.
    ///
    /// # Errors
    /// QEMU does not answer.
    pub(super) fn holds(&mut self) -> anyhow::Result<Bytes> {
        let json = self.call(&QmpCommand::QueryBalloon)?;
        let reply: BalloonReply = serde_json::from_str(&json).context("query-balloon")?;
        Ok(Bytes::new(reply.actual))
    }

    /// Asks the guest to change to `target`.
    ///
    /// # Errors
    /// QEMU does not answer.
    pub(super) fn ask(&mut self, target: Bytes) -> anyhow::Result<()> {
        self.call(&QmpCommand::Balloon { target }).map(drop)
    }

    /// Asks the guest to change to `target`, and waits until it has; returns how long that took.
    ///
    /// # Errors
    /// QEMU does not answer, or the guest does not get there.
    pub(super) fn reach(&mut self, target: Bytes) -> anyhow::Result<Duration> {
        let began = Instant::now();
        self.ask(target)?;
        wait("what the guest is to hold", || Ok((self.holds()? == target).then_some(())))?;
        Ok(began.elapsed())
    }

    /// Plugs `size` by virtio-mem and waits until the guest has it; returns how long that took.
    ///
    /// # Errors
    /// QEMU does not answer, or the guest does not get there.
    pub(super) fn plug(&mut self, size: Bytes) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let (property, value) = ("requested-size", size.get());
        self.call(&QmpCommand::QomSet { path: DEVICE, property, value })?;
        wait("what is to be plugged in", || {
            let json = self.call(&QmpCommand::QomGet { path: DEVICE, property: "size" })?;
            let plugged: u64 = serde_json::from_str(&json).context("the device's size")?;
            Ok((plugged == size.get()).then_some(()))
        })?;
        Ok(began.elapsed())
    }

    /// Starts the workload and waits until it has its memory. With `rate` it touches at most that
    /// many pages a second.
    ///
    /// # Errors
    /// The guest refuses, or does not get its memory.
    pub(super) fn start_workload(&self, pattern: Pattern, rate: Option<u64>) -> anyhow::Result<()> {
        let spec = WorkloadSpec { touches_per_s: rate, ..pattern.into() };
        self.lab.guest()?.start_workload(WORKLOAD, &spec, PATIENCE)?;
        wait("a workload to have its memory", || {
            let report = self.lab.guest()?.latest_report()?;
            let has = |report: LabReport| {
                let work = report.workloads.into_iter().next()?;
                (work.phase.has_filled() && work.touches > 0).then_some(())
            };
            Ok(report.and_then(has))
        })
    }

    /// # Errors
    /// There is no workload.
    pub(super) fn stop_workload(&self) -> anyhow::Result<()> {
        self.lab.guest()?.stop_workload(WORKLOAD)?;
        Ok(())
    }

    /// The memory of the guest's process, for paging by the host.
    ///
    /// # Errors
    /// The process is gone, or this process has no permission.
    pub(super) fn paging(&self) -> anyhow::Result<GuestMemory> {
        let pid = u32::try_from(self.lab.guest()?.pid())?;
        GuestMemory::open(Path::new(PROC), pid, None, GuestRam::AtLeast(RAM_MIN))
            .map_err(|refusal| anyhow::anyhow!("{refusal}"))
    }
}

/// Calls `poll` again and again until it returns something.
///
/// # Errors
/// It returns nothing for too long.
pub(super) fn wait<T>(
    what: &str,
    mut poll: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = poll()? {
            return Ok(found);
        }
        if Instant::now() > end {
            bail!("waited in vain for {what}");
        }
        std::thread::sleep(POLL_PERIOD);
    }
}
