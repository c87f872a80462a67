//! Plays a part of a scenario, from booting its guests to removing everything they left.
//!
//! Idea: all runs are the same but for the policy, and for the guests' memory in the run in which
//! that is not limited. Guests, disks and daemon are new each time. The daemon runs under `static`,
//! too, so that its cost is in every figure.
//! Limits: waiting for guests blocks the thread, so nothing else can run on it. An interrupted run
//! leaves nothing behind: the lab's runs clean up after themselves, and the daemon ends with its
//! parent.

use std::cell::RefCell;
use std::time::SystemTime;

use anyhow::{Context, bail};
use ballast_lab_host::{Run, Scenario, ScenarioFleet, VariantKind, domain_memory};
use ballast_model::{Bytes, GuestId};
use tokio::time::Instant;

use super::daemon::Daemon;
use super::live::Live;
use super::measure::Measured;
use super::part::{Part, PartRecord};
use super::record::{DomainRecord, Machine, RunOrigin, RunRecord};
use super::settings;
use super::traces::Traces;
use super::transfer::Watch;
use super::turns::Turn;
use super::{fleet, machine, measure, moves, needs, prepare, start_size, transfer};

/// Runs discarded because of a guest's death before the part fails: under emulation, a guest may
/// die while it is moved, through no fault of Ballast's.
const DISCARDED_MAX: usize = 4;

/// The current time, RFC 3339 in UTC.
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The call of a command that plays parts.
#[derive(Clone, Debug)]
pub struct Call {
    /// When it began, RFC 3339 in UTC.
    pub began_at: String,
    /// The commit that its program was built from, where that is known.
    pub commit: Option<String>,
}

impl Call {
    /// A call that begins now, of a program built from `commit`.
    pub fn begin(commit: Option<&str>) -> Call {
        Call { began_at: now(), commit: commit.map(str::to_owned) }
    }
}

/// Plays one part of a repetition of `scenario`. `place` is the part's number among all that `call`
/// plays, from 1, and their total.
///
/// # Errors
/// Anything needed is missing, or the part fails; everything is cleaned up then.
pub async fn play_part(
    scenario: &Scenario,
    part: &Part,
    repetition: u32,
    place: (usize, usize),
    call: &Call,
    live: &mut Live,
) -> anyhow::Result<PartRecord> {
    settings::check(scenario)?;
    let (number, of) = place;
    let name = match part {
        Part::Needs => {
            live.say("what each guest needs, before anything is compared");
            let needs = needs::find(scenario, live).await?;
            let needs = needs.into_iter().map(|(guest, need)| (guest, need.get())).collect();
            return Ok(PartRecord::Needs { needs });
        }
        Part::Run(name) => name,
    };
    let variant = scenario.contestants().into_iter().find(|it| it.name == *name);
    let variant = variant.with_context(|| format!("the scenario has no policy `{name}`"))?;
    live.say(&format!("run {number} of {of}: {name}, repetition {repetition}"));
    let began_at = now();
    let turn = Turn { variant, repetition, number, of };
    let played = match (&scenario.fleet, turn.variant.kind) {
        (Some(fleet), _) => play_fleet(scenario, fleet, &turn, live).await,
        (None, VariantKind::Best) => play_turn(&scenario.unlimited(), &turn, live).await,
        (None, _) => play_turn(scenario, &turn, live).await,
    };
    let (mut machine, mut run) =
        played.with_context(|| format!("run {number} of {of} ({name}) failed"))?;
    machine.commit.clone_from(&call.commit);
    let Call { began_at: call_at, commit } = call.clone();
    run.origin = Some(RunOrigin { began_at, call_at, commit });
    Ok(PartRecord::Run { machine: Box::new(machine), run: Box::new(run) })
}

/// Plays a part with several hosts; again if a guest's kernel dies.
async fn play_fleet(
    scenario: &Scenario,
    fleet: &ScenarioFleet,
    turn: &Turn,
    live: &mut Live,
) -> anyhow::Result<(Machine, RunRecord)> {
    let mut discarded = Vec::new();
    loop {
        let played = fleet::play_turn(scenario, fleet, turn, live).await;
        let died = match played {
            Ok((machine, mut record)) => {
                if let Some(fleet) = &mut record.fleet {
                    fleet.discarded = discarded;
                }
                return Ok((machine, record));
            }
            Err(error) => error.downcast::<fleet::KernelDied>()?,
        };
        live.say(&format!("this run counts for nothing: {died}"));
        discarded.push(died.record());
        if discarded.len() >= DISCARDED_MAX {
            bail!("in {DISCARDED_MAX} runs one after the other {died}");
        }
    }
}

async fn play_turn(
    scenario: &Scenario,
    turn: &Turn,
    live: &mut Live,
) -> anyhow::Result<(Machine, RunRecord)> {
    let shared_live = RefCell::new(&mut *live);
    let run = Run::start(&scenario.run_options(), &|line| shared_live.borrow_mut().say(line))?;
    let traces = Traces::of(&run);
    let machine = machine::look(&run);
    let measured = with_daemon(scenario, turn, &run, live).await;
    run.shutdown();
    let record = measured?;
    traces.ensure_gone()?;
    Ok((machine, record))
}

async fn with_daemon(
    scenario: &Scenario,
    turn: &Turn,
    run: &Run,
    live: &mut Live,
) -> anyhow::Result<RunRecord> {
    let prepared = prepare::fill(scenario, run, live).await?;
    start_size::reach(scenario, run).await?;
    live.say("guests are at their start sizes");
    let settled = Instant::now() + scenario.settings.settle;
    let mut daemon = Daemon::start(scenario, &turn.variant, run.folder()).await?;
    live.say(&format!("the daemon sees all guests, policy {}", turn.variant.name));
    if turn.variant.kind == VariantKind::ByHand {
        daemon.pause().await?;
    }
    tokio::time::sleep_until(settled).await;
    let domains = domains(run)?;
    let watch = scenario.transfer.as_ref().map(|it| Watch::start(run, it)).transpose()?;
    let since = SystemTime::now();
    let measured = measure::measure(scenario, turn, run, &mut daemon, live, prepared).await;
    let held_series = watch.map(Watch::finish);
    let Measured { mut record, demanded } = measured?;
    record.domains = with_end(domains)?;
    let paths = daemon.stop().await?;
    record.moves = moves::read(&paths.journal(), since)?;
    if let (Some(transfer), Some(held_series), Some(demand)) =
        (&scenario.transfer, held_series, demanded)
    {
        live.say(&format!("the balloon of {} alone", transfer.from));
        let figures = transfer::figures(scenario, transfer, run, &held_series?, demand).await?;
        record.transfer = Some(figures);
    }
    Ok(record)
}

/// The current memory of the guests that are Xen domains.
fn domains(run: &Run) -> anyhow::Result<Vec<(GuestId, Bytes)>> {
    let domains = run.guests().filter(|guest| guest.is_domain());
    domains.map(|guest| Ok((guest.id().clone(), domain_memory(guest.id())?))).collect()
}

/// Adds the current memory of the same domains.
fn with_end(domains: Vec<(GuestId, Bytes)>) -> anyhow::Result<Vec<DomainRecord>> {
    let record = |(id, start): (GuestId, Bytes)| {
        let end_bytes = domain_memory(&id)?.get();
        Ok(DomainRecord { guest: id.to_string(), start_bytes: start.get(), end_bytes })
    };
    domains.into_iter().map(record).collect()
}
