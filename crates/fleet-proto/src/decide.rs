//! From what is known of a fleet to the leader's plan.
//!
//! Idea: plan, have it checked, and make it a record. A plan that the checker refuses is written
//! with what is wrong and without its migrations.

use ballast_fleet::{FleetSettings, HostId, MigrationPlan, check, plan};
use ballast_model::Timestamp;

use crate::coordinator::Revision;
use crate::plan_record::{PlanHeader, PlanRecord};
use crate::view::FleetView;

/// A plan, and how it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The plan; one that the checker refused moves nothing.
    pub plan: MigrationPlan,
    /// Its record.
    pub record: PlanRecord,
}

/// The plan of `leader`, whose leadership began with the revision `leadership`, at `now`.
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
    let carries = |host: &HostId| view.carries_moves(host);
    let record = PlanRecord::new(header, &plan, &refused, &violations, carries);
    Decision { plan, record }
}
