//! Workloads in the form in which scenario files and the lab protocol have them.
//!
//! Idea: a flat table with a `kind` and times in seconds: `{"kind": "mono", "low": "100MiB",
//! "high": "300MiB", "ramp_s": 30, "cycles": 2}`. Limits: reading checks the form only; see
//! [`WorkloadSpec::validate`]. Patterns that only the simulator runs can be read but not written,
//! because the lab protocol never carries them.

use std::sync::Arc;
use std::time::Duration;

use ballast_model::{Bytes, MissCurve};
use serde::de::{DeserializeOwned, Error as _};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::pattern::{Pace, Pattern, Phase, Program, Ramp, Step, TracePoint, WorkloadSpec};

/// The fields that all kinds share.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommonTable {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    touches_per_s: Option<u64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    seed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    duration_s: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    write_share: Option<f64>,
}

/// Names of the fields of [`CommonTable`].
const COMMON_FIELDS: [&str; 4] = ["touches_per_s", "seed", "duration_s", "write_share"];

/// The fields of each kind; see [`Pattern`] for what they mean.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum PatternTable {
    Mono {
        low: Bytes,
        high: Bytes,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ramp_s: Option<f64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grow_per_s: Option<Bytes>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hold_s: Option<f64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cycles: Option<u32>,
    },
    Constant {
        size: Bytes,
    },
    Flux {
        low: Bytes,
        high: Bytes,
        period_s: f64,
    },
    /// Either `steps`, or the other three.
    RandomArray {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        steps: Option<Vec<StepTable>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        low: Option<Bytes>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        high: Option<Bytes>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        period_s: Option<f64>,
    },
    Sequential {
        size: Bytes,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        passes: Option<u64>,
    },
    FileRandom {
        size: Bytes,
    },
    Cold {
        size: Bytes,
        share_per_s: f64,
    },
    Zipf {
        size: Bytes,
        exponent: f64,
        #[serde(default, skip_serializing_if = "is_false")]
        file: bool,
    },
    Program {
        program: Program,
        size: Bytes,
    },
    /// Miss ratios at 0, `step`, `2 step`, …, of `references_per_s` references.
    MissCurve {
        step: Bytes,
        ratios: Vec<f64>,
        references_per_s: u64,
    },
    Trace {
        points: Vec<PointTable>,
    },
    Phases {
        phases: Vec<Map<String, Value>>,
        #[serde(default)]
        repeat: bool,
        #[serde(default)]
        pace: Pace,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepTable {
    at_s: f64,
    size: Bytes,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PointTable {
    at_s: f64,
    working_set: Bytes,
    #[serde(default)]
    touches_per_s: Option<u64>,
}

#[derive(Deserialize)]
struct PhaseTable {
    #[serde(with = "ballast_toml_strict::duration")]
    duration: Duration,
    #[serde(flatten)]
    pattern: Map<String, Value>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Splits flat tables by hand because serde cannot both flatten and refuse unknown fields.
impl<'de> Deserialize<'de> for WorkloadSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let table = Map::deserialize(deserializer)?;
        for (key, value) in &table {
            if let Some(place) = not_finite(key, value) {
                return Err(D::Error::custom(format!("{place} is not a finite number")));
            }
        }
        read_workload(table).map_err(D::Error::custom)
    }
}

/// The place of a number that is infinite or NaN. TOML has such numbers; JSON does not, so here
/// they are null, which TOML does not have.
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

fn read_workload(table: Map<String, Value>) -> Result<WorkloadSpec, String> {
    let (common, own): (Map<_, _>, Map<_, _>) =
        table.into_iter().partition(|(name, _)| COMMON_FIELDS.contains(&name.as_str()));
    let common: CommonTable = from_map(common)?;
    Ok(WorkloadSpec {
        pattern: read_pattern(own)?,
        touches_per_s: common.touches_per_s,
        seed: common.seed,
        duration: common.duration_s.map(|s| seconds("duration_s", s)).transpose()?,
        write_share: common.write_share,
    })
}

fn read_pattern(table: Map<String, Value>) -> Result<Pattern, String> {
    if table.get("kind").is_some_and(|kind| !kind.is_string()) {
        return Err("kind: expected a text".to_owned());
    }
    let table: PatternTable = from_map(table)?;
    Ok(match table {
        PatternTable::Mono { low, high, ramp_s, grow_per_s, hold_s, cycles } => {
            let ramp = match (ramp_s, grow_per_s) {
                (Some(ramp_s), None) => Ramp::Time(seconds("ramp_s", ramp_s)?),
                (None, Some(step)) => Ramp::GrowthPerS(step),
                _ => return Err("expected exactly one of ramp_s and grow_per_s".to_owned()),
            };
            let hold = seconds("hold_s", hold_s.unwrap_or(0.0))?;
            Pattern::Mono { low, high, ramp, hold, cycles }
        }
        PatternTable::Constant { size } => Pattern::Constant { size },
        PatternTable::Flux { low, high, period_s } => {
            Pattern::Flux { low, high, period: seconds("period_s", period_s)? }
        }
        PatternTable::RandomArray { steps: Some(steps), low: None, high: None, period_s: None } => {
            let steps: Result<_, String> = steps.into_iter().map(read_step).collect();
            Pattern::RandomSteps { steps: steps? }
        }
        PatternTable::RandomArray {
            steps: None,
            low: Some(low),
            high: Some(high),
            period_s: Some(period_s),
        } => Pattern::RandomDrawn { low, high, period: seconds("period_s", period_s)? },
        PatternTable::RandomArray { .. } => {
            let message = "expected exactly one of steps and low, high and period_s together";
            return Err(message.to_owned());
        }
        PatternTable::Sequential { size, passes } => Pattern::Sequential { size, passes },
        PatternTable::FileRandom { size } => Pattern::FileRandom { size },
        PatternTable::Cold { size, share_per_s } => Pattern::Cold { size, share_per_s },
        PatternTable::Zipf { size, exponent, file } => Pattern::Zipf { size, exponent, file },
        PatternTable::Program { program, size } => Pattern::Program { program, size },
        PatternTable::MissCurve { step, ratios, references_per_s } => {
            let second = Duration::from_secs(1);
            let curve = MissCurve::from_ratios(step, second, references_per_s, &ratios)
                .map_err(|error| error.to_string())?;
            Pattern::Curve { curve: Arc::new(curve) }
        }
        PatternTable::Trace { points } => {
            let points: Result<_, String> = points.into_iter().map(read_point).collect();
            Pattern::Trace { points: points? }
        }
        PatternTable::Phases { phases, repeat, pace } => {
            let phases: Result<_, String> = phases.into_iter().map(read_phase).collect();
            Pattern::Phases { phases: phases?, repeat, pace }
        }
    })
}

fn read_step(StepTable { at_s, size }: StepTable) -> Result<Step, String> {
    Ok(Step { at: seconds("at_s", at_s)?, size })
}

fn read_point(point: PointTable) -> Result<TracePoint, String> {
    let PointTable { at_s, working_set, touches_per_s } = point;
    Ok(TracePoint { at: seconds("at_s", at_s)?, working_set, touches_per_s })
}

fn read_phase(table: Map<String, Value>) -> Result<Phase, String> {
    let PhaseTable { duration, pattern } = from_map(table)?;
    // Checked before reading on, so that nested tables cannot exhaust the stack.
    if pattern.get("kind").and_then(Value::as_str) == Some("phases") {
        return Err("a phase with phases of its own: expected any other kind".to_owned());
    }
    Ok(Phase { duration, pattern: read_pattern(pattern)? })
}

fn from_map<T: DeserializeOwned>(table: Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(table)).map_err(|error| error.to_string())
}

fn seconds(field: &str, value: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| format!("{field} = {value}: expected seconds, 0 or more"))
}

/// A workload in one flat table.
#[derive(Serialize)]
struct FlatTable {
    #[serde(flatten)]
    pattern: PatternTable,
    #[serde(flatten)]
    common: CommonTable,
}

impl Serialize for WorkloadSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let pattern = write_pattern(&self.pattern).ok_or_else(|| {
            S::Error::custom("a workload that only the simulator runs is not written")
        })?;
        let common = CommonTable {
            touches_per_s: self.touches_per_s,
            seed: self.seed,
            duration_s: self.duration.map(|duration| duration.as_secs_f64()),
            write_share: self.write_share,
        };
        FlatTable { pattern, common }.serialize(serializer)
    }
}

/// The table of a pattern; `None` where only the simulator runs it.
fn write_pattern(pattern: &Pattern) -> Option<PatternTable> {
    Some(match pattern {
        Pattern::Mono { low, high, ramp, hold, cycles } => {
            let (ramp_s, grow_per_s) = match ramp {
                Ramp::Time(ramp) => (Some(ramp.as_secs_f64()), None),
                Ramp::GrowthPerS(step) => (None, Some(*step)),
            };
            let hold_s = (!hold.is_zero()).then_some(hold.as_secs_f64());
            let (low, high, cycles) = (*low, *high, *cycles);
            PatternTable::Mono { low, high, ramp_s, grow_per_s, hold_s, cycles }
        }
        Pattern::Constant { size } => PatternTable::Constant { size: *size },
        Pattern::Flux { low, high, period } => {
            PatternTable::Flux { low: *low, high: *high, period_s: period.as_secs_f64() }
        }
        Pattern::RandomSteps { steps } => {
            let step = |step: &Step| StepTable { at_s: step.at.as_secs_f64(), size: step.size };
            let steps = Some(steps.iter().map(step).collect());
            PatternTable::RandomArray { steps, low: None, high: None, period_s: None }
        }
        Pattern::RandomDrawn { low, high, period } => PatternTable::RandomArray {
            steps: None,
            low: Some(*low),
            high: Some(*high),
            period_s: Some(period.as_secs_f64()),
        },
        Pattern::Sequential { size, passes } => {
            PatternTable::Sequential { size: *size, passes: *passes }
        }
        Pattern::FileRandom { size } => PatternTable::FileRandom { size: *size },
        Pattern::Cold { size, share_per_s } => {
            PatternTable::Cold { size: *size, share_per_s: *share_per_s }
        }
        Pattern::Zipf { size, exponent, file } => {
            PatternTable::Zipf { size: *size, exponent: *exponent, file: *file }
        }
        Pattern::Program { program, size } => {
            PatternTable::Program { program: *program, size: *size }
        }
        Pattern::Curve { .. } | Pattern::Trace { .. } | Pattern::Phases { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<WorkloadSpec, String> {
        let spec: WorkloadSpec = serde_json::from_str(text).map_err(|error| error.to_string())?;
        spec.validate_for_guest().map_err(|error| error.to_string())?;
        Ok(spec)
    }

    /// Each kind that a guest runs, as an operator writes it.
    const EXAMPLES: [&str; 13] = [
        r#"{"kind":"mono","low":"100MiB","high":"300MiB","ramp_s":30.0,"hold_s":5.1,"cycles":2}"#,
        r#"{"kind":"mono","low":"4KiB","high":"1GiB","grow_per_s":"10MiB","duration_s":60.0}"#,
        r#"{"kind":"constant","size":"100MiB","touches_per_s":1000,"seed":7,"write_share":0.5}"#,
        r#"{"kind":"flux","low":"50MiB","high":"200MiB","period_s":20.0}"#,
        r#"{"kind":"random-array","steps":[{"at_s":0.0,"size":"1MiB"},{"at_s":5.0,"size":"9MiB"}]}"#,
        r#"{"kind":"random-array","low":"1MiB","high":"9MiB","period_s":2.5}"#,
        r#"{"kind":"sequential","size":"64MiB","passes":10}"#,
        r#"{"kind":"file-random","size":"64MiB"}"#,
        r#"{"kind":"cold","size":"64MiB","share_per_s":0.01}"#,
        r#"{"kind":"zipf","size":"64MiB","exponent":1.1}"#,
        r#"{"kind":"program","program":"stress-ng","size":"64MiB","duration_s":9.0}"#,
        r#"{"kind":"program","program":"memcached","size":"64MiB"}"#,
        r#"{"kind":"program","program":"postgresql","size":"200MiB"}"#,
    ];

    #[test]
    fn every_kind_is_written_as_it_was_read() {
        for text in EXAMPLES {
            assert_eq!(serde_json::to_string(&read(text).unwrap()).unwrap(), text);
        }
    }

    #[test]
    fn tables_read_from_toml() {
        let text = "kind = \"constant\"\nsize = \"1MiB\"\nduration_s = 3.5";
        let spec: WorkloadSpec = toml::from_str(text).unwrap();
        assert_eq!(spec.pattern, Pattern::Constant { size: Bytes::mib(1) });
        assert_eq!(spec.duration, Some(Duration::from_millis(3500)));
    }

    #[test]
    fn numbers_that_are_not_finite_are_named() {
        let text = "kind = \"random-array\"\nsteps = [{at_s = nan, size = \"1MiB\"}]";
        let error = toml::from_str::<WorkloadSpec>(text).unwrap_err().to_string();
        assert!(error.contains("steps[0].at_s is not a finite number"), "{error}");
    }

    #[test]
    fn each_mistake_is_named_with_its_field() {
        for (text, expected) in [
            (r#"{"kind":"spiral"}"#, "unknown variant `spiral`"),
            (r#"{"kind":7}"#, "kind: expected a text"),
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
            (r#"{"kind":"zipf","size":"1MiB","exponent":1,"file":true}"#, "only in the simulator"),
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
                r#"{"kind":"program","program":"postgresql","size":"500MiB"}"#,
                "size = 500MiB: PostgreSQL has 400MiB in a guest",
            ),
            (r#"{"kind":"trace","points":[]}"#, "runs only in the simulator"),
            (r#"{"kind":"phases","phases":[{"duration":3}]}"#, "3 has no unit"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text}: `{error}` lacks `{expected}`");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_panic(text in ".{0,120}") {
            let _ = read(&text);
        }
    }
}
