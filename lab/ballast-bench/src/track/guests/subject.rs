//! Guests whose working sets are estimated.
//!
//! Idea: the workloads of the lab, with sizes from 40 to 350 MiB as in MEB §5.2.1, and three common
//! programs. All are endless; they have filled their memory before anything is measured.
//!
//! Limits: programs are queried at random, and manage their memory themselves.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ballast_lab_guest::protocol::WorkloadState;
use ballast_lab_guest::workload::{Pattern, Program, WorkloadSpec};
use ballast_lab_host::Guest;
use ballast_model::Bytes;
use clap::ValueEnum;
use serde::Serialize;

/// How long a guest may take to fill its memory; it is emulated and recorded, on a machine that
/// also does other things.
const PATIENCE: Duration = Duration::from_secs(180);
/// Time for a program to reach a steady state.
const STRIDE: Duration = Duration::from_secs(5);

/// What a guest does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Subject {
    /// 200 MiB, page after page
    Constant,
    /// 60 and 240 MiB in turns
    Flux,
    /// Between 40 and 350 MiB, pages at random: MEB §5.2.1
    RandomArray,
    /// 300 MiB of unequal popularity
    Zipf,
    /// redis-server and redis-benchmark, 100 MiB of keys
    Redis,
    /// sqlite3, random rows of a table of 120 MiB
    Sqlite,
    /// stress-ng --vm, 128 MiB
    StressNg,
}

impl Subject {
    /// The guests of a short run.
    pub(super) const QUICK: [Subject; 3] =
        [Subject::Constant, Subject::RandomArray, Subject::Redis];

    /// The number of one-second intervals that each way covers: about four changes for guests that
    /// change.
    pub(super) const fn intervals(self) -> u32 {
        match self {
            Subject::Flux => 120,
            Subject::RandomArray => 50,
            _ => 20,
        }
    }

    /// Whether it visits all of its memory in an interval, so that its working set is what it
    /// touches in one. The others return to some of their memory later.
    pub(super) const fn is_whole(self) -> bool {
        matches!(self, Subject::Constant | Subject::Flux | Subject::RandomArray)
    }

    /// The programs packed into the guest.
    pub(super) fn programs(self) -> BTreeSet<String> {
        match self.pattern() {
            Pattern::Program { program, .. } => BTreeSet::from([program.packed().to_owned()]),
            _ => BTreeSet::new(),
        }
    }

    /// Starts it and waits until it has filled its memory.
    pub(super) fn start(self, guest: &Guest) -> anyhow::Result<()> {
        let pattern = self.pattern();
        let is_program = matches!(pattern, Pattern::Program { .. });
        // Seeded, so that two runs get the same sizes; programs are queried at random anyway.
        let seed = if is_program { 0 } else { 5 };
        start_workload(guest, &WorkloadSpec { seed, ..pattern.into() })?;
        if is_program {
            std::thread::sleep(STRIDE);
        }
        Ok(())
    }

    fn pattern(self) -> Pattern {
        let program = |program, size| Pattern::Program { program, size };
        match self {
            Subject::Constant => Pattern::Constant { size: Bytes::mib(200) },
            Subject::Flux => {
                // An emulated guest takes five seconds to grow.
                Pattern::Flux {
                    low: Bytes::mib(60),
                    high: Bytes::mib(240),
                    period: Duration::from_secs(60),
                }
            }
            Subject::RandomArray => Pattern::RandomDrawn {
                low: Bytes::mib(40),
                high: Bytes::mib(350),
                period: Duration::from_secs(10),
            },
            Subject::Zipf => Pattern::Zipf { size: Bytes::mib(300), exponent: 1.0, file: false },
            Subject::Redis => program(Program::Redis, Bytes::mib(100)),
            Subject::Sqlite => program(Program::Sqlite, Bytes::mib(120)),
            Subject::StressNg => program(Program::StressNg, Bytes::mib(128)),
        }
    }
}

/// Starts a workload of the lab and waits until it has filled its memory.
pub(crate) fn start_workload(guest: &Guest, spec: &WorkloadSpec) -> anyhow::Result<()> {
    guest.start_workload("w", spec, PATIENCE)?;
    let end = Instant::now() + PATIENCE;
    loop {
        let report = guest.latest_report()?.context("the guest reports nothing")?;
        let phase = report.workloads.first().map(|workload| workload.phase);
        if phase.is_some_and(WorkloadState::has_filled) {
            return Ok(());
        }
        if Instant::now() >= end {
            bail!("the guest does not get its memory: {phase:?} after {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
