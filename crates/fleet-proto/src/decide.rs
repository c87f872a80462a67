//! From the view of a fleet to the leader's plan.
//!
//! Idea: plan, have the checker judge the plan, and make a record of it. If the checker refuses the
//! plan, the record has the violations and no migrations.

use ballast_fleet::{FleetSettings, Migration, MigrationPlan, check, plan};
use ballast_model::Timestamp;

use crate::coordinator::Revision;
use crate::plan_record::{
    LeftOutRecord, MODE_MOVE, MigrationRecord, PlanRecord, UnmetNeedRecord, listed,
};
use crate::view::FleetView;

/// A plan and its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The plan; without migrations if the checker refused it.
    pub plan: MigrationPlan,
    /// The plan as it is written.
    pub record: PlanRecord,
}

/// The plan at `now` of `leader`, whose leadership began with the revision `leadership`.
pub fn decide(
    view: &FleetView,
    settings: &FleetSettings,
    leader: &str,
    leadership: Revision,
    mode: &str,
    now: Timestamp,
) -> Decision {
    let (snapshot, refused) = view.snapshot(now);
    let mut plan = match view.paused_by() {
        None => plan(&snapshot, settings, now),
        Some(_) => MigrationPlan::default(),
    };
    let violations = check(&snapshot, settings, &plan, now).err().unwrap_or_default();
    if !violations.is_empty() {
        plan.migrations.clear();
        plan.waiting.clear();
    }
    let is_by_hand = |it: &Migration| {
        mode != MODE_MOVE || !view.executes_moves(&it.from) || !view.executes_moves(&it.to)
    };
    let migration = |it: &Migration| MigrationRecord::of(it, is_by_hand(it));
    let mut unlisted = 0;
    let record = PlanRecord {
        leader: leader.to_owned(),
        leader_revision: leadership.0,
        planned_at_revision: view.revision().0,
        mode: mode.to_owned(),
        paused_by: view.paused_by().map(str::to_owned),
        hosts: snapshot.hosts().len(),
        guests: snapshot.hosts().iter().map(|host| host.guests.len()).sum(),
        migrations: listed(&plan.migrations, &mut unlisted, migration),
        waiting: listed(&plan.waiting, &mut unlisted, migration),
        unmet: listed(&plan.unmet, &mut unlisted, |it| UnmetNeedRecord {
            host: it.host.to_string(),
            text: it.to_string(),
        }),
        left_out: listed(&refused, &mut unlisted, |it| LeftOutRecord {
            host: it.host.to_string(),
            text: it.fault.clone(),
        }),
        violations: listed(&violations, &mut unlisted, ToString::to_string),
        unlisted,
    };
    Decision { plan, record }
}
