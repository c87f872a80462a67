//! The results of runs, kept in a folder.
//!
//! Idea: each finished run has one file, which is written whole or not at all, so that a call that
//! was ended can be continued. A file is valid as long as its fingerprint is that of the run:
//! hashes of the program's contents and of what it reads. So a changed scenario or program runs
//! again whether or not the change is committed. A file that is no longer valid still tells how
//! long the run takes.
//! Limits: two calls that use one folder at the same time do the same work twice. The guests'
//! kernel and QEMU are not part of the fingerprint; a lab record names them.

use std::collections::hash_map::DefaultHasher;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use ballast_report::files::Destination;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the files; files of other versions are ignored.
const FORMAT: u32 = 2;
/// The greatest size of a file that is read, in bytes: a lab record of an hour has some 10 MB.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// A folder of results.
#[derive(Clone, Debug)]
pub(crate) struct State {
    folder: PathBuf,
}

/// Everything that a result depends on, as hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fingerprint {
    /// Of the run and of everything that it reads.
    run: u64,
    /// Of the program's file.
    program: u64,
}

/// The result of one run, as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kept {
    format: u32,
    fingerprint: Fingerprint,
    /// How long it took, in seconds.
    pub(crate) took_s: f64,
    /// When it ended, RFC 3339 in UTC.
    pub(crate) ended_at: String,
    /// Its result.
    pub(crate) result: Value,
}

impl State {
    /// Opens `folder`, which is created if it is missing.
    ///
    /// # Errors
    /// It cannot be created.
    pub(crate) fn open(folder: &Path) -> anyhow::Result<State> {
        let context = || format!("cannot make the folder {} for results", folder.display());
        std::fs::create_dir_all(folder).with_context(context)?;
        Ok(State { folder: folder.to_owned() })
    }

    /// Opens `folder` only for reading: it is not created.
    pub(crate) fn reading(folder: &Path) -> State {
        State { folder: folder.to_owned() }
    }

    /// The kept result of the run `name`; `None`: there is none that is whole and of this version.
    pub(crate) fn read(&self, name: &str) -> Option<Kept> {
        let path = self.path(name);
        let is_bounded = std::fs::metadata(&path).ok()?.len() <= FILE_BYTES_MAX;
        let text = is_bounded.then(|| std::fs::read(&path).ok())??;
        let kept: Kept = serde_json::from_slice(&text).ok()?;
        (kept.format == FORMAT).then_some(kept)
    }

    /// Keeps the result of the run `name`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn keep(
        &self,
        name: &str,
        fingerprint: Fingerprint,
        took_s: f64,
        result: Value,
    ) -> anyhow::Result<Kept> {
        let ended_at = ballast_scenario_run::now();
        let kept = Kept { format: FORMAT, fingerprint, took_s, ended_at, result };
        let text = serde_json::to_string(&kept).context("a result is no JSON")?;
        Destination::open(&self.path(name))?.write(&text)?;
        Ok(kept)
    }

    /// Deletes the kept result of the run `name`.
    ///
    /// # Errors
    /// The file exists and cannot be removed.
    pub(crate) fn forget(&self, name: &str) -> anyhow::Result<()> {
        let path = self.path(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }
}

/// A file name for the run described by `description`: letters, digits and dashes.
pub(crate) fn plain_name(description: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let words: String = description.chars().map(plain).collect();
    let words: Vec<&str> = words.split('-').filter(|word| !word.is_empty()).collect();
    words.join("-")
}

impl Fingerprint {
    /// That of `run`, which reads `texts`; `program` is the hash of the program's file.
    pub(crate) fn new(run: &impl Hash, texts: &[String], program: u64) -> Fingerprint {
        let mut hasher = DefaultHasher::new();
        (run, texts).hash(&mut hasher);
        Fingerprint { run: hasher.finish(), program }
    }
}

/// A hash of this program's file.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn program() -> anyhow::Result<u64> {
    const PART_BYTES: usize = 1 << 20;
    let path = std::env::current_exe().context("cannot find this program's own file")?;
    let context = || format!("cannot read this program's own file {}", path.display());
    let mut file = File::open(&path).with_context(context)?;
    let mut hasher = DefaultHasher::new();
    let mut part = vec![0; PART_BYTES];
    loop {
        let count = file.read(&mut part).with_context(context)?;
        if count == 0 {
            return Ok(hasher.finish());
        }
        hasher.write(&part[..count]);
    }
}

impl Kept {
    /// Whether this is the result of the run with this `fingerprint`.
    pub(crate) fn is_of(&self, fingerprint: Fingerprint) -> bool {
        self.fingerprint == fingerprint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "simulate-a-toml-1";

    fn of(run: &str, program: u64, text: &str) -> Fingerprint {
        Fingerprint::new(&run, &[text.to_owned()], program)
    }

    #[test]
    fn what_was_kept_is_read_until_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(&folder.path().join("new")).unwrap();
        assert_eq!(state.read(RUN), None);
        let kept = state.keep(RUN, of("run", 7, "one"), 1.5, Value::from(7)).unwrap();
        assert_eq!(state.read(RUN), Some(kept));
        state.forget(RUN).unwrap();
        state.forget(RUN).unwrap();
        assert_eq!(state.read(RUN), None);
    }

    #[test]
    fn a_file_that_is_no_result_counts_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        state.keep(RUN, of("run", 7, "one"), 1.5, Value::Null).unwrap();
        let path = state.path(RUN);
        let whole = std::fs::read_to_string(&path).unwrap();
        for text in
            ["", "{}", &whole[..whole.len() / 2], &whole.replace("\"format\":2", "\"format\":1")]
        {
            std::fs::write(&path, text).unwrap();
            assert_eq!(state.read(RUN), None, "{text}");
        }
    }

    #[test]
    fn names_are_plain() {
        assert_eq!(
            plain_name("lab run lab/meb-2.toml, rival:mom 3"),
            "lab-run-lab-meb-2-toml-rival-mom-3"
        );
    }

    #[test]
    fn a_result_counts_for_its_run_texts_and_program() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        let own = of("run", 7, "one");
        let kept = state.keep(RUN, own, 1.5, Value::Null).unwrap();
        assert!(kept.is_of(own));
        for other in [of("nur", 7, "one"), of("run", 7, "two"), of("run", 8, "one")] {
            assert!(!kept.is_of(other), "{other:?}");
        }
    }
}
