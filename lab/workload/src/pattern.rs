//! The vocabulary of workloads.
//!
//! Idea: [`Pattern`] says what a workload does, [`WorkloadSpec`] adds what all kinds share: a rate,
//! a share of writes, an end. Every page is 4 KiB; a touch reads, or reads and writes, one page.
//! Limits: these types hold any values; [`WorkloadSpec::validate`] checks them. Patterns marked
//! "simulator only" need a model of memory and cannot run in a real guest.

use std::sync::Arc;
use std::time::Duration;

use ballast_model::{Bytes, MissCurve};
use serde::{Deserialize, Serialize};

/// Shortest ramp of [`Pattern::Mono`]: the resolution of a schedule.
const RAMP_MIN: Duration = Duration::from_millis(1);

/// A workload: its pattern, and the settings that all patterns share.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadSpec {
    /// What it does.
    pub pattern: Pattern,
    /// Most touches per second; `None`: unlimited. A workload does not catch up on touches it
    /// missed while it waited for memory.
    pub touches_per_s: Option<u64>,
    /// Seed of its pseudo-random numbers.
    pub seed: u64,
    /// Time after which it ends; `None`: it runs until its pattern ends or it is stopped.
    pub duration: Option<Duration>,
    /// Share of touches that also write, 0 to 1; `None`: all touches of memory, no touches of
    /// files.
    pub write_share: Option<f64>,
}

/// What a workload does.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// Grows steadily from `low` to `high`, stays for `hold`, shrinks as steadily, and stays again;
    /// goes through all of its memory in address order throughout.
    Mono {
        /// Smallest size.
        low: Bytes,
        /// Largest size.
        high: Bytes,
        /// How fast it grows and shrinks.
        ramp: Ramp,
        /// Time it stays at `high` and, between cycles, at `low`.
        hold: Duration,
        /// Cycles before it ends; `None`: it never ends.
        cycles: Option<u32>,
    },
    /// One size; visits all of it again and again in a scattered order, which neither swap
    /// readahead nor an LRU list can predict.
    Constant {
        /// Its size.
        size: Bytes,
    },
    /// Jumps between two sizes, starting with `low`, in address order.
    Flux {
        /// The smaller size.
        low: Bytes,
        /// The larger size.
        high: Bytes,
        /// Time from one jump up to the next; it spends half of it at each size.
        period: Duration,
    },
    /// Visits random pages within sizes that are listed.
    RandomSteps {
        /// Sizes and when they begin, ascending from 0; the last one stays.
        steps: Vec<Step>,
    },
    /// Visits random pages within a size that is drawn at random every `period`.
    RandomDrawn {
        /// Smallest size.
        low: Bytes,
        /// Largest size.
        high: Bytes,
        /// Time after which another size is drawn.
        period: Duration,
    },
    /// One size, in address order: under LRU, a small shortage makes every touch miss.
    Sequential {
        /// Its size.
        size: Bytes,
        /// Passes before it ends; `None`: it never ends.
        passes: Option<u64>,
    },
    /// Reads random pages of a file through the page cache.
    FileRandom {
        /// Size of the file.
        size: Bytes,
    },
    /// Memory that is filled once and then hardly touched: a share of it per second, at random.
    Cold {
        /// Its size.
        size: Bytes,
        /// Share of its pages touched each second, 0 to 1; replaces `touches_per_s`.
        share_per_s: f64,
    },
    /// Pages of unequal popularity: the k-th is visited in proportion to `k^-exponent`; popular
    /// pages are scattered.
    Zipf {
        /// Its size.
        size: Bytes,
        /// How unequal, 0 to 4; 0 is uniform.
        exponent: f64,
        /// Whether its pages are those of a file; simulator only.
        file: bool,
    },
    /// A real program that is asked for random items of its data. Touches are keys, rows,
    /// transactions or milliseconds, depending on what the program counts. The simulator models it
    /// as [`Pattern::RandomSteps`] of one size; PostgreSQL, which has most of its data in the page
    /// cache, as [`Pattern::FileRandom`].
    Program {
        /// Which program.
        program: Program,
        /// Size of its data.
        size: Bytes,
    },
    /// Simulator only. References whose LRU misses follow a given curve at any allocation. Its rate
    /// is the curve's references per interval unless `touches_per_s` is set.
    Curve {
        /// The curve; its first point is the number of references.
        curve: Arc<MissCurve>,
    },
    /// Simulator only. A recorded series: random pages within a working set, at a rate.
    Trace {
        /// The series, ascending from 0; each point holds until the next, the last one stays.
        points: Vec<TracePoint>,
    },
    /// Simulator only. Patterns one after the other; the memory of a phase is freed at its end.
    Phases {
        /// The phases; phases do not nest.
        phases: Vec<Phase>,
        /// Whether it starts over after the last phase instead of ending.
        repeat: bool,
        /// What the durations of the phases, and of the workload, count.
        pace: Pace,
    },
}

/// How fast [`Pattern::Mono`] grows and shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ramp {
    /// Time from the smallest to the largest size.
    Time(Duration),
    /// Memory added each second.
    GrowthPerS(Bytes),
}

/// One size of [`Pattern::RandomSteps`] and when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Time from the start.
    pub at: Duration,
    /// Size from then on.
    pub size: Bytes,
}

/// One point of [`Pattern::Trace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracePoint {
    /// Time from the start.
    pub at: Duration,
    /// Working set from then on.
    pub working_set: Bytes,
    /// Touches per second from then on; `None`: the workload's rate.
    pub touches_per_s: Option<u64>,
}

/// The unit of the durations of [`Pattern::Phases`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// Time, whatever the program does in that time.
    #[default]
    Clock,
    /// Work, as the time that it takes with all its memory: a program that waits for its disk stays
    /// longer in a phase, like a program with a fixed amount of work.
    Work,
}

/// One phase of [`Pattern::Phases`].
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// How long it lasts.
    pub duration: Duration,
    /// What it does.
    pub pattern: Pattern,
}

/// A real program that runs as a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// memcached: keys of one kilobyte.
    Memcached,
    /// PostgreSQL: rows of pgbench's accounts table, which its data disk already contains.
    Postgresql,
    /// redis-server and redis-benchmark: keys of one kilobyte.
    Redis,
    /// sqlite3: rows of 1.5 kB of a table in memory.
    Sqlite,
    /// `stress-ng --vm`: milliseconds of processor time.
    StressNg,
}

impl Program {
    /// Name of the executable packed into the guest.
    pub const fn packed(self) -> &'static str {
        match self {
            Program::Memcached => "memcached",
            Program::Postgresql => "postgresql",
            Program::Redis => "redis-server",
            Program::Sqlite => "sqlite3",
            Program::StressNg => "stress-ng",
        }
    }
}

/// The kinds of workload as tables and reports name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each is the variant of `Pattern` of that name")]
pub enum Kind {
    Mono,
    Constant,
    Flux,
    RandomArray,
    Sequential,
    FileRandom,
    Cold,
    Zipf,
    Program,
    MissCurve,
    Trace,
    Phases,
}

impl Pattern {
    /// Its kind.
    pub const fn kind(&self) -> Kind {
        match self {
            Pattern::Mono { .. } => Kind::Mono,
            Pattern::Constant { .. } => Kind::Constant,
            Pattern::Flux { .. } => Kind::Flux,
            Pattern::RandomSteps { .. } | Pattern::RandomDrawn { .. } => Kind::RandomArray,
            Pattern::Sequential { .. } => Kind::Sequential,
            Pattern::FileRandom { .. } => Kind::FileRandom,
            Pattern::Cold { .. } => Kind::Cold,
            Pattern::Zipf { .. } => Kind::Zipf,
            Pattern::Program { .. } => Kind::Program,
            Pattern::Curve { .. } => Kind::MissCurve,
            Pattern::Trace { .. } => Kind::Trace,
            Pattern::Phases { .. } => Kind::Phases,
        }
    }

    /// Largest size it ever has, rounded up to whole pages.
    pub fn size_max(&self) -> Bytes {
        let size = match self {
            Pattern::Mono { high, .. }
            | Pattern::Flux { high, .. }
            | Pattern::RandomDrawn { high, .. } => *high,
            Pattern::Constant { size }
            | Pattern::Sequential { size, .. }
            | Pattern::FileRandom { size }
            | Pattern::Cold { size, .. }
            | Pattern::Zipf { size, .. }
            | Pattern::Program { size, .. } => *size,
            Pattern::RandomSteps { steps } => largest(steps.iter().map(|step| step.size)),
            Pattern::Curve { curve } => curve_size(curve),
            Pattern::Trace { points } => largest(points.iter().map(|point| point.working_set)),
            Pattern::Phases { phases, .. } => {
                largest(phases.iter().map(|phase| phase.pattern.size_max()))
            }
        };
        size.page_ceil()
    }

    /// Whether its pages are those of a file.
    pub fn is_file(&self) -> bool {
        match self {
            // `validate` refuses a mixture of file and memory phases.
            Pattern::Phases { phases, .. } => phases.first().is_some_and(|it| it.pattern.is_file()),
            Pattern::FileRandom { .. }
            | Pattern::Zipf { file: true, .. }
            | Pattern::Program { program: Program::Postgresql, .. } => true,
            _ => false,
        }
    }
}

fn largest(sizes: impl Iterator<Item = Bytes>) -> Bytes {
    sizes.max().unwrap_or_default()
}

/// Allocation beyond which the misses of `curve` no longer change: that of its last point.
pub(crate) fn curve_size(curve: &MissCurve) -> Bytes {
    let steps = curve.points().len().saturating_sub(1) as u64;
    Bytes::new(curve.step().get().saturating_mul(steps))
}

impl Ramp {
    /// Time from `low` to `high`, at least a millisecond.
    pub(crate) fn duration(self, low: Bytes, high: Bytes) -> Duration {
        let ramp = match self {
            Ramp::Time(ramp) => ramp,
            Ramp::GrowthPerS(step) => {
                let growth = high.saturating_sub(low).get() as f64;
                let ramp = Duration::try_from_secs_f64(growth / step.get().max(1) as f64);
                ramp.unwrap_or(Duration::MAX)
            }
        };
        ramp.max(RAMP_MIN)
    }
}

impl From<Duration> for Ramp {
    fn from(ramp: Duration) -> Ramp {
        Ramp::Time(ramp)
    }
}

impl From<Pattern> for WorkloadSpec {
    /// At full speed, with seed 0, until the pattern ends.
    fn from(pattern: Pattern) -> WorkloadSpec {
        WorkloadSpec { pattern, touches_per_s: None, seed: 0, duration: None, write_share: None }
    }
}

impl WorkloadSpec {
    /// Whether its schedule counts work instead of time ([`Pace::Work`]).
    pub fn is_paced_by_work(&self) -> bool {
        matches!(self.pattern, Pattern::Phases { pace: Pace::Work, .. })
    }

    /// A recorded series of memory in use as a workload that visits it at a rate. Points whose
    /// times do not ascend are dropped; less than a page becomes one page.
    pub fn from_demand(series: &[(Duration, Bytes)], touches_per_s: Option<u64>) -> WorkloadSpec {
        let mut points: Vec<TracePoint> = Vec::with_capacity(series.len());
        let start = series.first().map_or(Duration::ZERO, |&(at, _)| at);
        for &(at, used) in series {
            let at = at.saturating_sub(start);
            if points.last().is_none_or(|last| last.at < at) {
                let working_set = used.max(Bytes::pages(1));
                points.push(TracePoint { at, working_set, touches_per_s });
            }
        }
        Pattern::Trace { points }.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_demand_becomes_a_trace_from_zero() {
        let s = Duration::from_secs;
        let series = [(s(5), Bytes::mib(3)), (s(5), Bytes::mib(9)), (s(7), Bytes::ZERO)];
        let workload = WorkloadSpec::from_demand(&series, Some(10));
        workload.validate().unwrap();
        let point = |at, working_set| TracePoint { at, working_set, touches_per_s: Some(10) };
        let points = vec![point(s(0), Bytes::mib(3)), point(s(2), Bytes::pages(1))];
        assert_eq!(workload.pattern, Pattern::Trace { points });
    }
}
