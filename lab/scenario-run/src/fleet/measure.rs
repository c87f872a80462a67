//! Measures one turn of a scenario with several hosts.
//!
//! Idea: everything is recorded as with one host. In addition each daemon's budget, the leaders and
//! moves in the store, and each guest's host are recorded. A guest that has arrived at another host
//! is watched over the port of its new QEMU, and its counters go on. Once a host has begun an
//! ordered move, the leader is killed; it is started again when another host leads. It is not
//! killed earlier, because an order that no host has begun would be void under the next leader.
//! Limits: reports that a guest sends while nobody has its port open are lost; its counters go on.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, bail};
use ballast_api::StatusReply;
use ballast_etcd::EtcdClient;
use ballast_lab_host::{Guest, Run, Scenario, ScenarioFleet, VariantKind};
use tokio::time::{Instant, sleep_until};

use super::host::LabHost;
use super::kernel_died::KernelDied;
use super::store::FleetStore;
use crate::fleet_record::{FleetRun, HostRun, HostSample, KillRecord, PlaceRecord};
use crate::live::{GuestStatus, Live};
use crate::measure::{Started, WatchedGuest, begin, next_sample, run_record, stop};
use crate::record::RunRecord;
use crate::turns::{Start, Turn, starts};

/// Most arrivals of guests in a turn.
const ARRIVALS_MAX: usize = 16;
/// How long a guest that has arrived may take to answer over its new port.
const ARRIVAL_PATIENCE: Duration = Duration::from_secs(20);

/// A guest, its host, and what is recorded of it.
struct Follower<'a> {
    watched: WatchedGuest<'a>,
    /// The index of its host.
    host: usize,
}

/// The state of a turn while it is measured.
struct Stage<'a, 'b> {
    fleet: &'a ScenarioFleet,
    runs: &'a [(Scenario, Run)],
    hosts: &'b mut [LabHost],
    arrivals: &'a [OnceLock<Guest>],
    store: FleetStore,
    followers: Vec<Follower<'a>>,
    began: Instant,
    record: FleetRun,
}

/// Plays the schedule and records it; `prepared` is running already.
#[expect(clippy::too_many_arguments, reason = "each is one thing of the turn")]
pub(super) async fn measure(
    scenario: &Scenario,
    fleet: &ScenarioFleet,
    turn: &Turn,
    runs: &[(Scenario, Run)],
    hosts: &mut [LabHost],
    store: EtcdClient,
    live: &mut Live,
    prepared: Vec<Start>,
) -> anyhow::Result<RunRecord> {
    let arrivals: Vec<OnceLock<Guest>> = (0..ARRIVALS_MAX).map(|_| OnceLock::new()).collect();
    let mut stage = Stage::new(scenario, fleet, runs, hosts, &arrivals, store).await?;
    let mut due = starts(scenario).into_iter().filter(|start| !start.prepared).peekable();
    let mut started: Vec<Started> =
        prepared.into_iter().map(|start| Started { start, at_s: 0.0 }).collect();
    let (began, end) = (stage.began, stage.began + scenario.duration);
    let mut sample_at = began;
    loop {
        let next = due.peek().map_or(sample_at, |start| (began + start.at).min(sample_at));
        tokio::select! {
            () = stage.store.next() => {
                stage.kill_leader(turn, live).await?;
                continue;
            }
            () = sleep_until(next) => {}
        }
        while let Some(start) = due.next_if(|start| began + start.at <= Instant::now()) {
            let at_s = began.elapsed().as_secs_f64();
            stage.guest(start.guest.as_str())?.send_start(&start.id, &start.spec)?;
            started.push(Started { start, at_s });
        }
        if Instant::now() < sample_at {
            continue;
        }
        stage.follow(live)?;
        stage.sample(&started).await?;
        let now: Vec<GuestStatus> = stage.followers.iter().map(|it| it.watched.now()).collect();
        live.show(turn, sample_at - began, scenario.duration, &now);
        if sample_at >= end {
            break;
        }
        sample_at = next_sample(sample_at, end);
    }
    let measured_s = began.elapsed().as_secs_f64();
    let Stage { store, followers, record, .. } = stage;
    let mut watched: Vec<WatchedGuest<'_>> = followers.into_iter().map(|it| it.watched).collect();
    let workloads = stop(started, &mut watched, measured_s)?;
    let remarks = watched.iter().flat_map(WatchedGuest::remarks).collect();
    let (leaders, migrations) = store.finish();
    Ok(RunRecord {
        fleet: Some(FleetRun { leaders, migrations, ..record }),
        ..run_record(turn, measured_s, watched, &workloads, remarks)
    })
}

impl<'a, 'b> Stage<'a, 'b> {
    async fn new(
        scenario: &Scenario,
        fleet: &'a ScenarioFleet,
        runs: &'a [(Scenario, Run)],
        hosts: &'b mut [LabHost],
        arrivals: &'a [OnceLock<Guest>],
        store: EtcdClient,
    ) -> anyhow::Result<Stage<'a, 'b>> {
        let (mut guests, mut homes) = (Vec::new(), Vec::new());
        for guest in &scenario.guests {
            let home = fleet.hosts.iter().position(|host| host.guests.contains(&guest.name));
            let home = home.with_context(|| format!("guest {} is on no host", guest.name))?;
            guests.push(runs[home].1.guest(guest.name.as_str())?);
            homes.push(home);
        }
        let (began, watched) = begin(&guests)?;
        let followers: Vec<Follower<'a>> = watched
            .into_iter()
            .zip(homes)
            .map(|(watched, host)| Follower { watched, host })
            .collect();
        let record = FleetRun {
            hosts: fleet
                .hosts
                .iter()
                .map(|host| HostRun { host: host.name.to_string(), ..HostRun::default() })
                .collect(),
            places: followers.iter().map(|it| place(fleet, it, 0.0)).collect(),
            ..FleetRun::default()
        };
        let store = FleetStore::open(store, began).await?;
        Ok(Stage { fleet, runs, hosts, arrivals, store, followers, began, record })
    }

    fn guest(&self, name: &str) -> anyhow::Result<&'a Guest> {
        let found = self.followers.iter().find(|it| it.watched.name() == name);
        found.map(|it| it.watched.guest).with_context(|| format!("no guest {name}"))
    }

    fn at_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Kills the leader once, when a move is on its way; starts it again when another host leads.
    async fn kill_leader(&mut self, turn: &Turn, live: &mut Live) -> anyhow::Result<()> {
        if turn.variant.kind != VariantKind::Move || self.fleet.killed.is_none() {
            return Ok(());
        }
        if let Some(kill) = &self.record.kill {
            let Some(leader) = self.store.leader().filter(|leader| *leader != kill.host) else {
                return Ok(());
            };
            let killed = self.hosts.iter_mut().find(|host| host.member.host() == kill.host);
            if let Some(host) = killed.filter(|host| !host.member.is_started()) {
                live.say(&format!("host {leader} leads the fleet; {}'s member is back", kill.host));
                host.member.start()?;
            }
            return Ok(());
        }
        let (Some((guest, phase)), Some(leader)) = (self.store.begun(), self.store.leader()) else {
            return Ok(());
        };
        let (guest, phase, leader) = (guest.to_owned(), phase.to_owned(), leader.to_owned());
        let host = self.hosts.iter_mut().find(|host| host.member.host() == leader);
        let host = host.with_context(|| format!("host {leader} is none of the scenario's"))?;
        host.member.kill().await?;
        live.say(&format!(
            "guest {guest} is on its way ({phase}): the leader, {leader}, is killed"
        ));
        let at_s = self.at_s();
        self.record.kill = Some(KillRecord { host: leader, at_s, guest, phase });
        Ok(())
    }

    /// Goes on watching guests at the hosts at which they have arrived.
    fn follow(&mut self, live: &mut Live) -> anyhow::Result<()> {
        let at_s = self.at_s();
        for follower in &mut self.followers {
            let name = follower.watched.name().to_owned();
            follower.watched.is_leaving = self.store.is_moving(&name);
            let Some(to) = self.store.arrival(&name) else { continue };
            let to = self.fleet.hosts.iter().position(|host| host.name.as_str() == to);
            let Some(to) = to.filter(|to| *to != follower.host) else { continue };
            let Some(place_here) = self.arrivals.iter().find(|it| it.get().is_none()) else {
                bail!("guests have moved more than {ARRIVALS_MAX} times: they go to and fro");
            };
            let spec = follower.watched.guest.spec().clone();
            let folder = self.runs[to].1.folder();
            let guest = Guest::arrived(folder, &spec, ARRIVAL_PATIENCE).map_err(|error| {
                let record = folder.guests().into_iter().find(|it| it.id == spec.id);
                match record.and_then(|record| record.kernel_death()) {
                    Some(console) => {
                        anyhow::Error::from(KernelDied { guest: name.clone(), console })
                    }
                    None => error.into(),
                }
            })?;
            let guest = place_here.get_or_init(|| guest);
            follower.watched.arrive(guest)?;
            follower.host = to;
            self.record.places.push(place(self.fleet, follower, at_s));
            live.say(&format!("guest {name} goes on at host {}", self.fleet.hosts[to].name));
        }
        Ok(())
    }

    /// Records one sample of every guest and daemon.
    async fn sample(&mut self, started: &[Started]) -> anyhow::Result<()> {
        let at_s = self.at_s();
        let mut replies = Vec::new();
        for (host, record) in self.hosts.iter_mut().zip(&mut self.record.hosts) {
            host.member.ensure_alive()?;
            let reply = host.daemon.status().await?;
            if let Some(reply) = &reply {
                record.samples.push(host_sample(at_s, reply));
                let refused = reply.daemon.as_ref().map_or(0, |daemon| daemon.plans_refused);
                record.plans_refused = record.plans_refused.max(refused);
            }
            replies.push(reply);
        }
        for follower in &mut self.followers {
            let views = replies[follower.host].as_ref().map(|reply| reply.guests.as_slice());
            let seen = follower.watched.sample(at_s, views, started);
            let has_moved = self.store.arrival(follower.watched.name()).is_some();
            let death = has_moved.then(|| follower.watched.guest.record().kernel_death()).flatten();
            if let Some(console) = death {
                return Err(
                    KernelDied { guest: follower.watched.name().to_owned(), console }.into()
                );
            }
            seen?;
            follower.watched.ensure_moving()?;
        }
        Ok(())
    }
}

fn place(fleet: &ScenarioFleet, follower: &Follower<'_>, from_s: f64) -> PlaceRecord {
    let host = fleet.hosts[follower.host].name.to_string();
    PlaceRecord { guest: follower.watched.name().to_owned(), host, from_s }
}

fn host_sample(at_s: f64, reply: &StatusReply) -> HostSample {
    let held = reply.guests.iter().filter_map(|guest| guest.allocation_bytes).sum();
    HostSample {
        at_s,
        budget_bytes: reply.budget.distributable_bytes,
        committed_bytes: reply.budget.committed_bytes,
        held_bytes: held,
        reserved_bytes: reply.reservations.iter().map(|it| it.size_bytes).sum(),
    }
}
