//! Who leads the fleet, and what the leader does.
//!
//! Idea: the leader's key is under its host's lease, so if the leader is gone, the key is free
//! within that time. A host that does not lead waits for the key to go, which costs nothing. The
//! leader watches all keys. It writes a plan when the plan has changed, under the condition that
//! the leader's key is still the one it wrote: a leader that was replaced without knowing it writes
//! nothing.
//! In mode `move` it also orders the moves of its plan and settles the records of moves, under the
//! same condition. It orders nothing until one lease after its election, because an earlier plan
//! knows only the hosts that have registered by then.
//! Cost: one plan a tick, on one host.
//! Limits: moves are settled tick by tick; hosts do not wait for that.

use std::collections::BTreeMap;
use std::time::Duration;

use ballast_fleet_move::Term;
use ballast_fleet_proto::{
    Author, Condition, Coordinator, CoordinatorError, Decision, FleetKey, FleetView, KeyWatch,
    KeyWrite, LeaderWrite, MoveEntry, NeedTimers, PlanRecord, PutResult, RecordError, Revision,
    decide, decode, encode, leader_writes,
};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use crate::config::FleetMode;
use crate::host_record::Daemon;
use crate::session::{Member, RETRY, Session, SessionEnd};

/// After this long the leader opens a new watch, because a connection may have died unnoticed.
const WATCH_TIME_MAX: Duration = Duration::from_secs(60);
/// The same for hosts that only wait for the leader to go; it costs each of them one read.
const FOLLOWER_WATCH_TIME_MAX: Duration = Duration::from_secs(600);

/// What the log says of a leader in mode `advise` while other hosts wait for orders.
const ORDERS_NOTHING: &str = "leads in mode `advise` and orders no move, though other hosts are in \
                              mode `move`: set `mode = \"move\"` or `leads = false` here";

/// What a leader keeps while it leads.
#[derive(Default)]
struct LeaderState {
    /// The last plan that was written.
    plan: Option<PlanRecord>,
    patience: NeedTimers,
}

/// Why a leadership ended, or did not begin.
#[derive(Debug, thiserror::Error)]
enum LeadError {
    #[error(transparent)]
    Coordinator(#[from] CoordinatorError),
    #[error("the plan cannot be written: {0}")]
    Record(#[from] RecordError),
}

/// Tries to lead, and leads, until the session ends.
pub(crate) async fn seek<C: Coordinator, D: Daemon>(
    member: &Member<C, D>,
    session: &Session,
) -> SessionEnd {
    if !member.config.leads {
        return std::future::pending().await;
    }
    loop {
        match seek_once(member, session).await {
            Ok(()) => {}
            Err(LeadError::Coordinator(CoordinatorError::LeaseGone)) => {
                return SessionEnd::LeaseEnded(CoordinatorError::LeaseGone);
            }
            Err(error) => {
                member.status_log.log("lead", &format!("cannot follow the fleet's lead: {error}"));
                sleep(RETRY).await;
            }
        }
    }
}

/// Leads if no host does, else waits for the leader's key to change.
async fn seek_once<C: Coordinator, D: Daemon>(
    member: &Member<C, D>,
    session: &Session,
) -> Result<(), LeadError> {
    let config = &member.config;
    let key = config.keys.key(&FleetKey::Leader);
    let listing = member.coordinator.read(&key).await?;
    let author = |value: &[u8]| decode::<Author>(value).map(|it| it.host);
    let leadership = match listing.entries.iter().find(|entry| entry.key == key) {
        None => {
            let value = encode(&Author { host: config.host.to_string() })?;
            member.coordinator.campaign(&key, value, session.lease).await?
        }
        // This host led before a failure, and its lease has not ended.
        Some(entry) if author(&entry.value).is_ok_and(|host| host == config.host.as_str()) => {
            Some(entry.written)
        }
        Some(_) => None,
    };
    if let Some(leadership) = leadership {
        member.status_log.log("lead", "leads the fleet");
        member.metrics.set_leader(true);
        let led = lead(member, leadership).await;
        member.metrics.set_leader(false);
        member.status_log.log("lead", "does not lead the fleet any more");
        return led;
    }
    member.status_log.log("lead", "another host leads the fleet");
    let mut watch = member.coordinator.watch(&key, listing.revision).await?;
    // After a long time without a change, the key is read again.
    match timeout(FOLLOWER_WATCH_TIME_MAX, watch.next()).await {
        Ok(changes) => changes.map(drop).map_err(LeadError::from),
        Err(_) => Ok(()),
    }
}

/// Leads until another host does.
async fn lead<C: Coordinator, D: Daemon>(
    member: &Member<C, D>,
    leadership: Revision,
) -> Result<(), LeadError> {
    let config = &member.config;
    let mut ticks = interval(config.tick);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut memory = LeaderState::default();
    let settled_at = Instant::now() + config.lease;
    let mut view = FleetView::read(&member.coordinator, &config.keys).await?;
    loop {
        let mut watch = member.coordinator.watch(config.keys.prefix(), view.revision()).await?;
        let until = Instant::now() + WATCH_TIME_MAX;
        loop {
            let is_tick = tokio::select! {
                changes = watch.next() => match changes {
                    Ok(changes) => {
                        view.apply(changes);
                        false
                    }
                    Err(CoordinatorError::Compacted(_)) => {
                        view = FleetView::read(&member.coordinator, &config.keys).await?;
                        break;
                    }
                    // The next watch goes on where this one ended.
                    Err(_) => {
                        sleep(RETRY).await;
                        break;
                    }
                },
                _ = ticks.tick() => true,
                () = sleep_until(until) => break,
            };
            if !is_tick {
                continue;
            }
            let is_ours = view.leader().is_some_and(|(_, revision)| revision == leadership);
            let may_order = Instant::now() >= settled_at;
            if !is_ours || !lead_once(member, &view, leadership, may_order, &mut memory).await? {
                return Ok(());
            }
        }
    }
}

/// Plans, orders, and settles moves. Returns whether this host still leads.
async fn lead_once<C: Coordinator, D: Daemon>(
    member: &Member<C, D>,
    view: &FleetView,
    leadership: Revision,
    may_order: bool,
    memory: &mut LeaderState,
) -> Result<bool, LeadError> {
    let config = &member.config;
    let (leader, mode) = (config.host.as_str(), config.mode.code());
    let now = member.now();
    let Decision { plan, record } = decide(view, &config.planner, leader, leadership, mode, now);
    if !write_plan(member, record, leadership, &mut memory.plan).await? {
        return Ok(false);
    }
    member.metrics.moves.set_under_way(phases(view));
    if config.mode == FleetMode::Advise && view.executing_hosts().next().is_some() {
        member.status_log.log("mode", ORDERS_NOTHING);
    }
    let mut due = memory.patience.lasting(&plan, config.patience, now);
    if !may_order || config.mode != FleetMode::Move {
        due.clear();
    }
    for write in leader_writes(view, &due, Term(leadership.0), now) {
        if !write_order(member, view, leadership, write).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The phase of a move, as a stable word.
fn phase(entry: &MoveEntry) -> &'static str {
    entry.record.as_ref().map_or("unreadable", |record| record.phase.code())
}

/// How many moves are in each phase.
fn phases(view: &FleetView) -> BTreeMap<&'static str, u64> {
    let mut phases = BTreeMap::new();
    for (_, entry) in view.moves() {
        *phases.entry(phase(entry)).or_default() += 1;
    }
    phases
}

/// Makes one write about a move. Returns whether this host still leads.
async fn write_order<C: Coordinator, D: Daemon>(
    member: &Member<C, D>,
    view: &FleetView,
    leadership: Revision,
    write: LeaderWrite,
) -> Result<bool, LeadError> {
    let keys = &member.config.keys;
    let leader = keys.key(&FleetKey::Leader);
    let mut conditions = vec![Condition { key: leader.clone(), written: Some(leadership) }];
    let mut ended = None;
    let (writes, text) = match write {
        LeaderWrite::Put { record, found } => {
            let key = keys.key(&FleetKey::Move(record.guest.clone()));
            conditions.push(Condition { key: key.clone(), written: found });
            let value = record.to_json().into_bytes();
            let text = format!("{}: {}", record.guest, record.in_words());
            (vec![KeyWrite::Put { key, value, lease: None }], Some((record.guest, text)))
        }
        LeaderWrite::Close { guest, found, past } => {
            ended = view.move_of(&guest).map(phase);
            let key = keys.key(&FleetKey::Move(guest.clone()));
            conditions.push(Condition { key: key.clone(), written: Some(found) });
            let value = encode(&past)?;
            let past = keys.key(&FleetKey::Past(guest));
            let note = KeyWrite::Put { key: past, value, lease: None };
            (vec![KeyWrite::Delete(key), note], None)
        }
        LeaderWrite::Forget(guest) => {
            (vec![KeyWrite::Delete(keys.key(&FleetKey::Past(guest)))], None)
        }
    };
    match member.coordinator.compare_and_put(&conditions, writes).await? {
        PutResult::Written(_) => {
            if let Some((guest, text)) = text {
                member.status_log.log_of("order", &guest, &text);
            }
            if let Some(phase) = ended {
                member.metrics.moves.count_end(phase);
            }
            Ok(true)
        }
        // Either a host has changed the record, which the next tick sees, or this host leads no
        // more.
        PutResult::Conflict => {
            let listing = member.coordinator.read(&leader).await?;
            Ok(listing.entries.iter().any(|it| it.key == leader && it.written == leadership))
        }
    }
}

/// Writes the plan if it has changed. Returns whether this host still leads.
async fn write_plan<C: Coordinator, D: Daemon>(
    member: &Member<C, D>,
    plan: PlanRecord,
    leadership: Revision,
    last: &mut Option<PlanRecord>,
) -> Result<bool, LeadError> {
    let config = &member.config;
    member.metrics.set_plan(&plan);
    if last.as_ref().is_some_and(|last| plan.equals_apart_from_revision(last)) {
        return Ok(true);
    }
    let ours = Condition { key: config.keys.key(&FleetKey::Leader), written: Some(leadership) };
    let write =
        KeyWrite::Put { key: config.keys.key(&FleetKey::Plan), value: encode(&plan)?, lease: None };
    match member.coordinator.compare_and_put(&[ours], vec![write]).await? {
        PutResult::Conflict => Ok(false),
        PutResult::Written(_) => {
            for violation in &plan.violations {
                let text = format!("the checker refused the plan: {violation}");
                member.status_log.log("plan", &text);
            }
            *last = Some(plan);
            Ok(true)
        }
    }
}
