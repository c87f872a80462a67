//! A running guest.
//!
//! Idea: a QEMU process, its console log and the conversation with the program in it. What is asked
//! of a guest is waited for with a bound, and a guest that has ended says so with the end of its
//! console.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ballast_lab_guest::protocol::{End, Ready, Report, ToGuest, Totals};
use ballast_lab_guest::workload::WorkloadSpec;
use ballast_model::GuestId;
use ballast_track_wire::Address;

use crate::accel::Accel;
use crate::channel::{Channel, ChannelError, ExecOutput, Subscription};
use crate::process::ProcessId;
use crate::qemu::{CommandLine, GuestPaths, GuestSpec, InheritedDisk, QEMU, QEMU_PACKAGE};
use crate::run_folder::{GuestRecord, GuestState, RunFolder};
use crate::spawn::Spawner;
use crate::{Cache, DiskSpec, LabError, TruthRow, disk, tool, tracker, truth};

/// Part of a console log quoted in an error, in bytes.
const CONSOLE_QUOTED_MAX: usize = 3000;
/// How much longer than the guest the host waits for a command: the guest may be busy.
const EXEC_GRACE: Duration = Duration::from_secs(30);
/// How long the end of a stopped workload is waited for; a guest that thrashes takes its time.
const STOP_PATIENCE: Duration = Duration::from_secs(60);

/// A guest whose QEMU has been started.
pub struct Guest {
    spec: GuestSpec,
    paths: GuestPaths,
    record: GuestRecord,
    child: Mutex<Child>,
    channel: OnceLock<Channel>,
    started: Instant,
}

/// What a guest is started from.
pub(crate) struct GuestStart<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) kernel: &'a Path,
    pub(crate) initramfs: &'a Path,
    /// What its data disk begins with.
    pub(crate) data_image: Option<&'a Path>,
    pub(crate) accel: Accel,
    pub(crate) folder: &'a RunFolder,
    pub(crate) spawner: &'a Spawner,
}

impl GuestStart<'_> {
    /// Starts a guest's QEMU and records it in the run's folder.
    pub(crate) fn start(&self, spec: &GuestSpec) -> Result<Guest, LabError> {
        let paths = self.folder.guest_paths(&spec.id)?;
        let started = Instant::now();
        let mut child = self.spawn(spec, &paths)?;
        let Some(process) = ProcessId::of(child.id()) else {
            let _ = child.wait();
            return Err(LabError::GuestGone {
                guest: spec.id.clone(),
                how: "ended at once".to_owned(),
                console: fs::read_to_string(messages_of(&paths)).unwrap_or_default(),
            });
        };
        let record = GuestRecord {
            id: spec.id.clone(),
            process,
            memory: spec.memory,
            qmp_socket: paths.qmp.clone(),
            console: paths.console.clone(),
        };
        let guest = Guest {
            spec: spec.clone(),
            paths,
            record,
            child: Mutex::new(child),
            channel: OnceLock::new(),
            started,
        };
        self.folder.record_guest(&guest.record)?;
        Ok(guest)
    }

    fn spawn(&self, spec: &GuestSpec, paths: &GuestPaths) -> Result<Child, LabError> {
        let mut files = Vec::new();
        let mut open = |disk: Option<DiskSpec>, image: Option<&Path>| {
            let Some(disk) = disk else { return Ok(None) };
            let disk = disk::create(self.cache, &disk, image)?;
            let inherited = InheritedDisk::of(&disk);
            files.push(disk.file);
            Ok(Some(inherited))
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
        let mut command = Command::new(tool::require(QEMU, QEMU_PACKAGE)?);
        let messages = messages_of(paths);
        let log = File::create(&messages).map_err(LabError::io("create", &messages))?;
        let also = log.try_clone().map_err(LabError::io("create", &messages))?;
        command.args(line.arguments()).stdin(Stdio::null()).stdout(log).stderr(also);
        if spec.tracked {
            tracker::preload(&mut command, &paths.tracker)?;
        }
        self.spawner.spawn(command, files).map_err(LabError::io("start", QEMU))
    }

    fn truth(&self, spec: &GuestSpec, rows: &Path) -> Result<Option<OsString>, LabError> {
        match (&spec.truth, self.accel) {
            (None, _) => Ok(None),
            (Some(truth), Accel::Tcg) => truth.argument(rows).map(Some),
            (Some(_), Accel::Kvm) => Err(LabError::TruthNeedsEmulation(spec.id.clone())),
        }
    }
}

impl Guest {
    /// Waits until the guest's program serves, up to `deadline`.
    pub(crate) fn wait_ready(&self, deadline: Instant) -> Result<(), LabError> {
        let is_gone = || matches!(self.state(), GuestState::Exited | GuestState::Panicked);
        let channel = Channel::open(&self.paths.channel, deadline, &is_gone)
            .map_err(|error| self.explain(error, "get ready", self.started.elapsed()))?;
        let _ = self.channel.set(channel);
        Ok(())
    }

    /// Its name.
    pub fn id(&self) -> &GuestId {
        &self.spec.id
    }

    /// What it was started as.
    pub fn spec(&self) -> &GuestSpec {
        &self.spec
    }

    /// What is recorded of it.
    pub fn record(&self) -> &GuestRecord {
        &self.record
    }

    /// The number of its QEMU process.
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

    /// Where its page tracker listens, if it was started with one.
    pub fn tracker(&self) -> Option<Address> {
        self.spec.tracked.then(|| Address::Path(self.paths.tracker.clone()))
    }

    /// Where the host's end of its agent's port is, if it has an agent; one client at a time.
    pub fn agent_socket(&self) -> Option<&Path> {
        self.spec.agent.then_some(self.paths.agent.as_path())
    }

    /// Its console log.
    pub fn console(&self) -> &Path {
        &self.paths.console
    }

    /// What it touched, one row for each interval that has ended; empty unless it was started with
    /// [`Truth`](crate::Truth).
    ///
    /// # Errors
    /// What was recorded cannot be read.
    pub fn truth(&self) -> Result<Vec<TruthRow>, LabError> {
        match self.spec.truth {
            Some(_) => truth::rows(&self.paths.truth),
            None => Ok(Vec::new()),
        }
    }

    /// How far it has come.
    pub fn state(&self) -> GuestState {
        self.record.state()
    }

    /// What it found at boot.
    ///
    /// # Errors
    /// When it is gone.
    pub fn ready(&self) -> Result<Ready, LabError> {
        self.channel()?.ready().ok_or_else(|| self.gone())
    }

    /// Its latest report; `None` before the first.
    ///
    /// # Errors
    /// When it never got ready.
    pub fn latest_report(&self) -> Result<Option<Report>, LabError> {
        Ok(self.channel()?.report())
    }

    /// Every message it sends from now on.
    ///
    /// # Errors
    /// When it never got ready.
    pub fn subscribe(&self) -> Result<Subscription, LabError> {
        Ok(self.channel()?.subscribe())
    }

    /// Asks for a workload without waiting: it shows in the reports, or a refusal among the events.
    ///
    /// # Errors
    /// When the specification is impossible or the guest is gone.
    pub fn send_start(&self, id: &str, spec: &WorkloadSpec) -> Result<(), LabError> {
        self.check(id, spec)?;
        let start = ToGuest::Start { id: id.to_owned(), spec: spec.clone() };
        let sent = self.channel()?.send(&start);
        sent.map_err(|error| self.explain(error, "take a workload", Duration::ZERO))
    }

    /// Starts a workload and waits until the guest reports it running, or ended already.
    ///
    /// # Errors
    /// When the specification is impossible, the guest refuses, or nothing comes within `patience`.
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
        // One report may be on its way already; its end stays where it is, for `wait_done`.
        let began = channel.ask(&start, id, patience, |answers| {
            let runs = answers.report_seq() >= before + 2 && answers.runs(id);
            (runs || answers.has_done(id)).then_some(())
        });
        began.map_err(|error| self.explain(error, "start a workload", patience))
    }

    /// Stops a workload and returns what it did.
    ///
    /// # Errors
    /// When there is none of that name or the guest is gone.
    pub fn stop_workload(&self, id: &str) -> Result<(End, Totals), LabError> {
        let stop = ToGuest::Stop { id: id.to_owned() };
        self.channel()?
            .ask(&stop, id, STOP_PATIENCE, |answers| answers.done(id))
            .map_err(|error| self.explain(error, "stop a workload", STOP_PATIENCE))
    }

    /// Waits until a workload ends by itself and returns what it did.
    ///
    /// # Errors
    /// When it does not within `patience`, or the guest is gone.
    pub fn wait_done(&self, id: &str, patience: Duration) -> Result<(End, Totals), LabError> {
        self.channel()?
            .wait_answer(patience, |answers| answers.done(id))
            .map_err(|error| self.explain(error, "finish a workload", patience))
    }

    /// Executes a program in the guest and waits for its end; after `timeout` the guest kills it.
    ///
    /// # Errors
    /// When the guest refuses or is gone.
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

    /// Kills its QEMU, as if the power had failed.
    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }

    /// The end of its console log, with QEMU's own messages if there are any.
    pub fn console_tail(&self) -> String {
        let read = |path: &Path| {
            let bytes = fs::read(path).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            tool::tail(&text, CONSOLE_QUOTED_MAX).trim().to_owned()
        };
        let (console, messages) = (read(&self.paths.console), read(&messages_of(&self.paths)));
        match (console.is_empty(), messages.is_empty()) {
            (true, true) => "(nothing)".to_owned(),
            (_, true) => console,
            (_, false) => format!("{console}\nQEMU: {messages}"),
        }
    }

    fn check(&self, id: &str, spec: &WorkloadSpec) -> Result<(), LabError> {
        spec.validate().map_err(|error| {
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

/// Where QEMU's own messages go.
fn messages_of(paths: &GuestPaths) -> PathBuf {
    paths.console.with_extension("qemu")
}
