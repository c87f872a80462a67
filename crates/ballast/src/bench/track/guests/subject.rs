//! Guests whose working sets are told.
//!
//! Idea: the workloads of the lab, sizes from 40 to 350 MiB as in MEB §5.2.1, and three programs that people
//! run. All are endless; what they are to have is there before anything is measured.
//!
//! Limits: programs do what their benchmarks do.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ballast_lab::Guest;
use ballast_lab_guest::protocol::Phase;
use ballast_lab_guest::workload::{Common, Pattern, WorkloadSpec};
use ballast_model::Bytes;
use clap::ValueEnum;
use serde::Serialize;

/// What a guest may take to have its memory; emulated and recorded, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(180);
/// A program reaches its own stride.
const STRIDE: Duration = Duration::from_secs(5);

/// What a guest does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(in super::super) enum Subject {
    /// 200 MiB, page after page
    Constant,
    /// 60 and 240 MiB in turns
    Flux,
    /// Between 40 and 350 MiB, pages at random: MEB §5.2.1
    RandomArray,
    /// 300 MiB of unequal popularity
    Zipf,
    /// redis-server and redis-benchmark, some 90 MiB of keys
    Redis,
    /// sqlite3, random rows of a table of some 120 MiB
    Sqlite,
    /// stress-ng --vm, 128 MiB
    StressNg,
}

impl Subject {
    /// Those of a short run.
    pub(super) const QUICK: [Subject; 3] =
        [Subject::Constant, Subject::RandomArray, Subject::Redis];

    pub(in super::super) const fn name(self) -> &'static str {
        match self {
            Subject::Constant => "constant",
            Subject::Flux => "flux",
            Subject::RandomArray => "random-array",
            Subject::Zipf => "zipf",
            Subject::Redis => "redis",
            Subject::Sqlite => "sqlite",
            Subject::StressNg => "stress-ng",
        }
    }

    /// Intervals of a second that each way tells of: of what changes some four changes.
    pub(super) const fn intervals(self) -> u32 {
        match self {
            Subject::Flux => 40,
            Subject::RandomArray => 50,
            _ => 20,
        }
    }

    /// Whether it goes through all of its memory in an interval, so that its working set is what it touches in
    /// one; the others come back to some of it later.
    pub(super) const fn is_whole(self) -> bool {
        matches!(self, Subject::Constant | Subject::Flux | Subject::RandomArray)
    }

    /// The program packed into the guest.
    pub(super) fn programs(self) -> BTreeSet<String> {
        let program = match self {
            Subject::Redis => Some("redis-server"),
            Subject::Sqlite => Some("sqlite3"),
            Subject::StressNg => Some("stress-ng"),
            _ => None,
        };
        program.into_iter().map(str::to_owned).collect()
    }

    /// Starts it and waits until it has its memory.
    pub(super) fn start(self, guest: &Guest) -> anyhow::Result<()> {
        match self.pattern() {
            Some(pattern) => {
                // Seeded, so that two runs are given the same sizes.
                let common = Common { seed: Some(5), ..Common::default() };
                start_workload(guest, &WorkloadSpec { pattern, common })
            }
            None => {
                let script = self.script();
                let words = ["/bin/sh", "-c", script].map(str::to_owned);
                let done = guest.exec(&words, PATIENCE)?;
                if !done.end.is_success() {
                    bail!("{} did not start: {:?} {}", self.name(), done.end, done.stderr);
                }
                std::thread::sleep(STRIDE);
                Ok(())
            }
        }
    }

    fn pattern(self) -> Option<Pattern> {
        match self {
            Subject::Constant => Some(Pattern::Constant { size: Bytes::mib(200) }),
            Subject::Flux => {
                Some(Pattern::Flux { low: Bytes::mib(60), high: Bytes::mib(240), period_s: 20.0 })
            }
            Subject::RandomArray => Some(Pattern::RandomArray {
                steps: None,
                low: Some(Bytes::mib(40)),
                high: Some(Bytes::mib(350)),
                period_s: Some(10.0),
            }),
            Subject::Zipf => Some(Pattern::Zipf { size: Bytes::mib(300), exponent: 1.0 }),
            Subject::Redis | Subject::Sqlite | Subject::StressNg => None,
        }
    }

    /// What is run in the guest; returns when the program has its memory, and leaves it running.
    const fn script(self) -> &'static str {
        match self {
            Subject::Redis => {
                "redis-server --port 0 --unixsocket /tmp/r --save '' --appendonly no >/dev/null 2>&1 & \
                 until redis-cli -s /tmp/r ping >/dev/null 2>&1; do sleep 0.2; done; \
                 redis-benchmark -s /tmp/r -c 8 -P 64 -t set -n 150000 -r 90000 -d 1000 -q >/dev/null && \
                 { redis-benchmark -s /tmp/r -c 8 -P 16 -t get -n 1000000000 -r 90000 -q \
                   >/dev/null 2>&1 & }"
            }
            Subject::Sqlite => {
                "mkfifo /tmp/q; { sqlite3 :memory: < /tmp/q >/tmp/out 2>&1 & } ; exec 3>/tmp/q; \
                 echo 'CREATE TABLE t(id INTEGER PRIMARY KEY, b BLOB); \
                 WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i < 80000) \
                 INSERT INTO t SELECT i, randomblob(1500) FROM c; SELECT 1;' >&3; \
                 until grep -q 1 /tmp/out; do sleep 0.2; done; \
                 echo 'WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i < 1000000000000) \
                 SELECT sum((SELECT length(hex(b)) FROM t WHERE id = 1 + abs(random()) % 80000 + 0*c.i)) \
                 FROM c;' >&3"
            }
            _ => {
                "stress-ng --vm 1 --vm-bytes 128M --vm-keep --vm-method rand-set -t 0 \
                 >/dev/null 2>&1 & sleep 10"
            }
        }
    }
}

/// Starts a workload of the lab and waits until it has filled its memory.
pub(in super::super) fn start_workload(guest: &Guest, spec: &WorkloadSpec) -> anyhow::Result<()> {
    guest.start_workload("w", spec, PATIENCE)?;
    let end = Instant::now() + PATIENCE;
    loop {
        let report = guest.latest_report()?.context("the guest reports nothing")?;
        let phase = report.workloads.first().map(|workload| workload.phase);
        if matches!(phase, Some(Phase::Touching | Phase::Waiting)) {
            return Ok(());
        }
        if Instant::now() >= end {
            bail!("the guest does not get its memory: {phase:?} after {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
