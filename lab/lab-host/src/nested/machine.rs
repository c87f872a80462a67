//! A running outer machine, and commands in it.
//!
//! Idea: a command runs with the machine's disk as its root; its outputs go to two ports. A machine
//! that panics closes its channel; one that hangs sends no more reports and is killed. Both are
//! failures of the machine and not of the command: [`with_one_retry`] reports them and tries once
//! more.
//! Limits: one command at a time, without input; processes that a command leaves running keep the
//! ports that the next command needs.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ballast_lab_guest::procfs;
use ballast_lab_guest::protocol::ProcessEnd;
use ballast_model::Bytes;

use super::apparmor;
use super::files::{self, ARTIFACTS_FOLDER, CACHE_FOLDER};
use super::image::image;
use super::output::forward;
use super::terminal::{self, RawTerminal};
use super::xen;
use super::{MEMORY_MIN, NESTED_VARIABLE, NESTED_XEN};
use crate::accel::AccelChoice;
use crate::channel::ExecOutput;
use crate::debian::Kernel;
use crate::guest::Guest;
use crate::modules::VSOCK_MODULES;
use crate::programs;
use crate::xl;
use crate::{Cache, GuestSpec, Helper, KernelChoice, LabError, Run, RunOptions};

/// Name of the machine's one guest.
const MACHINE: &str = "host";
/// The suite whose kernel has every feature to be tried: 6.12, with DAMON.
const SUITE: &str = "bookworm-backports";
/// Memory of a machine unless specified: for two guests of the lab's scenarios and their host.
const MEMORY_DEFAULT: Bytes = Bytes::mib(3072);
/// Memory of the emulator in addition to the machine's, most of it for translated code.
const EMULATOR_OVERHEAD: Bytes = Bytes::mib(768);
/// How long setting up the machine may take; it takes three seconds.
const SET_UP_PATIENCE: Duration = Duration::from_secs(120);
/// How long the program in the machine may be silent before the machine counts as hung. It sends a
/// report every second and is locked into memory.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// Time between two checks for a report.
const POLL: Duration = Duration::from_millis(500);
/// The script that sets a machine up, and its exit status if there is no usable KVM.
const STATUS_NO_KVM: i32 = 3;
const SET_UP: &str = include_str!("set-up.sh");
const ENSURE_KVM: &str = include_str!("kvm.sh");
/// The console of a shell in the machine; under Xen the first console is the hypervisor's.
const TERMINALS: [&str; 2] = ["/dev/hvc0", "/dev/hvc1"];
/// Runs its arguments with their outputs on the machine's ports.
const PORTS_SCRIPT: &str = "exec \"$@\" >/run/ballast/ballast.out 2>/run/ballast/ballast.err";

/// The options of an outer machine.
#[derive(Clone, Debug)]
pub struct NestedOptions {
    /// Its memory, in whole MiB.
    pub memory: Bytes,
    /// Its kernel.
    pub kernel: KernelChoice,
    /// Programs for the machine's guests.
    pub with: BTreeSet<String>,
    /// Kernels for the machine's guests, in addition to the default one.
    pub guest_kernels: Vec<KernelChoice>,
    /// Programs of this host to copy into the machine, with their libraries: path in the machine
    /// (absolute), and file here.
    pub programs: Vec<(PathBuf, PathBuf)>,
    /// Whether AppArmor confines libvirt and its domains in the machine.
    pub apparmor: bool,
    /// Whether Xen boots the machine, instead of KVM running in it; then the kernel is Debian's for
    /// physical machines.
    pub xen: bool,
    /// The folder of runs; `None`: this user's.
    pub runs_folder: Option<PathBuf>,
    /// The program with the hidden commands; this program by default.
    pub helper: Helper,
}

impl NestedOptions {
    /// The kernel that the machine boots.
    fn kernel_choice(&self) -> KernelChoice {
        if self.xen { KernelChoice::Dom0 } else { self.kernel.clone() }
    }
}

impl Default for NestedOptions {
    fn default() -> Self {
        NestedOptions {
            memory: MEMORY_DEFAULT,
            kernel: SUITE.parse().unwrap_or_default(),
            with: BTreeSet::new(),
            guest_kernels: Vec::new(),
            programs: Vec::new(),
            apparmor: false,
            xen: false,
            runs_folder: None,
            helper: Helper::default(),
        }
    }
}

/// A running outer machine; ends when dropped.
pub struct Nested {
    run: Run,
    outputs: [UnixStream; 2],
    is_xen: bool,
}

impl Nested {
    /// Boots a machine and makes it a host. `say` gets a line before each slow step.
    ///
    /// # Errors
    /// Something is missing here, or the machine does not come up; then nothing is left behind.
    pub fn start(options: &NestedOptions, say: &dyn Fn(&str)) -> Result<Nested, LabError> {
        ensure_memory(options.memory)?;
        let cache = Cache::open()?;
        let image = disk(options, &cache, say)?;
        let mut spec = GuestSpec::new(MACHINE.parse()?, options.memory);
        (spec.balloon, spec.host_disk) = (None, Some(image));
        spec.xen = options.xen.then(|| xen::spec(&cache, say)).transpose()?;
        let run_options = RunOptions {
            accel: AccelChoice::Tcg,
            kernel: options.kernel_choice(),
            limit_cpu: false,
            runs_folder: options.runs_folder.clone(),
            helper: options.helper.clone(),
            ..RunOptions::new(format!("nested-{}", std::process::id()).parse()?, vec![spec])
        };
        say("booting the outer machine");
        let run = Run::start(&run_options, say)?;
        let outputs = set_up(run.guest(MACHINE)?, options.xen)?;
        let nested = Nested { run, outputs, is_xen: options.xen };
        if options.xen {
            nested.prepare(xen::START, "cannot start Xen's services")?;
        }
        if options.apparmor {
            nested.prepare(&apparmor::load(), "cannot load AppArmor's profiles")?;
        }
        Ok(nested)
    }

    /// Runs a program with its arguments in the machine, in `/root`, and passes on its output.
    ///
    /// # Errors
    /// The machine fails. A failure of the program is no error.
    pub fn exec(
        &self,
        argv: &[String],
        timeout: Duration,
        out: &mut (dyn Write + Send),
        err: &mut (dyn Write + Send),
    ) -> Result<ProcessEnd, LabError> {
        let mut line = self.in_root(PORTS_SCRIPT);
        line.push("sh".to_owned());
        line.extend_from_slice(argv);
        let is_over = AtomicBool::new(false);
        let done = std::thread::scope(|scope| {
            let [from_out, from_err] = &self.outputs;
            scope.spawn(|| forward(from_out, out, &is_over));
            scope.spawn(|| forward(from_err, err, &is_over));
            let done = self.watched(&line, timeout);
            is_over.store(true, Ordering::Release);
            done
        })?;
        // The shell's own errors, for example that the program does not exist.
        let _ = err.write_all(done.stderr.as_bytes());
        Ok(done.end)
    }

    /// Connects this program's terminal to a shell in the machine until the shell ends.
    ///
    /// # Errors
    /// The machine fails.
    pub fn shell(&self, timeout: Duration) -> Result<ProcessEnd, LabError> {
        let socket = self.machine()?.terminal_socket();
        let terminal = UnixStream::connect(socket).map_err(LabError::io("connect to", socket))?;
        let (rows, columns) = RawTerminal::size();
        let device = TERMINALS[usize::from(self.is_xen)];
        // Started as a child and not with `exec`: `setsid` does not wait for the shell if it is the
        // leader of its process group.
        let shell = format!(
            "stty -F {device} rows {rows} cols {columns}; \
             setsid -c bash --norc -i <{device} >{device} 2>&1; exit $?"
        );
        let raw = RawTerminal::enter();
        let is_over = AtomicBool::new(false);
        let done = std::thread::scope(|scope| {
            scope.spawn(|| {
                // A starting shell discards everything typed before its prompt.
                terminal::wait_for_prompt(&terminal, &is_over);
                terminal::pass_keys_on(&terminal);
                forward(&terminal, &mut io::stdout(), &is_over);
            });
            let done = self.watched(&self.in_root(&shell), timeout);
            is_over.store(true, Ordering::Release);
            done
        });
        drop(raw);
        Ok(done?.end)
    }

    /// Writes a short file, such as a scenario, in the machine.
    ///
    /// # Errors
    /// The machine fails or has no such folder.
    pub fn write(&self, path: &Path, text: &str) -> Result<(), LabError> {
        let mut line = self.in_root("printf %s \"$1\" >\"$2\"");
        line.extend(["sh".to_owned(), text.to_owned(), path.display().to_string()]);
        let done = self.watched(&line, SET_UP_PATIENCE)?;
        self.ensure_success(&done, || format!("cannot write {}", path.display()))
    }

    /// Reads a file of the machine.
    ///
    /// # Errors
    /// The machine fails or has no such file.
    pub fn read(&self, path: &Path) -> Result<Vec<u8>, LabError> {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let argv = ["cat".to_owned(), path.display().to_string()];
        let end = self.exec(&argv, SET_UP_PATIENCE, &mut out, &mut err)?;
        if end.is_success() {
            return Ok(out);
        }
        let why = String::from_utf8_lossy(&err).trim().to_owned();
        Err(LabError::Refused { guest: self.machine()?.id().clone(), why })
    }

    /// Runs a part of the set-up with the machine's disk as root; `failure` is the error's text if
    /// it fails.
    fn prepare(&self, script: &str, failure: &str) -> Result<(), LabError> {
        let done = self.watched(&self.in_root(script), SET_UP_PATIENCE)?;
        self.ensure_success(&done, || failure.to_owned())
    }

    fn machine(&self) -> Result<&Guest, LabError> {
        self.run.guest(MACHINE)
    }

    /// The command that runs a shell line with the machine's disk as root; arguments may follow.
    fn in_root(&self, line: &str) -> Vec<String> {
        let (kind, tools) = match self.is_xen {
            true => (NESTED_XEN, format!("/{}:", xen::TOOLS_FOLDER)),
            false => ("1", String::new()),
        };
        let environment = [
            format!("{NESTED_VARIABLE}={kind}"),
            format!("BALLAST_CACHE=/{CACHE_FOLDER}"),
            format!("BALLAST_LAB_GUEST=/{ARTIFACTS_FOLDER}/lab-guest"),
            format!("BALLAST_AGENT=/{ARTIFACTS_FOLDER}/ballast-agent"),
            format!("BALLAST_TRACK_LIBRARY=/{ARTIFACTS_FOLDER}/libballast_track.so"),
            "HOME=/root".to_owned(),
            format!("PATH={tools}/usr/local/bin:/usr/bin:/bin"),
            "TERM=vt100".to_owned(),
            "XDG_RUNTIME_DIR=/run".to_owned(),
        ];
        let mut command =
            ["chroot", "/host", "/bin/busybox", "env", "-i"].map(str::to_owned).to_vec();
        command.extend(environment);
        command.extend(["sh".to_owned(), "-c".to_owned(), format!("cd /root; {line}")]);
        command
    }

    /// Executes `argv` and meanwhile checks that the machine sends reports; kills the machine if it
    /// does not.
    fn watched(&self, argv: &[String], timeout: Duration) -> Result<ExecOutput, LabError> {
        let machine = self.machine()?;
        let (is_over, hangs) = (AtomicBool::new(false), AtomicBool::new(false));
        let done = std::thread::scope(|scope| {
            scope.spawn(|| {
                if is_silent(machine, &is_over) {
                    hangs.store(true, Ordering::Release);
                    machine.kill();
                }
            });
            let done = machine.exec(argv, timeout);
            is_over.store(true, Ordering::Release);
            done
        });
        match done {
            Err(LabError::GuestGone { guest, how: _, console }) if hangs.into_inner() => {
                let how = format!("hung: it said nothing for {} s", SILENCE_MAX.as_secs());
                Err(LabError::GuestGone { guest, how, console })
            }
            other => other,
        }
    }

    fn ensure_success(&self, done: &ExecOutput, what: impl Fn() -> String) -> Result<(), LabError> {
        if done.end.is_success() {
            return Ok(());
        }
        let why = format!("{}: {}", what(), done.stderr.trim());
        Err(LabError::Refused { guest: self.machine()?.id().clone(), why })
    }
}

/// Runs `work`. If the outer machine failed, and not the command in it, reports that and runs
/// `work` once more.
///
/// # Errors
/// Those of `work`.
pub fn with_one_retry<T>(
    say: &dyn Fn(&str),
    mut work: impl FnMut() -> Result<T, LabError>,
) -> Result<T, LabError> {
    match work() {
        Err(error @ (LabError::GuestGone { .. } | LabError::Timeout { .. })) => {
            say(&format!("the outer machine failed, trying once more: {error}"));
            work()
        }
        other => other,
    }
}

/// Waits until the machine was silent for [`SILENCE_MAX`] (returns true), or until `is_over`
/// (returns false).
fn is_silent(machine: &Guest, is_over: &AtomicBool) -> bool {
    let latest = || machine.latest_report().ok().flatten().map(|report| report.seq);
    let (mut last, mut since) = (latest(), Instant::now());
    while !is_over.load(Ordering::Acquire) {
        let now = latest();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        if since.elapsed() > SILENCE_MAX {
            return true;
        }
        std::thread::sleep(POLL);
    }
    false
}

/// Makes the booted machine a host (with KVM unless Xen boots it), and connects to its outputs.
fn set_up(machine: &Guest, is_xen: bool) -> Result<[UnixStream; 2], LabError> {
    // Connected first: what a port writes while it has no reader is lost.
    let connect =
        |path: &PathBuf| UnixStream::connect(path).map_err(LabError::io("connect to", path));
    let sockets = machine.output_sockets();
    let outputs = [connect(&sockets[0])?, connect(&sockets[1])?];
    let script = if is_xen { SET_UP.to_owned() } else { format!("{SET_UP}{ENSURE_KVM}") };
    let shell = ["/bin/sh".to_owned(), "-c".to_owned(), script];
    let done = machine.exec(&shell, SET_UP_PATIENCE)?;
    if done.end.is_success() {
        return Ok(outputs);
    }
    let why = done.stderr.trim().to_owned();
    if done.end != (ProcessEnd::Exited { code: STATUS_NO_KVM }) {
        return Err(LabError::Refused { guest: machine.id().clone(), why });
    }
    let complaints = machine.ready()?.complaints.join("; ");
    Err(LabError::NoNestedKvm { why, complaints })
}

/// The image of the machine's disk.
fn disk(options: &NestedOptions, cache: &Cache, say: &dyn Fn(&str)) -> Result<PathBuf, LabError> {
    let mut choices = vec![KernelChoice::Default];
    if !options.xen {
        choices.push(options.kernel.clone());
    }
    choices.extend(options.guest_kernels.iter().cloned());
    let kernels: Vec<Kernel> =
        choices.iter().map(|choice| Kernel::fetch(cache, choice, say)).collect::<Result<_, _>>()?;
    let modules: &[&str] = if options.xen { &xl::MODULES } else { &VSOCK_MODULES };
    let mut files = files::host(cache, &kernels, modules, &options.with, say)?;
    if options.apparmor {
        files.extend(apparmor::files(cache, say)?);
    }
    if options.xen {
        files.extend(xen::files(cache, say)?);
    }
    for (place, file) in &options.programs {
        let place = place.strip_prefix("/").unwrap_or(place);
        files.extend(programs::libraries(file, &[])?);
        files.insert(place.to_owned(), file.clone());
    }
    image(cache, &files, say)
}

/// Checks that the machine is large enough, and that it fits into this host's memory.
fn ensure_memory(memory: Bytes) -> Result<(), LabError> {
    if memory < MEMORY_MIN {
        return Err(LabError::Invalid(format!(
            "{memory} is too little memory for an outer machine: at least {MEMORY_MIN}"
        )));
    }
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let wanted = memory.saturating_add(EMULATOR_OVERHEAD);
    match procfs::meminfo(&meminfo).available {
        Some(available) if available < wanted => Err(LabError::Invalid(format!(
            "an outer machine of {memory} needs {wanted}, and this one has {available} available: \
             free some, or give it less with --memory (at least {MEMORY_MIN})"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone() -> LabError {
        let guest = MACHINE.parse().unwrap();
        LabError::GuestGone { guest, how: "has panicked".to_owned(), console: "oops".to_owned() }
    }

    #[test]
    fn failures_of_the_machine_are_tried_once_more() {
        let lines = std::cell::RefCell::new(String::new());
        let say = |line: &str| lines.borrow_mut().push_str(line);
        let mut left = vec![Ok(7), Err(gone())];
        assert_eq!(with_one_retry(&say, || left.pop().unwrap()).unwrap(), 7);
        assert!(lines.borrow().contains("has panicked") && lines.borrow().contains("oops"));
        let mut runs = 0;
        let twice = with_one_retry::<()>(&say, || {
            runs += 1;
            Err(gone())
        });
        assert!(twice.is_err() && runs == 2);
    }

    #[test]
    fn other_failures_are_not_tried_again() {
        let mut runs = 0;
        let failed = with_one_retry::<()>(&|_| panic!("nothing to tell"), || {
            runs += 1;
            Err(LabError::Invalid("wrong".to_owned()))
        });
        assert!(failed.is_err() && runs == 1);
    }

    #[test]
    fn machines_too_small_or_too_large_are_refused() {
        let small = ensure_memory(Bytes::mib(512)).unwrap_err().to_string();
        assert!(small.contains("512MiB") && small.contains("at least 1.5GiB"), "{small}");
        let large = ensure_memory(Bytes::gib(1 << 20)).unwrap_err().to_string();
        assert!(large.contains("available") && large.contains("--memory"), "{large}");
        assert!(ensure_memory(MEMORY_MIN).is_ok());
    }
}
