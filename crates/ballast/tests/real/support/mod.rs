//! Real guests for tests of the daemon: a run of the lab, and helpers for its guests.

#![allow(dead_code, unreachable_pub)] // each test file uses its part

pub mod balloon_device;
pub mod hypervisor_api;
pub mod journal;
pub mod liar;
pub mod monitor;
pub mod moved;
pub mod own_cgroup;
pub mod qemu_socket;
pub mod rounds;
pub mod squeezes;
pub mod systemd;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ballast_lab_guest::protocol::{LabReport, READY_LINE_PREFIX};
use ballast_lab_guest::workload::{Pattern, WorkloadSpec};
use ballast_lab_host::{
    Accel, DiskSpec, Guest, GuestSpec, Helper, LabError, Manager, Run, RunOptions, Speed,
};
use ballast_model::Bytes;
use ballast_store::{EntryContent, Range, Reader, TickEntry};
use tempfile::TempDir;

use crate::harness::{Daemon, PATIENCE, Testbed, guest, wait_for};

/// Reports over which a workload's pace is measured.
const PACE_REPORTS: u64 = 6;
/// Ticks after which the daemon has seen all effects of a change and decided on them.
const SETTLING_TICKS: u64 = 8;

/// Settings under which a guest soon counts as stuck, and is soon asked again.
pub const IMPATIENT: &str =
    "[guard]\nstuck_after = \"3s\"\nstuck_retry = \"3s\"\nrelease_grace = \"1s\"";

/// Swap of the host that suffices even if 2 GiB of other memory are swapped out during the test.
pub const SWAP: Bytes = Bytes::gib(4);

/// How names of the swap files of the lab's runs begin.
const SWAP_OF_A_RUN: &str = "/ballast/swap-";

/// All tests share the host's swap, so tests that use it run one at a time.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program that holds the guests: `ballast-lab` beside `ballast`.
pub fn lab_program() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_ballast")).with_file_name("ballast-lab");
    assert!(program.exists(), "{} is missing: cargo build -p ballast-lab", program.display());
    program
}

/// A run of the lab; its guests end when it is dropped.
pub struct Lab {
    pub run: Run,
    // Dropped last, so removed after the run has ended.
    _folder: TempDir,
}

impl Lab {
    /// Boots `guests` side by side.
    pub fn boot(guests: Vec<GuestSpec>) -> Lab {
        Lab::boot_with(guests, |_| {}).unwrap()
    }

    /// Boots `guests` by a libvirt of their own. Prints a message and returns `None` if there is
    /// no libvirt.
    pub fn boot_under_libvirt(guests: Vec<GuestSpec>) -> Option<Lab> {
        let manage = |options: &mut RunOptions| options.manager = Manager::Libvirt;
        match Lab::boot_with(guests, manage) {
            Ok(lab) => Some(lab),
            Err(why @ LabError::ToolMissing { .. }) => {
                println!("SKIPPED: {why}");
                None
            }
            Err(why) => panic!("{why}"),
        }
    }

    /// Boots `guests` on a host that has `swap` of swap space until they end. Prints the reason and
    /// returns `None` if this process may not turn swap on, or if the host has swap of its own,
    /// which would be used too.
    pub fn boot_with_swap(guests: Vec<GuestSpec>, swap: Bytes) -> Option<Lab> {
        let areas = || std::fs::read_to_string("/proc/swaps").unwrap_or_default();
        wait_for("the swap of an ended run to be off", || {
            (!areas().contains(SWAP_OF_A_RUN)).then_some(())
        });
        if areas().lines().count() > 1 {
            println!("SKIPPED: the host has swap of its own");
            return None;
        }
        let refusals = ["only root", "Operation not permitted"];
        match Lab::boot_with(guests, |options| options.host_swap = Some(swap)) {
            Ok(lab) => Some(lab),
            Err(why) if refusals.iter().any(|it| why.to_string().contains(it)) => {
                println!("SKIPPED: {why}");
                None
            }
            Err(why) => panic!("{why}"),
        }
    }

    pub fn boot_with(
        guests: Vec<GuestSpec>,
        settle: impl FnOnce(&mut RunOptions),
    ) -> Result<Lab, LabError> {
        let folder = tempfile::tempdir().unwrap();
        let mut options = RunOptions {
            helper: Helper { program: lab_program() },
            runs_folder: Some(folder.path().join("runs")),
            ..RunOptions::new("t".parse().unwrap(), guests)
        };
        settle(&mut options);
        let run = Run::start(&options, &|line| eprintln!("{line}"))?;
        Ok(Lab { run, _folder: folder })
    }

    pub fn guest(&self, name: &str) -> &Guest {
        self.run.guest(name).unwrap()
    }

    /// Whether the guests run under KVM.
    pub fn is_kvm(&self) -> bool {
        self.run.accel() == Accel::Kvm
    }

    /// The folder with the QMP sockets for the daemon.
    pub fn sockets(&self) -> &Path {
        self.run.guests().next().unwrap().qmp_socket().parent().unwrap()
    }

    /// Fills a file in the guest's memory with random data.
    pub fn store_data(&self, name: &str, mib: u64) -> Data {
        let line = format!("dd if=/dev/urandom of=/tmp/data bs=1M count={mib} 2>/dev/null");
        self.shell(name, &line);
        Data { guest: name.to_owned(), sum: self.shell(name, CHECKSUM) }
    }

    /// Reads all of the data again and compares it.
    pub fn assert_intact(&self, data: &Data) {
        assert_eq!(self.shell(&data.guest, CHECKSUM), data.sum, "data of {}", data.guest);
    }

    /// The output of a line of shell in a guest.
    pub fn shell(&self, name: &str, line: &str) -> String {
        let argv = ["/bin/sh", "-c", line].map(str::to_owned);
        let output = self.guest(name).exec(&argv, PATIENCE).unwrap();
        assert!(output.end.is_success(), "{line} in {name}: {output:?}");
        output.stdout
    }

    /// Starts a workload that touches `size` of memory again and again.
    pub fn start_constant(&self, name: &str, size: Bytes) {
        self.start(name, Pattern::Constant { size });
    }

    /// Starts a workload.
    pub fn start(&self, name: &str, pattern: Pattern) {
        let spec = WorkloadSpec { touches_per_s: Some(TOUCHES_PER_S), ..pattern.into() };
        self.guest(name).start_workload(WORKLOAD, &spec, PATIENCE).unwrap();
    }

    /// Starts a workload that touches `size` of memory as often as its processor can, for a host
    /// that samples which pages were touched in some milliseconds.
    pub fn start_constant_at_full_speed(&self, name: &str, size: Bytes) {
        let spec = Pattern::Constant { size }.into();
        self.guest(name).start_workload(WORKLOAD, &spec, PATIENCE).unwrap();
    }

    pub fn stop_workload(&self, name: &str) {
        self.guest(name).stop_workload(WORKLOAD).unwrap();
    }

    /// How often a guest has booted, by its console.
    pub fn boots(&self, name: &str) -> usize {
        let console = std::fs::read_to_string(self.guest(name).console()).unwrap();
        console.matches(READY_LINE_PREFIX).count()
    }

    /// A report that the guest made after this call.
    pub fn fresh_report(&self, name: &str) -> LabReport {
        let latest = || self.guest(name).latest_report().unwrap();
        let before = latest().map_or(0, |report| report.seq);
        // The next one may already have been on its way.
        wait_for("a report", || latest().filter(|report| report.seq >= before + 2))
    }

    /// Measures how fast the guest's workload proceeds from now on.
    pub fn pace(&self, name: &str) -> Pace {
        let touching = |report: &LabReport| {
            let workload = report.workloads.iter().find(|workload| workload.id == WORKLOAD)?;
            (workload.phase.has_filled() && workload.touches > 0).then_some(workload.touches)
        };
        let latest = || self.guest(name).latest_report().unwrap();
        let (from, before) = wait_for("the workload to have its memory", || {
            let report = latest()?;
            Some((touching(&report)?, report))
        });
        let (until, after) = wait_for("reports", || {
            let report = latest().filter(|it| it.seq >= before.seq + PACE_REPORTS)?;
            Some((touching(&report)?, report))
        });
        let swapped_in = |report: &LabReport| report.vm.pswpin.unwrap();
        let seconds = Duration::from_millis(after.uptime_ms - before.uptime_ms).as_secs_f64();
        Pace {
            touches_per_s: (until - from) as f64 / seconds,
            swap_ins_per_touch: (swapped_in(&after) - swapped_in(&before)) as f64
                / (until - from) as f64,
        }
    }
}

pub const CHECKSUM: &str = "sha256sum /tmp/data";
const WORKLOAD: &str = "w";
/// Touches all of 200 MiB in a second. At full speed, a workload would take a core from the tests
/// that run beside it.
const TOUCHES_PER_S: u64 = 50_000;

/// A file in a guest and its checksum.
pub struct Data {
    guest: String,
    sum: String,
}

impl Data {
    /// Compares with a checksum that was computed elsewhere.
    pub fn assert_is(&self, sum: &str) {
        assert_eq!(sum, self.sum, "data of {}", self.guest);
    }
}

/// The pace of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub touches_per_s: f64,
    /// Pages read from swap for each page touched; 1 if every touch waits for the disk.
    pub swap_ins_per_touch: f64,
}

/// A guest with a balloon and a swap disk of its own size.
pub fn swapping(name: &str, memory: Bytes) -> GuestSpec {
    let swap = Some(DiskSpec { size: memory, speed: Speed::Ssd });
    GuestSpec { swap, ..GuestSpec::new(name.parse().unwrap(), memory) }
}

/// What a guest holds, by the daemon's status.
pub fn allocation(daemon: &Daemon<'_>, name: &str) -> Option<Bytes> {
    guest(&daemon.status()?, name)?.allocation_bytes.map(Bytes::new)
}

/// Waits until a guest holds an amount that `reached` accepts.
pub fn wait_allocation(
    what: &str,
    daemon: &Daemon<'_>,
    name: &str,
    reached: impl Fn(Bytes) -> bool,
) {
    wait_for(what, || allocation(daemon, name).filter(|&holds| reached(holds)));
}

/// Sets a guest's ceiling, as an operator does.
pub fn set_ceiling(testbed: &Testbed, name: &str, bytes: Bytes) {
    let (code, out, err) = testbed.ballast(&["set", name, "--ceiling", &bytes.to_string()]);
    assert_eq!(code, Some(0), "{out}{err}");
}

/// Waits until a guest counts as stuck.
pub fn wait_stuck(daemon: &Daemon<'_>, name: &str) {
    wait_for("the guest to count as stuck", || {
        let status = daemon.status()?;
        (guest(&status, name)?.compliance.as_ref()?.code == "stuck").then_some(())
    });
}

/// Makes a guest touch `size` once; its process occupies that from then on.
pub fn touch_once(lab: &Lab, name: &str, size: Bytes) {
    let once = WorkloadSpec::from(Pattern::Sequential { size, passes: Some(1) });
    lab.guest(name).start_workload("once", &once, PATIENCE).unwrap();
    lab.guest(name).wait_done("once", PATIENCE).unwrap();
}

/// What a guest's process occupies, by the daemon's status.
pub fn resident(daemon: &Daemon<'_>, name: &str) -> Option<Bytes> {
    guest(&daemon.status()?, name)?.resident_bytes.map(Bytes::new)
}

/// What a guest's process has in the host's swap; `None` once it has ended.
pub fn swapped(lab: &Lab, name: &str) -> Option<Bytes> {
    // Includes shared memory, which `VmSwap` leaves out.
    let path = format!("/proc/{}/smaps_rollup", lab.guest(name).pid());
    let text = std::fs::read_to_string(path).ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix("Swap:")?.strip_suffix(" kB"));
    Some(Bytes::kib(kib?.trim().parse().unwrap()))
}

/// The ticks in the journal.
pub fn ticks(testbed: &Testbed) -> Vec<TickEntry> {
    let reader = Reader::open(&testbed.journal()).unwrap();
    let tick = |what| match what {
        EntryContent::Tick(tick) => Some(*tick),
        EntryContent::Event(_) => None,
    };
    reader.ticks(Range::default()).filter_map(|entry| tick(entry.unwrap().content)).collect()
}

/// Asserts that the checker refused no plan, and that all were recorded.
pub fn assert_unrefused(daemon: &Daemon<'_>) {
    let status = daemon.status().unwrap().daemon.unwrap();
    assert_eq!((status.plans_refused, status.journal_error), (0, None));
}

/// Waits until the daemon knows `count` guests, and has forgotten the others.
pub fn wait_guests(daemon: &Daemon<'_>, count: usize) {
    wait_for("the lost guests to be forgotten", || {
        (daemon.status()?.guests.len() == count).then_some(())
    });
}

/// Waits for enough ticks that the daemon has nothing left to do.
pub fn wait_settled(daemon: &Daemon<'_>) {
    wait_ticks(daemon, SETTLING_TICKS);
}

/// Waits until the daemon has made `count` more ticks.
pub fn wait_ticks(daemon: &Daemon<'_>, count: u64) {
    let ticks = || Some(daemon.status()?.daemon?.ticks);
    let begun = wait_for("the ticks", ticks);
    wait_for("some more ticks", || (ticks()? >= begun + count).then_some(()));
}

/// Whether this user's guests can be tracked; prints `SKIPPED` if not.
pub fn may_track() -> bool {
    let is_permitted = ballast_lab_host::is_tracking_permitted();
    if !is_permitted {
        println!("SKIPPED: tracking needs root, or vm.unprivileged_userfaultfd=1");
    }
    is_permitted
}
