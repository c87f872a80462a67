//! A scenario with several hosts: one turn of it.
//!
//! | file | answers |
//! |---|---|
//! | `etcd` | how does the fleet's store run? |
//! | `member` | how does a host's member of the fleet run? |
//! | `store` | what was ordered, and who led? |
//! | `host` | what runs on a host beside its guests? |
//! | `kernel_died` | when does playing a turn again help? |
//! | `measure` | what do guests, daemons and the fleet do, second by second? |
//!
//! Idea: every host is a run of the lab with a daemon and a member of the fleet. As with one host,
//! everything that a turn starts is new and ends with it.
//! Limits: the hosts are one machine: they share its processors, and its free memory counts for
//! each of them.

mod etcd;
mod host;
mod kernel_died;
mod measure;
mod member;
mod store;

use std::cell::RefCell;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use ballast_lab_host::{Run, Scenario, ScenarioFleet};
use tokio::time::{Instant, sleep, timeout};

use self::etcd::Etcd;
use self::host::LabHost;
pub(super) use self::kernel_died::KernelDied;
use self::member::{FleetMember, MemberPlace};
use self::store::FleetStore;
use crate::daemon::Daemon;
use crate::live::Live;
use crate::record::{Machine, RunRecord};
use crate::settings::DaemonPaths;
use crate::traces::Traces;
use crate::turns::Turn;
use crate::{machine, moves, prepare, start_size};

/// How long the first host may take to become the leader.
const LEADER_PATIENCE: Duration = Duration::from_secs(60);
/// Time between two polls for that.
const POLL: Duration = Duration::from_millis(500);

/// Plays one turn of a scenario with several hosts.
///
/// # Errors
/// Anything needed is missing, or something fails; [`KernelDied`] if the turn has to be played
/// again.
pub(super) async fn play_turn(
    scenario: &Scenario,
    fleet: &ScenarioFleet,
    turn: &Turn,
    live: &mut Live,
) -> anyhow::Result<(Machine, RunRecord)> {
    let mut runs = Vec::new();
    for host in &fleet.hosts {
        let own = scenario.on_host(host).context("a host's run")?;
        let shared_live = RefCell::new(&mut *live);
        let run = Run::start(&own.run_options(), &|line| {
            shared_live.borrow_mut().say(&format!("host {}: {line}", host.name));
        })?;
        runs.push((own, run));
    }
    let traces: Vec<Traces> = runs.iter().map(|(_, run)| Traces::of(run)).collect();
    let first = runs.first().map(|(_, run)| run).context("a fleet without hosts")?;
    let machine = machine::look(first);
    let measured = with_hosts(scenario, fleet, turn, &runs, live).await;
    runs.into_iter().for_each(|(_, run)| run.shutdown());
    let record = measured?;
    traces.iter().try_for_each(Traces::ensure_gone)?;
    Ok((machine, record))
}

async fn with_hosts(
    scenario: &Scenario,
    fleet: &ScenarioFleet,
    turn: &Turn,
    runs: &[(Scenario, Run)],
    live: &mut Live,
) -> anyhow::Result<RunRecord> {
    let mut prepared = Vec::new();
    for (own, run) in runs {
        prepared.extend(prepare::fill(own, run, live).await?);
        start_size::reach(own, run).await?;
    }
    live.say("guests are at their start sizes");
    let settled = Instant::now() + scenario.settings.settle;
    let (_, first) = runs.first().context("a fleet without hosts")?;
    // etcd ends with the first host's run.
    let etcd = Etcd::start(&first.folder().path().join("etcd")).await?;
    let mut hosts = Vec::new();
    for ((own, run), host) in runs.iter().zip(&fleet.hosts) {
        let folder = run.folder();
        let daemon = Daemon::start(own, &turn.variant, folder).await?;
        let member = FleetMember::new(&MemberPlace {
            fleet,
            kind: turn.variant.kind,
            host: host.name.as_str(),
            run: folder,
            daemon: &DaemonPaths::of(folder).socket(),
            etcd: etcd.endpoint(),
        })?;
        hosts.push(LabHost { daemon, member });
    }
    live.say("each daemon sees its guests");
    start_members(fleet, &mut hosts, &etcd, live).await?;
    tokio::time::sleep_until(settled).await;
    let store = etcd.client()?;
    let since = SystemTime::now();
    let mut record =
        measure::measure(scenario, fleet, turn, runs, &mut hosts, store, live, prepared).await?;
    for host in &mut hosts {
        host.member.stop().await?;
    }
    for host in hosts {
        let paths = host.daemon.stop().await?;
        record.moves.extend(moves::read(&paths.journal(), since)?);
    }
    Ok(record)
}

/// Starts the members: first the one that is to lead, if the scenario names one, and then the
/// others.
async fn start_members(
    fleet: &ScenarioFleet,
    hosts: &mut [LabHost],
    etcd: &Etcd,
    live: &mut Live,
) -> anyhow::Result<()> {
    let leads =
        |host: &LabHost| fleet.killed.as_ref().is_some_and(|it| it.as_str() == host.member.host());
    if let Some(first) = hosts.iter_mut().find(|host| leads(host)) {
        first.member.start()?;
        let mut store = FleetStore::open(etcd.client()?, Instant::now()).await?;
        let end = Instant::now() + LEADER_PATIENCE;
        while store.leader() != Some(first.member.host()) {
            first.member.ensure_alive()?;
            if Instant::now() > end {
                bail!("{} does not lead{}", first.member.host(), first.member.log_tail());
            }
            // The timeout lets the loop check between changes that the member still lives.
            let _ = timeout(POLL, store.next()).await;
        }
        live.say(&format!("host {} leads the fleet", first.member.host()));
    }
    for host in hosts.iter_mut().filter(|host| !leads(host)) {
        host.member.start()?;
    }
    sleep(fleet.tick).await;
    hosts.iter_mut().try_for_each(|host| host.member.ensure_alive())
}
