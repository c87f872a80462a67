//! The test suite: builds every test program with one call of cargo, runs them, counts outcomes.
//!
//! Idea: a program without guests runs all its tests in parallel, on all cores, one program after
//! the other. In parallel with them, each test with real guests (in a program named `real`) runs in
//! its own process, and those of one module one at a time: guests mostly wait. Two modules run in
//! parallel, except those that use the host's swap. Some tests run once more on a KVM host, in an
//! outer machine in parallel with the rest. A failed test with guests runs again at the end, alone,
//! and so does a failed test of a program in `TIMED`; if it then passes, it is flaky, not failed. A
//! test that prints [`SKIPPED`] cannot run on this machine and does not count as passed. Limits:
//! relies on the output format of Rust's test harness.

mod log;
mod nested;
mod output;
mod programs;
mod tally;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::Context;
use log::{log_file, print_end};
use nested::OuterHost;
pub use output::SKIPPED;
use programs::Program;
pub use tally::{Outcome, Tally};

/// Which tests to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Selection {
    /// All.
    All,
    /// Tests without guests.
    Quick,
    /// Tests with real guests, the page tracker's tests, and a long run under KVM and under Xen.
    Guests,
    /// Those that every run of all tries on a KVM host, and a short run under Xen.
    Nested,
}

impl Selection {
    fn has(self, program: &Program) -> bool {
        match self {
            Selection::All => true,
            Selection::Quick => !program.has_guests(),
            Selection::Nested => false,
            Selection::Guests => program.has_guests() || TIMED.contains(&&*program.name()),
        }
    }

    /// The tests that run in outer machines.
    fn nested(self) -> [(OuterHost, &'static [nested::Chosen]); 2] {
        let (kvm, xen): (&[_], &[_]) = match self {
            Selection::All => (&nested::IN_EVERY_RUN, &[]),
            Selection::Nested => (&nested::IN_EVERY_RUN, &nested::XEN_IN_A_SHORT_RUN),
            Selection::Guests => (&nested::IN_A_LONG_RUN, &nested::XEN_IN_A_LONG_RUN),
            Selection::Quick => (&[], &[]),
        };
        [(OuterHost::Kvm, kvm), (OuterHost::Xen, xen)]
    }
}

/// Programs without guests that test how long others wait: they can fail on a machine that is busy
/// with other work.
const TIMED: [&str; 1] = ["ballast-tracker-preload::it"];

/// Why joining the threads of a run cannot fail.
const NO_PANIC: &str = "a thread of the run does not panic";

/// Modules whose tests turn the host's swap on, or page out to it: they run as one module.
const USE_HOST_SWAP: [&str; 3] = ["neighbours", "paging", "unit"];

/// Builds and runs the tests; prints progress and, at the end, the tally. At most `parallel`
/// modules of tests with guests run at a time.
pub fn run(selection: Selection, parallel: usize, cargo: &[String]) -> anyhow::Result<Tally> {
    let began = Instant::now();
    let mut built = programs::build(cargo)?;
    built.sort_by_key(Program::name);
    println!("built {} test programs in {:.0?}", built.len(), began.elapsed());
    let programs = built.iter().filter(|program| selection.has(program));
    let logs = programs::target_folder()?.join("test-logs");
    fs::create_dir_all(&logs).with_context(|| format!("create {}", logs.display()))?;
    let mut tally = Tally::default();
    let (with_guests, without): (Vec<&Program>, Vec<_>) =
        programs.partition(|program| program.has_guests());
    let failed = thread::scope(|scope| {
        let nested = scope.spawn(|| {
            let mut tally = Tally::default();
            for (host, chosen) in selection.nested() {
                tally.append(nested::run(host, chosen, &built, &logs)?);
            }
            anyhow::Ok((tally, Vec::new()))
        });
        let whole = scope.spawn(|| run_without_guests(&without, &logs));
        let with_guests = run_with_guests(&with_guests, parallel, &logs);
        let mut failed = Vec::new();
        for ended in [with_guests, whole.join().expect(NO_PANIC), nested.join().expect(NO_PANIC)] {
            let (counted, retries) = ended?;
            tally.append(counted);
            failed.extend(retries);
        }
        anyhow::Ok(failed)
    })?;
    for Retry { program, test, log } in failed {
        let outcome = match run_one(program, &test, &logs, ".again.log")?.outcome {
            Outcome::Failed => Outcome::Failed,
            _ => Outcome::Flaky { log },
        };
        tally.add(format!("{}::{test}", program.name()), outcome);
    }
    print!("{tally}");
    Ok(tally)
}

/// A test that failed once, with the log of its failure, and runs again.
struct Retry<'a> {
    program: &'a Program,
    test: String,
    log: PathBuf,
}

/// The outcomes so far, and the tests that run again before they count.
type TallyAndRetries<'a> = (Tally, Vec<Retry<'a>>);

/// Runs all tests of each program in one process, the programs one after the other.
fn run_without_guests<'a>(
    programs: &[&'a Program],
    logs: &Path,
) -> anyhow::Result<TallyAndRetries<'a>> {
    let (mut tally, mut retries) = (Tally::default(), Vec::new());
    for &program in programs {
        let run = execute(program, &["--show-output"], log_file(logs, &program.name(), ".log"))?;
        let outcomes = output::read_all(&run.log);
        let seconds = run.seconds;
        let (mut failures, mut explained) = (0, false);
        for (test, outcome) in outcomes.special {
            explained |= outcome == Outcome::Failed;
            if outcome == Outcome::Failed && TIMED.contains(&&*program.name()) {
                retries.push(Retry { program, test, log: run.path.clone() });
                continue;
            }
            failures += usize::from(outcome == Outcome::Failed);
            tally.add(format!("{}::{test}", program.name()), outcome);
        }
        // A program that crashed has printed no result for some of its tests.
        if outcomes.passed.is_none() || (!run.success && !explained) {
            failures += 1;
            tally.add(format!("{}::{}", program.name(), run.end), Outcome::Failed);
        }
        let passed = outcomes.passed.unwrap_or(0);
        tally.add_passed(passed);
        tally.time(program.name(), seconds);
        println!("{}: {passed} passed, {failures} failed, {seconds:.1} s", program.name());
        if failures > 0 {
            print_end(&run.log, &run.path);
        }
    }
    Ok((tally, retries))
}

/// Runs the tests of `parallel` modules at a time.
fn run_with_guests<'a>(
    programs: &[&'a Program],
    parallel: usize,
    logs: &Path,
) -> anyhow::Result<TallyAndRetries<'a>> {
    let mut listed = Vec::new();
    for &program in programs {
        let modules = by_module(programs::tests(program)?);
        listed.extend(modules.into_iter().map(|tests| (program, tests)));
    }
    // `pop` takes the last: the module with the most tests starts first.
    listed.sort_by_key(|(_, tests)| tests.len());
    let left = Mutex::new(listed);
    let lane = || {
        let (mut tally, mut retries) = (Tally::default(), Vec::new());
        loop {
            let next = left.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some((program, tests)) = next else { return Ok((tally, retries)) };
            for test in tests {
                let TestRun { outcome, log, seconds } = run_one(program, &test, logs, ".log")?;
                let name = format!("{}::{test}", program.name());
                tally.time(name.clone(), seconds);
                match outcome {
                    Outcome::Failed => retries.push(Retry { program, test, log }),
                    outcome => tally.add(name, outcome),
                }
            }
        }
    };
    let ended: Vec<anyhow::Result<TallyAndRetries<'_>>> = thread::scope(|scope| {
        let lanes: Vec<_> = (0..parallel.max(1)).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().map(|lane| lane.join().expect(NO_PANIC)).collect()
    });
    let (mut tally, mut retries) = (Tally::default(), Vec::new());
    for ended in ended {
        let (counted, failed) = ended?;
        tally.append(counted);
        retries.extend(failed);
    }
    Ok((tally, retries))
}

/// The tests of each module; those of the modules that use the host's swap are one list.
fn by_module(tests: Vec<String>) -> Vec<Vec<String>> {
    let mut modules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for test in tests {
        let module = test.split_once("::").map_or("", |(module, _)| module);
        let key = if USE_HOST_SWAP.contains(&module) { USE_HOST_SWAP[0] } else { module };
        modules.entry(key.to_owned()).or_default().push(test);
    }
    modules.into_values().collect()
}

/// The result of one test, run in its own process.
struct TestRun {
    outcome: Outcome,
    log: PathBuf,
    seconds: f64,
}

fn run_one(program: &Program, test: &str, logs: &Path, suffix: &str) -> anyhow::Result<TestRun> {
    let name = format!("{}::{test}", program.name());
    let arguments = ["--exact", test, "--nocapture"];
    let run = execute(program, &arguments, log_file(logs, &name, suffix))?;
    let outcome = output::read_one(&run.log, run.success);
    println!("{name}: {outcome}, {:.1} s", run.seconds);
    if outcome == Outcome::Failed {
        print_end(&run.log, &run.path);
    }
    Ok(TestRun { outcome, log: run.path, seconds: run.seconds })
}

/// The result of running a program.
struct ProgramRun {
    success: bool,
    /// Its exit status as text.
    end: String,
    log: String,
    path: PathBuf,
    seconds: f64,
}

/// Runs a program in its package's folder, as cargo does, with its output in a file.
fn execute(program: &Program, arguments: &[&str], path: PathBuf) -> anyhow::Result<ProgramRun> {
    let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
    let began = Instant::now();
    let end = Command::new(&program.path)
        .args(arguments)
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .status()
        .with_context(|| format!("run {}", program.path.display()))?;
    let seconds = began.elapsed().as_secs_f64();
    let log = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
    Ok(ProgramRun { success: end.success(), end: end.to_string(), log, path, seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_that_swap_run_as_one() {
        let tests = ["paging::a", "moving::b", "unit::c", "d", "moving::e"].map(str::to_owned);
        let modules = by_module(tests.to_vec());
        assert_eq!(
            modules,
            [vec!["d"], vec!["moving::b", "moving::e"], vec!["paging::a", "unit::c"]]
        );
    }
}
