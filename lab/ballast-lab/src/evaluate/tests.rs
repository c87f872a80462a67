//! Tests that the catalogue in this tree is well-formed: everything it names exists, and every
//! figure can be judged.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ballast_lab_host::{BEST, Scenario};
use ballast_scenario_run::part::Part;
use ballast_scenario_run::simulate::contestants::policy;
use ballast_scenario_run::simulate::scenario_file::ScenarioFile;

use super::catalogue::{Catalogue, Way};
use super::figure::{Figure, contestants, figures};
use super::findings::jobs;
use super::job::{Task, read_bounded};
use super::origins::origins;
use super::run::load;

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn catalogue() -> Catalogue {
    Catalogue::read(&scenarios()).unwrap_or_else(|error| panic!("{error:#}"))
}

/// The policies that a task runs, and its guests; none for recorded series.
fn actors(task: &Task) -> (BTreeSet<String>, BTreeSet<String>) {
    match task {
        Task::Simulate { scenario, policies } => {
            let path = scenarios().join(scenario);
            let file = ScenarioFile::parse(&read_bounded(&path).unwrap(), &path).unwrap();
            let names = match policies {
                Some(list) => list.split(',').map(|it| policy(it).unwrap()).collect(),
                None => file.policies.clone(),
            };
            let guests = file.scenario.guests.iter().map(|guest| guest.id.to_string());
            (names.iter().map(ToString::to_string).collect(), guests.collect())
        }
        Task::Lab { scenario } => {
            let path = scenarios().join(scenario);
            let scenario = Scenario::parse(&read_bounded(&path).unwrap(), &path).unwrap();
            let names = scenario.contestants().into_iter().map(|it| it.name);
            let guests = scenario.guests.iter().map(|guest| guest.name.to_string());
            (names.collect(), guests.collect())
        }
        Task::Series { .. } => (BTreeSet::new(), BTreeSet::new()),
    }
}

fn all_figures() -> Vec<(String, Task, Figure)> {
    let catalogue = catalogue();
    let mut all = Vec::new();
    for (_, row) in catalogue.rows() {
        for task in Task::of(row) {
            let found = figures(row, &task, &scenarios())
                .unwrap_or_else(|error| panic!("{}: {error:#}", row.id));
            assert!(
                !found.is_empty(),
                "{}: no figure of {} is of this place",
                row.id,
                task.description()
            );
            all.extend(found.into_iter().map(|figure| (row.id.clone(), task.clone(), figure)));
        }
    }
    all
}

#[test]
fn every_row_has_a_counterpart_or_a_reason() {
    let catalogue = catalogue();
    for (_, row) in catalogue.rows() {
        match &row.way {
            Way::Nothing { because } => assert!(because.len() > 20, "{}: {because}", row.id),
            _ => assert!(!Task::of(row).is_empty(), "{}", row.id),
        }
    }
    assert!(catalogue.rows().count() > 40 && jobs(&catalogue, 2, &scenarios()).len() > 40);
}

#[test]
fn every_figure_has_a_band_that_can_hold() {
    let catalogue = catalogue();
    for (id, _, figure) in all_figures() {
        let (_, row) = catalogue.rows().find(|(_, row)| row.id == id).unwrap();
        let band = row.band(figure.measure, figure.guest.as_deref());
        let band = band.unwrap_or_else(|| panic!("{id}: {} has no band", figure.what));
        let needs_paper = |bound: super::band::Bound| bound.needs_paper();
        let is_judged =
            figure.paper.is_some() || !band.within.into_iter().chain(band.kind).any(needs_paper);
        assert!(is_judged, "{id}: {}: the band is beside a figure that is not there", figure.what);
    }
}

/// A paper's figure may be for a policy that did not run; its `what` says so.
#[test]
fn guests_and_policies_of_figures_take_part() {
    for (id, task, figure) in all_figures() {
        if matches!(task, Task::Series { .. }) {
            continue;
        }
        let (policies, guests) = actors(&task);
        let what = format!("{id}: {}: {}", task.description(), figure.what);
        assert!(figure.guest.as_ref().is_none_or(|guest| guests.contains(guest)), "{what}");
        let is_real = matches!(task, Task::Lab { .. });
        for policy in contestants(&figure) {
            // Every simulation has both baselines.
            let is_baseline = !is_real && figure.measure.baseline() == Some(policy);
            let is_known = policies.contains(policy) || policy == "esx";
            assert!(is_known || is_baseline, "{what}: {policy}");
        }
    }
}

#[test]
fn every_paper_figure_of_a_scenario_is_in_a_row() {
    let all = all_figures();
    for (_, task, _) in &all {
        let Task::Simulate { scenario, .. } = task else { continue };
        let path = scenarios().join(scenario);
        let file = ScenarioFile::parse(&read_bounded(&path).unwrap(), &path).unwrap();
        for paper in &file.paper {
            let is_it = |other: &Task, figure: &Figure| {
                other.subject() == task.subject()
                    && figure.paper == Some(paper.value)
                    && figure.what == paper.what
            };
            let is_there = all.iter().any(|(_, other, figure)| is_it(other, figure));
            assert!(is_there, "{scenario}: {} of {} is in no row", paper.what, paper.source);
        }
    }
}

/// Only those contestants run that a figure is about or is measured against.
#[test]
fn every_run_on_real_guests_is_one_that_figures_need() {
    let all = all_figures();
    for job in jobs(&catalogue(), 1, &scenarios()) {
        let Some(Part::Run(name)) = &job.part else { continue };
        let is_of = |task: &Task, figure: &Figure| {
            let stands_for_best = name == "static" && contestants(figure).contains(&BEST);
            *task == job.task && (contestants(figure).contains(&name.as_str()) || stands_for_best)
        };
        let is_needed = all.iter().any(|(_, task, figure)| is_of(task, figure));
        assert!(is_needed, "{}", job.description());
    }
}

/// A repetition has to fit into five calls of one and a half hours on a quiet machine, and a call
/// that is killed must not lose much.
#[test]
fn a_repetition_with_real_guests_takes_at_most_seven_hours() {
    let real = jobs(&catalogue(), 1, &scenarios()).into_iter().filter(|job| job.task.is_real());
    let times = real.map(|job| (load(&job, &scenarios()).amount(), job.description()));
    let times: Vec<(f64, String)> = times.collect();
    let hours = times.iter().map(|(time, _)| time).sum::<f64>() / 3600.0;
    assert!(hours <= 7.0, "{hours} hours");
    for (time, description) in times {
        assert!(time <= 900.0, "{description}: {time} s");
    }
}

/// The keys that decide how a machine behaves: its tables, and how popular pages are.
fn machine_keys(table: &toml::Table) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for key in ["swap", "data", "touch", "fill", "give_back", "kernel", "balloon", "sources"] {
        if table.get("defaults").is_some_and(|defaults| defaults.get(key).is_some()) {
            keys.insert(format!("defaults.{key}"));
        }
        let guests = table.get("guests").and_then(toml::Value::as_array);
        if guests.into_iter().flatten().any(|guest| guest.get(key).is_some()) {
            keys.insert(format!("guests.*.{key}"));
        }
    }
    for key in ["reclaim", "swap_shared", "hypervisor_reserve", "scrub_per_mib"] {
        if table.get("host").is_some_and(|host| host.get(key).is_some()) {
            keys.insert(format!("host.{key}"));
        }
    }
    if table.get("guests").is_some_and(|guests| guests.to_string().contains("exponent")) {
        keys.insert("exponent".to_owned());
    }
    keys
}

#[test]
fn every_figure_of_a_simulated_machine_has_an_origin() {
    for entry in std::fs::read_dir(scenarios()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|it| it != "toml") {
            continue;
        }
        let text = read_bounded(&path).unwrap();
        let file = ScenarioFile::parse(&text, &path).unwrap();
        let table: toml::Table = text.parse().unwrap();
        for key in machine_keys(&table) {
            let is_key = |parameter_key: &str| {
                parameter_key.starts_with(&key)
                    || (key == "exponent" && parameter_key.ends_with(".exponent"))
            };
            let known = file.parameters.iter().any(|parameter| is_key(&parameter.key));
            assert!(known, "{}: [[parameters]] says nothing of {key}", path.display());
        }
    }
    let rows = origins(&catalogue(), &scenarios()).unwrap_or_else(|error| panic!("{error:#}"));
    assert!(rows.iter().any(|row| row.scenarios.len() > 1), "none is shared");
}
