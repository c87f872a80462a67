//! A running guest.
//!
//! Idea: a QEMU process, its console log and the connection to the program in it. Every wait has a
//! timeout, and errors about a guest quote the end of its console.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ballast_lab_guest::protocol::{LabReport, ProcessEnd, Ready, ToGuest, WorkloadTotals};
use ballast_lab_guest::workload::WorkloadSpec;
use ballast_model::GuestId;
use ballast_tracker_proto::TrackerAddress;

use crate::accel::Accel;
use crate::channel::{Channel, ChannelError, ExecOutput, Subscription};
use crate::hypervisor::Hypervisor;
use crate::libvirt::Libvirtd;
use crate::qemu::{CommandLine, GuestPaths, GuestSpec, QemuDisk};
use crate::run_folder::{GuestRecord, GuestState, RunFolder};
use crate::spawn::Spawner;
use crate::tool::{QEMU, QEMU_PACKAGE};
use crate::xl::{self, Domain};
use crate::{Cache, DiskSpec, LabError, TruthRow, disk, symptoms, tool, tracker, truth};

/// Longest excerpt of a console log in an error, in bytes.
const CONSOLE_QUOTED_MAX: usize = 3000;
/// How much longer the host waits for a command than the guest, which may be busy.
const EXEC_GRACE: Duration = Duration::from_secs(30);
/// Timeout for stopping a workload; a thrashing guest is slow.
const STOP_PATIENCE: Duration = Duration::from_secs(60);

/// A guest whose QEMU was started.
pub struct Guest {
    spec: GuestSpec,
    paths: GuestPaths,
    record: GuestRecord,
    hypervisor: Mutex<Hypervisor>,
    channel: OnceLock<Channel>,
    started: Instant,
}

/// The inputs for starting a guest.
pub(crate) struct GuestStart<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) kernel: &'a Path,
    pub(crate) initramfs: &'a Path,
    /// Initial contents of its data disk.
    pub(crate) data_image: Option<&'a Path>,
    pub(crate) accel: Accel,
    pub(crate) folder: &'a RunFolder,
    pub(crate) spawner: &'a Spawner,
    /// Who starts it instead.
    pub(crate) libvirtd: Option<&'a Libvirtd>,
    /// Whether it is a domain of Xen.
    pub(crate) is_xen: bool,
}

impl GuestStart<'_> {
    /// Starts a guest's QEMU and records it in the run's folder.
    pub(crate) fn start(&self, spec: &GuestSpec) -> Result<Guest, LabError> {
        let mut paths = self.folder.guest_paths(&spec.id)?;
        if let Some(socket) = &spec.tracker_socket {
            paths.tracker.clone_from(socket);
        }
        let started = Instant::now();
        let mut hypervisor = self.spawn(spec, &paths)?;
        let Some(process) = hypervisor.process() else {
            hypervisor.kill();
            return Err(LabError::GuestGone {
                guest: spec.id.clone(),
                how: "exited at once".to_owned(),
                console: fs::read_to_string(paths.messages()).unwrap_or_default(),
            });
        };
        let record = GuestRecord {
            id: spec.id.clone(),
            process,
            memory: spec.memory,
            qmp_socket: paths.qmp.clone(),
            console: paths.console.clone(),
            has_booted_elsewhere: false,
        };
        let guest = Guest {
            spec: spec.clone(),
            paths,
            record,
            hypervisor: Mutex::new(hypervisor),
            channel: OnceLock::new(),
            started,
        };
        self.folder.record_guest(&guest.record)?;
        Ok(guest)
    }

    fn spawn(&self, spec: &GuestSpec, paths: &GuestPaths) -> Result<Hypervisor, LabError> {
        let mut files = Vec::new();
        let mut open = |disk: Option<DiskSpec>, image: Option<&Path>| -> Result<_, LabError> {
            let Some(disk) = disk else { return Ok(None) };
            let is_named = self.libvirtd.is_some() || self.is_xen;
            let disk = disk::create(self.cache, &disk, image, is_named)?;
            let found = QemuDisk::of(&disk);
            files.push(disk);
            Ok(Some(found))
        };
        let line = CommandLine {
            spec,
            accel: self.accel,
            kernel: self.kernel,
            initramfs: self.initramfs,
            paths,
            swap: open(spec.swap, None)?,
            data: open(spec.data, self.data_image)?,
            truth: self.truth(spec, &paths.truth)?,
        };
        if let Some(libvirtd) = self.libvirtd {
            // The names of the disks' files go with the files here: QEMU has them open.
            let folders = [self.folder.path(), self.cache.root()];
            return libvirtd.create(&line, folders).map(Hypervisor::Managed);
        }
        if self.is_xen {
            let (swap, data) = files.split_at(usize::from(spec.swap.is_some()));
            let disks = xl::disk_names(swap.first(), data.first());
            return Domain::create(&line, &disks, self.spawner).map(Hypervisor::Xen);
        }
        let mut command = Command::new(tool::require(QEMU, QEMU_PACKAGE)?);
        command.args(line.arguments());
        tool::write_output_to(&mut command, &paths.messages())?;
        if spec.host_disk.is_some() {
            // Of what is written to its disk.
            command.env("TMPDIR", self.cache.root());
        }
        if spec.tracked {
            command.envs(tracker::environment(&paths.tracker)?);
        }
        let files = files.into_iter().map(|disk| disk.file).collect();
        let child = self.spawner.spawn(command, files).map_err(LabError::io("start", QEMU))?;
        Ok(Hypervisor::Child(child))
    }

    fn truth(&self, spec: &GuestSpec, rows: &Path) -> Result<Option<OsString>, LabError> {
        match (&spec.truth, self.accel) {
            (None, _) => Ok(None),
            (Some(truth), Accel::Tcg) => truth.argument(rows).map(Some),
            (Some(_), Accel::Kvm | Accel::Xen) => {
                Err(LabError::TruthNeedsEmulation(spec.id.clone()))
            }
        }
    }
}

impl Guest {
    /// The guest in the run of `folder`, into whose QEMU there (see [`crate::listen`]) it has
    /// moved, with the programs that ran in it. Waits up to `patience` for its own program. It ends
    /// when this is dropped.
    ///
    /// # Errors
    /// When it is not there, or its program does not answer.
    pub fn arrived(
        folder: &RunFolder,
        spec: &GuestSpec,
        patience: Duration,
    ) -> Result<Guest, LabError> {
        let record = folder.guests().into_iter().find(|record| record.id == spec.id);
        let record = record.ok_or_else(|| LabError::NoGuest {
            run: folder.name(),
            guest: spec.id.to_string(),
            have: folder.guests().iter().map(|it| it.id.as_str()).collect::<Vec<_>>().join(", "),
        })?;
        let started = Instant::now();
        let guest = Guest {
            spec: spec.clone(),
            paths: folder.guest_paths(&spec.id)?,
            hypervisor: Mutex::new(Hypervisor::Managed(record.process)),
            record,
            channel: OnceLock::new(),
            started,
        };
        guest.wait_ready(started + patience)?;
        Ok(guest)
    }

    /// Waits until the guest's program accepts requests, up to `deadline`.
    pub(crate) fn wait_ready(&self, deadline: Instant) -> Result<(), LabError> {
        let is_gone = || matches!(self.state(), GuestState::Exited | GuestState::Panicked);
        let console = match &mut *self.hypervisor() {
            Hypervisor::Xen(domain) => domain.stream.take(),
            _ => None,
        };
        let channel = match console {
            Some(console) => Channel::over(console, deadline, &is_gone),
            None => Channel::open(&self.paths.channel, deadline, &is_gone),
        };
        let channel =
            channel.map_err(|error| self.explain(error, "get ready", self.started.elapsed()))?;
        let _ = self.channel.set(channel);
        if let Hypervisor::Xen(domain) = &mut *self.hypervisor() {
            domain.release_disks();
        }
        Ok(())
    }

    /// Its name.
    pub fn id(&self) -> &GuestId {
        &self.spec.id
    }

    /// Its specification.
    pub fn spec(&self) -> &GuestSpec {
        &self.spec
    }

    /// Its record in the run's folder.
    pub fn record(&self) -> &GuestRecord {
        &self.record
    }

    /// Process id of its QEMU.
    pub fn pid(&self) -> i32 {
        self.record.process.pid
    }

    /// Its QMP socket for the daemon.
    pub fn qmp_socket(&self) -> &Path {
        &self.paths.qmp
    }

    /// Its QMP socket for the lab: a socket serves one client at a time.
    pub fn lab_qmp_socket(&self) -> &Path {
        &self.paths.lab_qmp
    }

    /// Whether it is a domain of Xen.
    pub fn is_domain(&self) -> bool {
        matches!(*self.hypervisor(), Hypervisor::Xen(_))
    }

    /// The address of its page tracker, if it was started with one.
    pub fn tracker(&self) -> Option<TrackerAddress> {
        self.spec.tracked.then(|| TrackerAddress::new(&self.paths.tracker))
    }

    /// The socket of its agent's port, if it has an agent; one client at a time.
    pub fn agent_socket(&self) -> Option<&Path> {
        self.spec.agent.then_some(self.paths.agent.as_path())
    }

    /// Its ports for a command's outputs, if it is a host itself.
    pub(crate) fn output_sockets(&self) -> &[PathBuf; 2] {
        &self.paths.outputs
    }

    /// The console of a shell in it, if it is a host itself.
    pub(crate) fn terminal_socket(&self) -> &Path {
        &self.paths.terminal
    }

    /// Its console log.
    pub fn console(&self) -> &Path {
        &self.paths.console
    }

    /// The memory it touched, one row per completed interval; empty unless it was started with
    /// [`Truth`](crate::Truth).
    ///
    /// # Errors
    /// When the record cannot be read.
    pub fn truth(&self) -> Result<Vec<TruthRow>, LabError> {
        match self.spec.truth {
            Some(_) => truth::rows(&self.paths.truth),
            None => Ok(Vec::new()),
        }
    }

    /// Its state.
    pub fn state(&self) -> GuestState {
        self.record.state()
    }

    /// What it found at boot.
    ///
    /// # Errors
    /// When it has exited.
    pub fn ready(&self) -> Result<Ready, LabError> {
        self.channel()?.ready().ok_or_else(|| self.gone())
    }

    /// Its latest report; `None` before the first.
    ///
    /// # Errors
    /// When it never became ready.
    pub fn latest_report(&self) -> Result<Option<LabReport>, LabError> {
        Ok(self.channel()?.report())
    }

    /// Subscribes to every message it sends from now on.
    ///
    /// # Errors
    /// When it never got ready.
    pub fn subscribe(&self) -> Result<Subscription, LabError> {
        Ok(self.channel()?.subscribe())
    }

    /// Sends a request to start a workload without waiting: it appears in the reports, or a refusal
    /// among the messages.
    ///
    /// # Errors
    /// When the specification is invalid or the guest has exited.
    pub fn send_start(&self, id: &str, spec: &WorkloadSpec) -> Result<(), LabError> {
        self.check(id, spec)?;
        let start = ToGuest::Start { id: id.to_owned(), spec: spec.clone() };
        let sent = self.channel()?.send(&start);
        sent.map_err(|error| self.explain(error, "take a workload", Duration::ZERO))
    }

    /// Starts a workload and waits until the guest reports that it runs, or that it has ended.
    ///
    /// # Errors
    /// When the specification is invalid, the guest refuses, or does not report it within
    /// `patience`.
    pub fn start_workload(
        &self,
        id: &str,
        spec: &WorkloadSpec,
        patience: Duration,
    ) -> Result<(), LabError> {
        self.check(id, spec)?;
        let channel = self.channel()?;
        let start = ToGuest::Start { id: id.to_owned(), spec: spec.clone() };
        let before = channel.forget_done(id);
        // One report may already be in transit. The result of a workload that has ended is left for
        // `wait_done`.
        let began = channel.ask(&start, id, patience, |answers| {
            let runs = answers.report_seq() >= before + 2 && answers.runs(id);
            (runs || answers.has_done(id)).then_some(())
        });
        began.map_err(|error| self.explain(error, "start a workload", patience))
    }

    /// Sends a request to stop a workload without waiting: its end comes among the messages.
    ///
    /// # Errors
    /// When the guest has exited.
    pub fn send_stop(&self, id: &str) -> Result<(), LabError> {
        let sent = self.channel()?.send(&ToGuest::Stop { id: id.to_owned() });
        sent.map_err(|error| self.explain(error, "stop a workload", Duration::ZERO))
    }

    /// Stops a workload and returns its totals.
    ///
    /// # Errors
    /// When there is no workload of that name or the guest has exited.
    pub fn stop_workload(&self, id: &str) -> Result<(ProcessEnd, WorkloadTotals), LabError> {
        let stop = ToGuest::Stop { id: id.to_owned() };
        self.channel()?
            .ask(&stop, id, STOP_PATIENCE, |answers| answers.done(id))
            .map_err(|error| self.explain(error, "stop a workload", STOP_PATIENCE))
    }

    /// Waits until a workload ends by itself and returns its totals.
    ///
    /// # Errors
    /// When it does not end within `patience`, or the guest has exited.
    pub fn wait_done(
        &self,
        id: &str,
        patience: Duration,
    ) -> Result<(ProcessEnd, WorkloadTotals), LabError> {
        self.channel()?
            .wait_for(patience, |answers| answers.done(id))
            .map_err(|error| self.explain(error, "finish a workload", patience))
    }

    /// Executes a program in the guest and waits for it; after `timeout` the guest kills it.
    ///
    /// # Errors
    /// When the guest refuses or has exited.
    pub fn exec(&self, argv: &[String], timeout: Duration) -> Result<ExecOutput, LabError> {
        let channel = self.channel()?;
        let id = channel.next_exec_id();
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let exec = ToGuest::Exec { id, argv: argv.to_vec(), timeout_ms };
        let patience = timeout.saturating_add(EXEC_GRACE);
        channel
            .ask(&exec, &id.to_string(), patience, |answers| answers.executed(id))
            .map_err(|error| self.explain(error, "execute a program", patience))
    }

    /// Kills its QEMU, like a power failure.
    pub fn kill(&self) {
        self.hypervisor().kill();
    }

    fn hypervisor(&self) -> MutexGuard<'_, Hypervisor> {
        self.hypervisor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What can be seen of it if it makes no progress: the states of its hypervisor's threads, what
    /// its monitor and its own kernel say, and the end of its console. Takes seconds.
    pub fn symptoms(&self) -> String {
        let monitor = (!self.is_domain()).then_some(self.lab_qmp_socket());
        let inside = |line: &str, patience| {
            let done = self.exec(&["/bin/sh", "-c", line].map(str::to_owned), patience);
            // The rest of an error is the console, which follows.
            let first =
                |error: LabError| error.to_string().lines().next().unwrap_or_default().to_owned();
            done.map_or_else(first, |done| format!("{}{}", done.stdout, done.stderr))
        };
        let seen = symptoms::describe(self.pid(), monitor, inside);
        format!("{seen}the end of its console:\n{}", self.console_tail())
    }

    /// The end of its console log, with QEMU's messages if there are any.
    pub fn console_tail(&self) -> String {
        let read = |path: &Path| {
            let bytes = fs::read(path).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            tool::tail(&text, CONSOLE_QUOTED_MAX).trim().to_owned()
        };
        let (console, messages) = (read(&self.paths.console), read(&self.paths.messages()));
        match (console.is_empty(), messages.is_empty()) {
            (true, true) => "(nothing)".to_owned(),
            (_, true) => console,
            (_, false) => format!("{console}\nQEMU: {messages}"),
        }
    }

    fn check(&self, id: &str, spec: &WorkloadSpec) -> Result<(), LabError> {
        spec.validate_for_guest().map_err(|error| {
            LabError::Invalid(format!("workload {id} of guest {}: {error}", self.spec.id))
        })
    }

    fn channel(&self) -> Result<&Channel, LabError> {
        self.channel.get().ok_or_else(|| self.gone())
    }

    fn gone(&self) -> LabError {
        self.explain(ChannelError::Closed, "", Duration::ZERO)
    }

    fn explain(&self, error: ChannelError, what: &'static str, waited: Duration) -> LabError {
        let guest = self.spec.id.clone();
        let console = self.console_tail();
        match error {
            ChannelError::Refused(why) => LabError::Refused { guest, why },
            ChannelError::TimedOut => LabError::Timeout { guest, what, waited, console },
            ChannelError::Closed => {
                let how = match self.state() {
                    GuestState::Panicked => "has panicked".to_owned(),
                    GuestState::Exited => "has exited".to_owned(),
                    _ => "has closed its channel".to_owned(),
                };
                LabError::GuestGone { guest, how, console }
            }
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.kill();
    }
}
