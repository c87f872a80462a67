//! A guest's workload in a scenario file.
//!
//! Idea: a flat table with a `kind`, as in the lab, whose own reader takes the kinds that the lab
//! has; the others are told apart by their names before. `phases` holds tables of all of them.
//! Limits: form and the values that cannot be held at all are judged here, the rest by the
//! simulator; inside a table the place of a mistake is the table's.

use std::sync::Arc;
use std::time::Duration;

use ballast_lab_guest::workload::{Pattern as LabPattern, Program, WorkloadSpec};
use ballast_model::{Bytes, MissCurve};
use ballast_sim::{Pattern, Phase, Step, TracePoint, Workload};
use ballast_toml_strict::duration;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Every kind, the lab's first.
const KINDS: [&str; 12] = [
    "mono",
    "constant",
    "flux",
    "random-array",
    "sequential",
    "file-random",
    "cold",
    "zipf",
    "program",
    "miss-curve",
    "trace",
    "phases",
];
/// Shortest ramp: the simulator's shortest span.
const RAMP_MIN: Duration = Duration::from_millis(1);

/// A workload and when it begins, as a scenario file has it.
#[derive(Debug, Deserialize)]
pub(super) struct WorkloadTable {
    /// Time from the beginning; 0 without it.
    #[serde(default, with = "duration")]
    pub(super) at: Duration,
    /// Its name in the lab.
    #[serde(default, rename = "id")]
    _id: Option<String>,
    /// What it does.
    #[serde(flatten)]
    pub(super) workload: Read,
}

/// A workload as it was read.
#[derive(Debug)]
pub(super) struct Read(pub(super) Workload);

/// What all kinds share; see `ballast_lab_guest::workload::Common`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Common {
    touches_per_s: Option<u64>,
    seed: Option<u64>,
    duration_s: Option<f64>,
    write_share: Option<f64>,
}

/// Fields of [`Common`], by which a flat table is taken apart.
const COMMON_FIELDS: [&str; 4] = ["touches_per_s", "seed", "duration_s", "write_share"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Zipf {
    size: Bytes,
    exponent: f64,
    #[serde(default)]
    file: bool,
}

/// Miss ratios at 0, `step`, `2 step`, …, of so many references a second.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Curve {
    step: Bytes,
    ratios: Vec<f64>,
    references_per_s: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Trace {
    points: Vec<Point>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Point {
    at_s: f64,
    working_set: Bytes,
    #[serde(default)]
    touches_per_s: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Phases {
    phases: Vec<Map<String, Value>>,
    #[serde(default)]
    repeat: bool,
}

#[derive(Deserialize)]
struct PhaseTable {
    #[serde(with = "duration")]
    duration: Duration,
    #[serde(flatten)]
    pattern: Map<String, Value>,
}

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let table = Map::deserialize(deserializer)?;
        if let Some(key) = table.iter().find_map(|(key, value)| not_finite(key, value)) {
            let message = format!("{key} is not a finite number");
            return Err(serde::de::Error::custom(message));
        }
        let kind = table.get("kind").and_then(Value::as_str);
        if let Some(unknown) = kind.filter(|kind| !KINDS.contains(kind)) {
            return Err(D::Error::unknown_variant(unknown, &KINDS));
        }
        workload(table).map(Read).map_err(D::Error::custom)
    }
}

/// Where a number is infinite or none: TOML has such and JSON does not, so here it is null, which TOML
/// has not.
fn not_finite(key: &str, value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(key.to_owned()),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(place, item)| not_finite(&format!("{key}[{place}]"), item)),
        Value::Object(table) => {
            table.iter().find_map(|(name, item)| not_finite(&format!("{key}.{name}"), item))
        }
        _ => None,
    }
}

fn workload(table: Map<String, Value>) -> Result<Workload, String> {
    let (common, own): (Map<_, _>, Map<_, _>) =
        table.into_iter().partition(|(name, _)| COMMON_FIELDS.contains(&name.as_str()));
    let common: Common = read(common)?;
    Ok(Workload {
        pattern: pattern(own)?,
        touches_per_s: common.touches_per_s,
        write_share: common.write_share,
        duration: common.duration_s.map(|s| seconds("duration_s", s)).transpose()?,
        seed: common.seed.unwrap_or(0),
    })
}

fn read<T: DeserializeOwned>(table: Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(table)).map_err(|error| error.to_string())
}

fn pattern(mut table: Map<String, Value>) -> Result<Pattern, String> {
    let kind = match table.get("kind") {
        Some(Value::String(kind)) => kind.clone(),
        Some(_) => return Err("kind: expected a text".to_owned()),
        None => return Err("missing field `kind`".to_owned()),
    };
    let of_simulator = ["zipf", "miss-curve", "trace", "phases"].contains(&kind.as_str());
    if !of_simulator {
        let spec: WorkloadSpec = read(table)?;
        spec.validate().map_err(|error| error.to_string())?;
        return from_lab(spec.pattern);
    }
    table.remove("kind");
    match kind.as_str() {
        "zipf" => {
            read(table).map(|Zipf { size, exponent, file }| Pattern::Zipf { size, exponent, file })
        }
        "miss-curve" => {
            let Curve { step, ratios, references_per_s } = read(table)?;
            let second = Duration::from_secs(1);
            let curve = MissCurve::from_ratios(step, second, references_per_s, &ratios)
                .map_err(|error| error.to_string())?;
            Ok(Pattern::Curve { curve: Arc::new(curve) })
        }
        "trace" => {
            let Trace { points } = read(table)?;
            let points: Result<Vec<TracePoint>, String> = points.into_iter().map(point).collect();
            Ok(Pattern::Trace { points: points? })
        }
        _ => {
            let Phases { phases, repeat } = read(table)?;
            let phases: Result<Vec<Phase>, String> = phases.into_iter().map(phase).collect();
            Ok(Pattern::Phases { phases: phases?, repeat })
        }
    }
}

fn point(point: Point) -> Result<TracePoint, String> {
    let Point { at_s, working_set, touches_per_s } = point;
    Ok(TracePoint { at: seconds("at_s", at_s)?, working_set, touches_per_s })
}

fn phase(table: Map<String, Value>) -> Result<Phase, String> {
    let PhaseTable { duration, pattern: table } = read(table)?;
    // Before reading further: nesting has no depth that way.
    if table.get("kind").and_then(Value::as_str) == Some("phases") {
        return Err("a phase with phases of its own: expected any other kind".to_owned());
    }
    Ok(Phase { duration, pattern: pattern(table)? })
}

/// Times of the lab's patterns are in range once they are validated.
fn from_lab(pattern: LabPattern) -> Result<Pattern, String> {
    Ok(match pattern {
        LabPattern::Mono { low, high, ramp_s, grow_per_s, hold_s, cycles } => {
            let ramp = match (ramp_s, grow_per_s) {
                (Some(ramp_s), _) => seconds("ramp_s", ramp_s)?,
                (None, Some(step)) => {
                    let growth = high.saturating_sub(low).get() as f64;
                    seconds("grow_per_s", growth / step.get().max(1) as f64)?
                }
                (None, None) => RAMP_MIN,
            };
            let hold = seconds("hold_s", hold_s.unwrap_or(0.0))?;
            Pattern::Mono { low, high, ramp: ramp.max(RAMP_MIN), hold, cycles }
        }
        LabPattern::Constant { size } => Pattern::Constant { size },
        LabPattern::Flux { low, high, period_s } => {
            Pattern::Flux { low, high, period: seconds("period_s", period_s)? }
        }
        LabPattern::RandomArray { steps: Some(steps), .. } => {
            let step = |step: &ballast_lab_guest::workload::Step| {
                Ok(Step { at: seconds("at_s", step.at_s)?, size: step.size })
            };
            let steps: Result<Vec<Step>, String> = steps.iter().map(step).collect();
            Pattern::RandomSteps { steps: steps? }
        }
        LabPattern::RandomArray { steps: None, low, high, period_s } => Pattern::RandomDrawn {
            low: low.unwrap_or_default(),
            high: high.unwrap_or_default(),
            period: seconds("period_s", period_s.unwrap_or(0.0))?,
        },
        LabPattern::Sequential { size, passes } => Pattern::Sequential { size, passes },
        LabPattern::FileRandom { size } => Pattern::FileRandom { size },
        LabPattern::Cold { size, share_per_s } => Pattern::Cold { size, share_per_s },
        LabPattern::Zipf { size, exponent } => Pattern::Zipf { size, exponent, file: false },
        // All of them are asked for their data at random; this one has most of it in the page cache.
        LabPattern::Program { program: Program::Postgresql, size } => Pattern::FileRandom { size },
        LabPattern::Program { size, .. } => {
            Pattern::RandomSteps { steps: vec![Step { at: Duration::ZERO, size }] }
        }
    })
}

fn seconds(field: &str, value: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| format!("{field} = {value}: expected seconds, 0 or more"))
}
