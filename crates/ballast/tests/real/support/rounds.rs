//! Rounds of random events that can happen to a daemon and its guests.
//!
//! Idea: each round does one thing, waits for its effect, and then checks all invariants. The seed
//! is printed; `BALLAST_SOAK_SEED` repeats it, as far as the guests' own timing allows.
//! `BALLAST_SOAK_ROUNDS` sets the number of rounds.

use std::collections::BTreeSet;
use std::fs;
use std::time::SystemTime;

use ballast_lab_guest::rng::Rng;
use ballast_model::{Bytes, PolicyName};
use rustix::process::Signal;

use super::journal::{Audit, assert_file_intact};
use super::{Data, Lab, allocation, wait_settled, wait_ticks};
use crate::harness::{Daemon, Testbed, guest, wait_for};

const ROUNDS_DEFAULT: u64 = 3;
const NAMES: [&str; 2] = ["a", "b"];
/// The largest workload: with the rest of its guest it needs more than half of the budget of two.
const WORK_MAX_MIB: u64 = 200;
/// Most ticks before a kill: within these a guest has given or taken what it was asked for.
const TICKS_TO_KILL_MAX: u64 = 4;
/// A balloon may stop this far from its target, when the last pages are hard to find.
const RELEASE_SLACK: Bytes = Bytes::mib(4);

/// The event of a round.
#[derive(Clone, Copy, Debug)]
enum RoundAction {
    Squeeze,
    ChangePolicy,
    KillDaemon,
    KillDaemonInMidAction,
    Pause,
    Work,
    BadFile,
}

const ROUND_ACTIONS: [RoundAction; 7] = [
    RoundAction::Squeeze,
    RoundAction::ChangePolicy,
    RoundAction::KillDaemon,
    RoundAction::KillDaemonInMidAction,
    RoundAction::Pause,
    RoundAction::Work,
    RoundAction::BadFile,
];

/// A daemon with two guests, and their known state.
pub struct Rounds<'a> {
    lab: &'a Lab,
    testbed: &'a Testbed,
    daemon: Option<Daemon<'a>>,
    data: Vec<Data>,
    working: BTreeSet<&'static str>,
    audit: Audit,
    boot: Bytes,
    random: Rng,
}

/// How many rounds to run.
pub fn count() -> u64 {
    count_or(ROUNDS_DEFAULT)
}

/// How many rounds to run: `default`, unless `BALLAST_SOAK_ROUNDS` is set.
pub fn count_or(default: u64) -> u64 {
    from_environment("BALLAST_SOAK_ROUNDS").unwrap_or(default)
}

/// The random numbers of these rounds; the seed is printed.
pub fn random() -> Rng {
    let clock = || SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    let seed = from_environment("BALLAST_SOAK_SEED").unwrap_or_else(|| u64::from(clock()));
    eprintln!("BALLAST_SOAK_SEED={seed} repeats these rounds");
    Rng::new(seed)
}

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} = {text}: expected a whole number")))
}

impl<'a> Rounds<'a> {
    /// Rounds with the guests `a` and `b`, booted with `boot` each, that share a budget of `boot`.
    pub fn new(lab: &'a Lab, testbed: &'a Testbed, boot: Bytes) -> Rounds<'a> {
        Rounds {
            lab,
            testbed,
            daemon: Some(testbed.start()),
            data: NAMES.iter().map(|name| lab.store_data(name, 16)).collect(),
            working: BTreeSet::new(),
            audit: Audit::new(boot),
            boot,
            random: random(),
        }
    }

    /// Runs one round.
    pub fn run(&mut self, number: u64) {
        let action = ROUND_ACTIONS[self.random.below(ROUND_ACTIONS.len() as u64) as usize];
        let name = NAMES[self.random.below(2) as usize];
        eprintln!("round {number}: {action:?}, {name}");
        match action {
            RoundAction::Squeeze => self.squeeze(name),
            RoundAction::ChangePolicy => self.change_policy(),
            RoundAction::KillDaemon => self.kill_daemon(),
            RoundAction::KillDaemonInMidAction => {
                let ceiling = self.some_ceiling();
                self.set(&[name, "--ceiling", &format!("{ceiling:#}")]);
                let ticks = self.random.below(TICKS_TO_KILL_MAX);
                wait_ticks(self.daemon(), ticks);
                self.kill_daemon();
            }
            RoundAction::Pause => self.pause(name),
            RoundAction::Work => self.work(name),
            RoundAction::BadFile => self.bad_file(),
        }
        wait_settled(self.daemon());
        self.check_invariants();
    }

    /// Stops the daemon and checks the invariants a last time.
    pub fn end(mut self) {
        assert!(self.daemon.take().unwrap().stop().success());
        self.check_invariants();
        assert!(self.audit.ticks_within > 0, "the budget was never kept");
    }

    fn daemon(&self) -> &Daemon<'a> {
        self.daemon.as_ref().unwrap()
    }

    fn set(&self, arguments: &[&str]) {
        let (code, out, err) = self.testbed.ballast(&[&["set"], arguments].concat());
        assert_eq!(code, Some(0), "{arguments:?}: {out}{err}");
    }

    /// A random ceiling between the default floor of guests of this size and their boot memory.
    fn some_ceiling(&mut self) -> Bytes {
        let floor = Bytes::mib(128);
        floor + Bytes::pages(self.random.below((self.boot - floor).to_pages()))
    }

    fn squeeze(&mut self, name: &str) {
        let ceiling = self.some_ceiling();
        self.set(&[name, "--ceiling", &format!("{ceiling:#}")]);
        wait_for("the guest to give what it can", || {
            let status = self.daemon().status()?;
            let view = guest(&status, name)?;
            let is_stuck = view.compliance.as_ref()?.code == "stuck";
            let enough = ceiling + RELEASE_SLACK;
            (is_stuck || view.allocation_bytes? <= enough.get()).then_some(())
        });
        self.check_invariants();
        self.set(&[name, "--ceiling", &self.boot.to_string()]);
    }

    fn change_policy(&mut self) {
        let policies = PolicyName::BUILT_IN;
        let policy = policies[self.random.below(policies.len() as u64) as usize].as_str();
        self.set(&["--policy", policy]);
        wait_for("the policy", || (self.daemon().status()?.tick.policy == policy).then_some(()));
    }

    fn kill_daemon(&mut self) {
        self.daemon.take().unwrap().kill();
        assert_file_intact(&self.testbed.journal());
        self.daemon = Some(self.testbed.start());
        wait_for("both guests", || {
            let status = self.daemon().status()?;
            let runs = |name: &&str| guest(&status, name).is_some_and(|it| it.used_bytes.is_some());
            NAMES.iter().all(runs).then_some(())
        });
    }

    fn pause(&mut self, name: &str) {
        let ceiling = self.some_ceiling();
        assert_eq!(self.testbed.ballast(&["pause"]).0, Some(0));
        let targets = || {
            let status = self.daemon().status()?;
            let targets: Vec<_> = status.guests.iter().map(|guest| guest.target_bytes).collect();
            status.tick.paused.then_some(targets)
        };
        let before = wait_for("the pause", targets);
        self.set(&[name, "--ceiling", &format!("{ceiling:#}")]);
        wait_settled(self.daemon());
        assert_eq!(targets(), Some(before), "paused");
        assert_eq!(self.testbed.ballast(&["resume"]).0, Some(0));
        self.set(&[name, "--ceiling", &self.boot.to_string()]);
        wait_for("the end of the pause", || (!self.daemon().status()?.tick.paused).then_some(()));
    }

    /// Starts a workload in a guest, or stops the one that it has.
    fn work(&mut self, name: &'static str) {
        if self.working.remove(name) {
            self.lab.stop_workload(name);
        } else {
            let size = Bytes::mib(16 + self.random.below(WORK_MAX_MIB - 16));
            self.lab.start_constant(name, size);
            self.working.insert(name);
        }
    }

    fn bad_file(&mut self) {
        let file = self.testbed.config_file();
        let good = fs::read_to_string(&file).unwrap();
        let reload_error = || Some(self.daemon().status()?.daemon?.reload_error);
        for (text, is_bad) in [(format!("{good}\n[gard]\n"), true), (good, false)] {
            fs::write(&file, text).unwrap();
            self.daemon().signal(Signal::HUP);
            wait_for("the reload", || (reload_error()?.is_some() == is_bad).then_some(()));
        }
    }

    /// Checks the invariants.
    fn check_invariants(&mut self) {
        self.audit.read(&self.testbed.journal());
        assert_file_intact(&self.testbed.journal());
        self.data.iter().for_each(|data| self.lab.assert_intact(data));
        if let Some(daemon) = &self.daemon {
            let status = daemon.status().unwrap().daemon.unwrap();
            assert_eq!((status.plans_refused, status.journal_error), (0, None));
            assert!(NAMES.iter().all(|name| allocation(daemon, name).is_some()));
        }
    }
}
