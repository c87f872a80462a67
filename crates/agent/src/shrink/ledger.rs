//! What a limit was before it was lowered, kept where a killed agent's successor finds it.
//!
//! Idea: two numbers in a file under `/run`, written before the limit is lowered: what it was, and what it
//! was set to. If it is no longer what it was set to, somebody else has changed it, and it stays.
//! Limits: where the folder cannot be written to, the note lives as long as the agent.

use std::fs;
use std::path::PathBuf;

/// A note of one program's limit.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    noted: Option<(u64, u64)>,
}

impl Ledger {
    /// The note at `path`, if there is one.
    pub fn new(path: PathBuf) -> Ledger {
        let noted = fs::read_to_string(&path).ok().and_then(|text| {
            let (was, set) = text.trim().split_once(' ')?;
            Some((was.parse().ok()?, set.parse().ok()?))
        });
        Ledger { path, noted }
    }

    /// Notes that a limit that is `now` will be `set`. What it was at first stays noted as long as
    /// nobody else changed it.
    pub fn lower(&mut self, now: u64, set: u64) {
        let was = self.noted.filter(|(_, set_last)| *set_last == now).map_or(now, |(was, _)| was);
        self.noted = Some((was, set));
        if let Some(folder) = self.path.parent() {
            let _ = fs::create_dir_all(folder);
        }
        let _ = fs::write(&self.path, format!("{was} {set}\n"));
    }

    /// What to raise a limit to that is `now`; `None`: it is to stay.
    pub fn raise(&self, now: u64) -> Option<u64> {
        self.noted.filter(|(_, set)| *set == now).map(|(was, _)| was)
    }

    /// Whether a limit was lowered.
    pub const fn is_lowered(&self) -> bool {
        self.noted.is_some()
    }

    /// It was raised, or is to stay.
    pub fn settle(&mut self) {
        self.noted = None;
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_limit_comes_back_even_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/redis");
        let mut ledger = Ledger::new(path.clone());
        assert!(!ledger.is_lowered());
        ledger.lower(100, 80);
        ledger.lower(80, 60);
        let mut again = Ledger::new(path.clone());
        assert_eq!(again.raise(60), Some(100));
        assert_eq!(again.raise(70), None, "somebody else set it");
        again.settle();
        assert!(!path.exists() && !Ledger::new(path).is_lowered());
    }
}
