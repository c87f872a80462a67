//! Rounds in which a guest without swap is squeezed.
//!
//! Idea: `dry` has no swap. Its neighbour wants by turns far more than its part and far less, so
//! the policy takes memory from `dry` down to its floor and gives it back. Each round chooses at
//! random what both do with their memory, which of them begins, and the ceiling of `dry`. No
//! process may be killed for lack of memory: the kernel's counter, its console and the progress of
//! the workload are checked after each round.
//!
//! Cost: some 17 seconds a round. Limits: what `dry` fills fits into its floor, because a floor is
//! what a guest cannot do without, by its operator. `BALLAST_SOAK_SEED` repeats rounds, as far as
//! the guests' own timing allows; `BALLAST_SOAK_ROUNDS` sets their number.

use std::fs;

use ballast_lab_guest::protocol::LabReport;
use ballast_lab_guest::rng::Rng;
use ballast_lab_guest::workload::Pattern;
use ballast_lab_host::{DiskSpec, GuestSpec, GuestState, Speed};
use ballast_model::Bytes;

use super::journal::Audit;
use super::{Data, Lab, allocation, rounds, swapping, wait_settled};
use crate::harness::{Daemon, Testbed, guest, wait_for};

/// The floor of `dry`: its kernel and everything beside workloads (some 90 MiB), the data to
/// compare, and [`FILLED_MAX`].
pub const FLOOR: Bytes = Bytes::mib(288);

const ROUNDS_DEFAULT: u64 = 4;
const DRY: &str = "dry";
const WET: &str = "wet";
/// The most that a workload of `dry` fills and keeps, and the most that it reads through the page
/// cache.
const FILLED_MAX: Bytes = Bytes::mib(144);
const READ_MAX: Bytes = Bytes::mib(256);
/// Ranges of the neighbour's demand: in a round with little demand, and in one with more than its
/// part.
const LITTLE: (Bytes, Bytes) = (Bytes::mib(16), Bytes::mib(64));
const MUCH: (Bytes, Bytes) = (Bytes::mib(300), Bytes::mib(400));
/// Data of `dry` that must stay intact, in MiB.
const DATA_MIB: u64 = 16;
/// A balloon may stop this far from its target, when the last pages are hard to find.
const SLACK: Bytes = Bytes::mib(4);
/// A smaller change does not count as a squeeze.
const SQUEEZE_MIN: Bytes = Bytes::mib(32);
/// Texts on the console of a kernel that kills for lack of memory.
const KILLING: [&str; 3] = ["Out of memory", "oom-kill", "Killed process"];

/// What `dry` does with its memory in a round.
#[derive(Clone, Copy, Debug)]
enum Work {
    Nothing,
    /// Fills this much memory.
    Fill(Bytes),
    /// Reads a file of this size; the kernel caches as much as it has room for.
    Read(Bytes),
}

/// A daemon with the two guests, and their known state.
pub struct Squeezes<'a> {
    lab: &'a Lab,
    testbed: &'a Testbed,
    daemon: Daemon<'a>,
    data: Data,
    boot: Bytes,
    audit: Audit,
    random: Rng,
    rounds: u64,
    /// Rounds in which `dry` gave memory.
    squeezed: u64,
}

/// How many rounds to run.
pub fn count() -> u64 {
    rounds::count_or(ROUNDS_DEFAULT)
}

/// The guests, booted with `boot` each.
pub fn guests(boot: Bytes) -> Vec<GuestSpec> {
    let data = Some(DiskSpec { size: Bytes::mib(384), speed: Speed::Nvme });
    let dry = GuestSpec { data, ..GuestSpec::new(DRY.parse().unwrap(), boot) };
    vec![dry, swapping(WET, boot)]
}

impl<'a> Squeezes<'a> {
    /// Rounds with these guests, which share `budget`.
    pub fn new(lab: &'a Lab, testbed: &'a Testbed, boot: Bytes, budget: Bytes) -> Squeezes<'a> {
        assert_eq!(lab.guest(DRY).ready().unwrap().swap_total, None);
        Squeezes {
            lab,
            testbed,
            daemon: testbed.start(),
            data: lab.store_data(DRY, DATA_MIB),
            boot,
            audit: Audit::new(budget),
            random: rounds::random(),
            rounds: 0,
            squeezed: 0,
        }
    }

    /// Runs one round; the neighbour wants much in rounds with odd numbers.
    pub fn run(&mut self, number: u64) {
        self.rounds += 1;
        let (low, high) = if number % 2 == 1 { MUCH } else { LITTLE };
        let (demand, work) = (self.between(low, high), self.work());
        let ceiling = match self.random.chance(0.5) {
            true => self.between(FLOOR, self.boot),
            false => self.boot,
        };
        let is_dry_first = self.random.chance(0.5);
        let before = allocation(&self.daemon, DRY).unwrap_or(self.boot);
        self.set_ceiling(ceiling);
        let wet = |lab: &Lab| lab.start_constant(WET, demand);
        if is_dry_first {
            self.start(work);
            wet(self.lab);
        } else {
            wet(self.lab);
            self.wait_moved();
            self.start(work);
        }
        self.wait_filled(WET);
        if !matches!(work, Work::Nothing) {
            self.wait_filled(DRY);
        }
        self.wait_moved();
        let after = allocation(&self.daemon, DRY).unwrap();
        self.squeezed += u64::from(after + SQUEEZE_MIN <= before);
        eprintln!(
            "round {number}: wet wants {demand}, dry {work:?} (first: {is_dry_first}), ceiling {ceiling}: {before} to {after}"
        );
        self.check_invariants(!matches!(work, Work::Nothing));
        self.lab.stop_workload(WET);
        if !matches!(work, Work::Nothing) {
            self.lab.stop_workload(DRY);
        }
        self.set_ceiling(self.boot);
    }

    /// Stops the daemon and checks the invariants a last time.
    pub fn end(mut self) {
        self.check_invariants(false);
        eprintln!("squeezed in {} of {} rounds", self.squeezed, self.rounds);
        // Every second round should squeeze it.
        assert!(self.squeezed * 5 >= self.rounds, "{} of {}", self.squeezed, self.rounds);
        assert!(self.audit.ticks_within > 0, "the budget was never kept");
        assert!(self.daemon.stop().success());
    }

    fn between(&mut self, low: Bytes, high: Bytes) -> Bytes {
        low + Bytes::pages(self.random.below((high - low).to_pages()))
    }

    fn work(&mut self) -> Work {
        match self.random.below(4) {
            0 => Work::Nothing,
            1 => Work::Read(self.between(Bytes::mib(64), READ_MAX)),
            _ => Work::Fill(self.between(Bytes::mib(16), FILLED_MAX)),
        }
    }

    fn start(&self, work: Work) {
        match work {
            Work::Nothing => {}
            Work::Fill(size) => self.lab.start_constant(DRY, size),
            Work::Read(size) => self.lab.start(DRY, Pattern::FileRandom { size }),
        }
    }

    fn set_ceiling(&self, ceiling: Bytes) {
        let (code, out, err) =
            self.testbed.ballast(&["set", DRY, "--ceiling", &format!("{ceiling:#}")]);
        assert_eq!(code, Some(0), "{out}{err}");
    }

    /// Waits until no memory moves any more: targets are reached, or given up.
    fn wait_moved(&self) {
        let is_there = |name: &str| {
            let status = self.daemon.status()?;
            let view = guest(&status, name)?;
            let is_set_aside = view.compliance.as_ref().is_some_and(|it| it.code == "stuck");
            let off = view.allocation_bytes?.abs_diff(view.target_bytes?);
            Some(is_set_aside || off <= SLACK.get())
        };
        // The daemon sees what a workload did only some ticks later.
        wait_settled(&self.daemon);
        wait_for("targets that are reached", || (is_there(DRY)? && is_there(WET)?).then_some(()));
    }

    /// Waits until a workload has all that it wants.
    fn wait_filled(&self, name: &str) {
        wait_for("the workload to have its memory", || {
            let report = self.lab.guest(name).latest_report().unwrap()?;
            let work = report.workloads.first()?;
            (work.phase.has_filled() && work.touches > 0).then_some(())
        });
    }

    /// Checks the invariants after a round.
    fn check_invariants(&mut self, is_working: bool) {
        for name in [DRY, WET] {
            let report = self.lab.fresh_report(name);
            let console = fs::read_to_string(self.lab.guest(name).console()).unwrap();
            let said = console.lines().find(|line| KILLING.iter().any(|it| line.contains(it)));
            assert_eq!((report.vm.oom_kill, said), (Some(0), None), "{name}: {report:?}");
            assert_eq!(self.lab.guest(name).state(), GuestState::Ready, "{name}");
        }
        if is_working {
            let touches = |report: &LabReport| report.workloads.first().map(|work| work.touches);
            let before = touches(&self.lab.fresh_report(DRY));
            assert!(before.is_some(), "the workload is gone");
            wait_for("the workload to get on", || {
                (touches(&self.lab.fresh_report(DRY)) > before).then_some(())
            });
        }
        self.lab.assert_intact(&self.data);
        self.audit.read(&self.testbed.journal());
        let status = self.daemon.status().unwrap().daemon.unwrap();
        assert_eq!((status.plans_refused, status.journal_error), (0, None));
    }
}
