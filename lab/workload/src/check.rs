//! Checks of a workload's values.
//!
//! Idea: one range per quantity, the same for every pattern that has it; [`WorkloadSpec::validate`]
//! for all workloads, [`WorkloadSpec::validate_for_guest`] for those a real guest is to run.
//! Limits: reading a table checks its form only; call one of the two afterwards.

use std::time::Duration;

use ballast_model::{Bytes, MissCurve, PAGE_SIZE};

use crate::pattern::{Pattern, Phase, Program, Ramp, Step, TracePoint, WorkloadSpec, curve_size};

/// Largest size; more is a mistake, and page numbers stay far from overflow.
const SIZE_MAX: Bytes = Bytes::gib(1 << 10);
/// Longest time, in seconds: some eleven days.
const TIME_S_MAX: f64 = 1e6;
/// Shortest time, in seconds: the resolution of a schedule.
const TIME_S_MIN: f64 = 0.001;
/// Highest rate, in touches per second.
const RATE_MAX: u64 = 1_000_000_000;
/// Most steps of [`Pattern::RandomSteps`]: a table of them must fit one line of the lab protocol.
pub const STEPS_MAX: usize = 256;
/// Most entries of a list of phases or points.
pub const ENTRIES_MAX: usize = 1 << 20;
/// Most points of a miss curve that is run: its LRU stack is searched at every touch.
pub const CURVE_POINTS_MAX: usize = 1 << 13;
/// Largest size of PostgreSQL's data: that of its table in a guest.
pub const POSTGRESQL_SIZE_MAX: Bytes = Bytes::mib(400);

/// Why a workload is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// A size is less than a page or absurdly large.
    #[error("{field} = {size}: expected {PAGE_SIZE}B to {SIZE_MAX}")]
    Size {
        /// Its field.
        field: &'static str,
        /// Its value.
        size: Bytes,
    },
    /// The lower of two sizes is larger than the higher.
    #[error("low = {low} is more than high = {high}")]
    LowOverHigh {
        /// The lower.
        low: Bytes,
        /// The higher.
        high: Bytes,
    },
    /// A time, rate or share is out of range.
    #[error("{field} = {value}: expected {expected}")]
    Number {
        /// Its field.
        field: &'static str,
        /// Its value.
        value: f64,
        /// Its range.
        expected: &'static str,
    },
    /// A list is empty or too long, or its times do not ascend.
    #[error("{field}: expected 1 to {most} entries, their times ascending from 0")]
    List {
        /// Its field.
        field: &'static str,
        /// Most entries it may have.
        most: usize,
    },
    /// A miss curve cannot be run.
    #[error("a curve of {points} points: expected 2 to {CURVE_POINTS_MAX}, with references")]
    Curve {
        /// Number of its points.
        points: usize,
    },
    /// A cold workload has `touches_per_s` in addition to its own rate.
    #[error("touches_per_s does not go with kind = \"cold\": share_per_s is its rate")]
    RateOfCold,
    /// A phase has phases.
    #[error("a phase with phases of its own: expected any other kind")]
    NestedPhases,
    /// One workload has phases in files and phases in memory.
    #[error("phases of files and of memory: expected a workload for each")]
    MixedPhases,
    /// More data than PostgreSQL has in a guest.
    #[error("size = {size}: PostgreSQL has {POSTGRESQL_SIZE_MAX} in a guest")]
    Postgresql {
        /// Its size.
        size: Bytes,
    },
    /// A field that a real program cannot follow.
    #[error("{field} does not go with kind = \"program\": a program sets its own pace and order")]
    ProgramField {
        /// The field.
        field: &'static str,
    },
    /// A pattern that no real guest can run.
    #[error("{what} runs only in the simulator")]
    SimulatorOnly {
        /// The pattern, as in a table.
        what: &'static str,
    },
}

impl WorkloadSpec {
    /// Checks that every value is in its range.
    ///
    /// # Errors
    /// The first [`WorkloadError`] found.
    pub fn validate(&self) -> Result<(), WorkloadError> {
        if let Some(rate) = self.touches_per_s {
            check_rate(rate)?;
            if matches!(self.pattern, Pattern::Cold { .. }) {
                return Err(WorkloadError::RateOfCold);
            }
        }
        if let Some(duration) = self.duration {
            check_time("duration_s", duration)?;
        }
        if let Some(share) = self.write_share {
            check_range("write_share", share, 0.0, 1.0, "0 to 1")?;
        }
        self.pattern.validate()
    }

    /// Checks that every value is in its range and that a real guest can run the workload.
    ///
    /// # Errors
    /// The first [`WorkloadError`] found.
    pub fn validate_for_guest(&self) -> Result<(), WorkloadError> {
        let what = match self.pattern {
            Pattern::Curve { .. } => Some("kind = \"miss-curve\""),
            Pattern::Trace { .. } => Some("kind = \"trace\""),
            Pattern::Phases { .. } => Some("kind = \"phases\""),
            Pattern::Zipf { file: true, .. } => Some("kind = \"zipf\" with file = true"),
            _ => None,
        };
        if let Some(what) = what {
            return Err(WorkloadError::SimulatorOnly { what });
        }
        if matches!(self.pattern, Pattern::Program { .. }) {
            let fields = [
                ("touches_per_s", self.touches_per_s.is_some()),
                ("seed", self.seed != 0),
                ("write_share", self.write_share.is_some()),
            ];
            for (field, is_set) in fields {
                if is_set {
                    return Err(WorkloadError::ProgramField { field });
                }
            }
        }
        self.validate()
    }
}

impl Pattern {
    fn validate(&self) -> Result<(), WorkloadError> {
        match self {
            Pattern::Mono { low, high, ramp, hold, cycles } => {
                check_low_high(*low, *high)?;
                match ramp {
                    Ramp::Time(ramp) => check_time("ramp_s", *ramp)?,
                    Ramp::GrowthPerS(step) => check_size("grow_per_s", *step)?,
                }
                check_range("hold_s", hold.as_secs_f64(), 0.0, TIME_S_MAX, "0 to 1e6 seconds")?;
                check_not_zero("cycles", cycles.map(u64::from))
            }
            Pattern::Program { program: Program::Postgresql, size }
                if *size > POSTGRESQL_SIZE_MAX =>
            {
                Err(WorkloadError::Postgresql { size: *size })
            }
            Pattern::Constant { size }
            | Pattern::FileRandom { size }
            | Pattern::Program { size, .. } => check_size("size", *size),
            Pattern::Flux { low, high, period } | Pattern::RandomDrawn { low, high, period } => {
                check_low_high(*low, *high)?;
                check_time("period_s", *period)
            }
            Pattern::RandomSteps { steps } => check_steps(steps),
            Pattern::Sequential { size, passes } => {
                check_size("size", *size)?;
                check_not_zero("passes", *passes)
            }
            Pattern::Cold { size, share_per_s } => {
                check_size("size", *size)?;
                check_range("share_per_s", *share_per_s, 0.0, 1.0, "0 to 1")
            }
            Pattern::Zipf { size, exponent, .. } => {
                check_size("size", *size)?;
                check_range("exponent", *exponent, 0.0, 4.0, "0 to 4")
            }
            Pattern::Curve { curve } => check_curve(curve),
            Pattern::Trace { points } => check_points(points),
            Pattern::Phases { phases, .. } => check_phases(phases, self.is_file()),
        }
    }
}

fn check_steps(steps: &[Step]) -> Result<(), WorkloadError> {
    for step in steps {
        check_size("size", step.size)?;
    }
    let times: Vec<Duration> = steps.iter().map(|step| step.at).collect();
    check_times("steps", &times, STEPS_MAX)
}

fn check_points(points: &[TracePoint]) -> Result<(), WorkloadError> {
    for point in points {
        check_size("working_set", point.working_set)?;
        if let Some(rate) = point.touches_per_s {
            check_rate(rate)?;
        }
    }
    let times: Vec<Duration> = points.iter().map(|point| point.at).collect();
    check_times("points", &times, ENTRIES_MAX)
}

fn check_curve(curve: &MissCurve) -> Result<(), WorkloadError> {
    let points = curve.points().len();
    if !(2..=CURVE_POINTS_MAX).contains(&points) || curve.misses(Bytes::ZERO) == 0 {
        return Err(WorkloadError::Curve { points });
    }
    check_size("size", curve_size(curve))
}

fn check_phases(phases: &[Phase], is_file: bool) -> Result<(), WorkloadError> {
    if phases.is_empty() || phases.len() > ENTRIES_MAX {
        return Err(WorkloadError::List { field: "phases", most: ENTRIES_MAX });
    }
    for phase in phases {
        check_time("duration", phase.duration)?;
        if matches!(phase.pattern, Pattern::Phases { .. }) {
            return Err(WorkloadError::NestedPhases);
        }
        if phase.pattern.is_file() != is_file {
            return Err(WorkloadError::MixedPhases);
        }
        phase.pattern.validate()?;
    }
    Ok(())
}

/// Checks that there is at least one time and that they ascend from 0.
fn check_times(field: &'static str, times: &[Duration], most: usize) -> Result<(), WorkloadError> {
    let ascend = times.windows(2).all(|pair| pair[0] < pair[1]);
    let starts_at_zero = times.first() == Some(&Duration::ZERO);
    let in_range = times.last().is_some_and(|last| last.as_secs_f64() <= TIME_S_MAX);
    if ascend && starts_at_zero && in_range && times.len() <= most {
        return Ok(());
    }
    Err(WorkloadError::List { field, most })
}

fn check_range(
    field: &'static str,
    value: f64,
    least: f64,
    most: f64,
    expected: &'static str,
) -> Result<(), WorkloadError> {
    // NaN is in no range.
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(WorkloadError::Number { field, value, expected })
}

fn check_not_zero(field: &'static str, value: Option<u64>) -> Result<(), WorkloadError> {
    match value {
        Some(0) => Err(WorkloadError::Number { field, value: 0.0, expected: "at least 1" }),
        _ => Ok(()),
    }
}

fn check_rate(rate: u64) -> Result<(), WorkloadError> {
    check_range("touches_per_s", rate as f64, 1.0, RATE_MAX as f64, "1 to 1e9")
}

fn check_time(field: &'static str, value: Duration) -> Result<(), WorkloadError> {
    let value = value.as_secs_f64();
    check_range(field, value, TIME_S_MIN, TIME_S_MAX, "0.001 to 1e6 seconds")
}

fn check_size(field: &'static str, size: Bytes) -> Result<(), WorkloadError> {
    if (Bytes::pages(1)..=SIZE_MAX).contains(&size) {
        return Ok(());
    }
    Err(WorkloadError::Size { field, size })
}

fn check_low_high(low: Bytes, high: Bytes) -> Result<(), WorkloadError> {
    check_size("low", low)?;
    check_size("high", high)?;
    if low > high { Err(WorkloadError::LowOverHigh { low, high }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::pattern::Pace;

    const MIB: Bytes = Bytes::mib(1);

    fn s(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    fn error(pattern: Pattern) -> String {
        WorkloadSpec::from(pattern).validate().unwrap_err().to_string()
    }

    #[test]
    fn each_invalid_pattern_is_named_with_its_field() {
        let phase = |pattern| Phase { duration: s(1), pattern };
        let phases = |phases| Pattern::Phases { phases, repeat: false, pace: Pace::Clock };
        let constant = Pattern::Constant { size: MIB };
        for (pattern, expected) in [
            (Pattern::Constant { size: Bytes::ZERO }, "size = 0B"),
            (Pattern::Constant { size: Bytes::gib(9999) }, "size = 9.8TiB"),
            (Pattern::Flux { low: Bytes::mib(2), high: MIB, period: s(1) }, "low = 2MiB is more"),
            (Pattern::Flux { low: MIB, high: MIB, period: s(0) }, "period_s = 0"),
            (Pattern::Cold { size: MIB, share_per_s: f64::NAN }, "share_per_s = NaN"),
            (Pattern::Zipf { size: MIB, exponent: -1.0, file: false }, "exponent = -1"),
            (Pattern::RandomSteps { steps: vec![] }, "steps: expected 1 to"),
            (
                Pattern::RandomSteps { steps: vec![Step { at: s(1), size: MIB }] },
                "ascending from 0",
            ),
            (phases(vec![]), "phases: expected 1 to"),
            (phases(vec![phase(phases(vec![]))]), "phases of its own"),
            (
                phases(vec![phase(constant), phase(Pattern::FileRandom { size: MIB })]),
                "phases of files and of memory",
            ),
        ] {
            let error = error(pattern);
            assert!(error.contains(expected), "`{error}` lacks `{expected}`");
        }
    }

    #[test]
    fn curve_needs_references_and_two_points() {
        for points in [vec![5], vec![0, 0]] {
            let curve = MissCurve::new(MIB, s(1), points).unwrap();
            let error = error(Pattern::Curve { curve: Arc::new(curve) });
            assert!(error.contains("with references"), "{error}");
        }
    }

    #[test]
    fn guests_refuse_what_only_the_simulator_runs() {
        let zipf = |file| WorkloadSpec::from(Pattern::Zipf { size: MIB, exponent: 1.0, file });
        assert_eq!(zipf(false).validate_for_guest(), Ok(()));
        assert_eq!(zipf(true).validate(), Ok(()));
        let trace = WorkloadSpec::from_demand(&[(s(0), MIB)], None);
        assert_eq!(trace.validate(), Ok(()));
        for spec in [zipf(true), trace] {
            let error = spec.validate_for_guest().unwrap_err().to_string();
            assert!(error.ends_with("runs only in the simulator"), "{error}");
        }
    }
}
