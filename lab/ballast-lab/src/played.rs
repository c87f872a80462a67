//! Plays a scenario on real guests part by part; each part is kept as soon as it is over.
//!
//! Idea: `lab run` and `evaluate` keep the same parts under the same names, so each can use what
//! the other has played. A part stays valid as long as the program is the same and everything in
//! the scenario that affects the part; other contestants and figures of papers may change.

use std::time::Instant;

use ballast_lab_host::Scenario;
use ballast_scenario_run::part::{Part, parts, record};
use ballast_scenario_run::record::Record;
use ballast_scenario_run::{Call, Live, play_part};

use crate::COMMIT;
use crate::state::{self, Fingerprint, State};

/// The name under which `part` of the scenario `scenario` is kept.
pub(crate) fn name(scenario: &str, part: &Part, repetition: u32) -> String {
    state::plain_name(&format!("lab run {scenario} {} {repetition}", part.name()))
}

/// The fingerprint of `part`; `program` is the hash of the program's file.
pub(crate) fn fingerprint(
    scenario: &Scenario,
    part: &Part,
    repetition: u32,
    program: u64,
) -> Fingerprint {
    Fingerprint::new(&(part.identity(scenario), repetition), &[], program)
}

/// Plays every part of `scenario` that `state` does not have; `description` says what it is about.
///
/// # Errors
/// Anything needed is missing, a part fails, or its result cannot be kept. Parts played before that
/// are kept.
pub(crate) async fn play(
    scenario: &Scenario,
    description: &str,
    state: Option<&State>,
) -> anyhow::Result<Record> {
    let (call, program) = (Call::begin(COMMIT), state.map(|_| state::program()).transpose()?);
    let of_repetition =
        |repetition| parts(scenario, repetition).into_iter().map(move |part| (part, repetition));
    let all: Vec<(Part, u32)> = (1..=scenario.repetitions).flat_map(of_repetition).collect();
    let mut live = Live::default();
    let mut played = Vec::new();
    for (number, (part, repetition)) in (1..).zip(&all) {
        let key = name(scenario.name.as_str(), part, *repetition);
        let own = program.map(|program| fingerprint(scenario, part, *repetition, program));
        let kept =
            state.zip(own).and_then(|(state, own)| state.read(&key).filter(|it| it.is_of(own)));
        if let Some(kept) = kept {
            live.say(&format!(
                "kept since {}: {}, repetition {repetition}",
                kept.ended_at,
                part.name()
            ));
            played.push(serde_json::from_value(kept.result)?);
            continue;
        }
        let (began, place) = (Instant::now(), (number, all.len()));
        let part = play_part(scenario, part, *repetition, place, &call, &mut live).await?;
        if let (Some(state), Some(own)) = (state, own) {
            state.keep(&key, own, began.elapsed().as_secs_f64(), serde_json::to_value(&part)?)?;
        }
        played.push(part);
    }
    record(scenario, description, played)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;

    const SCENARIO: &str = r#"
name = "tiny"
duration = "30s"
policies = ["static", "global"]
repetitions = 2
host = { budget = "512MiB" }
[[guests]]
name = "a"
memory = "512MiB"
"#;

    fn run(policy: &str, repetition: u32) -> Value {
        let origin = json!({"began_at": "T1", "call_at": "T0", "commit": null});
        let run = json!({
            "policy": policy, "repetition": repetition, "origin": origin, "measured_s": 30.0,
            "guests": [], "remarks": [],
        });
        let machine = json!({"accelerator": "tcg", "ballast": "0"});
        json!({"run": {"machine": machine, "run": run}})
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_is_kept_is_not_played_again() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        let scenario = Scenario::parse(SCENARIO, Path::new("tiny.toml")).unwrap();
        let program = state::program().unwrap();
        for repetition in 1..=2 {
            for part in parts(&scenario, repetition) {
                let own = fingerprint(&scenario, &part, repetition, program);
                let key = name("tiny", &part, repetition);
                state.keep(&key, own, 1.0, run(part.name(), repetition)).unwrap();
            }
        }
        let record = play(&scenario, "", Some(&state)).await.unwrap();
        let played: Vec<(&str, u32)> =
            record.runs.iter().map(|run| (run.policy.as_str(), run.repetition)).collect();
        assert_eq!(played, [("static", 1), ("global", 1), ("static", 2), ("global", 2)]);
    }

    #[test]
    fn a_run_counts_for_its_repetition_and_program() {
        let scenario = Scenario::parse(SCENARIO, Path::new("tiny.toml")).unwrap();
        let part = Part::Run("static".to_owned());
        let first = fingerprint(&scenario, &part, 1, 7);
        assert_ne!(fingerprint(&scenario, &part, 2, 7), first);
        assert_ne!(fingerprint(&scenario, &part, 1, 8), first);
        assert_eq!(name("tiny", &part, 2), "lab-run-tiny-static-2");
    }
}
