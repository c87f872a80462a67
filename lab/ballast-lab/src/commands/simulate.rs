//! `ballast simulate`: policies compared on a simulated host.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use ballast_sim::compare;
use clap::error::ErrorKind;

use ballast_report::Output;
use ballast_report::files::{self, Destination};
use ballast_scenario_run::simulate::capacity::{self, Slowdown};
use ballast_scenario_run::simulate::contestants::Contestants;
use ballast_scenario_run::simulate::json::SimulationJson;
use ballast_scenario_run::simulate::progress::Bar;
use ballast_scenario_run::simulate::scenario_file::ScenarioFile;
use ballast_scenario_run::simulate::{csv, page as pages, table};

/// Compare policies on a simulated host: no guest is risked, and a day takes seconds.
///
/// What decides is what decides in the daemon; host and guests are a model.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast simulate scenarios/meb-16.toml
  ballast simulate scenarios/meb-16.toml --policy all --page meb-16.html
  ballast simulate scenarios/global-2.toml --policy global,static,mom
  ballast simulate scenarios/tws-2.toml --csv tws.csv --json
  ballast simulate scenarios/meb-16.toml --policy ours --max-guests --slowdown 5%

All figures are simulated, and pages say so. The same file and seed give the same output.

JSON, an object:
  scenario, simulated (always true), seed, duration_s, budget_bytes
  policies  a list of policy, work_ratio (0 to 1, against unlimited memory), speedup_vs_static,
            major_faults, moved_bytes, jain, converge_s (null: never), guests, …
  paper     a paper's figures beside ours, if the scenario has any
With --max-guests: scenario, simulated, slowdown, budget_bytes, and policies, a list of policy,
max_guests, slowest_work_ratio.")]
pub struct Args {
    /// The scenario, a TOML file
    #[arg(value_name = "SCENARIO")]
    scenario: PathBuf,
    /// Policies, separated by commas, or `all`, `ours` or `rivals` [default: the scenario's]
    #[arg(long, value_name = "LIST")]
    policy: Option<Contestants>,
    /// Seed of the pseudo-random numbers [default: the scenario's]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Virtual time to simulate, such as 10min [default: the scenario's]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    duration: Option<Duration>,
    /// Write a self-contained page with plots [default: SCENARIO.html here, unless --json is given]
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Write every guest's allocation, target, demand and faults over time as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Instead, find how many guests like the scenario's fit on the host
    #[arg(long, conflicts_with_all = ["page", "csv", "series"])]
    max_guests: bool,
    /// With --max-guests: largest share of its work that any guest may lose
    #[arg(long, value_name = "PERCENT", default_value = "5%", requires = "max_guests")]
    slowdown: Slowdown,
    /// Include the time series in the JSON
    #[arg(long, requires = "json")]
    series: bool,
    #[command(flatten)]
    output: Output,
}

fn read(path: &Path) -> anyhow::Result<ScenarioFile> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the scenario {}", path.display()))?;
    Ok(ScenarioFile::parse(&text, path)?)
}

/// Simulates, prints the comparison, and writes the requested files.
///
/// # Errors
/// The scenario cannot be read or simulated, or a file or standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let ScenarioFile { mut scenario, policies, paper, .. } = read(&args.scenario)?;
    if let Some(seed) = args.seed {
        scenario.seed = seed;
    }
    if let Some(duration) = args.duration {
        scenario.duration = duration;
        scenario.validate().map_err(|error| {
            clap::Error::raw(ErrorKind::ValueValidation, format!("--duration: {error}\n"))
        })?;
    }
    let contestants = args.policy.clone().unwrap_or_else(|| Contestants::new(policies));
    if args.max_guests {
        let found = capacity::find(&scenario, &contestants, args.slowdown)
            .with_context(|| args.scenario.display().to_string())?;
        return args.output.print(&found, |found, _| capacity::render(found));
    }
    let page = match (&args.page, args.output.json) {
        (Some(path), _) => Some(path.clone()),
        (None, true) => None,
        (None, false) => Some(PathBuf::from(format!("{}.html", scenario.name))),
    };
    // Checked now, so that a mistake shows before minutes of simulating.
    let outputs: Vec<&Path> = args.csv.as_deref().into_iter().chain(page.as_deref()).collect();
    files::ensure_apart(&outputs, std::slice::from_ref(&args.scenario))?;
    let csv_file = args.csv.as_deref().map(Destination::open).transpose()?;
    let page_file = page.as_deref().map(Destination::open).transpose()?;
    let bar = Bar::default();
    let report =
        compare(&scenario, contestants.build(&scenario.control.policy_settings), &mut |at| {
            bar.show(at)
        })
        .with_context(|| args.scenario.display().to_string())?;
    drop(bar);
    if let Some(file) = csv_file {
        let mut stream = file.stream()?;
        stream.write(|out| csv::write(&report, out))?;
        stream.finish()?;
    }
    if let Some(file) = page_file {
        file.write(&pages::render(&report, &paper)?)?;
    }
    let json = SimulationJson::new(&report, &paper, args.series);
    args.output.print(&json, |_, _| {
        let mut text = table::render(&report, &paper);
        if let Some(path) = &page {
            text.push_str(&format!("\nThe page with plots: {}\n", path.display()));
        }
        text
    })
}
