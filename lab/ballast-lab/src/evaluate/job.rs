//! What has to run for the rows chosen: one scenario, or one folder of series, once.
//!
//! Idea: rows share jobs, and a job's name and inputs tell whether its result is already there. The
//! inputs are the program itself and the files that it reads, by their contents, so that a changed
//! scenario or program runs anew whether it is committed or not.
//! Limits: a guest's kernel and QEMU, which only real guests have, do not count as inputs; a lab's
//! record names them.

use std::collections::hash_map::DefaultHasher;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use super::catalogue::{Row, Way};

/// Largest input, in bytes, but for the program.
pub(crate) const INPUT_BYTES_MAX: u64 = 16 << 20;
/// Most series in a folder.
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
    /// From 1; of a simulation each has a seed of its own.
    pub(crate) repetition: u32,
}

impl Task {
    /// The tasks of a row, in order.
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

    /// Whether it takes real guests.
    pub(crate) const fn is_real(&self) -> bool {
        matches!(self, Task::Lab { .. })
    }

    /// How often it is worth running at most: what is replayed gives the same each time.
    pub(crate) const fn repetitions(&self, wanted: u32) -> u32 {
        match self {
            Task::Series { .. } => 1,
            Task::Simulate { .. } | Task::Lab { .. } => wanted,
        }
    }

    /// What it does, in words.
    pub(crate) fn told(&self) -> String {
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
    /// A folder that cannot be read, or has too many.
    pub(crate) fn inputs(&self, scenarios: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let Task::Series { folder, .. } = self else {
            let (Task::Simulate { scenario, .. } | Task::Lab { scenario }) = self else {
                return Ok(Vec::new());
            };
            return Ok(vec![scenarios.join(scenario)]);
        };
        let folder = scenarios.join(folder);
        let told = || format!("cannot read the series in {}", folder.display());
        let entries = std::fs::read_dir(&folder).with_context(told)?;
        let paths = entries.map(|entry| Ok(entry?.path()));
        let mut paths: Vec<PathBuf> = paths.collect::<std::io::Result<_>>().with_context(told)?;
        paths.retain(|path| path.extension().is_some_and(|it| it == "csv"));
        paths.sort();
        ensure!(!paths.is_empty(), "{}: no series *.csv in it", folder.display());
        ensure!(paths.len() <= SERIES_MAX, "{}: more than {SERIES_MAX} series", folder.display());
        Ok(paths)
    }
}

impl Job {
    /// Its name as part of a file's: letters, digits and dashes.
    pub(crate) fn name(&self) -> String {
        let told = self.task.told();
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let words: String = told.chars().map(plain).collect();
        let words: Vec<&str> = words.split('-').filter(|word| !word.is_empty()).collect();
        format!("{}-{}", words.join("-"), self.repetition)
    }

    /// A fingerprint of itself and of all that its result depends on; `program` is the program's.
    ///
    /// # Errors
    /// An input cannot be read.
    pub(crate) fn fingerprint(&self, program: u64, scenarios: &Path) -> anyhow::Result<String> {
        let mut hasher = DefaultHasher::new();
        (self, program).hash(&mut hasher);
        for path in self.task.inputs(scenarios)? {
            read_bounded(&path)?.hash(&mut hasher);
        }
        Ok(format!("{:016x}", hasher.finish()))
    }
}

/// The contents of a file of a reasonable size.
///
/// # Errors
/// It cannot be read, or is larger than that.
pub(crate) fn read_bounded(path: &Path) -> anyhow::Result<String> {
    let told = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(told)?;
    let mut text = String::new();
    file.take(INPUT_BYTES_MAX + 1).read_to_string(&mut text).with_context(told)?;
    let is_bounded = text.len() as u64 <= INPUT_BYTES_MAX;
    ensure!(is_bounded, "{}: more than {INPUT_BYTES_MAX} bytes", path.display());
    Ok(text)
}

/// A fingerprint of this program's file.
///
/// # Errors
/// It cannot be read.
pub(crate) fn program() -> anyhow::Result<u64> {
    const PART_BYTES: usize = 1 << 20;
    let path = std::env::current_exe().context("cannot find this program's own file")?;
    let told = || format!("cannot read this program's own file {}", path.display());
    let mut file = File::open(&path).with_context(told)?;
    let mut hasher = DefaultHasher::new();
    let mut part = vec![0; PART_BYTES];
    loop {
        let count = file.read(&mut part).with_context(told)?;
        if count == 0 {
            return Ok(hasher.finish());
        }
        hasher.write(&part[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(scenario: &str, repetition: u32) -> Job {
        let task = Task::Simulate { scenario: scenario.to_owned(), policies: None };
        Job { task, repetition }
    }

    #[test]
    fn names_are_plain_and_tell_jobs_apart() {
        assert_eq!(job("lab/meb-2.toml", 3).name(), "simulate-lab-meb-2-toml-3");
        let policies = Some("global,mom".to_owned());
        let task = Task::Simulate { scenario: "a.toml".to_owned(), policies };
        let name = Job { task, repetition: 1 }.name();
        assert_eq!(name, "simulate-a-toml-policy-global-mom-1");
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
