//! Serving the host.
//!
//! Idea: one thread and one loop: wait for whatever comes first (a line, a child's end or output, the
//! time of a report), then do all there is to do without waiting. Nothing a workload does can hold it up.
//! Limits: one host; commands that arrive before a connection's hello are ignored, for they may be the
//! rest of an older one.

use std::fs;
use std::os::fd::BorrowedFd;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ballast_lab_guest::line::{self, LineReader};
use ballast_lab_guest::procfs;
use ballast_lab_guest::protocol::{
    ERROR_TEXT_LEN_MAX, FromGuest, PROTOCOL_VERSION, READY_LINE_PREFIX, REPORT_PERIOD_MS, Report,
    ToGuest,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::WaitOptions;
use rustix::time::ClockId;

use crate::boot::Booted;
use crate::guest_agent::GuestAgent;
use crate::outbox::Outbox;
use crate::port::Port;
use crate::proc_file::ProcFile;
use crate::tasks::Tasks;

const REPORT_PERIOD: Duration = Duration::from_millis(REPORT_PERIOD_MS);
/// While no host is connected the port cannot be waited for; it is looked at this often.
const RECONNECT_PERIOD: Duration = Duration::from_millis(50);
/// Most pieces read from the port at a time, so that a host that never stops talking is still
/// reported to.
const READS_MAX: usize = 16;
/// Longest wait for disks at shutdown; a throttled disk must not keep the guest from going down.
const SYNC_TIME_MAX: Duration = Duration::from_secs(5);

/// Process 1 locks its memory, so that a stack is paid for in full, perhaps when memory is short.
const SYNC_STACK_BYTES: usize = 64 << 10;

/// Serves the host; comes back only with a reason to power off.
pub(crate) fn serve(booted: Booted) -> String {
    let agent = Agent::new(booted);
    match agent {
        Ok(mut agent) => loop {
            if let Err(error) = agent.step() {
                return error;
            }
        },
        Err(error) => error,
    }
}

struct Agent {
    booted: Booted,
    port: Port,
    reader: LineReader,
    outbox: Outbox,
    connected: bool,
    /// The host has said hello on this connection.
    greeted: bool,
    tasks: Tasks,
    guest_agent: GuestAgent,
    reports: u64,
    report_at: Instant,
    meminfo: ProcFile,
    vmstat: ProcFile,
}

impl Agent {
    fn new(booted: Booted) -> Result<Agent, String> {
        let agent = Agent {
            port: Port::open()?,
            reader: LineReader::new(),
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
        self.tasks.tend(Instant::now());
        self.guest_agent.tend(Instant::now());
        self.watch_connection();
        self.listen()?;
        self.report_if_due();
        self.send()
    }

    /// Waits until there is something to do.
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
        let timeout = until.saturating_duration_since(now);
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(format!("poll: {error}")),
        }
    }

    /// Takes note of every process that has ended, its own and those that lost their parents.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            self.guest_agent.ended(pid, Instant::now());
            for message in self.tasks.ended(pid, status) {
                self.say(&message);
            }
        }
    }

    fn watch_connection(&mut self) {
        let connected = self.port.connected();
        if self.connected && !connected {
            self.greeted = false;
            self.reader.reset();
            self.outbox.interrupted();
        }
        self.connected = connected;
    }

    fn listen(&mut self) -> Result<(), String> {
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
                    Ok(message) => self.obey(message),
                    Err(error) if self.greeted => {
                        let id = line.ok().as_deref().and_then(id_of);
                        self.say(&error_about(id, &error));
                    }
                    Err(_) => {}
                }
            }
        }
        Ok(())
    }

    fn obey(&mut self, message: ToGuest) {
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
            self.say(&error_about(about, &error));
        }
    }

    fn greet(&mut self, version: u32, nonce: u64) {
        let hello = FromGuest::Hello { version: PROTOCOL_VERSION, nonce, uptime_ms: uptime_ms() };
        let ready = FromGuest::Ready(self.booted.ready.clone());
        // Before the hello, an end to whatever an older connection left half said.
        let hello = line::encode(&hello).map(|line| format!("\n{line}"));
        self.greeted = version == PROTOCOL_VERSION;
        let ready = self.greeted.then(|| line::encode(&ready));
        self.outbox.begin([Some(hello), ready].into_iter().flatten().flatten());
    }

    /// Queues a message; one too long becomes an error that says so.
    fn say(&mut self, message: &FromGuest) {
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
        // A report that comes late moves those after it: two at once would say nothing new.
        self.report_at = (self.report_at + REPORT_PERIOD).max(now + REPORT_PERIOD / 2);
        let report = Report {
            seq: self.reports,
            uptime_ms: uptime_ms(),
            memory: procfs::meminfo(&self.meminfo.read()),
            vm: procfs::vmstat(&self.vmstat.read()),
            workloads: self.tasks.report(),
        };
        self.reports += 1;
        if self.greeted {
            self.say(&FromGuest::Report(Box::new(report)));
        }
    }

    fn send(&mut self) -> Result<(), String> {
        while self.connected
            && let Some(bytes) = self.outbox.next()
        {
            // Kept results wait for the hello; only the answer to a wrong version goes without.
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

/// An error for the host, cut to its longest length.
pub(crate) fn error_about(id: Option<String>, text: &impl ToString) -> FromGuest {
    let mut text = text.to_string();
    text.truncate(text.floor_char_boundary(ERROR_TEXT_LEN_MAX));
    FromGuest::Error { id, text }
}

/// The `id` of a message that could not be understood otherwise.
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

/// Ends everything; does not come back.
fn shut_down(tasks: &Tasks) -> ! {
    tasks.kill_all();
    let (done, synced) = mpsc::channel();
    let sync = std::thread::Builder::new().stack_size(SYNC_STACK_BYTES).spawn(move || {
        rustix::fs::sync();
        // Nobody may wait any more.
        let _ = done.send(());
    });
    if sync.is_ok() && synced.recv_timeout(SYNC_TIME_MAX).is_err() {
        eprintln!("lab-guest: disks not written after {} s", SYNC_TIME_MAX.as_secs());
    }
    crate::power_off()
}
