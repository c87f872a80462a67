//! `ballast-lab storm`: runs storms of faults around the daemon's engine and checks whether its
//! promises hold.
//!
//! Cost: about 60 ms a seed, a few seconds for a story. Limits: seeds run one after the other.

use std::collections::BTreeMap;

use anyhow::bail;
use ballast_report::Output;
use ballast_storm::{Injected, Sabotage, SeedReport, Story, run_seed, story_of};
use serde::Serialize;

/// A storm of faults around the daemon's own engine: every promise is judged by what is really so.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast-lab storm
  ballast-lab storm --seeds 2000 --json
  ballast-lab storm --from 10000 --seeds 1000
  ballast-lab storm --seed 184 --ticks 20
  ballast-lab storm --sabotage evidence

A seed decides the host, the guests, the policy, which guests misbehave, and how often each kind of
fault occurs. The daemon's engine then runs through a few hundred ticks of virtual time. The checks:
  - no memory is granted that is not there
  - no order goes below a floor, and none is given during a pause
  - no plan is refused
  - after the faults, everything settles and no honest guest is left short

Some seeds run more than once:
  - if guests lied: again without the lies; the lies must have cost the others no more than what a
    liar is promised
  - one in ten: with the journal on a disk that fails and is damaged; the next daemon must start on
    it and read what is in it
  - one in three: with the daemon's code for QMP and agents, on bytes that are late, cut, doubled,
    forged or refused, and agents that flood, lie and call without need
  - one in four: on a hard host. Its memory and swap end; guests exit, panic and are moved; the
    daemon dies between any two effects of a tick; operators set bounds; every policy is in force
  - one in six: on a host of a fleet. Guests leave and arrive, memory is reserved for them, and what
    they bring along is put in force

With --seed, a failure is reported with the fewest faults that cause it. --sabotage disables one
safety mechanism; the storm must detect that.

Exit status: 0 all guarantees held (with --sabotage: the sabotage was detected), else 1.")]
pub struct Args {
    /// Number of seeds
    #[arg(long, value_name = "N", default_value_t = 200)]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// Run only this seed
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// With --seed: print the state and the decisions of the last N ticks
    #[arg(long, value_name = "N", default_value_t = 0, requires = "seed")]
    ticks: usize,
    /// Disable a safety mechanism
    #[arg(long, value_name = "NAME", value_parser = sabotage)]
    sabotage: Option<Sabotage>,
    #[command(flatten)]
    output: Output,
}

fn sabotage(name: &str) -> Result<Sabotage, String> {
    Sabotage::from_code(name).ok_or_else(|| {
        let known: Vec<&str> = Sabotage::ALL.iter().map(|it| it.code()).collect();
        format!("no such safety: expected one of {}", known.join(", "))
    })
}

/// The JSON that is printed.
#[derive(Debug, Serialize)]
struct StormOutput {
    seeds: u64,
    ticks: u64,
    faults: u64,
    faults_by_kind: BTreeMap<&'static str, u64>,
    violations: Vec<StormViolation>,
}

#[derive(Debug, Serialize)]
struct StormViolation {
    seed: u64,
    tick: u64,
    what: String,
    /// The story with as few faults as it needs, if one seed was requested and failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    story: Option<StormStory>,
}

#[derive(Debug, Serialize)]
struct StormStory {
    scene: Vec<String>,
    faults: Vec<String>,
    tick: u64,
    what: String,
    /// The last ticks, some lines each, if they were requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ticks: Vec<String>,
    /// The same ticks of a run without lies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    honest_ticks: Vec<String>,
}

impl StormStory {
    fn of(story: Story, ticks: usize) -> StormStory {
        let (tick, what) = story.violation;
        let last = |mut trace: Vec<String>| trace.split_off(trace.len().saturating_sub(ticks));
        let faults = story.strikes.iter().map(ToString::to_string).collect();
        StormStory {
            scene: story.scene,
            faults,
            tick,
            what: what.to_string(),
            ticks: last(story.trace),
            honest_ticks: last(story.honest_trace),
        }
    }
}

/// Runs the seeds and prints what was injected and what was found.
///
/// # Errors
/// A promise was broken or, with a sabotage, none was broken.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let seeds = match args.seed {
        Some(seed) => seed..seed.saturating_add(1),
        None => args.from..args.from.saturating_add(args.seeds),
    };
    let mut injected = Injected::default();
    let mut output = StormOutput {
        seeds: 0,
        ticks: 0,
        faults: 0,
        faults_by_kind: BTreeMap::new(),
        violations: Vec::new(),
    };
    for seed in seeds {
        let SeedReport { injected: faults, ticks, violation } = run_seed(seed, args.sabotage);
        injected.add(&faults);
        output.seeds += 1;
        output.ticks += ticks;
        if let Some((tick, what)) = violation {
            let story = args.seed.and_then(|seed| story_of(seed, args.sabotage));
            let story = story.map(|story| StormStory::of(story, args.ticks));
            output.violations.push(StormViolation { seed, tick, what: what.to_string(), story });
            if args.sabotage.is_some() {
                break;
            }
        }
    }
    output.faults = injected.total();
    output.faults_by_kind = injected.by_kind().map(|(kind, count)| (kind.code(), count)).collect();
    args.output.print(&output, |output, _| table(output))?;
    match (args.sabotage, output.violations.len()) {
        (None, 0) | (Some(_), 1..) => Ok(()),
        (None, broken) => bail!("{broken} of {} seeds broke a promise", output.seeds),
        (Some(it), 0) => bail!("{} seeds did not find that {} is gone", output.seeds, it.code()),
    }
}

fn table(output: &StormOutput) -> String {
    let mut text = format!(
        "{} seeds, {} ticks, {} faults injected:\n",
        output.seeds, output.ticks, output.faults
    );
    for (kind, count) in &output.faults_by_kind {
        text.push_str(&format!("  {count:>8}  {kind}\n"));
    }
    for StormViolation { seed, tick, what, story } in &output.violations {
        text.push_str(&format!("seed {seed}, tick {tick}: {what}\n"));
        if let Some(story) = story {
            text.push_str(&story_text(story));
        }
    }
    if output.violations.is_empty() {
        text.push_str("every promise held\n");
    }
    text
}

fn story_text(story: &StormStory) -> String {
    let mut text = "with as few faults as it needs:\n".to_owned();
    for line in story.scene.iter().chain(&story.faults) {
        text.push_str(&format!("  {line}\n"));
    }
    text.push_str(&format!("  tick {}: {}\n", story.tick, story.what));
    for (title, ticks) in
        [("its last ticks", &story.ticks), ("the last ticks without lies", &story.honest_ticks)]
    {
        if !ticks.is_empty() {
            text.push_str(&format!("{title}:\n{}\n", ticks.join("\n")));
        }
    }
    text
}
