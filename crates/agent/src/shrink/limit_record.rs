//! Records a program's original limit before it is lowered, so that it can be restored even by the
//! successor of a killed agent, and what the program used, so that it always keeps half of that.
//!
//! The record is a file under `/run` with two numbers: the original limit and the lowered one. If
//! the current limit is not the lowered one, another program has changed it, and it is left alone.
//! A second file has the most that the program used when its limit was lowered. It stays until the
//! guest boots again: a cache that was released is not full again by the next order, and would lose
//! half of the rest with each.
//! Limits: if the folder is not writable, the record lives only as long as the agent. A program
//! that needs less than before for good keeps half of what it used once.

use std::fs;
use std::path::PathBuf;

/// The record of one program's limit.
#[derive(Debug)]
pub struct LimitRecord {
    path: PathBuf,
    /// The original limit and the lowered one.
    limits: Option<(u64, u64)>,
    /// The most bytes that it used when its limit was lowered.
    used_most: u64,
}

impl LimitRecord {
    /// Reads the record at `path`, if it exists.
    pub fn open(path: PathBuf) -> LimitRecord {
        let limits = fs::read_to_string(&path).ok().and_then(|text| {
            let (original, lowered) = text.trim().split_once(' ')?;
            Some((original.parse().ok()?, lowered.parse().ok()?))
        });
        let used = fs::read_to_string(path.with_extension("used")).unwrap_or_default();
        LimitRecord { path, limits, used_most: used.trim().parse().unwrap_or(0) }
    }

    /// Records that the limit of a program that uses `used` bytes will be lowered from `current` to
    /// `lowered`, both in the program's unit. If the limit is already lowered, the original one
    /// stays recorded.
    pub fn lower(&mut self, current: u64, lowered: u64, used: u64) {
        let original = self.original(current).unwrap_or(current);
        self.limits = Some((original, lowered));
        if let Some(folder) = self.path.parent() {
            let _ = fs::create_dir_all(folder);
        }
        let _ = fs::write(&self.path, format!("{original} {lowered}\n"));
        if used > self.used_most {
            self.used_most = used;
            let _ = fs::write(self.path.with_extension("used"), format!("{used}\n"));
        }
    }

    /// The bytes that a program which uses `used` bytes keeps: half of the most it used whenever
    /// its limit was lowered since the guest booted, now included.
    pub fn keep(&self, used: u64) -> u64 {
        self.used_most.max(used) / 2
    }

    /// The original limit, if `current` is still the lowered one.
    pub fn original(&self, current: u64) -> Option<u64> {
        self.limits.filter(|(_, lowered)| *lowered == current).map(|(original, _)| original)
    }

    /// Whether a limit was lowered.
    pub const fn is_lowered(&self) -> bool {
        self.limits.is_some()
    }

    /// Removes the record of the limits.
    pub fn clear(&mut self) {
        self.limits = None;
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_original_limit_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/redis");
        let mut record = LimitRecord::open(path.clone());
        assert!(!record.is_lowered());
        record.lower(100, 80, 100);
        record.lower(80, 60, 80);
        let mut reopened = LimitRecord::open(path.clone());
        assert_eq!(reopened.original(60), Some(100));
        assert_eq!(reopened.original(70), None, "another program set it");
        reopened.clear();
        assert!(!path.exists() && !LimitRecord::open(path).is_lowered());
    }

    proptest! {
        /// A cache is asked, released, grows, loses entries, and its agent is started again.
        #[test]
        fn no_order_takes_a_cache_below_half_its_first_use(
            first in 2..1_000_000u64,
            steps in prop::collection::vec((0..5u8, 0..1_000_000u64), 0..50),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("cache");
            let mut record = LimitRecord::open(path.clone());
            let (mut used, mut limit) = (first, u64::MAX);
            for (kind, amount) in [(0, first)].into_iter().chain(steps) {
                match kind {
                    0 => {
                        let given = amount.min(used.saturating_sub(record.keep(used)));
                        if given > 0 {
                            record.lower(limit, used - given, used);
                            used -= given;
                            limit = used;
                            prop_assert!(limit >= first / 2, "{limit} of {first}");
                        }
                    }
                    1 => {
                        limit = record.original(limit).unwrap_or(limit);
                        record.clear();
                        prop_assert_eq!(limit, u64::MAX);
                    }
                    2 => used = used.saturating_add(amount).min(limit),
                    3 => used = used.saturating_sub(amount),
                    _ => record = LimitRecord::open(path.clone()),
                }
            }
        }
    }
}
