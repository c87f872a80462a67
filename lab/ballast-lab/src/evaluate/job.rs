//! The jobs for the chosen rows: a simulated scenario or a folder of series as a whole, a scenario
//! with real guests run by run.
//!
//! Idea: rows share jobs. A job's name and inputs show whether its result is already there. Of a
//! scenario with real guests, only the contestants run whose figures a row needs.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use ballast_lab_host::Scenario;
use ballast_scenario_run::part::Part;

use super::catalogue::{Row, Way};
use crate::played;
use crate::state::{self, Fingerprint};

/// The largest input, in bytes; the program's own file may be larger.
pub(crate) const INPUT_BYTES_MAX: u64 = 16 << 20;
/// The greatest number of series in a folder.
const SERIES_MAX: usize = 256;

/// What is to run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Task {
    /// A scenario in the simulator, under these policies instead of its own.
    Simulate { scenario: String, policies: Option<String> },
    /// A scenario on real guests.
    Lab { scenario: String },
    /// Recorded series, with the events of a column.
    Series { folder: String, events: String },
}

/// One run of a task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Job {
    pub(crate) task: Task,
    /// From 1; each repetition of a simulation has its own seed.
    pub(crate) repetition: u32,
    /// The part of a scenario with real guests; `None`: the job is a whole task of another kind.
    pub(crate) part: Option<Part>,
}

impl Task {
    /// The tasks of a row, in their order.
    pub(crate) fn of(row: &Row) -> Vec<Task> {
        match &row.way {
            Way::Simulate { scenarios, policies } => {
                let task = |scenario: &String| Task::Simulate {
                    scenario: scenario.clone(),
                    policies: policies.clone(),
                };
                scenarios.iter().map(task).collect()
            }
            Way::Lab { scenarios } => {
                let task = |scenario: &String| Task::Lab { scenario: scenario.clone() };
                scenarios.iter().map(task).collect()
            }
            Way::Series { folder, events } => {
                vec![Task::Series { folder: folder.clone(), events: events.clone() }]
            }
            Way::Nothing { .. } => Vec::new(),
        }
    }

    /// Whether it needs real guests.
    pub(crate) const fn is_real(&self) -> bool {
        matches!(self, Task::Lab { .. })
    }

    /// The useful number of repetitions: a replay gives the same result each time, so one is
    /// enough.
    pub(crate) const fn repetitions(&self, wanted: u32) -> u32 {
        match self {
            Task::Series { .. } => 1,
            Task::Simulate { .. } | Task::Lab { .. } => wanted,
        }
    }

    /// A description in words.
    pub(crate) fn description(&self) -> String {
        match self {
            Task::Simulate { scenario, policies: None } => format!("simulate {scenario}"),
            Task::Simulate { scenario, policies: Some(policies) } => {
                format!("simulate {scenario} --policy {policies}")
            }
            Task::Lab { scenario } => format!("lab run {scenario}"),
            Task::Series { folder, events } => format!("imt {folder} --events {events}"),
        }
    }

    /// The name of the scenario or folder, without its path.
    pub(crate) fn subject(&self) -> &str {
        let path = match self {
            Task::Simulate { scenario, .. } | Task::Lab { scenario } => scenario,
            Task::Series { folder, .. } => folder,
        };
        let name = path.rsplit('/').next().unwrap_or(path);
        name.strip_suffix(".toml").unwrap_or(name)
    }

    /// The files that it reads, in a fixed order.
    ///
    /// # Errors
    /// The folder cannot be read, or has too many files.
    pub(crate) fn inputs(&self, scenarios: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let Task::Series { folder, .. } = self else {
            let (Task::Simulate { scenario, .. } | Task::Lab { scenario }) = self else {
                return Ok(Vec::new());
            };
            return Ok(vec![scenarios.join(scenario)]);
        };
        let folder = scenarios.join(folder);
        let context = || format!("cannot read the series in {}", folder.display());
        let entries = std::fs::read_dir(&folder).with_context(context)?;
        let paths = entries.map(|entry| Ok(entry?.path()));
        let mut paths: Vec<PathBuf> =
            paths.collect::<std::io::Result<_>>().with_context(context)?;
        paths.retain(|path| path.extension().is_some_and(|it| it == "csv"));
        paths.sort();
        ensure!(!paths.is_empty(), "{}: no series *.csv in it", folder.display());
        ensure!(paths.len() <= SERIES_MAX, "{}: more than {SERIES_MAX} series", folder.display());
        Ok(paths)
    }
}

impl Job {
    /// A description in words.
    pub(crate) fn description(&self) -> String {
        let part = self.part.as_ref().map(|part| format!(", {}", part.name()));
        let repetition = match self.repetition {
            1 => String::new(),
            repetition => format!(", repetition {repetition}"),
        };
        format!("{}{}{repetition}", self.task.description(), part.unwrap_or_default())
    }

    /// Its name, usable in a file's name.
    pub(crate) fn name(&self) -> String {
        match &self.part {
            Some(part) => played::name(self.task.subject(), part, self.repetition),
            None => state::plain_name(&format!("{} {}", self.task.description(), self.repetition)),
        }
    }

    /// A fingerprint of the job and of everything that its result depends on; `program` is the
    /// hash of the program's file.
    ///
    /// # Errors
    /// An input cannot be read.
    pub(crate) fn fingerprint(
        &self,
        program: u64,
        scenarios: &Path,
    ) -> anyhow::Result<Fingerprint> {
        if let (Task::Lab { scenario }, Some(part)) = (&self.task, &self.part) {
            let scenario = lab_scenario(&scenarios.join(scenario))?;
            return Ok(played::fingerprint(&scenario, part, self.repetition, program));
        }
        let inputs = self.task.inputs(scenarios)?;
        let texts = inputs.iter().map(|path| read_bounded(path));
        Ok(Fingerprint::new(self, &texts.collect::<anyhow::Result<Vec<_>>>()?, program))
    }
}

/// Reads the scenario with real guests in the file `path`.
///
/// # Errors
/// It cannot be read, or its first mistake.
pub(crate) fn lab_scenario(path: &Path) -> anyhow::Result<Scenario> {
    Ok(Scenario::parse(&read_bounded(path)?, path)?)
}

/// The contents of a file of at most [`INPUT_BYTES_MAX`].
///
/// # Errors
/// It cannot be read, or is larger.
pub(crate) fn read_bounded(path: &Path) -> anyhow::Result<String> {
    let context = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(context)?;
    let mut text = String::new();
    file.take(INPUT_BYTES_MAX + 1).read_to_string(&mut text).with_context(context)?;
    let is_bounded = text.len() as u64 <= INPUT_BYTES_MAX;
    ensure!(is_bounded, "{}: more than {INPUT_BYTES_MAX} bytes", path.display());
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(scenario: &str, repetition: u32) -> Job {
        let task = Task::Simulate { scenario: scenario.to_owned(), policies: None };
        Job { task, repetition, part: None }
    }

    #[test]
    fn names_are_plain_and_tell_jobs_apart() {
        assert_eq!(job("lab/meb-2.toml", 3).name(), "simulate-lab-meb-2-toml-3");
        let policies = Some("global,mom".to_owned());
        let task = Task::Simulate { scenario: "a.toml".to_owned(), policies };
        let name = Job { task, repetition: 1, part: None }.name();
        assert_eq!(name, "simulate-a-toml-policy-global-mom-1");
        let task = Task::Lab { scenario: "a.toml".to_owned() };
        let part = Some(Part::Run("rival:mom".to_owned()));
        let real = Job { task, repetition: 2, part };
        assert_eq!(real.name(), "lab-run-a-rival-mom-2");
        assert_eq!(real.description(), "lab run a.toml, rival:mom, repetition 2");
        assert_ne!(job("a.toml", 1).name(), job("a.toml", 2).name());
    }

    #[test]
    fn a_fingerprint_changes_with_every_input() {
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| std::fs::write(folder.path().join("a.toml"), text).unwrap();
        let print = |job: &Job, program| job.fingerprint(program, folder.path()).unwrap();
        write("one");
        let first = print(&job("a.toml", 1), 7);
        assert_eq!(print(&job("a.toml", 1), 7), first);
        assert_ne!(print(&job("a.toml", 1), 8), first);
        assert_ne!(print(&job("a.toml", 2), 7), first);
        write("two");
        assert_ne!(print(&job("a.toml", 1), 7), first);
        let error = job("b.toml", 1).fingerprint(7, folder.path()).unwrap_err();
        assert!(format!("{error:#}").contains("b.toml"), "{error:#}");
    }

    #[test]
    fn a_series_is_replayed_once() {
        let task = Task::Series { folder: "s".to_owned(), events: "e".to_owned() };
        assert_eq!((task.repetitions(5), job("a.toml", 1).task.repetitions(5)), (1, 5));
    }
}
