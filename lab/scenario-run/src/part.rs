//! Splits the playing of a scenario into parts that are played, kept and resumed one by one.
//!
//! Idea: a part is one run of one contestant, or the search for the guests' needs. A record is put
//! together from parts, whether one call of a command played them or several. Contestants take
//! turns within a repetition, so that a machine that grows slower over an hour affects all of them
//! alike. Where [`BEST`] is the same run as `static`, it is played once and counts as both.
//! Limits: the estimate of a part's time is for emulated guests on two quiet cores.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use ballast_lab_guest::workload::{Pattern, Program};
use ballast_lab_host::{BEST, Scenario, ScenarioGuest};
use ballast_model::{Bytes, PolicyName};
use serde::{Deserialize, Serialize};

use super::describe;
use super::record::{FORMAT_VERSION, Machine, Record, RunRecord};

/// Time to start and end a run, whatever its guests.
const RUN_OVERHEAD: Duration = Duration::from_secs(6);
/// Time that each guest adds to that: two cores boot it.
const RUN_OVERHEAD_PER_GUEST: Duration = Duration::from_secs(4);
/// Memory that a prepared workload fills in a second.
const FILLED_PER_S: Bytes = Bytes::mib(10);
/// Time of the search for the guests' needs, by bisection.
const NEEDS: Duration = Duration::from_mins(6);
/// Time of a fixed work that is given as processor time, in per cent of that processor time: the
/// guest waits, too.
const WORK_LONGER_PERCENT: u64 = 120;

/// A part of a repetition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// The search for each guest's need; once for all repetitions.
    Needs,
    /// The run of the contestant with this name.
    Run(String),
}

/// The result of a part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartRecord {
    /// The smallest memory in which each guest reads nothing back, in bytes, by its name.
    Needs {
        /// By guest.
        needs: BTreeMap<String, u64>,
    },
    /// A run that was played.
    Run {
        /// What it ran on.
        machine: Box<Machine>,
        /// What was measured.
        run: Box<RunRecord>,
    },
}

impl Part {
    /// Its name among the parts of a repetition.
    pub fn name(&self) -> &str {
        match self {
            Part::Needs => "what guests need",
            Part::Run(name) => name,
        }
    }

    /// Everything of `scenario` that the part's result depends on, as text. Not in it: other
    /// contestants, the number of repetitions, and a paper's figures.
    pub fn identity(&self, scenario: &Scenario) -> String {
        let own = scenario.contestants().into_iter().find(|it| it.name == self.name());
        let common = Scenario {
            repetitions: 1,
            policies: Vec::new(),
            variants: Vec::new(),
            best: false,
            needs: false,
            paper: Vec::new(),
            ..scenario.clone()
        };
        format!("{} {own:?} {common:?}", self.name())
    }

    /// About how long the part takes in `scenario`; a scenario's duration bounds the time that is
    /// measured.
    pub fn expected(&self, scenario: &Scenario) -> Duration {
        if *self == Part::Needs {
            return NEEDS;
        }
        let prepared = scenario.guests.iter().flat_map(|guest| &guest.workloads);
        let filled = prepared.filter(|it| it.prepared).map(|it| it.spec.pattern.size_max());
        let filling = filled.max().unwrap_or_default().get() / FILLED_PER_S.get();
        let guests = u32::try_from(scenario.guests.len()).unwrap_or(u32::MAX);
        let overhead = RUN_OVERHEAD + RUN_OVERHEAD_PER_GUEST.saturating_mul(guests);
        let measured =
            work_time(scenario).map_or(scenario.duration, |it| it.min(scenario.duration));
        overhead + Duration::from_secs(filling) + scenario.settings.settle + measured
    }
}

/// How long the fixed work of `scenario` takes, if it is given as processor time; `None`: there is
/// no fixed work, or its time depends on the machine.
fn work_time(scenario: &Scenario) -> Option<Duration> {
    let is_time = |guest: &ScenarioGuest| {
        guest.workloads.iter().any(|it| {
            matches!(it.spec.pattern, Pattern::Program { program: Program::StressNg, .. })
        })
    };
    let fixed: Vec<&ScenarioGuest> =
        scenario.guests.iter().filter(|guest| guest.work.is_some()).collect();
    let is_known = !fixed.is_empty() && fixed.iter().all(|guest| is_time(guest));
    let longest = fixed.iter().filter_map(|guest| guest.work).max().filter(|_| is_known)?;
    Some(Duration::from_millis(longest.get().saturating_mul(WORK_LONGER_PERCENT) / 100))
}

/// The parts of repetition `repetition` (from 1) of `scenario`, in the order in which they are
/// played.
pub fn parts(scenario: &Scenario, repetition: u32) -> Vec<Part> {
    let has_needs = scenario.needs && repetition == 1;
    let needs = has_needs.then_some(Part::Needs);
    let is_other = |name: &String| !(name == BEST && scenario.is_best_static());
    let names = scenario.contestants().into_iter().map(|it| it.name).filter(is_other);
    needs.into_iter().chain(names.map(Part::Run)).collect()
}

/// The run from which the contestant `name` of `scenario` has its figures.
pub fn part_of(scenario: &Scenario, name: &str) -> Part {
    match name == BEST && scenario.is_best_static() {
        true => Part::Run(PolicyName::Static.to_string()),
        false => Part::Run(name.to_owned()),
    }
}

/// The record of `scenario` made from `parts`; `description` says what the scenario is about.
/// Contestants without a run are left out.
///
/// # Errors
/// There is no run, or the runs used different accelerators.
pub fn record(
    scenario: &Scenario,
    description: &str,
    parts: Vec<PartRecord>,
) -> anyhow::Result<Record> {
    let mut info = describe::scenario(scenario, description);
    let mut machine: Option<Machine> = None;
    let mut runs: Vec<RunRecord> = Vec::new();
    for part in parts {
        match part {
            PartRecord::Needs { needs } => {
                for guest in &mut info.guests {
                    guest.needs_bytes = needs.get(&guest.guest).copied();
                }
            }
            PartRecord::Run { machine: own, run } => {
                let first = machine.get_or_insert_with(|| (*own).clone());
                let (ours, other) = (&first.accelerator, &own.accelerator);
                ensure!(ours == other, "one run was under {ours}, another under {other}");
                let is_both =
                    scenario.is_best_static() && run.policy == PolicyName::Static.as_str();
                let best = is_both.then(|| RunRecord { policy: BEST.to_owned(), ..(*run).clone() });
                runs.push(*run);
                runs.extend(best);
            }
        }
    }
    info.repetitions = runs.iter().map(|run| run.repetition).max().unwrap_or(1);
    info.policies.retain(|policy| runs.iter().any(|run| run.policy == *policy));
    info.best = info.best.filter(|best| info.policies.contains(best));
    let began = runs.iter().filter_map(|run| run.origin.as_ref()).map(|it| &it.began_at).min();
    Ok(Record {
        format_version: FORMAT_VERSION,
        started_at: began.cloned().unwrap_or_default(),
        scenario: info,
        machine: machine.context("the scenario has no runs")?,
        runs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, scenario};

    fn names(parts: &[Part]) -> Vec<&str> {
        parts.iter().map(Part::name).collect()
    }

    /// A scenario in which the guest has all its memory under `static`, too.
    fn alone() -> Scenario {
        let mut alone = scenario();
        alone.guests.truncate(1);
        alone.best = true;
        let guest = &mut alone.guests[0];
        (guest.start, guest.ceiling, guest.hotplug) = (None, None, None);
        alone.host.budget = guest.memory;
        alone
    }

    fn played(policy: &str, repetition: u32, accelerator: &str) -> PartRecord {
        let mut record = fixture::record(&[(policy, &[100, 200, 300])]);
        let run = record.runs.remove(repetition as usize - 1);
        let machine = Machine { accelerator: accelerator.to_owned(), ..record.machine };
        PartRecord::Run { machine: Box::new(machine), run: Box::new(run) }
    }

    #[test]
    fn contestants_take_turns_and_needs_come_once() {
        let mut scenario = scenario();
        (scenario.needs, scenario.best) = (true, true);
        assert_eq!(names(&parts(&scenario, 1)), ["what guests need", "static", "global", "best"]);
        assert_eq!(names(&parts(&scenario, 2)), ["static", "global", "best"]);
    }

    #[test]
    fn best_is_played_once_where_it_is_static() {
        let alone = alone();
        assert_eq!(names(&parts(&alone, 1)), ["static", "global"]);
        assert_eq!(part_of(&alone, BEST).name(), "static");
        let record = record(&alone, "", vec![played("static", 1, "tcg")]).unwrap();
        let policies: Vec<&str> = record.runs.iter().map(|run| run.policy.as_str()).collect();
        assert_eq!((policies, record.scenario.best.as_deref()), (vec!["static", BEST], Some(BEST)));
        assert_eq!(record.runs[0].guests, record.runs[1].guests);
    }

    #[test]
    fn a_record_has_what_was_played_and_no_more() {
        let mut scenario = scenario();
        (scenario.needs, scenario.best) = (true, true);
        let needs = PartRecord::Needs { needs: BTreeMap::from([("a".to_owned(), 7)]) };
        let parts = vec![needs, played("global", 1, "tcg"), played("global", 2, "tcg")];
        let record = record(&scenario, "about it", parts).unwrap();
        assert_eq!(record.scenario.policies, ["global"]);
        assert_eq!((record.scenario.repetitions, record.runs.len()), (2, 2));
        assert_eq!(record.scenario.best, None);
        let needs: Vec<_> = record.scenario.guests.iter().map(|it| it.needs_bytes).collect();
        assert_eq!(needs, [Some(7), None]);
    }

    #[test]
    fn runs_of_two_accelerators_make_no_record() {
        let scenario = scenario();
        let parts = vec![played("static", 1, "tcg"), played("global", 1, "kvm")];
        let error = record(&scenario, "", parts).unwrap_err().to_string();
        assert!(error.contains("tcg") && error.contains("kvm"), "{error}");
        assert!(record(&scenario, "", Vec::new()).is_err());
    }

    #[test]
    fn a_part_is_expected_to_take_what_its_scenario_says() {
        let (mut scenario, part) = (scenario(), Part::Run("global".to_owned()));
        let longer = |scenario: &Scenario| {
            let overhead = part.expected(scenario).checked_sub(scenario.duration).unwrap();
            overhead.as_secs()
        };
        let before = longer(&scenario);
        assert!((10..60).contains(&before), "{before}");
        scenario.guests[0].workloads[0].prepared = true;
        assert!(longer(&scenario) > before, "filling takes time");
        let alone = tws_processor();
        let expected = part.expected(&alone).as_secs();
        assert!((720..800).contains(&expected), "ends with its work: {expected}");
        assert_eq!(Part::Needs.expected(&scenario), NEEDS);
    }

    fn tws_processor() -> Scenario {
        let text = include_str!("../../../scenarios/lab/tws-processor.toml");
        Scenario::parse(text, std::path::Path::new("tws-processor.toml")).unwrap()
    }

    #[test]
    fn identity_is_what_a_result_depends_on() {
        let (scenario, part) = (scenario(), Part::Run("global".to_owned()));
        let identity = |change: &dyn Fn(&mut Scenario)| {
            let mut changed = scenario.clone();
            change(&mut changed);
            part.identity(&changed)
        };
        let same = identity(&|_| ());
        assert_eq!(identity(&|it| it.repetitions = 9), same);
        assert_eq!(identity(&|it| (it.best, it.needs) = (true, true)), same);
        assert_eq!(identity(&|it| it.policies.retain(|policy| policy == "global")), same);
        assert_eq!(identity(&|it| it.paper.push(serde_json::Map::new())), same);
        assert_ne!(identity(&|it| it.duration += Duration::from_secs(1)), same);
        assert_ne!(identity(&|it| it.settings.track = !it.settings.track), same);
        assert_ne!(identity(&|it| it.guests[0].start = None), same);
        assert_ne!(
            identity(&|it| drop(it.policy.insert("interval".to_owned(), "9s".into()))),
            same
        );
        assert_ne!(Part::Run("static".to_owned()).identity(&scenario), same);
    }

    #[test]
    fn a_part_that_was_kept_reads_back() {
        for part in [
            played("static", 1, "tcg"),
            PartRecord::Needs { needs: BTreeMap::from([("a".to_owned(), 7)]) },
        ] {
            let text = serde_json::to_string(&part).unwrap();
            assert_eq!(serde_json::from_str::<PartRecord>(&text).unwrap(), part);
        }
    }
}
