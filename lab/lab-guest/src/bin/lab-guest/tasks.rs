//! The running workloads and programs.
//!
//! Idea: two tables, workloads by name and programs by number. Nothing here blocks; results for the
//! host are returned as messages.
//! Limits: [`WORKLOADS_MAX`] and [`EXECS_MAX`] at once.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use ballast_lab_guest::procfs;
use ballast_lab_guest::protocol::{
    ERROR_TEXT_LEN_MAX, EXEC_OUTPUT_BYTES_MAX, EXEC_TIMEOUT_MS_MAX, EXECS_MAX, FromGuest,
    ProcessEnd, WORKLOAD_ID_LEN_MAX, WORKLOADS_MAX, WorkloadReport, WorkloadTotals,
};
use ballast_lab_guest::workload::{Kind, WorkloadSpec};
use rustix::process::{Pid, WaitStatus};

use crate::child::{self, Child};
use crate::counters::Counters;
use crate::outbox::error_about;
use crate::pipe::Pipe;
use crate::proc_file::ProcFile;
use crate::workload;

/// All running workloads and programs.
pub(crate) struct Tasks {
    data_disk: Option<PathBuf>,
    workloads: BTreeMap<String, Workload>,
    execs: BTreeMap<u64, Exec>,
}

struct Workload {
    kind: Kind,
    child: Child,
    counters: Counters,
    errors: Pipe,
    stat: ProcFile,
    status: ProcFile,
    started: Instant,
    stopped: bool,
    touches_reported: u64,
    major_faults: Option<u64>,
}

struct Exec {
    child: Child,
    stdout: Pipe,
    stderr: Pipe,
    deadline: Instant,
    timed_out: bool,
}

impl Tasks {
    /// Creates empty tables.
    pub(crate) fn new(data_disk: Option<PathBuf>) -> Self {
        Tasks { data_disk, workloads: BTreeMap::new(), execs: BTreeMap::new() }
    }

    /// Starts a workload.
    pub(crate) fn start(&mut self, id: String, spec: &WorkloadSpec) -> Result<(), String> {
        if !(1..=WORKLOAD_ID_LEN_MAX).contains(&id.len()) {
            return Err(format!(
                "invalid name of a workload: expected 1 to {WORKLOAD_ID_LEN_MAX} bytes"
            ));
        }
        if self.workloads.contains_key(&id) {
            return Err("a workload of this name is already running: stop it first".to_owned());
        }
        if self.workloads.len() >= WORKLOADS_MAX {
            return Err(format!("{WORKLOADS_MAX} workloads are already running: stop one first"));
        }
        spec.validate_for_guest().map_err(|error| error.to_string())?;
        if spec.pattern.kind() == Kind::FileRandom && self.data_disk.is_none() {
            return Err("file-random needs a virtio disk with the serial number `data`".to_owned());
        }
        let workload = Workload::start(spec, self.data_disk.as_ref())?;
        self.workloads.insert(id, workload);
        Ok(())
    }

    /// Kills a workload; the result follows when it is reaped.
    pub(crate) fn stop(&mut self, id: &str) -> Result<(), String> {
        let workload = self.workloads.get_mut(id).ok_or("no workload of this name is running")?;
        workload.stopped = true;
        workload.child.kill();
        Ok(())
    }

    /// Starts a program.
    pub(crate) fn exec(&mut self, id: u64, argv: &[String], timeout_ms: u64) -> Result<(), String> {
        if self.execs.contains_key(&id) {
            return Err("a program of this number is already running".to_owned());
        }
        if self.execs.len() >= EXECS_MAX {
            return Err(format!("{EXECS_MAX} programs are already running"));
        }
        if argv.is_empty() {
            return Err("argv is empty: expected a program and its arguments".to_owned());
        }
        if !(1..=EXEC_TIMEOUT_MS_MAX).contains(&timeout_ms) {
            return Err(format!("timeout_ms = {timeout_ms}: expected 1 to {EXEC_TIMEOUT_MS_MAX}"));
        }
        self.execs.insert(id, Exec::start(argv, Duration::from_millis(timeout_ms))?);
        Ok(())
    }

    /// Reads the output of all processes and kills programs past their deadline.
    pub(crate) fn poll(&mut self, now: Instant) {
        for workload in self.workloads.values_mut() {
            workload.errors.read();
        }
        for exec in self.execs.values_mut() {
            exec.stdout.read();
            exec.stderr.read();
            if !exec.timed_out && now >= exec.deadline {
                exec.timed_out = true;
                exec.child.kill();
            }
        }
    }

    /// The messages about a process that was reaped; none if it is not in the tables.
    pub(crate) fn reaped(&mut self, pid: Pid, status: WaitStatus) -> Vec<FromGuest> {
        let end = child::end_of(status);
        let workload = self.workloads.extract_if(.., |_, it| it.child.pid() == pid).next();
        if let Some((id, workload)) = workload {
            return workload.reaped(id, end);
        }
        let exec = self.execs.extract_if(.., |_, it| it.child.pid() == pid).next();
        exec.map(|(id, exec)| exec.reaped(id, end)).into_iter().collect()
    }

    /// File descriptors to poll.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let workloads = self.workloads.values();
        let workloads = workloads.flat_map(|it| [Some(it.child.fd()), it.errors.fd()]);
        let execs = self.execs.values();
        let execs = execs.flat_map(|it| [Some(it.child.fd()), it.stdout.fd(), it.stderr.fd()]);
        workloads.chain(execs).flatten()
    }

    /// The next deadline of a program.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.execs.values().filter(|exec| !exec.timed_out).map(|exec| exec.deadline).min()
    }

    /// Reports the state of every workload.
    pub(crate) fn report(&mut self) -> Vec<WorkloadReport> {
        self.workloads.iter_mut().map(|(id, workload)| workload.report(id)).collect()
    }

    /// Kills everything.
    pub(crate) fn kill_all(&self) {
        let workloads = self.workloads.values().map(|workload| &workload.child);
        workloads.chain(self.execs.values().map(|exec| &exec.child)).for_each(Child::kill);
    }
}

impl Workload {
    fn start(spec: &WorkloadSpec, data_disk: Option<&PathBuf>) -> Result<Workload, String> {
        let (counters, memfd) = Counters::create()?;
        let json = serde_json::to_string(spec).map_err(|error| error.to_string())?;
        let device = data_disk.map(|device| device.display().to_string());
        let mut arguments = vec!["workload", "--counters"];
        arguments.extend(device.iter().flat_map(|device| ["--data-disk", device]));
        arguments.push(&json);
        let spawned = Child::spawn(&arguments, Stdio::from(memfd), Stdio::null())?;
        let pid = spawned.child.pid().as_raw_nonzero();
        let errors = spawned.stderr.ok_or("the child has no pipe")?;
        Ok(Workload {
            kind: spec.pattern.kind(),
            child: spawned.child,
            counters,
            errors: Pipe::new(errors, ERROR_TEXT_LEN_MAX)?,
            stat: ProcFile::open(&format!("/proc/{pid}/stat"))?,
            status: ProcFile::open(&format!("/proc/{pid}/status"))?,
            started: Instant::now(),
            stopped: false,
            touches_reported: 0,
            major_faults: None,
        })
    }

    fn report(&mut self, id: &str) -> WorkloadReport {
        // For a program, the process that counts is not the one that uses the memory.
        let (stat, status) = match self.kind {
            Kind::Program => Default::default(),
            _ => (self.stat.read(), self.status.read()),
        };
        self.major_faults = procfs::major_faults(&stat).or(self.major_faults);
        let report = workload::report(
            id.to_owned(),
            self.kind,
            &self.counters,
            self.touches_reported,
            self.major_faults,
            &status,
        );
        self.touches_reported = report.touches;
        report
    }

    fn reaped(mut self, id: String, end: ProcessEnd) -> Vec<FromGuest> {
        self.errors.read();
        let (text, _) = self.errors.into_text();
        let failed = !text.is_empty() && !self.stopped;
        let error = failed.then(|| error_about(Some(id.clone()), &text.trim_end()));
        let elapsed_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let done = FromGuest::Done {
            id,
            end: if self.stopped { ProcessEnd::Stopped {} } else { end },
            totals: WorkloadTotals {
                touches: self.counters.touches(),
                iterations: self.counters.iterations(),
                elapsed_ms,
                major_faults: self.major_faults,
            },
        };
        error.into_iter().chain([done]).collect()
    }
}

impl Exec {
    fn start(argv: &[String], timeout: Duration) -> Result<Exec, String> {
        let arguments: Vec<&str> =
            std::iter::once("exec").chain(argv.iter().map(String::as_str)).collect();
        let spawned = Child::spawn(&arguments, Stdio::null(), Stdio::piped())?;
        let stdout = spawned.stdout.ok_or("the child has no pipe")?;
        let stderr = spawned.stderr.ok_or("the child has no pipe")?;
        Ok(Exec {
            child: spawned.child,
            stdout: Pipe::new(stdout, EXEC_OUTPUT_BYTES_MAX)?,
            stderr: Pipe::new(stderr, EXEC_OUTPUT_BYTES_MAX)?,
            deadline: Instant::now() + timeout,
            timed_out: false,
        })
    }

    /// Its output is what its pipes contain now: a process it left behind may keep them open.
    fn reaped(mut self, id: u64, end: ProcessEnd) -> FromGuest {
        self.stdout.read();
        self.stderr.read();
        let (stdout, stdout_cut) = self.stdout.into_text();
        let (stderr, stderr_cut) = self.stderr.into_text();
        FromGuest::ExecDone {
            id,
            end: if self.timed_out { ProcessEnd::TimedOut {} } else { end },
            stdout,
            stderr,
            truncated: stdout_cut || stderr_cut,
        }
    }
}
