//! Handing a guest's thrash history over to the next daemon, and taking it over from the last one
//! or from another host.
//!
//! Limits: reductions under way when a daemon ended are never judged. The last reductions are taken
//! over as one, with their sum.

use ballast_model::{Regret, Thrashed};

use super::{Cost, Reductions, ThrashDetector};

impl ThrashDetector {
    /// The size below which the guest may not be shrunk, and the pause for that.
    pub fn thrashed(&self) -> Option<Thrashed> {
        self.reductions.as_ref()?.thrashed
    }

    /// Replaces this host's record of where the guest thrashed by that of another host.
    pub fn carry(&mut self, thrashed: Thrashed) {
        self.reductions.get_or_insert_default().thrashed = Some(thrashed);
    }

    /// A detector that continues where the last daemon's ended.
    pub fn restored(thrashed: Option<Thrashed>, regret: Option<Regret>) -> ThrashDetector {
        if thrashed.is_none() && regret.is_none() {
            return ThrashDetector::default();
        }
        let cost = |Regret { taken, read_back, .. }| Cost { taken, read_back };
        let reductions = Reductions {
            watched: None,
            costs: regret.map(cost).into_iter().collect(),
            undone: regret.map_or(0, |regret| regret.undone),
            thrashed,
        };
        ThrashDetector { reductions: Some(Box::new(reductions)), ..ThrashDetector::default() }
    }
}
