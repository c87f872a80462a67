//! `ballast lab run`: plays a scenario under several policies and compares the results.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use ballast_lab_host::{BEST, BY_HAND, Scenario};
use serde::Serialize;

use ballast_report::Output;
use ballast_scenario_run::calibration::Calibration;
use ballast_scenario_run::compare::Comparison;
use ballast_scenario_run::fleet_findings::{Expectation, expectations};
use ballast_scenario_run::record::{
    Machine, MoveRecord, Record, RunRecord, ScenarioInfo, TransferRecord,
};
use ballast_scenario_run::simulate::contestants::Contestants;
use ballast_scenario_run::simulate::scenario_file::ScenarioFile;
use ballast_scenario_run::transfer_table::{GOALS, Goals};
use ballast_scenario_run::{page, raw, table};

use crate::played;
use crate::state::State;

/// Play a scenario under several policies, one after the other, and compare.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast lab run scenarios/lab/demo.toml --report demo.html
  ballast lab run scenarios/lab/demo.toml --policy static --policy global --repetitions 5
  ballast lab run scenarios/lab/demo.toml --policy global --policy rival:mom
  ballast lab run scenarios/lab/demo.toml --repetitions 5 --state runs
  ballast lab run scenarios/lab/demo.toml --simulated
  ballast lab run scenarios/lab/demo.toml --json | jq .comparison.gains

The first policy is the baseline for the others. Progress goes to standard error. The daemon's
journal records what was moved of each guest, by which mechanism, how fast and why.

A scenario can
  - give the host swap while it runs ([host] swap, as root)
  - unload a guest's balloon driver (balloon_stops)
  - time a transfer between guests, and compare it with the giver's balloon alone ([transfer])
  - time how long a guest needs to reach full speed (full_speed), also with balloons set by hand
    ([by_hand])
  - have several hosts ([fleet], scenarios/lab/fleet-3.toml). It is played with each daemon alone
    (advise) and with guests that move between the hosts (move). Its file says what is expected;
    the exit status is 1 unless all of it is met.

With --simulated, the scenario is also played in the simulator, on the machine that the file
describes and at the speeds of the real runs; every figure is shown beside the real one.

With --state, a call that is interrupted loses only the current run; the same call continues there.
A stored run counts until this program, or what the scenario and the options say of that run,
changes. More repetitions or other policies play only what is new. If several calls played the
compared runs, the result says when each began. `ballast-lab evaluate` keeps the same runs in
target/evaluation.")]
pub struct Args {
    /// The scenario (TOML); scenarios/lab has examples
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,
    /// Write a page with plots, and the raw data beside it as JSON and CSV
    #[arg(long, value_name = "PATH")]
    report: Option<PathBuf>,
    /// Policy or variant to play, instead of all of the scenario's, in the order given; also
    /// `by-hand`, `best`, and `rival:mom` and so on: the rules of other products under Ballast's
    /// guard; repeatable
    #[arg(long = "policy", value_name = "NAME")]
    policies: Vec<String>,
    /// How long to measure each run, such as 90s [default: the scenario's]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// How often to run every policy [default: the scenario's]
    #[arg(long, value_name = "NUMBER")]
    repetitions: Option<u32>,
    /// Record every page that the guests really touch (emulated guests only; they run about half as
    /// fast)
    #[arg(long)]
    truth: bool,
    /// What starts the guests: `qemu` (the lab itself), `libvirt` or, under `nested --xen`, `xen`
    /// [default: the scenario's]
    #[arg(long, value_name = "NAME")]
    manager: Option<String>,
    /// Also simulate the scenario, and show the difference from the real runs
    #[arg(long)]
    simulated: bool,
    /// Keep every finished run in this folder, and do not play runs that are already there
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Plays the scenario and prints the comparison.
///
/// # Errors
/// The scenario is wrong, anything needed is missing, or a run fails.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let text = args.text()?;
    let (scenario, changed) = args.scenario(&text)?;
    if args.simulated && scenario.fleet.is_some() {
        bail!("--simulated: the simulator plays one host, and this scenario has several");
    }
    let model = match args.simulated {
        true => Some(ScenarioFile::parse(&changed, &args.scenario)?),
        false => None,
    };
    let state = args.state.as_deref().map(State::open).transpose()?;
    let (report, state) = (args.report.as_deref(), state.as_ref());
    play_and_report(&scenario, &text, model, report, state, args.output).await
}

impl Args {
    fn text(&self) -> anyhow::Result<String> {
        std::fs::read_to_string(&self.scenario).with_context(|| {
            let path = self.scenario.display();
            format!("cannot read the scenario {path}: scenarios/lab has examples")
        })
    }

    /// The scenario as the command line changes it, and the text of its file.
    ///
    /// # Errors
    /// The file cannot be read or is wrong.
    pub(super) fn read(&self) -> anyhow::Result<(Scenario, String)> {
        let text = self.text()?;
        Ok((self.scenario(&text)?.0, text))
    }

    /// Checks that runs are not to be kept.
    ///
    /// # Errors
    /// They are (`--state` was given).
    pub(super) fn ensure_no_state_folder(&self) -> anyhow::Result<()> {
        ensure!(
            self.state.is_none(),
            "--state: runs in an outer machine cannot be kept: expected `lab run`, or leave it out"
        );
        Ok(())
    }

    /// The absolute path of the page to write, if one is requested.
    pub(super) fn report(&self) -> Option<PathBuf> {
        let report = self.report.as_ref()?;
        Some(std::path::absolute(report).unwrap_or_else(|_| report.clone()))
    }

    /// The command line that does the same on another machine, with the scenario in the file
    /// `scenario` and the page in `report`.
    pub(super) fn remote_command(&self, scenario: &Path, report: Option<&Path>) -> Vec<String> {
        let mut argv = ["ballast-lab", "lab", "run"].map(str::to_owned).to_vec();
        argv.push(scenario.display().to_string());
        let mut option = |name: &str, value: String| argv.extend([name.to_owned(), value]);
        if let Some(report) = report {
            option("--report", report.display().to_string());
        }
        for policy in &self.policies {
            option("--policy", policy.clone());
        }
        if let Some(manager) = &self.manager {
            option("--manager", manager.clone());
        }
        if let Some(duration) = self.duration {
            option("--duration", humantime::format_duration(duration).to_string());
        }
        if let Some(repetitions) = self.repetitions {
            option("--repetitions", repetitions.to_string());
        }
        let flags = [
            ("--truth", self.truth),
            ("--simulated", self.simulated),
            ("--json", self.output.json),
        ];
        argv.extend(flags.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| (*name).to_owned()));
        argv
    }

    /// The scenario in `text` as the command line changes it, and its new text.
    fn scenario(&self, text: &str) -> anyhow::Result<(Scenario, String)> {
        let scenario = Scenario::parse(text, &self.scenario)?;
        let mut changes = toml::Table::new();
        let is_named = |name: &str| self.policies.iter().any(|policy| policy == name);
        if !self.policies.is_empty() {
            let own = |name: &&String| {
                *name != BEST
                    && !(*name == BY_HAND && scenario.by_hand.is_some())
                    && scenario.variants.iter().all(|variant| variant.name != **name)
            };
            let names = self.policies.iter().filter(own).map(|policy| policy.as_str().into());
            changes.insert("policies".to_owned(), toml::Value::Array(names.collect()));
            changes.insert("best".to_owned(), is_named(BEST).into());
            let table: toml::Table = text.parse().context("cannot read the scenario again")?;
            let variants = table.get("variants").and_then(toml::Value::as_array);
            let mut variants = variants.cloned().unwrap_or_default();
            variants
                .retain(|it| it.get("name").and_then(toml::Value::as_str).is_some_and(is_named));
            changes.insert("variants".to_owned(), toml::Value::Array(variants));
        }
        if let Some(duration) = self.duration {
            let text = humantime::format_duration(duration).to_string();
            changes.insert("duration".to_owned(), text.into());
        }
        if let Some(repetitions) = self.repetitions {
            changes.insert("repetitions".to_owned(), i64::from(repetitions).into());
        }
        if changes.is_empty() && !self.truth && self.manager.is_none() {
            return Ok((scenario, text.to_owned()));
        }
        // The changed scenario is parsed again as a whole, so that all checks apply to it.
        let mut table: toml::Table = text.parse().context("cannot read the scenario again")?;
        table.extend(changes);
        if !self.policies.is_empty() && !is_named(BY_HAND) {
            table.remove("by_hand");
        }
        let settings = table.entry("settings").or_insert_with(|| toml::Table::new().into());
        let settings = settings.as_table_mut().context("[settings] is no table")?;
        if self.truth {
            settings.insert("truth".to_owned(), true.into());
        }
        if let Some(manager) = &self.manager {
            settings.insert("manager".to_owned(), manager.as_str().into());
        }
        let changed = toml::to_string(&table).context("cannot change the scenario")?;
        let name = format!("{}, changed by the options", self.scenario.display());
        Ok((Scenario::parse(&changed, Path::new(&name))?, changed))
    }
}

/// A time span with its unit.
fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}: expected such as 90s or 2min"))
}

/// The JSON that is printed.
#[derive(Serialize)]
struct RunOutput<'a> {
    started_at: &'a str,
    scenario: &'a ScenarioInfo,
    machine: &'a Machine,
    comparison: &'a Comparison,
    moves: Vec<RunMoves<'a>>,
    /// Empty unless a transfer was timed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    transfers: Vec<RunTransfer<'a>>,
    /// Empty for a scenario with one host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    expectations: Vec<Expectation>,
    /// `None` unless `--simulated` was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    calibration: Option<&'a Calibration>,
    /// The paths of the page and the raw data, if they were requested.
    files: &'a [PathBuf],
}

/// What one mechanism moved of one guest in one run.
#[derive(Serialize)]
struct RunMoves<'a> {
    policy: &'a str,
    repetition: u32,
    #[serde(flatten)]
    row: &'a MoveRecord,
    bytes_per_s: Option<f64>,
}

/// How long a transfer took in one run.
#[derive(Serialize)]
struct RunTransfer<'a> {
    policy: &'a str,
    repetition: u32,
    #[serde(flatten)]
    transfer: &'a TransferRecord,
    ratio: Option<f64>,
    goals: Goals,
}

fn moves(run: &RunRecord) -> impl Iterator<Item = RunMoves<'_>> {
    run.moves.iter().map(|row| RunMoves {
        policy: &run.policy,
        repetition: run.repetition,
        row,
        bytes_per_s: row.bytes_per_s(),
    })
}

fn transfer(run: &RunRecord) -> Option<RunTransfer<'_>> {
    let transfer = run.transfer.as_ref()?;
    let (policy, repetition, ratio) = (&*run.policy, run.repetition, transfer.ratio());
    Some(RunTransfer { policy, repetition, transfer, ratio, goals: GOALS })
}

/// Plays `scenario`, whose text is `text`; `model` is the same scenario for the simulator. Keeps
/// runs in `state`, writes the page if one is requested, and prints the comparison.
pub(super) async fn play_and_report(
    scenario: &Scenario,
    text: &str,
    model: Option<ScenarioFile>,
    report: Option<&Path>,
    state: Option<&State>,
    output: Output,
) -> anyhow::Result<()> {
    if let Some(report) = report {
        // Written now, so that a path that cannot be written fails before minutes of measuring.
        raw::write_file(report, "")?;
    }
    let record = played::play(scenario, &description(text), state).await?;
    let comparison = Comparison::new(&record);
    let calibration = match model {
        Some(ScenarioFile { scenario, policies, .. }) => {
            let policies = Contestants::new(policies);
            Some(Calibration::new(&record, &comparison, &scenario, &policies)?)
        }
        None => None,
    };
    let calibration = calibration.as_ref();
    let files = match report {
        Some(report) => write(&record, &comparison, calibration, report)?,
        None => Vec::new(),
    };
    let run_output = RunOutput {
        started_at: &record.started_at,
        scenario: &record.scenario,
        machine: &record.machine,
        comparison: &comparison,
        moves: record.runs.iter().flat_map(moves).collect(),
        transfers: record.runs.iter().filter_map(transfer).collect(),
        expectations: expectations(&record),
        calibration,
        files: &files,
    };
    output.print(&run_output, |_, _| {
        let page = files.first().map(|page| format!("\nThe page with plots: {}\n", page.display()));
        format!(
            "\n{}{}",
            table::render(&record, &comparison, calibration),
            page.unwrap_or_default()
        )
    })?;
    let expectations = &run_output.expectations;
    let (all, missed) = (expectations.len(), expectations.iter().filter(|it| !it.is_met));
    match missed.count() {
        0 => Ok(()),
        missed => bail!("{missed} of {all} expectations of the scenario are not met"),
    }
}

/// Writes the page and the raw data; returns their paths, the page's first.
fn write(
    record: &Record,
    comparison: &Comparison,
    calibration: Option<&Calibration>,
    report: &Path,
) -> anyhow::Result<Vec<PathBuf>> {
    let raw_paths = raw::paths(report);
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let names: Vec<String> = raw_paths.iter().map(name).collect();
    raw::write(record, report)?;
    raw::write_file(report, &page::render(record, comparison, calibration, &names)?)?;
    let all = [report.to_owned()].into_iter().chain(raw_paths);
    Ok(all.map(|path| path.canonicalize().unwrap_or(path)).collect())
}

/// The description of a scenario: the comment at the head of its file.
pub(crate) fn description(text: &str) -> String {
    let lines = text.lines().skip_while(|line| line.trim().is_empty());
    let comment = lines.map_while(|line| line.strip_prefix('#')).map(str::trim);
    let lines: Vec<&str> = comment.filter(|line| !line.is_empty()).collect();
    lines.join(" ").replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    const MEB_2: &str = include_str!("../../../../scenarios/lab/meb-2.toml");
    const DEMO: &str = include_str!("../../../../scenarios/lab/demo.toml");

    fn changed(line: &str) -> anyhow::Result<Scenario> {
        let args = Line::try_parse_from(line.split(' '))?.args;
        args.scenario(DEMO).map(|(scenario, _)| scenario)
    }

    #[test]
    fn the_command_line_goes_before_the_scenario() {
        let line = "run demo.toml --policy global --policy static --duration 2min --repetitions 3";
        let scenario = changed(line).unwrap();
        assert_eq!(scenario.policies, ["global", "static"]);
        assert_eq!((scenario.duration, scenario.repetitions), (Duration::from_secs(120), 3));
    }

    #[test]
    fn variants_and_the_best_are_chosen_by_name() {
        let line = "run meb-2.toml --policy meb-5s --policy global --policy best";
        let args = Line::try_parse_from(line.split(' ')).unwrap().args;
        let scenario = args.scenario(MEB_2).unwrap().0;
        let names: Vec<String> = scenario.contestants().into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["global", "meb-5s", "best"]);
    }

    #[test]
    fn by_hand_is_chosen_by_name() {
        let text = include_str!("../../../../scenarios/lab/libvirt-starved.toml");
        for (line, expected) in [
            ("run s.toml", vec!["static", "global", "by-hand"]),
            ("run s.toml --policy global", vec!["global"]),
            ("run s.toml --policy global --policy by-hand", vec!["global", "by-hand"]),
        ] {
            let args = Line::try_parse_from(line.split(' ')).unwrap().args;
            let scenario = args.scenario(text).unwrap().0;
            let names: Vec<String> = scenario.contestants().into_iter().map(|it| it.name).collect();
            assert_eq!(names, expected, "{line}");
        }
    }

    #[test]
    fn the_truth_is_recorded_when_asked_for() {
        assert!(changed("run demo.toml --truth").unwrap().settings.truth);
        assert!(!changed("run demo.toml").unwrap().settings.truth);
    }

    #[test]
    fn options_that_make_a_scenario_impossible_are_refused() {
        for (options, expected) in [
            ("--repetitions 0", "repetitions"),
            ("--duration 0s", "duration"),
            ("--duration 1s", "is not before the end"),
            ("--policy static --policy static", "each once"),
            ("--policy fastest", "`fastest` is not a policy"),
            ("--policy best", "at least one policy"),
            ("--manager hyperv", "settings.manager"),
            ("--policy by-hand", "`by-hand` is not a policy"),
            ("--duration 90", "expected such as 90s"),
        ] {
            let error = changed(&format!("run demo.toml {options}")).expect_err(options);
            assert!(format!("{error:#}").contains(expected), "{options}: {error:#}");
        }
    }

    #[test]
    fn a_scenario_is_about_what_its_first_comment_says() {
        assert_eq!(description("\n# One.\n#\n# Two.\nname = \"x\"\n# no"), "One. Two.");
        assert_eq!(description("name = \"x\""), "");
        assert!(description(DEMO).contains("Two guests"));
    }
}
