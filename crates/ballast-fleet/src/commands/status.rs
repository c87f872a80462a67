//! `ballast fleet status` and `top`: the fleet at a glance.

use std::time::Duration;

use ballast_fleet::{HostId, HostRecord};
use ballast_fleet_proto::{FleetView, MODE_ADVISE, MoveEntry, PlanRecord};
use ballast_model::{Bytes, GuestId, Timestamp};
use ballast_report::format::size;
use ballast_report::{Live, Report};
use serde::Serialize;
use tokio::time::sleep;

use super::{FleetArgs, read};
use crate::config::FleetConfig;

/// Time between two frames of `top`.
const FRAME_EVERY: Duration = Duration::from_secs(2);
/// Most hosts that one line names.
const NAMED_MAX: usize = 20;

/// The fleet at a glance. Sizes are in bytes.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct FleetStatus {
    /// The fleet's name.
    pub cluster: String,
    /// The host that leads, if one does.
    pub leader: Option<String>,
    /// The revision of its leadership.
    pub leader_revision: Option<u64>,
    /// The mode of the latest plan, `advise` or `move`; without a plan, the mode of this host.
    pub mode: String,
    /// Who paused the fleet, if anybody.
    pub paused_by: Option<String>,
    /// The registered hosts, by name.
    pub hosts: Vec<HostLine>,
    /// Hosts that are to be drained but are not registered.
    pub draining_absent: Vec<String>,
    /// Hosts in mode `move` that get no orders, as the leader is in mode `advise`.
    pub without_orders: Vec<String>,
    /// Moves that are under way, by guest.
    pub moves: Vec<MoveLine>,
    /// Number of moves in the latest plan, including those that wait.
    pub migrations: usize,
    /// Number of needs that no move of the plan meets.
    pub unmet: usize,
}

/// A move that is under way.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct MoveLine {
    /// The guest.
    pub guest: String,
    /// Its phase as a stable word; `unreadable` if its record is of another version.
    pub phase: &'static str,
    /// The phase in words.
    pub text: String,
}

/// One host. Without figures if it is left out.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostLine {
    /// Its name.
    pub host: String,
    /// How many guests it has.
    pub guests: Option<usize>,
    /// The most that they may be allocated together.
    pub budget_bytes: Option<u64>,
    /// The sum of their floors.
    pub floors_bytes: Option<u64>,
    /// What they hold or were promised.
    pub committed_bytes: Option<u64>,
    /// The sum of their demands.
    pub demand_bytes: Option<u64>,
    /// Memory that is free on the host.
    pub free_bytes: Option<u64>,
    /// By how much the floors exceed the memory for guests, as the planner counts both.
    pub short_bytes: Option<u64>,
    /// By how much floors and objectives exceed it; no less than `short_bytes`.
    pub short_of_objectives_bytes: Option<u64>,
    /// Whether all its guests are to leave.
    pub draining: bool,
    /// Why it is left out of the plan, if it is.
    pub left_out: Option<String>,
}

/// Prints the status.
///
/// # Errors
/// The coordinator does not answer, or standard output cannot be written.
pub async fn run(args: FleetArgs) -> anyhow::Result<()> {
    let config = args.config.load()?;
    let view = read(&config.etcd()?, &config).await?;
    args.output.print(&fleet_status(&config, &view), render)
}

/// Shows the status every two seconds until Ctrl-C.
///
/// # Errors
/// Standard output cannot be written.
pub async fn top(args: FleetArgs) -> anyhow::Result<()> {
    let config = args.config.load()?;
    let etcd = config.etcd()?;
    let mut live = Live::begin(args.output)?;
    loop {
        let frame = async {
            match read(&etcd, &config).await {
                Ok(view) => live.show(&fleet_status(&config, &view), render),
                Err(error) => live.show_trouble(&format!("{error:#}")),
            }?;
            sleep(FRAME_EVERY).await;
            anyhow::Ok(())
        };
        tokio::select! {
            done = frame => done?,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

/// The fleet at a glance.
pub fn fleet_status(config: &FleetConfig, view: &FleetView) -> FleetStatus {
    let (snapshot, refused) = view.snapshot(Timestamp::ZERO);
    let mut hosts: Vec<HostLine> = snapshot.hosts().iter().map(HostLine::of).collect();
    hosts.extend(refused.iter().map(|it| HostLine {
        host: it.host.to_string(),
        left_out: Some(it.fault.clone()),
        draining: view.draining().any(|host| *host == it.host),
        ..HostLine::default()
    }));
    hosts.sort_by(|a, b| a.host.cmp(&b.host));
    let mut draining_absent: Vec<String> = view.draining().map(HostId::to_string).collect();
    draining_absent.retain(|name| hosts.iter().all(|line| line.host != *name));
    let plan = view.plan().and_then(|plan| plan.as_ref().ok());
    let leader_revision = view.leader().map(|(_, revision)| revision.0);
    let advises = |plan: &&PlanRecord| {
        plan.mode == MODE_ADVISE && Some(plan.leader_revision) == leader_revision
    };
    let without_orders = match plan.filter(advises) {
        Some(_) => view.executing_hosts().map(HostId::to_string).collect(),
        None => Vec::new(),
    };
    FleetStatus {
        cluster: config.cluster.clone(),
        leader: view.leader().map(|(host, _)| host.to_owned()),
        leader_revision,
        mode: plan.map_or(config.mode.code(), |plan| &plan.mode).to_owned(),
        paused_by: view.paused_by().map(str::to_owned),
        draining_absent,
        without_orders,
        moves: view.moves().map(|(guest, entry)| MoveLine::of(guest, entry)).collect(),
        migrations: plan.map_or(0, |plan| plan.migrations.len() + plan.waiting.len()),
        unmet: plan.map_or(0, |plan| plan.unmet.len()),
        hosts,
    }
}

impl MoveLine {
    fn of(guest: &GuestId, entry: &MoveEntry) -> MoveLine {
        let (phase, text) = match &entry.record {
            Ok(record) => (record.phase.code(), record.in_words()),
            Err(why) => ("unreadable", why.clone()),
        };
        MoveLine { guest: guest.to_string(), phase, text }
    }
}

impl HostLine {
    fn of(host: &HostRecord) -> HostLine {
        let floors: Bytes = host.guests.iter().map(|guest| guest.floor).sum();
        let demand: Bytes = host.guests.iter().map(|guest| guest.demand).sum();
        HostLine {
            host: host.id.to_string(),
            guests: Some(host.guests.len()),
            budget_bytes: Some(host.budget.get()),
            floors_bytes: Some(floors.get()),
            committed_bytes: Some(host.committed.get()),
            demand_bytes: Some(demand.get()),
            free_bytes: Some(host.free.get()),
            short_bytes: Some(host.short_of_floors().get()),
            short_of_objectives_bytes: Some(host.short_of_objectives().get()),
            draining: host.is_draining,
            left_out: None,
        }
    }

    fn state(&self) -> String {
        let is_short = |short: &u64| *short > 0;
        if let Some(why) = &self.left_out {
            format!("left out: {why}")
        } else if self.draining {
            "draining".to_owned()
        } else if let Some(short) = self.short_bytes.filter(is_short) {
            format!("{} short of floors", size(short))
        } else if let Some(short) = self.short_of_objectives_bytes.filter(is_short) {
            format!("{} short of objectives", size(short))
        } else {
            "ok".to_owned()
        }
    }
}

/// The status as text.
pub fn render(status: &FleetStatus, width: Option<u16>) -> String {
    let mut text = match (&status.leader, status.leader_revision) {
        (Some(leader), Some(revision)) => {
            format!("fleet {}, led by {leader} (revision {revision})", status.cluster)
        }
        _ => format!("fleet {}, without a leader", status.cluster),
    };
    text += &format!(", mode {}\n", status.mode);
    if let Some(host) = &status.paused_by {
        text +=
            &format!("paused from {host}: nothing is planned; `ballast fleet resume` ends it\n");
    }
    for host in &status.draining_absent {
        text += &format!("{host} is to be drained, but is not registered\n");
    }
    if !status.without_orders.is_empty() {
        let named: Vec<&str> =
            status.without_orders.iter().map(String::as_str).take(NAMED_MAX).collect();
        let unnamed = match status.without_orders.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        text += &format!(
            "no move is ordered: the leader is in mode `advise`, but {}{unnamed} in mode `move`; \
             set its mode, or `leads = false` there\n",
            named.join(", ")
        );
    }
    let sized = |bytes: Option<u64>| bytes.map_or("-".to_owned(), size);
    let report: Report<'_, HostLine> = Report::new()
        .text("host", |it: &HostLine| it.host.clone())
        .figure("guests", |it| it.guests.map_or("-".to_owned(), |n| n.to_string()))
        .figure("budget", move |it| sized(it.budget_bytes))
        .figure("floors", move |it| sized(it.floors_bytes))
        .figure("committed", move |it| sized(it.committed_bytes))
        .figure("demand", move |it| sized(it.demand_bytes))
        .figure("free", move |it| sized(it.free_bytes))
        .text("state", HostLine::state);
    match status.hosts.is_empty() {
        true => text += "no host is registered\n",
        false => text += &report.in_capitals().table(&status.hosts, width),
    }
    for it in &status.moves {
        text += &format!("under way: {} {}\n", it.guest, it.text);
    }
    text += &match (status.migrations, status.unmet) {
        (0, 0) => "the plan moves nothing\n".to_owned(),
        (moves, unmet) => {
            let (moves, unmet) = (counted(moves, "move"), counted(unmet, "unmet need"));
            format!("the plan has {moves} and {unmet}: `ballast fleet plan`\n")
        }
    };
    text
}

/// A number of things, in words.
fn counted(count: usize, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_record::{Measurements, Observer};
    use crate::tests::{block_on, local, roomy};

    #[test]
    fn a_host_is_short_of_what_the_planner_counts() {
        let config = local("b", "");
        let look =
            async { Observer::default().look(&roomy(), &config, &Measurements::default()).await };
        let host = block_on(true, look).unwrap();
        let state = |host: HostRecord| HostLine::of(&host).state();
        assert_eq!(state(host.clone()), "ok");
        // The floors fit the budget each time, but not what is left of the host's memory.
        let promised = HostRecord { committed: host.committed + Bytes::mib(16128), ..host.clone() };
        assert_eq!(state(promised), "256MiB short of floors");
        let filled = HostRecord { free: Bytes::ZERO, reserve: Bytes::gib(1), ..host.clone() };
        assert_eq!(state(filled), "512MiB short of floors");
        let objectives = HostRecord { budget: Bytes::gib(1), ..host };
        assert!(state(objectives).ends_with("MiB short of objectives"));
    }
}
