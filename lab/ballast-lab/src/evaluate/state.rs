//! What finished jobs found, kept in a folder.
//!
//! Idea: each finished job leaves one file, written whole or not at all, so that a call that was
//! ended takes up where it was. A file counts as long as its fingerprint is the job's; one that no
//! longer counts still tells how long the job takes.
//! Limits: two calls at the same time on one folder do the same work twice.

use std::path::{Path, PathBuf};

use anyhow::Context;
use ballast_report::files::Destination;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::job::Job;

/// Version of the files; others do not count.
const FORMAT: u32 = 1;
/// Largest file that is read, in bytes: a lab's record of an hour has some 10 MB.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The folder.
#[derive(Clone, Debug)]
pub(crate) struct State {
    folder: PathBuf,
}

/// What one job left.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kept {
    format: u32,
    fingerprint: String,
    /// How long it took, in seconds.
    pub(crate) took_s: f64,
    /// When it ended, RFC 3339 in UTC.
    pub(crate) ended_at: String,
    /// The commit of the program, where that is known.
    pub(crate) commit: Option<String>,
    /// What it found.
    pub(crate) result: Value,
}

impl State {
    /// The state in `folder`, which is made where it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn open(folder: &Path) -> anyhow::Result<State> {
        let told = || format!("cannot make the folder {} for results", folder.display());
        std::fs::create_dir_all(folder).with_context(told)?;
        Ok(State { folder: folder.to_owned() })
    }

    /// What `job` left; `None`: nothing that is whole and of this version.
    pub(crate) fn read(&self, job: &Job) -> Option<Kept> {
        let path = self.path(job);
        let is_bounded = std::fs::metadata(&path).ok()?.len() <= FILE_BYTES_MAX;
        let text = is_bounded.then(|| std::fs::read(&path).ok())??;
        let kept: Kept = serde_json::from_slice(&text).ok()?;
        (kept.format == FORMAT).then_some(kept)
    }

    /// Keeps what `job` found.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn keep(
        &self,
        job: &Job,
        fingerprint: String,
        took_s: f64,
        result: Value,
    ) -> anyhow::Result<Kept> {
        let (ended_at, commit) =
            (ballast_scenario_run::now(), ballast_scenario_run::machine::commit());
        let kept = Kept { format: FORMAT, fingerprint, took_s, ended_at, commit, result };
        let text = serde_json::to_string(&kept).context("a result is no JSON")?;
        Destination::open(&self.path(job))?.write(&text)?;
        Ok(kept)
    }

    /// Forgets what `job` left.
    ///
    /// # Errors
    /// The file is there and cannot be removed.
    pub(crate) fn forget(&self, job: &Job) -> anyhow::Result<()> {
        let path = self.path(job);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    fn path(&self, job: &Job) -> PathBuf {
        self.folder.join(format!("{}.json", job.name()))
    }
}

impl Kept {
    /// Whether it is of these inputs.
    pub(crate) fn is_of(&self, fingerprint: &str) -> bool {
        self.fingerprint == fingerprint
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::Task;
    use super::*;

    fn job() -> Job {
        let task = Task::Simulate { scenario: "a.toml".to_owned(), policies: None };
        Job { task, repetition: 1 }
    }

    #[test]
    fn what_was_kept_is_read_until_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(&folder.path().join("new")).unwrap();
        assert_eq!(state.read(&job()), None);
        let kept = state.keep(&job(), "f".to_owned(), 1.5, Value::from(7)).unwrap();
        assert_eq!(state.read(&job()), Some(kept.clone()));
        assert!(kept.is_of("f") && !kept.is_of("g"));
        state.forget(&job()).unwrap();
        state.forget(&job()).unwrap();
        assert_eq!(state.read(&job()), None);
    }

    #[test]
    fn a_file_that_is_no_result_counts_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        state.keep(&job(), "f".to_owned(), 1.5, Value::Null).unwrap();
        let path = state.path(&job());
        let whole = std::fs::read_to_string(&path).unwrap();
        for text in ["", "{}", &whole[..whole.len() / 2], &whole.replace(":1,", ":99,")] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(state.read(&job()), None, "{text}");
        }
    }
}
