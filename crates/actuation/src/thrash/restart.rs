//! Handing a guest's thrash history over to the next daemon, and taking it over from the last one
//! or from another host.
//!
//! Limits: reductions under way when a daemon ended are never judged. The last reductions are taken
//! over as one, with their sum.

use ballast_model::{Regret, Thrashed};

use super::{Cost, Hold, ThrashChanges, ThrashDetector};

impl ThrashDetector {
    /// The size below which the guest may not be shrunk, and the pause for that.
    pub fn thrashed(&self) -> Option<Thrashed> {
        self.changes.as_ref()?.hold.map(|Hold { at, until, pause }| Thrashed {
            least: at,
            until,
            pause,
        })
    }

    /// Replaces this host's record of where the guest thrashed by that of another host.
    pub fn carry(&mut self, thrashed: Thrashed) {
        let Thrashed { least, until, pause } = thrashed;
        self.changes.get_or_insert_default().hold = Some(Hold { at: least, until, pause });
    }

    /// A detector that continues where the last daemon's ended.
    pub fn restored(thrashed: Option<Thrashed>, regret: Option<Regret>) -> ThrashDetector {
        let hold = |Thrashed { least, until, pause }| Hold { at: least, until, pause };
        let cost = |Regret { taken, read_back, .. }| Cost { taken, read_back };
        if thrashed.is_none() && regret.is_none() {
            return ThrashDetector::default();
        }
        let changes = ThrashChanges {
            remembered: regret.map(cost).into_iter().collect(),
            undone: regret.map_or(0, |regret| regret.undone),
            hold: thrashed.map(hold),
            ..ThrashChanges::default()
        };
        ThrashDetector { changes: Some(Box::new(changes)), ..ThrashDetector::default() }
    }
}
