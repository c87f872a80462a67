//! What a guest does with its memory.
//!
//! Idea: a workload is a size that changes over time and an order in which its pages are visited,
//! as in the lab: `mono`, `constant`, `flux`, `random-array`, `sequential`, `file-random` and `cold`
//! mean here what they mean there. What no real guest can be told to do comes on top: popularity
//! after Zipf, a miss curve, recorded series of working sets, and phases of all of them.
//! Limits: [`Workload::validate`] checks the values; whoever simulates has asked it.

use std::sync::Arc;
use std::time::Duration;

use ballast_model::{Bytes, MissCurve};

/// Largest workload; more is surely a slip.
const SIZE_MAX: Bytes = Bytes::gib(1 << 10);
/// Longest span in a workload.
const TIME_MAX: Duration = Duration::from_secs(1_000_000);
/// Fastest rate that can be asked for, in touches a second.
const RATE_MAX: u64 = 1_000_000_000;
/// Most entries of a list of steps, phases or points.
pub const ENTRIES_MAX: usize = 1 << 20;
/// Most points of a miss curve that is run: its LRU stack is searched at every touch.
pub const CURVE_POINTS_MAX: usize = 1 << 13;

/// A workload: what it does and what all kinds share.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// What it does.
    pub pattern: Pattern,
    /// Most touches a second; `None`: as fast as it goes. Time lost waiting for memory is not made
    /// up for.
    pub touches_per_s: Option<u64>,
    /// Share of the touches that also write, 0 to 1; `None`: all do, and with files none.
    pub write_share: Option<f64>,
    /// Time after which it ends; `None`: it runs until its kind ends.
    pub duration: Option<Duration>,
    /// Distinguishes its pseudo-random numbers from those of its like.
    pub seed: u64,
}

/// What a workload does.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// Grows steadily from `low` to `high` in `ramp`, stays for `hold`, gives back as steadily, and
    /// stays; goes through all of its memory in the order of addresses all the while.
    Mono {
        /// Smallest size.
        low: Bytes,
        /// Largest size.
        high: Bytes,
        /// Time from `low` to `high`.
        ramp: Duration,
        /// Time it stays at `high` and, between cycles, at `low`.
        hold: Duration,
        /// Times it goes up and down before it ends; `None`: for ever.
        cycles: Option<u32>,
    },
    /// One size; goes through all of it again and again in a scattered order, which no readahead
    /// foresees.
    Constant {
        /// Its size.
        size: Bytes,
    },
    /// Jumps between two sizes, beginning with `low`, in the order of addresses.
    Flux {
        /// The smaller size.
        low: Bytes,
        /// The larger size.
        high: Bytes,
        /// Time from one jump up to the next; half of it is spent at each size.
        period: Duration,
    },
    /// Visits pages at random within sizes that are listed.
    RandomSteps {
        /// Sizes and when they come, from 0 on, ascending; the last one stays.
        steps: Vec<Step>,
    },
    /// Visits pages at random within sizes that are drawn anew every `period`.
    RandomDrawn {
        /// Smallest size.
        low: Bytes,
        /// Largest size.
        high: Bytes,
        /// Time after which another size is drawn.
        period: Duration,
    },
    /// One size, in the order of addresses: what misses a little memory misses all of it under LRU.
    Sequential {
        /// Its size.
        size: Bytes,
        /// Passes before it ends; `None`: for ever.
        passes: Option<u64>,
    },
    /// Reads random pages of a file through the page cache.
    FileRandom {
        /// Size of the file.
        size: Bytes,
    },
    /// Memory that is filled once and then hardly touched: a share of it each second, at random.
    Cold {
        /// Its size.
        size: Bytes,
        /// Share of its pages touched each second, 0 to 1; takes the place of `touches_per_s`.
        share_per_s: f64,
    },
    /// Pages of unequal popularity: the k-th is visited in proportion to `k^-exponent`.
    Zipf {
        /// Its size.
        size: Bytes,
        /// How unequal, 0 to 4; 0 is at random.
        exponent: f64,
        /// Whether they are those of a file.
        file: bool,
    },
    /// References whose LRU misses are a given curve's, whatever the allocation. As fast as the
    /// curve's references in its interval, where `touches_per_s` says nothing.
    Curve {
        /// The curve; its first point is the number of references.
        curve: Arc<MissCurve>,
    },
    /// A recorded series: pages at random within a working set, at a rate.
    Trace {
        /// The series, from 0 on, ascending; each entry holds until the next, the last one stays.
        points: Vec<TracePoint>,
    },
    /// One after the other. Memory of a phase is given back at its end.
    Phases {
        /// The phases; none has phases of its own.
        phases: Vec<Phase>,
        /// Whether it begins anew after the last, instead of ending.
        repeat: bool,
    },
}

/// One size of [`Pattern::RandomSteps`] and when it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Time from the start.
    pub at: Duration,
    /// Size from then on.
    pub size: Bytes,
}

/// One entry of [`Pattern::Trace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracePoint {
    /// Time from the start.
    pub at: Duration,
    /// Working set from then on.
    pub working_set: Bytes,
    /// Touches a second from then on; `None`: the workload's, else as fast as it goes.
    pub touches_per_s: Option<u64>,
}

/// One entry of [`Pattern::Phases`].
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// How long it lasts.
    pub duration: Duration,
    /// What is done.
    pub pattern: Pattern,
}

impl From<Pattern> for Workload {
    /// At full speed, with seed 0 and no end of its own.
    fn from(pattern: Pattern) -> Self {
        Workload { pattern, touches_per_s: None, write_share: None, duration: None, seed: 0 }
    }
}

impl Workload {
    /// Demand as it was recorded: `used` at moments, visited at a rate. Moments that do not ascend
    /// are left out; demand of less than a page is a page.
    pub fn from_demand(series: &[(Duration, Bytes)], touches_per_s: Option<u64>) -> Workload {
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

    /// Whether every value is in its range.
    ///
    /// # Errors
    /// The first [`WorkloadError`] found.
    pub fn validate(&self) -> Result<(), WorkloadError> {
        if let Some(rate) = self.touches_per_s {
            rate_in_range(rate)?;
            if matches!(self.pattern, Pattern::Cold { .. }) {
                return Err(WorkloadError::RateOfCold);
            }
        }
        if let Some(share) = self.write_share {
            in_range("write_share", share, 1.0, "0 to 1")?;
        }
        if let Some(duration) = self.duration {
            time("duration", duration)?;
        }
        self.pattern.validate()
    }
}

impl Pattern {
    /// Largest size it ever has, whole pages.
    pub fn size_max(&self) -> Bytes {
        let largest = |sizes: &mut dyn Iterator<Item = Bytes>| sizes.max().unwrap_or_default();
        let size = match self {
            Pattern::Mono { high, .. }
            | Pattern::Flux { high, .. }
            | Pattern::RandomDrawn { high, .. } => *high,
            Pattern::Constant { size }
            | Pattern::Sequential { size, .. }
            | Pattern::FileRandom { size }
            | Pattern::Cold { size, .. }
            | Pattern::Zipf { size, .. } => *size,
            Pattern::RandomSteps { steps } => largest(&mut steps.iter().map(|step| step.size)),
            Pattern::Curve { curve } => curve_size(curve),
            Pattern::Trace { points } => largest(&mut points.iter().map(|it| it.working_set)),
            Pattern::Phases { phases, .. } => {
                largest(&mut phases.iter().map(|phase| phase.pattern.size_max()))
            }
        };
        size.page_ceil()
    }

    /// Whether its pages are those of a file.
    pub fn is_file(&self) -> bool {
        match self {
            // All phases are alike in this.
            Pattern::Phases { phases, .. } => phases.first().is_some_and(|it| it.pattern.is_file()),
            other => matches!(other, Pattern::FileRandom { .. } | Pattern::Zipf { file: true, .. }),
        }
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        match self {
            Pattern::Mono { low, high, ramp, hold, cycles } => {
                low_high(*low, *high)?;
                time("ramp", *ramp)?;
                if *hold > TIME_MAX {
                    return Err(WorkloadError::Time { field: "hold", value: *hold });
                }
                match cycles {
                    Some(0) => Err(number("cycles", 0.0, "at least 1")),
                    _ => Ok(()),
                }
            }
            Pattern::Constant { size: it } | Pattern::FileRandom { size: it } => size("size", *it),
            Pattern::Flux { low, high, period } | Pattern::RandomDrawn { low, high, period } => {
                low_high(*low, *high)?;
                time("period", *period)
            }
            Pattern::RandomSteps { steps } => {
                steps.iter().try_for_each(|step| size("size", step.size))?;
                ascending("steps", steps.iter().map(|step| step.at))
            }
            Pattern::Sequential { size: it, passes } => {
                size("size", *it)?;
                match passes {
                    Some(0) => Err(number("passes", 0.0, "at least 1")),
                    _ => Ok(()),
                }
            }
            Pattern::Cold { size: it, share_per_s } => {
                size("size", *it)?;
                in_range("share_per_s", *share_per_s, 1.0, "0 to 1")
            }
            Pattern::Zipf { size: it, exponent, .. } => {
                size("size", *it)?;
                in_range("exponent", *exponent, 4.0, "0 to 4")
            }
            Pattern::Curve { curve } => {
                let points = curve.points().len();
                if !(2..=CURVE_POINTS_MAX).contains(&points) || curve.misses(Bytes::ZERO) == 0 {
                    return Err(WorkloadError::Curve { points });
                }
                size("size", curve_size(curve))
            }
            Pattern::Trace { points } => {
                for point in points {
                    size("working_set", point.working_set)?;
                    point.touches_per_s.map_or(Ok(()), rate_in_range)?;
                }
                ascending("points", points.iter().map(|point| point.at))
            }
            Pattern::Phases { phases, .. } => {
                if phases.is_empty() || phases.len() > ENTRIES_MAX {
                    return Err(WorkloadError::List { field: "phases" });
                }
                let is_file = self.is_file();
                for phase in phases {
                    time("duration", phase.duration)?;
                    if matches!(phase.pattern, Pattern::Phases { .. }) {
                        return Err(WorkloadError::PhasesOfPhases);
                    }
                    if is_file != phase.pattern.is_file() {
                        return Err(WorkloadError::MixedPhases);
                    }
                    phase.pattern.validate()?;
                }
                Ok(())
            }
        }
    }
}

/// Memory beyond which a curve's misses stay as they are: that of its last point.
pub(crate) fn curve_size(curve: &MissCurve) -> Bytes {
    let steps = curve.points().len().saturating_sub(1) as u64;
    Bytes::new(curve.step().get().saturating_mul(steps))
}

/// Why a workload cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// A size is less than a page or absurdly large.
    #[error("{field} = {size}: expected 4KiB to {SIZE_MAX}")]
    Size {
        /// Its field.
        field: &'static str,
        /// What it says.
        size: Bytes,
    },
    /// The lower of two sizes is the greater.
    #[error("low = {low} is more than high = {high}")]
    LowOverHigh {
        /// The lower.
        low: Bytes,
        /// The higher.
        high: Bytes,
    },
    /// A span is out of its range.
    #[error("{field} = {value:?}: expected 1ms to {TIME_MAX:?}")]
    Time {
        /// Its field.
        field: &'static str,
        /// What it says.
        value: Duration,
    },
    /// A rate or share is out of its range.
    #[error("{field} = {value}: expected {expected}")]
    Number {
        /// Its field.
        field: &'static str,
        /// What it says.
        value: f64,
        /// What it may be.
        expected: &'static str,
    },
    /// The entries of a list are none, too many or out of order.
    #[error("{field}: expected 1 to {ENTRIES_MAX} entries, their times ascending from 0")]
    List {
        /// Its field.
        field: &'static str,
    },
    /// A curve cannot be run.
    #[error("a curve of {points} points: expected 2 to {CURVE_POINTS_MAX}, with references")]
    Curve {
        /// Its points.
        points: usize,
    },
    /// The rate of a kind that has a rate of its own.
    #[error("touches_per_s does not go with cold: share_per_s is its rate")]
    RateOfCold,
    /// Phases within phases.
    #[error("a phase with phases of its own: expected any other pattern")]
    PhasesOfPhases,
    /// Phases of files and of memory in one workload.
    #[error("phases of files and of memory: expected a workload for each")]
    MixedPhases,
}

fn number(field: &'static str, value: f64, expected: &'static str) -> WorkloadError {
    WorkloadError::Number { field, value, expected }
}

/// Whether `value` is within 0 and `most`; not a number is in no range.
fn in_range(
    field: &'static str,
    value: f64,
    most: f64,
    expected: &'static str,
) -> Result<(), WorkloadError> {
    if (0.0..=most).contains(&value) { Ok(()) } else { Err(number(field, value, expected)) }
}

fn rate_in_range(rate: u64) -> Result<(), WorkloadError> {
    if (1..=RATE_MAX).contains(&rate) {
        return Ok(());
    }
    Err(number("touches_per_s", rate as f64, "1 to 1e9"))
}

fn time(field: &'static str, value: Duration) -> Result<(), WorkloadError> {
    let in_range = (Duration::from_millis(1)..=TIME_MAX).contains(&value);
    if in_range { Ok(()) } else { Err(WorkloadError::Time { field, value }) }
}

fn size(field: &'static str, it: Bytes) -> Result<(), WorkloadError> {
    let in_range = (Bytes::pages(1)..=SIZE_MAX).contains(&it);
    if in_range { Ok(()) } else { Err(WorkloadError::Size { field, size: it }) }
}

fn low_high(low: Bytes, high: Bytes) -> Result<(), WorkloadError> {
    size("low", low)?;
    size("high", high)?;
    if low > high { Err(WorkloadError::LowOverHigh { low, high }) } else { Ok(()) }
}

/// Whether there is at least one time, and they ascend from 0.
fn ascending(
    field: &'static str,
    times: impl Iterator<Item = Duration> + Clone,
) -> Result<(), WorkloadError> {
    let ascend = times.clone().zip(times.clone().skip(1)).all(|(one, next)| one < next);
    let starts = times.clone().next() == Some(Duration::ZERO);
    let bounded = times.clone().take(ENTRIES_MAX + 1).count() <= ENTRIES_MAX;
    let within = times.last().is_some_and(|last| last <= TIME_MAX);
    if starts && ascend && bounded && within { Ok(()) } else { Err(WorkloadError::List { field }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(pattern: Pattern) -> String {
        Workload::from(pattern).validate().unwrap_err().to_string()
    }

    #[test]
    fn says_what_is_wrong() {
        let mib = Bytes::mib;
        let s = Duration::from_secs;
        for (pattern, expected) in [
            (Pattern::Constant { size: Bytes::ZERO }, "size = 0B"),
            (Pattern::Constant { size: Bytes::gib(9999) }, "size = 9.8TiB"),
            (Pattern::Flux { low: mib(2), high: mib(1), period: s(1) }, "low = 2MiB is more"),
            (Pattern::Flux { low: mib(1), high: mib(1), period: s(0) }, "period = 0ns"),
            (Pattern::Cold { size: mib(1), share_per_s: f64::NAN }, "share_per_s = NaN"),
            (Pattern::Zipf { size: mib(1), exponent: -1.0, file: false }, "exponent = -1"),
            (Pattern::RandomSteps { steps: vec![] }, "steps: expected 1 to"),
            (
                Pattern::RandomSteps { steps: vec![Step { at: s(1), size: mib(1) }] },
                "ascending from 0",
            ),
            (Pattern::Phases { phases: vec![], repeat: false }, "phases: expected 1 to"),
        ] {
            let error = refused(pattern);
            assert!(error.contains(expected), "`{error}` lacks `{expected}`");
        }
    }

    #[test]
    fn a_curve_needs_references_and_two_points() {
        for points in [vec![5], vec![0, 0]] {
            let curve = MissCurve::new(Bytes::mib(1), Duration::from_secs(1), points).unwrap();
            let error = refused(Pattern::Curve { curve: Arc::new(curve) });
            assert!(error.contains("with references"), "{error}");
        }
    }

    #[test]
    fn recorded_demand_becomes_a_trace_from_zero() {
        let s = Duration::from_secs;
        let series = [(s(5), Bytes::mib(3)), (s(5), Bytes::mib(9)), (s(7), Bytes::ZERO)];
        let workload = Workload::from_demand(&series, Some(10));
        workload.validate().unwrap();
        let point = |at, working_set| TracePoint { at, working_set, touches_per_s: Some(10) };
        let points = vec![point(s(0), Bytes::mib(3)), point(s(2), Bytes::pages(1))];
        assert_eq!(workload.pattern, Pattern::Trace { points });
    }
}
