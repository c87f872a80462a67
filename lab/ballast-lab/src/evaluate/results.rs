//! The figures of rows on real guests, in a file under version control.
//!
//! Idea: runs on real guests take hours, and their files stay on the machine that played them. The
//! figures computed from them are few. They are kept with the source, so that any call has them.
//! Verdicts are not kept: they follow from the figures and from the bands of today.
//! Limits: a row is replaced as a whole, so that no spread mixes two programs. A figure that a row
//! gets later has no value until the row is played again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, ensure};
use ballast_report::figures::or_none;
use ballast_report::files::Destination;
use ballast_scenario_run::record::Record;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::catalogue::{Catalogue, Row};
use super::figure::{Figure, Values, contestants, figures};
use super::job::{Task, read_bounded};
use super::measure::Measure;

/// Version of the file.
const FORMAT: u32 = 1;
/// Significant digits of a value: no measurement has more, and every JSON parser reads them back
/// exactly.
const DIGITS: usize = 12;
/// Keys of a scenario that no run depends on.
const NOT_OF_RUNS: [&str; 3] = ["paper", "policies", "repetitions"];

/// The file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResultsFile {
    format: u32,
    /// By the row's name, what its scenarios gave, in the order of the row.
    rows: BTreeMap<String, Vec<ScenarioResults>>,
}

/// What the runs of a scenario gave for one row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScenarioResults {
    scenario: String,
    /// Of the scenario, see [`fingerprint`].
    fingerprint: String,
    pub(crate) runs: Runs,
    figures: Vec<FigureValues>,
}

/// Who played the runs of a scenario, when, and on what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Runs {
    /// The commit that the program was built from, where that is known.
    commit: Option<String>,
    /// What executed the guests: `kvm`, `tcg` or `xen`.
    pub(crate) accelerator: String,
    /// Model of the processor.
    cpu: Option<String>,
    /// Whether the values come from a page, which had rounded them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    rounded: bool,
    pub(crate) repetitions: Vec<Repetition>,
}

/// When a repetition was played.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Repetition {
    /// When its first run began, RFC 3339 in UTC; `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    began_at: Option<String>,
    /// When its last run ended, RFC 3339 in UTC. Of values from a page: when the call began that
    /// played it.
    ended_at: String,
}

/// Our values for one figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FigureValues {
    what: String,
    policy: String,
    guest: Option<String>,
    metric: Measure,
    values: Values,
}

impl ResultsFile {
    /// Reads the file `path`; without such a file nothing is kept.
    ///
    /// # Errors
    /// It cannot be read; or its first mistake, with the place.
    pub(crate) fn read(path: &Path) -> anyhow::Result<ResultsFile> {
        if !path.exists() {
            return Ok(ResultsFile { format: FORMAT, rows: BTreeMap::new() });
        }
        let text = read_bounded(path)?;
        let file = path.display();
        let results: ResultsFile = serde_json::from_str(&text).with_context(|| file.to_string())?;
        let format = results.format;
        ensure!(format == FORMAT, "{file}: format: {format}: expected {FORMAT}");
        for (row, scenarios) in &results.rows {
            for ScenarioResults { scenario, runs, figures, .. } in scenarios {
                let repetitions = runs.repetitions.len();
                ensure!(repetitions > 0, "{file}: {row}: {scenario}: no repetition");
                for FigureValues { what, values, .. } in figures {
                    let count = values.len();
                    ensure!(
                        count == repetitions,
                        "{file}: {row}: {scenario}: `{what}` has {count} values: expected \
                         {repetitions}, one for each repetition"
                    );
                }
            }
        }
        Ok(results)
    }

    /// Writes the file `path`, the same for the same contents.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self).context("the figures are no JSON")?;
        Destination::open(path)?.write(&format!("{text}\n"))
    }

    /// What is kept for the row `id`; empty: nothing is.
    pub(crate) fn of(&self, id: &str) -> &[ScenarioResults] {
        self.rows.get(id).map(Vec::as_slice).unwrap_or_default()
    }

    /// Keeps `new` for the row `id` instead of what is there, unless that was played later. Returns
    /// whether it is kept.
    pub(crate) fn keep(&mut self, id: &str, new: Vec<ScenarioResults>) -> bool {
        let is_newest = latest(&new) >= latest(self.of(id));
        if is_newest {
            self.rows.insert(id.to_owned(), new);
        }
        is_newest
    }

    /// Drops the rows of `catalogue` whose scenarios are others than those that were played;
    /// returns their names. A row whose scenario cannot be read stays.
    pub(crate) fn drop_changed(&mut self, catalogue: &Catalogue, scenarios: &Path) -> Vec<String> {
        let mut dropped = Vec::new();
        for (_, row) in catalogue.rows() {
            let Some(kept) = self.rows.get(&row.id) else { continue };
            let Ok(identities) = identities(row, scenarios) else { continue };
            let played = kept.iter().map(|it| (it.scenario.clone(), it.fingerprint.clone()));
            if !played.eq(identities) {
                self.rows.remove(&row.id);
                dropped.push(row.id.clone());
            }
        }
        dropped
    }
}

/// When the last of these runs ended.
fn latest(results: &[ScenarioResults]) -> Option<&str> {
    let repetitions = results.iter().flat_map(|it| &it.runs.repetitions);
    repetitions.map(|it| it.ended_at.as_str()).max()
}

/// The scenarios with real guests of `row`, each with its fingerprint.
fn identities(row: &Row, scenarios: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let tasks = Task::of(row).into_iter().filter(Task::is_real);
    tasks.map(|task| Ok((task.subject().to_owned(), fingerprint(row, &task, scenarios)?))).collect()
}

/// A checksum of everything in the scenario of `task` that our figures for `row` depend on, in
/// hexadecimal; of its values alone, so that neither comments nor a new version of this program
/// change it. Not in it: papers' figures, the number of repetitions, and other contestants.
fn fingerprint(row: &Row, task: &Task, scenarios: &Path) -> anyhow::Result<String> {
    let figures = figures(row, task, scenarios)?;
    let needed: BTreeSet<&str> = figures.iter().flat_map(contestants).collect();
    let is_needed =
        |variant: &Value| variant["name"].as_str().is_some_and(|it| needed.contains(it));
    let mut hasher = crc32fast::Hasher::new();
    for path in task.inputs(scenarios)? {
        let text = read_bounded(&path)?;
        let context = || path.display().to_string();
        let mut scenario: Map<String, Value> = toml::from_str(&text).with_context(context)?;
        scenario.retain(|key, _| !NOT_OF_RUNS.contains(&key.as_str()));
        if let Some(variants) = scenario.get_mut("variants").and_then(Value::as_array_mut) {
            variants.retain(is_needed);
            if variants.is_empty() {
                scenario.remove("variants");
            }
        }
        hasher.update(Value::Object(scenario).to_string().as_bytes());
    }
    Ok(format!("{:08x}", hasher.finalize()))
}

impl ScenarioResults {
    /// What `record`, with the runs of `task`, gave for `row`: its `figures` with their values.
    /// `ended_at` has the end of each repetition.
    ///
    /// # Errors
    /// The scenario cannot be read.
    pub(crate) fn new(
        row: &Row,
        task: &Task,
        scenarios: &Path,
        record: &Record,
        ended_at: Vec<String>,
        figures: Vec<(Figure, Values)>,
    ) -> anyhow::Result<ScenarioResults> {
        let began_at = |repetition: u32| {
            let own = record.runs.iter().filter(|run| run.repetition == repetition);
            own.filter_map(|run| Some(run.origin.as_ref()?.began_at.clone())).min()
        };
        let repetitions = (1..)
            .zip(ended_at)
            .map(|(repetition, ended_at)| Repetition { began_at: began_at(repetition), ended_at });
        let machine = &record.machine;
        let runs = Runs {
            commit: machine.commit.clone(),
            accelerator: machine.accelerator.clone(),
            cpu: machine.cpu.clone(),
            rounded: false,
            repetitions: repetitions.collect(),
        };
        let figure = |(figure, values): (Figure, Values)| FigureValues {
            what: figure.what,
            policy: figure.policy,
            guest: figure.guest,
            metric: figure.measure,
            values: values.into_iter().map(|value| value.map(with_digits)).collect(),
        };
        Ok(ScenarioResults {
            scenario: task.subject().to_owned(),
            fingerprint: fingerprint(row, task, scenarios)?,
            runs,
            figures: figures.into_iter().map(figure).collect(),
        })
    }

    /// Our value for `figure` by repetition; `None`: it is not kept.
    pub(crate) fn values(&self, figure: &Figure) -> Values {
        let none = || vec![None; self.runs.repetitions.len()];
        let own = self.figures.iter().find(|it| it.is(figure));
        own.map_or_else(none, |it| it.values.clone())
    }
}

impl FigureValues {
    /// Whether these are the values of `figure`.
    fn is(&self, figure: &Figure) -> bool {
        (&self.what, &self.policy, &self.guest, self.metric)
            == (&figure.what, &figure.policy, &figure.guest, figure.measure)
    }
}

impl Runs {
    /// Who played the runs of the scenario `scenario` and when, in a sentence. `is_kept`: this call
    /// has only the figures.
    pub(crate) fn sentence(&self, scenario: &str, is_kept: bool) -> String {
        let commit = or_none(self.commit.as_deref());
        if is_kept {
            let ended_at = or_none(self.repetitions.last().map(|it| it.ended_at.as_str()));
            let cpu = self.cpu.as_ref().map(|cpu| format!(", {cpu}")).unwrap_or_default();
            let rounded = if self.rounded { ", as a page printed them" } else { "" };
            return format!(
                "The figures of {scenario} are kept from commit {commit}, {ended_at}{cpu}{rounded}."
            );
        }
        let times = self.repetitions.iter().map(|it| match &it.began_at {
            Some(began_at) => format!("from {began_at} to {}", it.ended_at),
            None => format!("until {}", it.ended_at),
        });
        let times: Vec<String> = times.collect();
        format!("The runs of {scenario} were played at commit {commit}: {}.", times.join("; "))
    }
}

/// `value` with [`DIGITS`] significant digits.
fn with_digits(value: f64) -> f64 {
    let decimals = DIGITS - 1;
    format!("{value:.decimals$e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ballast_scenario_run::part::Part;
    use serde_json::json;
    use tempfile::TempDir;

    use super::super::findings::{Findings, RowFindings, findings};
    use super::super::job::Job;
    use super::super::verdict::{Cause, Verdict};
    use super::super::work::{JobOutcome, JobOutcomes, JobResult};
    use super::*;

    const CATALOGUE: &str = r#"
paper = "Made"
title = "A paper that is made up"
[[bands]]
metric = "allocation_last_bytes"
within = { at_least = 1000 }
because = "it is made up"
[[rows]]
id = "1"
place = "Table 1"
what = "memory"
lab = ["real.toml"]
[[rows.figures]]
what = "memory in the end"
policy = "global"
guest = "a"
metric = "allocation_last_bytes"
"#;

    const SCENARIO: &str = r#"
name = "real"
duration = "10s"
[host]
budget = "1GiB"
[[guests]]
name = "a"
memory = "512MiB"
"#;

    /// A folder with a scenario and a catalogue of one row, `made.1`.
    fn folder() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("evaluation")).unwrap();
        fs::write(folder.path().join("evaluation/made.toml"), CATALOGUE).unwrap();
        fs::write(folder.path().join("real.toml"), SCENARIO).unwrap();
        folder
    }

    fn nothing() -> ResultsFile {
        ResultsFile { format: FORMAT, rows: BTreeMap::new() }
    }

    /// Repetitions that ended at these times, with one figure.
    fn played(ended_at: &[&str], values: Values) -> Vec<ScenarioResults> {
        let repetition = |ended_at: &&str| Repetition {
            began_at: Some("2026-01-01T00:00:00Z".to_owned()),
            ended_at: (*ended_at).to_owned(),
        };
        let figure = FigureValues {
            what: "memory in the end".to_owned(),
            policy: "global".to_owned(),
            guest: Some("a".to_owned()),
            metric: Measure::AllocationLastBytes,
            values,
        };
        vec![ScenarioResults {
            scenario: "real".to_owned(),
            fingerprint: "00000000".to_owned(),
            runs: Runs {
                commit: Some("c0ffee".to_owned()),
                accelerator: "tcg".to_owned(),
                cpu: None,
                rounded: false,
                repetitions: ended_at.iter().map(repetition).collect(),
            },
            figures: vec![figure],
        }]
    }

    /// The outcomes of runs, one for each repetition, at whose end the guest held so many bytes.
    fn outcomes(held: &[u64]) -> JobOutcomes {
        let outcome = |(repetition, held): (u32, &u64)| {
            let at = |second: u32| format!("2026-01-0{repetition}T00:00:0{second}Z");
            let sample = json!({"at_s": 1.0, "daemon": {"allocation_bytes": held}});
            let guest = json!({"guest": "a", "samples": [sample], "workloads": []});
            let run = json!({
                "policy": "global", "repetition": repetition, "measured_s": 10.0,
                "origin": {"began_at": at(1), "call_at": at(0), "commit": "c0ffee"},
                "guests": [guest], "remarks": [],
            });
            let machine = json!({"accelerator": "tcg", "ballast": "0", "commit": "c0ffee"});
            let result = json!({"run": {"machine": machine, "run": run}});
            let task = Task::Lab { scenario: "real.toml".to_owned() };
            let job = Job { task, repetition, part: Some(Part::Run("global".to_owned())) };
            let done = JobOutcome::Done(JobResult { result, ended_at: at(9), ran: true });
            (job.name(), done)
        };
        (1..).zip(held).map(outcome).collect()
    }

    fn only_row(findings: Findings) -> RowFindings {
        findings.papers.into_iter().flat_map(|paper| paper.rows).next().unwrap()
    }

    #[test]
    fn rows_without_runs_have_the_figures_of_earlier_ones() {
        let folder = folder();
        let catalogue = Catalogue::read(folder.path()).unwrap();
        let mut kept = nothing();
        let mut find = |outcomes: &JobOutcomes| {
            only_row(findings(&catalogue, folder.path(), 2, outcomes, &mut kept).unwrap())
        };
        let none = find(&JobOutcomes::new());
        assert!(matches!(none.verdict, Verdict::NotReproduced(Cause::NotRun(_))), "{none:?}");
        let now = find(&outcomes(&[1024, 2048]));
        let later = find(&JobOutcomes::new());
        for row in [&now, &later] {
            assert_eq!((&row.verdict, row.repetitions), (&Verdict::Met, 2), "{row:?}");
            assert_eq!(row.seen.as_deref(), Some("on real guests, tcg"));
            assert_eq!(row.figures[0].ours_shown(), "1.5KiB (1KiB to 2KiB in 2)");
        }
        let sentences = |row: &RowFindings| row.run_sentences().collect::<Vec<_>>();
        let expected = "The runs of real were played at commit c0ffee: from 2026-01-01T00:00:01Z \
                        to 2026-01-01T00:00:09Z; from 2026-01-02T00:00:01Z to 2026-01-02T00:00:09Z.";
        assert_eq!(sentences(&now), [expected]);
        let expected =
            "The figures of real are kept from commit c0ffee, 2026-01-02T00:00:09Z.".to_owned();
        assert_eq!(sentences(&later), [expected]);
        // A part of the runs is older than what is kept.
        assert_eq!(find(&outcomes(&[1024])).repetitions, 2);
        let (job, _) = outcomes(&[1]).pop_first().unwrap();
        let failed = JobOutcomes::from([(job, JobOutcome::Failed("no QEMU".to_owned()))]);
        let failed = find(&failed);
        assert!(matches!(failed.verdict, Verdict::NotReproduced(Cause::CannotRun(_))));
    }

    #[test]
    fn newer_runs_replace_a_row_as_a_whole() {
        let old = || played(&["2026-01-02T00:00:00Z"], vec![Some(1.0)]);
        let new = || {
            let ended_at = ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"];
            played(&ended_at, vec![Some(2.0), None])
        };
        let mut kept = nothing();
        assert!(kept.keep("made.1", old()));
        assert!(kept.keep("made.1", new()) && !kept.keep("made.1", old()));
        assert_eq!((kept.of("made.1"), kept.of("made.2")), (&new()[..], &[][..]));
    }

    #[test]
    fn a_row_whose_scenario_changed_is_dropped() {
        let folder = folder();
        let catalogue = Catalogue::read(folder.path()).unwrap();
        let mut kept = nothing();
        only_row(findings(&catalogue, folder.path(), 1, &outcomes(&[7]), &mut kept).unwrap());
        kept.keep("made.2", played(&["2026-01-02T00:00:00Z"], vec![None]));
        let path = folder.path().join("real.toml");
        for (text, expected) in [
            (Some(SCENARIO.to_owned()), &[][..]),
            (None, &[]),
            (Some(SCENARIO.replace("10s", "11s")), &["made.1"]),
            (Some(SCENARIO.to_owned()), &[]),
        ] {
            match &text {
                Some(text) => fs::write(&path, text).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            assert_eq!(kept.drop_changed(&catalogue, folder.path()), expected, "{text:?}");
        }
        let rows: Vec<&String> = kept.rows.keys().collect();
        assert_eq!(rows, ["made.2"], "rows outside of the catalogue stay");
    }

    /// The first is the checksum that is in files of earlier versions of this program.
    #[test]
    fn a_fingerprint_depends_on_what_runs_depend_on() {
        let folder = folder();
        let catalogue = Catalogue::read(folder.path()).unwrap();
        let (_, row) = catalogue.rows().next().unwrap();
        let of = |text: &str, policy: &str| {
            fs::write(folder.path().join("real.toml"), text).unwrap();
            let mut row = row.clone();
            row.figures[0].policy = policy.to_owned();
            identities(&row, folder.path()).unwrap().remove(0).1
        };
        assert_eq!(of(SCENARIO, "global"), "277293cf");
        let before = |key: &str| SCENARIO.replace("duration", &format!("{key}\nduration"));
        let behind = |table: &str| format!("{SCENARIO}{table}\n");
        let variant = behind("[[variants]]\nname = \"x\"\npolicy = { name = \"meb\" }");
        let paper = "[[paper]]\nwhat = \"w\"\npolicy = \"global\"\nmetric = \"converge_s\"\n\
                     value = 1.0\nsource = \"s\"";
        for same in [
            before("# a comment"),
            before("policies = [\"global\"]\nrepetitions = 9"),
            behind(paper),
            variant.clone(),
        ] {
            assert_eq!(of(&same, "global"), "277293cf", "{same}");
        }
        for other in [SCENARIO.replace("512MiB", "768MiB"), before("best = true")] {
            assert_ne!(of(&other, "global"), "277293cf", "{other}");
        }
        assert_ne!(of(&variant, "x"), "277293cf");
    }

    #[test]
    fn a_file_reads_back_and_does_not_depend_on_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("evaluation.json");
        assert_eq!(ResultsFile::read(&path).unwrap(), nothing());
        let values = [1.0 / 3.0, 33_973_862.0, 0.1 + 0.2, 2e-9].map(with_digits);
        let rows = values.map(|value| played(&["T1", "T2"], vec![Some(value), None]));
        let rows: Vec<_> = ["made.2", "made.10", "made.1", "a.1"].into_iter().zip(rows).collect();
        let write = |rows: Vec<&(&str, Vec<ScenarioResults>)>| {
            let mut kept = nothing();
            for (id, own) in rows {
                kept.keep(id, own.clone());
            }
            kept.write(&path).unwrap();
            assert_eq!(ResultsFile::read(&path).unwrap(), kept);
            fs::read_to_string(&path).unwrap()
        };
        let text = write(rows.iter().collect());
        assert!(text.contains("0.333333333333,"), "{text}");
        assert_eq!(write(rows.iter().rev().collect()), text);
    }

    #[test]
    fn a_malformed_file_is_refused_with_the_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("evaluation.json");
        let mut kept = nothing();
        kept.keep("made.1", played(&["T1"], vec![Some(1.5)]));
        kept.write(&path).unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        for (text, expected) in [
            (String::new(), "line 1"),
            (whole[..whole.len() / 2].to_owned(), "line "),
            (whole.replace("\"format\": 1", "\"format\": 2"), "format: 2: expected 1"),
            (whole.replace("1.5", "\"1.5\""), "line "),
            (whole.replace("1.5", "1.5, 2.5"), "made.1: real: `memory in the end` has 2 values"),
            (whole.replace("\"what\"", "\"waht\""), "unknown field `waht`"),
            (whole.replace("allocation_last_bytes", "bytes"), "unknown variant `bytes`"),
        ] {
            fs::write(&path, &text).unwrap();
            let error = ResultsFile::read(&path).expect_err(&text);
            let error = format!("{error:#}");
            let names_file = error.contains(&path.display().to_string());
            assert!(names_file && error.contains(expected), "{error}");
        }
    }

    /// If a scenario was changed on purpose, `ballast-lab evaluate` drops its rows from the file.
    #[test]
    fn figures_kept_in_the_tree_are_of_its_rows() {
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let scenarios = tree.join("scenarios");
        let catalogue = Catalogue::read(&scenarios).unwrap();
        let mut kept = ResultsFile::read(&tree.join("docs/evaluation.json")).unwrap();
        assert_eq!(kept.drop_changed(&catalogue, &scenarios), [""; 0]);
        for (id, own) in &kept.rows {
            let (_, row) = catalogue.rows().find(|(_, row)| row.id == *id).expect(id);
            for (task, own) in Task::of(row).iter().zip(own) {
                let known = figures(row, task, &scenarios).unwrap();
                for it in &own.figures {
                    let is_known = known.iter().any(|figure| it.is(figure));
                    assert!(is_known, "{id}: `{}` is no figure of the row", it.what);
                }
            }
        }
    }
}
