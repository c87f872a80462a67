//! Records a program's original limit before it is lowered, so that it can be restored even by the
//! successor of a killed agent.
//!
//! The record is a file under `/run` with two numbers: the original limit and the lowered one. If
//! the current limit is not the lowered one, another program has changed it, and it is left alone.
//! Limits: if the folder is not writable, the record lives only as long as the agent.

use std::fs;
use std::path::PathBuf;

/// The record of one program's limit.
#[derive(Debug)]
pub struct LimitRecord {
    path: PathBuf,
    /// The original limit and the lowered one.
    limits: Option<(u64, u64)>,
}

impl LimitRecord {
    /// Reads the record at `path`, if it exists.
    pub fn open(path: PathBuf) -> LimitRecord {
        let limits = fs::read_to_string(&path).ok().and_then(|text| {
            let (original, lowered) = text.trim().split_once(' ')?;
            Some((original.parse().ok()?, lowered.parse().ok()?))
        });
        LimitRecord { path, limits }
    }

    /// Records that the limit will be lowered from `current` to `lowered`. If the limit is already
    /// lowered, the original one stays recorded.
    pub fn lower(&mut self, current: u64, lowered: u64) {
        let original = self.original(current).unwrap_or(current);
        self.limits = Some((original, lowered));
        if let Some(folder) = self.path.parent() {
            let _ = fs::create_dir_all(folder);
        }
        let _ = fs::write(&self.path, format!("{original} {lowered}\n"));
    }

    /// The original limit, if `current` is still the lowered one.
    pub fn original(&self, current: u64) -> Option<u64> {
        self.limits.filter(|(_, lowered)| *lowered == current).map(|(original, _)| original)
    }

    /// Whether a limit was lowered.
    pub const fn is_lowered(&self) -> bool {
        self.limits.is_some()
    }

    /// Removes the record.
    pub fn clear(&mut self) {
        self.limits = None;
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_original_limit_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/redis");
        let mut record = LimitRecord::open(path.clone());
        assert!(!record.is_lowered());
        record.lower(100, 80);
        record.lower(80, 60);
        let mut reopened = LimitRecord::open(path.clone());
        assert_eq!(reopened.original(60), Some(100));
        assert_eq!(reopened.original(70), None, "another program set it");
        reopened.clear();
        assert!(!path.exists() && !LimitRecord::open(path).is_lowered());
    }
}
