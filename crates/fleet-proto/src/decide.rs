//! From the view of a fleet to the leader's plan.
//!
//! Idea: plan, have the checker judge the plan, and make a record of it. If the checker refuses the
//! plan, the record has the violations and no migrations.

use ballast_fleet::{FleetSettings, HostId, MigrationPlan, check, plan};
use ballast_model::Timestamp;

use crate::coordinator::Revision;
use crate::plan_record::{PlanHeader, PlanRecord};
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
    let paused_by = view.paused_by().map(str::to_owned);
    let mut plan = match paused_by {
        None => plan(&snapshot, settings, now),
        Some(_) => MigrationPlan::default(),
    };
    let violations = match paused_by {
        None => check(&snapshot, settings, &plan, now).err().unwrap_or_default(),
        Some(_) => Vec::new(),
    };
    if !violations.is_empty() {
        plan.migrations.clear();
        plan.waiting.clear();
    }
    let header = PlanHeader {
        leader: leader.to_owned(),
        leadership,
        planned_at: view.revision(),
        mode: mode.to_owned(),
        paused_by,
        hosts: snapshot.hosts().len(),
        guests: snapshot.hosts().iter().map(|host| host.guests.len()).sum(),
    };
    let carries = |host: &HostId| view.executes_moves(host);
    let record = PlanRecord::new(header, &plan, &refused, &violations, carries);
    Decision { plan, record }
}
