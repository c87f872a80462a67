//! What a guest can be asked to do with its memory.
//!
//! Idea: a workload is a size that changes over time and an order in which its pages are visited
//! ([`Pattern`]), with what all kinds share ([`WorkloadSpec`]): a rate, a share of writes, an end. It is
//! written flat, as a table with a `kind`:
//! `{"kind": "mono", "low": "100MiB", "high": "300MiB", "ramp_s": 30, "cycles": 2}`.
//! Every page is 4 KiB and filled with data that does not compress when it is first used; a touch
//! reads, or reads and writes, one word of one page.
//! Limits: reading checks the form only; [`WorkloadSpec::validate`] checks the values.

use ballast_model::{Bytes, PAGE_SIZE};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// Largest workload; more is surely a slip, and indices stay far from overflow.
const SIZE_MAX: Bytes = Bytes::gib(1 << 10);
/// Longest time in a workload, in seconds: some eleven days.
const TIME_S_MAX: f64 = 1e6;
/// Fastest rate that can be asked for, in touches a second.
const RATE_MAX: u64 = 1_000_000_000;
/// Most steps in the schedule of `random-array`.
pub const STEPS_MAX: usize = 256;

/// A workload: what it does and what all kinds share.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkloadSpec {
    /// What it does.
    #[serde(flatten)]
    pub pattern: Pattern,
    /// What all kinds share.
    #[serde(flatten)]
    pub common: Common,
}

/// What all kinds of workload share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Common {
    /// Most touches a second; without it, as fast as it goes. Time lost waiting for memory is not
    /// made up for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub touches_per_s: Option<u64>,
    /// Beginning of the pseudo-random numbers; 0 without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Time after which it ends by itself; without it, it runs until its kind ends or it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// Share of the touches that also write, 0 to 1; without it all do, and with files none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_share: Option<f64>,
}

/// Names of the fields of [`Common`], by which a flat table is taken apart.
const COMMON_FIELDS: [&str; 4] = ["touches_per_s", "seed", "duration_s", "write_share"];

/// What a workload does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Pattern {
    /// Grows steadily from `low` to `high` and gives back as steadily, going through all of its memory
    /// in the order of addresses all the while. An iteration is a pass.
    Mono {
        /// Smallest size.
        low: Bytes,
        /// Largest size.
        high: Bytes,
        /// Time from `low` to `high`; either this or `grow_per_s`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ramp_s: Option<f64>,
        /// Memory added each second on the way up; either this or `ramp_s`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grow_per_s: Option<Bytes>,
        /// Time it stays at `high` and, between cycles, at `low`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hold_s: Option<f64>,
        /// Times it goes up and down before it ends; without it, for ever.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cycles: Option<u32>,
    },
    /// One size; goes through all of its memory again and again in a scattered order, which neither
    /// swap readahead nor an LRU list can foresee. An iteration is a pass.
    Constant {
        /// Its size.
        size: Bytes,
    },
    /// Jumps between two sizes, going through all of its memory in the order of addresses. Begins
    /// with `low`. An iteration is a pass.
    Flux {
        /// The smaller size.
        low: Bytes,
        /// The larger size.
        high: Bytes,
        /// Time from one jump up to the next; half of it is spent at each size.
        period_s: f64,
    },
    /// Visits pages at random within an amount of memory that varies. An iteration is a new size.
    RandomArray {
        /// Sizes and when they come, from 0 on, ascending; the last one stays. Either this or `low`,
        /// `high` and `period_s`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        steps: Option<Vec<Step>>,
        /// Smallest size.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        low: Option<Bytes>,
        /// Largest size.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        high: Option<Bytes>,
        /// Time after which another size between `low` and `high` is drawn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        period_s: Option<f64>,
    },
    /// One size, in the order of addresses: what misses a little memory misses all of it under LRU.
    /// An iteration is a pass.
    Sequential {
        /// Its size.
        size: Bytes,
        /// Passes before it ends; without it, for ever.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        passes: Option<u64>,
    },
    /// Reads random pages of a file on the data disk through the page cache. An iteration is as many
    /// reads as the file has pages.
    FileRandom {
        /// Size of the file.
        size: Bytes,
    },
    /// Memory that is filled once and then hardly touched: pages at random, a share of all each second.
    /// An iteration is as many touches as it has pages.
    Cold {
        /// Its size.
        size: Bytes,
        /// Share of its pages touched each second, 0 to 1; takes the place of `touches_per_s`.
        share_per_s: f64,
    },
    /// Pages of unequal popularity: the k-th is visited in proportion to `k^-exponent`; popular ones
    /// lie scattered. An iteration is as many touches as it has pages.
    Zipf {
        /// Its size.
        size: Bytes,
        /// How unequal, 0 to 4; 0 is at random.
        exponent: f64,
    },
    /// A program that people run, asked for its data at random. Touches are keys, rows, transactions or
    /// milliseconds, whichever it counts.
    Program {
        /// Which.
        program: Program,
        /// Its data.
        size: Bytes,
    },
}

/// The largest that PostgreSQL's data can be asked to be: what its table in a guest comes to.
pub const POSTGRESQL_SIZE_MAX: Bytes = Bytes::mib(320);

/// A program that people run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// memcached: keys of a kilobyte.
    Memcached,
    /// PostgreSQL: rows of the accounts of pgbench, with which its data disk comes.
    Postgresql,
    /// redis-server and redis-benchmark: keys of a kilobyte.
    Redis,
    /// sqlite3: rows of 1.5 kB of a table in memory.
    Sqlite,
    /// `stress-ng --vm`: milliseconds of processor time.
    StressNg,
}

impl Program {
    /// The program packed into the guest.
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

/// One size of a `random-array` and when it comes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Time from the start.
    pub at_s: f64,
    /// Size from then on.
    pub size: Bytes,
}

/// The kinds of workload, without their parameters.
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
}

impl Pattern {
    /// Its kind.
    pub const fn kind(&self) -> Kind {
        match self {
            Pattern::Mono { .. } => Kind::Mono,
            Pattern::Constant { .. } => Kind::Constant,
            Pattern::Flux { .. } => Kind::Flux,
            Pattern::RandomArray { .. } => Kind::RandomArray,
            Pattern::Sequential { .. } => Kind::Sequential,
            Pattern::FileRandom { .. } => Kind::FileRandom,
            Pattern::Cold { .. } => Kind::Cold,
            Pattern::Zipf { .. } => Kind::Zipf,
            Pattern::Program { .. } => Kind::Program,
        }
    }
}

impl From<Pattern> for WorkloadSpec {
    /// At full speed, with seed 0 and no end of its own.
    fn from(pattern: Pattern) -> Self {
        WorkloadSpec { pattern, common: Common::default() }
    }
}

/// Flat tables are taken apart by hand because serde cannot both flatten and refuse unknown fields.
impl<'de> Deserialize<'de> for WorkloadSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = serde_json::Map::deserialize(deserializer)?;
        let (common, pattern): (serde_json::Map<_, _>, serde_json::Map<_, _>) =
            all.into_iter().partition(|(name, _)| COMMON_FIELDS.contains(&name.as_str()));
        Ok(WorkloadSpec {
            pattern: Pattern::deserialize(serde_json::Value::from(pattern))
                .map_err(D::Error::custom)?,
            common: Common::deserialize(serde_json::Value::from(common))
                .map_err(D::Error::custom)?,
        })
    }
}

/// Why a workload cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// A size is less than a page or absurdly large.
    #[error("{field} = {size}: expected {PAGE_SIZE}B to {SIZE_MAX}")]
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
    /// A time, rate or share is out of its range.
    #[error("{field} = {value}: expected {expected}")]
    Number {
        /// Its field.
        field: &'static str,
        /// What it says.
        value: f64,
        /// What it may be.
        expected: &'static str,
    },
    /// Fields that exclude each other are both there, or both missing.
    #[error("expected exactly one of {one} and {other}")]
    OneOf {
        /// The one.
        one: &'static str,
        /// The other.
        other: &'static str,
    },
    /// The steps are none, too many or out of order.
    #[error("steps: expected 1 to {STEPS_MAX}, at_s ascending from 0")]
    Steps,
    /// The rate of a kind that has a rate of its own.
    #[error("touches_per_s does not go with kind = \"cold\": share_per_s is its rate")]
    RateOfCold,
    /// More data than PostgreSQL has in a guest.
    #[error("size = {size}: PostgreSQL has {POSTGRESQL_SIZE_MAX} in a guest")]
    Postgresql {
        /// What it says.
        size: Bytes,
    },
    /// A program cannot be told that.
    #[error("{field} does not go with kind = \"program\": a program goes its own way")]
    OfProgram {
        /// The field.
        field: &'static str,
    },
}

impl WorkloadSpec {
    /// Whether every value is in its range.
    ///
    /// # Errors
    /// The first [`SpecError`] found.
    pub fn validate(&self) -> Result<(), SpecError> {
        let common = &self.common;
        if let Some(rate) = common.touches_per_s {
            in_range("touches_per_s", rate as f64, 1.0, RATE_MAX as f64, "1 to 1e9")?;
        }
        if let Some(duration_s) = common.duration_s {
            time("duration_s", duration_s)?;
        }
        if let Some(share) = common.write_share {
            in_range("write_share", share, 0.0, 1.0, "0 to 1")?;
        }
        if common.touches_per_s.is_some() && matches!(self.pattern, Pattern::Cold { .. }) {
            return Err(SpecError::RateOfCold);
        }
        if matches!(self.pattern, Pattern::Program { .. }) {
            let fields = [
                ("touches_per_s", common.touches_per_s.is_some()),
                ("seed", common.seed.is_some()),
                ("write_share", common.write_share.is_some()),
            ];
            if let Some((field, _)) = fields.into_iter().find(|(_, is_there)| *is_there) {
                return Err(SpecError::OfProgram { field });
            }
        }
        self.pattern.validate()
    }
}

impl Pattern {
    fn validate(&self) -> Result<(), SpecError> {
        match self {
            Pattern::Mono { low, high, ramp_s, grow_per_s, hold_s, cycles } => {
                low_high(*low, *high)?;
                match (ramp_s, grow_per_s) {
                    (Some(ramp_s), None) => time("ramp_s", *ramp_s)?,
                    (None, Some(step)) => size("grow_per_s", *step)?,
                    _ => return Err(SpecError::OneOf { one: "ramp_s", other: "grow_per_s" }),
                }
                if let Some(hold_s) = hold_s {
                    in_range("hold_s", *hold_s, 0.0, TIME_S_MAX, "0 to 1e6 seconds")?;
                }
                match cycles {
                    Some(0) => Err(number("cycles", 0.0, "at least 1")),
                    _ => Ok(()),
                }
            }
            Pattern::Program { program: Program::Postgresql, size: it }
                if *it > POSTGRESQL_SIZE_MAX =>
            {
                Err(SpecError::Postgresql { size: *it })
            }
            Pattern::Constant { size: it }
            | Pattern::FileRandom { size: it }
            | Pattern::Program { size: it, .. } => size("size", *it),
            Pattern::Flux { low, high, period_s } => {
                low_high(*low, *high)?;
                time("period_s", *period_s)
            }
            Pattern::RandomArray { steps: Some(steps), low: None, high: None, period_s: None } => {
                validate_steps(steps)
            }
            Pattern::RandomArray {
                steps: None,
                low: Some(low),
                high: Some(high),
                period_s: Some(period_s),
            } => {
                low_high(*low, *high)?;
                time("period_s", *period_s)
            }
            Pattern::RandomArray { .. } => {
                Err(SpecError::OneOf { one: "steps", other: "low, high and period_s together" })
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
                in_range("share_per_s", *share_per_s, 0.0, 1.0, "0 to 1")
            }
            Pattern::Zipf { size: it, exponent } => {
                size("size", *it)?;
                in_range("exponent", *exponent, 0.0, 4.0, "0 to 4")
            }
        }
    }
}

fn validate_steps(steps: &[Step]) -> Result<(), SpecError> {
    for step in steps {
        in_range("at_s", step.at_s, 0.0, TIME_S_MAX, "0 to 1e6 seconds")?;
        size("size", step.size)?;
    }
    let ascending = steps.windows(2).all(|pair| pair[0].at_s < pair[1].at_s);
    match steps.first() {
        Some(first) if first.at_s == 0.0 && ascending && steps.len() <= STEPS_MAX => Ok(()),
        _ => Err(SpecError::Steps),
    }
}

fn number(field: &'static str, value: f64, expected: &'static str) -> SpecError {
    SpecError::Number { field, value, expected }
}

fn in_range(
    field: &'static str,
    value: f64,
    least: f64,
    most: f64,
    expected: &'static str,
) -> Result<(), SpecError> {
    // Not a number is in no range.
    if (least..=most).contains(&value) { Ok(()) } else { Err(number(field, value, expected)) }
}

/// A millisecond is the finest time a schedule can keep to.
fn time(field: &'static str, value: f64) -> Result<(), SpecError> {
    in_range(field, value, 0.001, TIME_S_MAX, "0.001 to 1e6 seconds")
}

fn size(field: &'static str, it: Bytes) -> Result<(), SpecError> {
    if (Bytes::pages(1)..=SIZE_MAX).contains(&it) {
        Ok(())
    } else {
        Err(SpecError::Size { field, size: it })
    }
}

fn low_high(low: Bytes, high: Bytes) -> Result<(), SpecError> {
    size("low", low)?;
    size("high", high)?;
    if low > high { Err(SpecError::LowOverHigh { low, high }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<WorkloadSpec, String> {
        let spec: WorkloadSpec = serde_json::from_str(text).map_err(|error| error.to_string())?;
        spec.validate().map_err(|error| error.to_string())?;
        Ok(spec)
    }

    /// One of each kind, as an operator writes them.
    const EXAMPLES: [&str; 13] = [
        r#"{"kind":"mono","low":"100MiB","high":"300MiB","ramp_s":30,"hold_s":5,"cycles":2}"#,
        r#"{"kind":"mono","low":4096,"high":"1GiB","grow_per_s":"10MiB","duration_s":60}"#,
        r#"{"kind":"constant","size":"100MiB","touches_per_s":1000,"seed":7,"write_share":0.5}"#,
        r#"{"kind":"flux","low":"50MiB","high":"200MiB","period_s":20}"#,
        r#"{"kind":"random-array","steps":[{"at_s":0,"size":"1MiB"},{"at_s":5,"size":"9MiB"}]}"#,
        r#"{"kind":"random-array","low":"1MiB","high":"9MiB","period_s":2.5}"#,
        r#"{"kind":"sequential","size":"64MiB","passes":10}"#,
        r#"{"kind":"file-random","size":"64MiB"}"#,
        r#"{"kind":"cold","size":"64MiB","share_per_s":0.01}"#,
        r#"{"kind":"zipf","size":"64MiB","exponent":1.1}"#,
        r#"{"kind":"program","program":"stress-ng","size":"64MiB","duration_s":9}"#,
        r#"{"kind":"program","program":"memcached","size":"64MiB"}"#,
        r#"{"kind":"program","program":"postgresql","size":"200MiB"}"#,
    ];

    #[test]
    fn reads_every_kind_and_writes_what_reads_back() {
        for text in EXAMPLES {
            let spec = read(text).unwrap();
            let written = serde_json::to_string(&spec).unwrap();
            assert_eq!(read(&written), Ok(spec), "{text} became {written}");
        }
    }

    #[test]
    fn reads_from_toml_too() {
        let spec: WorkloadSpec =
            toml::from_str("kind = \"constant\"\nsize = \"1MiB\"\nduration_s = 3.5").unwrap();
        assert_eq!(spec.pattern, Pattern::Constant { size: Bytes::mib(1) });
        assert_eq!(spec.common.duration_s, Some(3.5));
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, expected) in [
            (r#"{"kind":"spiral"}"#, "unknown variant `spiral`"),
            (r#"{"size":"1MiB"}"#, "missing field `kind`"),
            (r#"{"kind":"constant"}"#, "missing field `size`"),
            (r#"{"kind":"constant","size":"1MiB","sise":1}"#, "unknown field `sise`"),
            (r#"{"kind":"constant","size":"5GB"}"#, "decimal unit"),
            (r#"{"kind":"constant","size":0}"#, "size = 0B"),
            (r#"{"kind":"constant","size":"9999TiB"}"#, "size = 9999TiB"),
            (r#"{"kind":"constant","size":"1MiB","touches_per_s":0}"#, "touches_per_s = 0"),
            (r#"{"kind":"constant","size":"1MiB","duration_s":0}"#, "duration_s = 0"),
            (r#"{"kind":"constant","size":"1MiB","write_share":1.1}"#, "write_share = 1.1"),
            (r#"{"kind":"zipf","size":"1MiB","exponent":5}"#, "exponent = 5"),
            (r#"{"kind":"flux","low":"2MiB","high":"1MiB","period_s":1}"#, "low = 2MiB"),
            (r#"{"kind":"flux","low":"1MiB","high":"1MiB","period_s":-1}"#, "period_s = -1"),
            (r#"{"kind":"mono","low":"1MiB","high":"2MiB"}"#, "exactly one of ramp_s"),
            (
                r#"{"kind":"mono","low":"1MiB","high":"2MiB","ramp_s":1,"grow_per_s":"1MiB"}"#,
                "exactly one of ramp_s",
            ),
            (r#"{"kind":"mono","low":"1MiB","high":"2MiB","ramp_s":1,"cycles":0}"#, "cycles = 0"),
            (r#"{"kind":"random-array"}"#, "exactly one of steps"),
            (r#"{"kind":"random-array","low":"1MiB","period_s":1}"#, "exactly one of steps"),
            (r#"{"kind":"random-array","steps":[]}"#, "steps: expected 1 to"),
            (r#"{"kind":"random-array","steps":[{"at_s":1,"size":"1MiB"}]}"#, "ascending from 0"),
            (r#"{"kind":"sequential","size":"1MiB","passes":0}"#, "passes = 0"),
            (r#"{"kind":"cold","size":"1MiB","share_per_s":2}"#, "share_per_s = 2"),
            (
                r#"{"kind":"cold","size":"1MiB","share_per_s":0,"touches_per_s":1}"#,
                "share_per_s is its rate",
            ),
            (r#"{"kind":"program","program":"emacs","size":"1MiB"}"#, "unknown variant `emacs`"),
            (
                r#"{"kind":"program","program":"redis","size":"1MiB","touches_per_s":9}"#,
                "touches_per_s does not go with",
            ),
            (
                r#"{"kind":"program","program":"postgresql","size":"400MiB"}"#,
                "size = 400MiB: PostgreSQL has 320MiB in a guest",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text}: `{error}` lacks `{expected}`");
        }
    }

    #[test]
    fn a_number_that_is_none_is_in_no_range() {
        let mut spec = WorkloadSpec::from(Pattern::Constant { size: Bytes::mib(1) });
        for value in [f64::NAN, f64::INFINITY, -0.1] {
            spec.common.duration_s = Some(value);
            assert!(spec.validate().is_err(), "{value}");
        }
    }

    proptest! {
        #[test]
        fn rubbish_is_refused_without_panic(text in ".{0,120}") {
            let _ = read(&text);
        }
    }
}
