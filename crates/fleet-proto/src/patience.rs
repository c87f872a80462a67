//! Waiting before a need moves a guest: a short need moves none.
//!
//! Idea: a guest may be moved away from a host once each plan for some time has had a move away
//! from that host, of whichever guest. A drain is an order and does not wait.
//! Cost: one look-up for each move of a plan.
//! Limits: a new leader starts anew, because it remembers nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use ballast_fleet::{HostId, Migration, MigrationPlan, MigrationReason};
use ballast_model::Timestamp;

/// Since when each host has had a need.
#[derive(Clone, Debug, Default)]
pub struct NeedTimers {
    since: BTreeMap<HostId, Timestamp>,
}

impl NeedTimers {
    /// The moves to start of `plan`, made at `now`, whose need has lasted for `patience`. Has to be
    /// called with every plan.
    pub fn lasting<'a>(
        &mut self,
        plan: &'a MigrationPlan,
        patience: Duration,
        now: Timestamp,
    ) -> Vec<&'a Migration> {
        let mut since = BTreeMap::new();
        for migration in plan.migrations.iter().chain(&plan.waiting) {
            let began = self.since.get(&migration.from).copied().unwrap_or(now);
            since.insert(migration.from.clone(), began);
        }
        self.since = since;
        let lasts = |it: &&Migration| {
            it.reason == MigrationReason::Drain || self.since[&it.from] + patience <= now
        };
        plan.migrations.iter().filter(lasts).collect()
    }
}

#[cfg(test)]
mod tests {
    use ballast_model::Bytes;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn plan(moves: &[(&str, &str, MigrationReason)]) -> MigrationPlan {
        let migrations = moves.iter().map(|(guest, from, reason)| Migration {
            guest: guest.parse().unwrap(),
            from: from.parse().unwrap(),
            to: "z".parse().unwrap(),
            shrink_to: None,
            reserve: Bytes::gib(1),
            fills: Bytes::ZERO,
            bytes: Bytes::gib(1),
            traffic: Bytes::gib(1),
            copy_time: Duration::ZERO,
            reason: *reason,
        });
        MigrationPlan { migrations: migrations.collect(), ..MigrationPlan::default() }
    }

    #[test]
    fn only_a_need_that_lasts_moves_somebody() {
        let short = MigrationReason::Floors(Bytes::gib(1));
        let mut patience = NeedTimers::default();
        let at = |s: u64| Timestamp::from_millis(1000 * s);
        let a = plan(&[("g", "a", short)]);
        assert!(patience.lasting(&a, MINUTE, at(0)).is_empty());
        assert!(patience.lasting(&a, MINUTE, at(50)).is_empty());
        // The need is over for a moment, and starts anew.
        assert!(patience.lasting(&plan(&[]), MINUTE, at(55)).is_empty());
        assert!(patience.lasting(&a, MINUTE, at(60)).is_empty());
        // Another guest would be moved by now, but the need is the host's.
        let other = plan(&[("h", "a", short), ("i", "b", short)]);
        let lasting = patience.lasting(&other, MINUTE, at(120));
        assert_eq!(lasting.iter().map(|it| it.guest.as_str()).collect::<Vec<_>>(), ["h"]);
        let drained = plan(&[("g", "c", MigrationReason::Drain)]);
        assert_eq!(patience.lasting(&drained, MINUTE, at(121)).len(), 1);
        assert_eq!(patience.lasting(&a, Duration::ZERO, at(122)).len(), 1);
    }
}
