//! The event loop of process 1, which serves the host.
//!
//! Idea: one thread and one loop: wait for the next event (a line, a child's exit or output, a
//! report that is due), then handle everything pending without blocking. No workload can block it.
//! Limits: one host; commands before a connection's hello are ignored because they may be left over
//! from an older connection.

use std::fs;
use std::os::fd::BorrowedFd;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ballast_lab_guest::line::{self, LineReader};
use ballast_lab_guest::procfs;
use ballast_lab_guest::protocol::{
    FromGuest, LabReport, PROTOCOL_VERSION, READY_LINE_PREFIX, REPORT_PERIOD_MS, ToGuest,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::WaitOptions;
use rustix::time::ClockId;

use crate::boot::BootedGuest;
use crate::guest_agent::GuestAgent;
use crate::outbox::{Outbox, error_about};
use crate::port::Port;
use crate::proc_file::ProcFile;
use crate::tasks::Tasks;

const REPORT_PERIOD: Duration = Duration::from_millis(REPORT_PERIOD_MS);
/// The port cannot be polled while no host is connected; this is how often it is checked.
const RECONNECT_PERIOD: Duration = Duration::from_millis(50);
/// Most chunks read from the port per step, so that a host that sends without pause still gets
/// reports.
const READS_MAX: usize = 16;
/// Longest wait for disks at shutdown; a throttled disk must not prevent it.
const SYNC_TIME_MAX: Duration = Duration::from_secs(5);

/// Process 1 locks its memory, so a stack is allocated in full, perhaps while memory is short.
const SYNC_STACK_BYTES: usize = 64 << 10;

/// Serves the host; returns only with a reason to power off.
pub(crate) fn serve(booted: BootedGuest) -> String {
    match Agent::new(booted) {
        Ok(mut agent) => loop {
            if let Err(error) = agent.step() {
                return error;
            }
        },
        Err(error) => error,
    }
}

struct Agent {
    booted: BootedGuest,
    port: Port,
    reader: LineReader,
    outbox: Outbox,
    connected: bool,
    /// Whether the host has sent its hello on this connection.
    greeted: bool,
    tasks: Tasks,
    guest_agent: GuestAgent,
    reports: u64,
    report_at: Instant,
    meminfo: ProcFile,
    vmstat: ProcFile,
}

impl Agent {
    fn new(booted: BootedGuest) -> Result<Agent, String> {
        let agent = Agent {
            port: Port::open()?,
            reader: LineReader::default(),
            outbox: Outbox::default(),
            connected: false,
            greeted: false,
            tasks: Tasks::new(booted.data_disk.clone()),
            guest_agent: GuestAgent::find(),
            reports: 0,
            report_at: Instant::now() + REPORT_PERIOD,
            meminfo: ProcFile::open("/proc/meminfo")?,
            vmstat: ProcFile::open("/proc/vmstat")?,
            booted,
        };
        let ready = format!("{READY_LINE_PREFIX} {:.3}\n", uptime_ms() as f64 / 1e3);
        if fs::write("/dev/console", &ready).is_err() {
            print!("{ready}");
        }
        Ok(agent)
    }

    fn step(&mut self) -> Result<(), String> {
        self.wait()?;
        self.reap();
        self.tasks.poll(Instant::now());
        self.guest_agent.poll(Instant::now());
        self.watch_connection();
        self.receive()?;
        self.report_if_due();
        self.send()
    }

    /// Waits for the next event.
    fn wait(&self) -> Result<(), String> {
        let now = Instant::now();
        let mut until = self.report_at;
        let deadlines = [self.tasks.next_deadline(), self.guest_agent.next_deadline()];
        until = deadlines.into_iter().flatten().fold(until, Instant::min);
        let fds = self.tasks.fds().chain(self.guest_agent.fds());
        let mut fds: Vec<PollFd<'_>> = fds.map(readable).collect();
        if self.connected {
            let mut port = PollFlags::IN;
            port.set(PollFlags::OUT, self.greeted && self.outbox.next().is_some());
            fds.push(PollFd::from_borrowed_fd(self.port.fd(), port));
        } else {
            until = until.min(now + RECONNECT_PERIOD);
        }
        let timeout = Timespec::try_from(until.saturating_duration_since(now)).ok();
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(format!("poll: {error}")),
        }
    }

    /// Reaps every process that has exited, its children and orphans.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            self.guest_agent.reaped(pid, Instant::now());
            for message in self.tasks.reaped(pid, status) {
                self.queue(&message);
            }
        }
    }

    fn watch_connection(&mut self) {
        let connected = self.port.connected();
        if self.connected && !connected {
            self.greeted = false;
            self.reader.reset();
            self.outbox.disconnected();
        }
        self.connected = connected;
    }

    fn receive(&mut self) -> Result<(), String> {
        let mut chunk = [0; 4096];
        for _ in 0..READS_MAX {
            let n = self.port.read(&mut chunk)?;
            if n == 0 {
                break;
            }
            self.reader.push(&chunk[..n]);
            while let Some(line) = self.reader.next_line() {
                let message = line.as_deref().map_err(Clone::clone).and_then(line::decode);
                match message {
                    Ok(message) => self.handle(message),
                    Err(error) if self.greeted => {
                        let id = line.ok().as_deref().and_then(id_of);
                        self.queue(&error_about(id, &error));
                    }
                    Err(_) => {}
                }
            }
        }
        Ok(())
    }

    fn handle(&mut self, message: ToGuest) {
        let about = match &message {
            ToGuest::Start { id, .. } | ToGuest::Stop { id } => Some(id.clone()),
            ToGuest::Exec { id, .. } => Some(id.to_string()),
            ToGuest::Hello { .. } | ToGuest::Shutdown {} => None,
        };
        let done = match message {
            ToGuest::Hello { version, nonce } => return self.greet(version, nonce),
            _ if !self.greeted => return,
            ToGuest::Start { id, spec } => self.tasks.start(id, &spec),
            ToGuest::Stop { id } => self.tasks.stop(&id),
            ToGuest::Exec { id, argv, timeout_ms } => self.tasks.exec(id, &argv, timeout_ms),
            ToGuest::Shutdown {} => shut_down(&self.tasks),
        };
        if let Err(error) = done {
            self.queue(&error_about(about, &error));
        }
    }

    fn greet(&mut self, version: u32, nonce: u64) {
        let hello = FromGuest::Hello { version: PROTOCOL_VERSION, nonce, uptime_ms: uptime_ms() };
        let ready = FromGuest::Ready(self.booted.ready.clone());
        // An empty line before the hello terminates a line that an older connection cut short.
        let hello = line::encode(&hello).map(|line| format!("\n{line}"));
        self.greeted = version == PROTOCOL_VERSION;
        let ready = self.greeted.then(|| line::encode(&ready));
        self.outbox.begin([Some(hello), ready].into_iter().flatten().flatten());
    }

    /// Queues a message; a message that is too long becomes an error that says so.
    fn queue(&mut self, message: &FromGuest) {
        let keep = !matches!(message, FromGuest::Report(_));
        let line = line::encode(message).or_else(|error| line::encode(&error_about(None, &error)));
        if let Ok(line) = line {
            self.outbox.push(line, keep);
        }
    }

    fn report_if_due(&mut self) {
        let now = Instant::now();
        if now < self.report_at {
            return;
        }
        // A late report delays the following ones: two at once would add nothing.
        self.report_at = (self.report_at + REPORT_PERIOD).max(now + REPORT_PERIOD / 2);
        let report = LabReport {
            seq: self.reports,
            uptime_ms: uptime_ms(),
            memory: procfs::meminfo(&self.meminfo.read()),
            vm: procfs::vmstat(&self.vmstat.read()),
            workloads: self.tasks.report(),
        };
        self.reports += 1;
        if self.greeted {
            self.queue(&FromGuest::Report(Box::new(report)));
        }
    }

    fn send(&mut self) -> Result<(), String> {
        while self.connected
            && let Some(bytes) = self.outbox.next()
        {
            // Undelivered results wait for the hello; only the answer to a wrong version is sent
            // without it.
            if !self.greeted && !bytes.starts_with(b"\n") {
                break;
            }
            match self.port.write(bytes)? {
                0 => break,
                n => self.outbox.advance(n),
            }
        }
        Ok(())
    }
}

fn readable(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}

/// The `id` of a message that could not be parsed otherwise.
fn id_of(line: &str) -> Option<String> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    match message.get("id")? {
        serde_json::Value::String(id) => Some(id.clone()),
        serde_json::Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}

fn uptime_ms() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unwrap_or(0)
}

/// Kills everything and powers off; does not return.
fn shut_down(tasks: &Tasks) -> ! {
    tasks.kill_all();
    let (done, synced) = mpsc::channel();
    let sync = std::thread::Builder::new().stack_size(SYNC_STACK_BYTES).spawn(move || {
        rustix::fs::sync();
        // The receiver may have timed out.
        let _ = done.send(());
    });
    if sync.is_ok() && synced.recv_timeout(SYNC_TIME_MAX).is_err() {
        eprintln!("lab-guest: disks not synced after {} s", SYNC_TIME_MAX.as_secs());
    }
    crate::power::power_off()
}
