//! The main loop.
//!
//! Idea: one thread does everything in order: observe, decide, act, record, publish. Between ticks
//! it listens to operators (the API's commands, SIGHUP) and to the end (SIGTERM, SIGINT). Decisions
//! are the controller's; nothing here looks at a guest's memory to decide anything.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use ballast_control::{Controller, Event};
use ballast_model::{
    Action, Bytes, GuestId, GuestLimits, Note, Outcome, OutcomeKind, Paging, Plan, PolicyName,
    Snapshot,
};
use ballast_qmp::fleet::FleetConfig;
use ballast_store::{Event as Recorded, Tick};
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, info, warn};

use super::clock;
use super::guests;
use super::observe::Observer;
use super::once::Once;
use super::pager::{Order, Pager, PagerSettings};
use super::recorder::Recorder;
use super::view::{self, COMMANDS_MAX, Command, Done, GuestChange, Handle, Request, View};
use super::wake;
use crate::agents::Agents;
use crate::config::{self, Config, OnExit};
use crate::server::{Server, ServerConfig};

/// Longest time given to guests to return to what they held, when the daemon ends and was told to
/// restore that.
const RESTORE_TICKS_MAX: u32 = 60;
/// Runs the daemon until it is told to stop.
///
/// # Errors
/// It cannot start: another daemon runs, the journal or the socket cannot be had.
pub async fn run(config: Config) -> anyhow::Result<()> {
    if config.raise_priority {
        let raised =
            ballast_host::raise_priority(Path::new(ballast_host::PROC), Default::default());
        raised.refusals().for_each(|why| info!("running at ordinary priority: {why}"));
    }
    let socket = config.socket.clone().map_or_else(crate::commands::default_socket, Ok)?;
    let server = Server::bind(&ServerConfig { socket, group: config.group.clone() })?;
    let mut signals = Signals::new()?;
    let mut daemon = Daemon::new(config)?;

    let (view_sender, view) = watch::channel(None);
    let (commands, mut requests) = mpsc::channel(COMMANDS_MAX);
    let (stop_server, server_stopped) = oneshot::channel::<()>();
    info!("API on {}", server.socket().display());
    let handle = Handle { view, commands };
    let server = tokio::spawn(server.run(handle, async {
        let _ = server_stopped.await;
    }));

    let why = daemon.serve(&view_sender, &mut requests, &mut signals).await;
    info!("stopping: {why}");
    notify(&[NotifyState::Stopping]);
    daemon.end(why).await;
    let _ = stop_server.send(());
    server.await.context("the API's task")??;
    Ok(())
}

/// The signals that mean something to the daemon.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }
}

/// Whom a tick asks.
#[derive(Clone, Copy, Debug)]
enum Look {
    /// Every guest.
    AtAll,
    /// Those that cannot wait for the next tick: who has called, and whom memory is on its way between.
    AtUrgent,
}

/// Everything the daemon holds while it runs.
struct Daemon {
    config: Config,
    controller: Controller,
    observer: Observer,
    recorder: Recorder,
    started_at: SystemTime,
    latest: Option<(Snapshot, Arc<Plan>)>,
    /// What each guest held when it was first seen.
    first_held: BTreeMap<GuestId, Bytes>,
    outcomes: BTreeMap<GuestId, (SystemTime, Outcome)>,
    ticks: u64,
    ticked_at: Instant,
    /// When every guest was last looked at; `None`: not yet.
    looked_at: Option<Instant>,
    decision_cost: Duration,
    reload_error: Option<String>,
    said: Once,
    /// `None`: the host pages nobody.
    pager: Option<Pager>,
}

impl Daemon {
    fn new(config: Config) -> anyhow::Result<Self> {
        let mut recorder = Recorder::open(config.journal.as_ref())?;
        recorder.event(Recorded::ConfigLoaded { toml: config.text.clone() });
        let mut controller = Controller::new(config.settings.clone(), clock::now());
        match Recorder::credits(config.journal.as_ref()) {
            Ok(accounts) => controller.handle_event(Event::Credits(accounts)),
            Err(why) => warn!("guests begin with new credits: {why:#}"),
        }
        let fleet = FleetConfig {
            folders: config.qmp_folders.clone(),
            command_timeout: config.qmp_timeout,
            seed: u64::from(std::process::id()),
        };
        info!(
            "policy {}, guests in {}",
            config.settings.policy,
            config
                .qmp_folders
                .iter()
                .map(|f| f.display().to_string())
                .collect::<Vec<_>>()
                .join(", ")
        );
        let pager = config.paging.map(Pager::start).transpose()?;
        // Half a tick for guests to answer leaves half a tick to decide and act.
        let deadline = config.qmp_timeout.min(config.settings.tick / 2);
        Ok(Daemon {
            controller,
            observer: Observer::new(
                fleet,
                deadline,
                config.tracking.as_ref(),
                config.agents.as_ref(),
            )?,
            config,
            recorder,
            started_at: clock::wall(),
            latest: None,
            first_held: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            ticks: 0,
            ticked_at: Instant::now(),
            looked_at: None,
            decision_cost: Duration::ZERO,
            reload_error: None,
            said: Once::default(),
            pager,
        })
    }

    /// Ticks until told to stop; says by whom.
    async fn serve(
        &mut self,
        view: &watch::Sender<Option<Arc<View>>>,
        requests: &mut mpsc::Receiver<Request>,
        signals: &mut Signals,
    ) -> &'static str {
        let urgent = self.observer.agents.as_ref().map(Agents::urgent).unwrap_or_default();
        let pressure = wake::alarm();
        loop {
            let wanted = self.controller.poll_timeout().saturating_since(clock::now());
            let wait = wanted.min(self.until_look_at_all());
            let soonest = self.ticked_at + wake::URGENT_APART;
            tokio::select! {
                biased;
                _ = signals.terminate.recv() => return "SIGTERM",
                _ = signals.interrupt.recv() => return "SIGINT",
                _ = signals.hang_up.recv() => self.reload(),
                Some((command, answer)) = requests.recv() => {
                    let decides_anew = command.decides_anew() && self.latest.is_some();
                    let done = self.obey(command);
                    let decides_anew = decides_anew && done.is_ok();
                    // Who asked may have gone; the command is carried out all the same.
                    let _ = answer.send(done);
                    if decides_anew {
                        self.tick(self.whom_to_look_at()).await;
                    }
                }
                () = tokio::time::sleep(wait) => self.tick(self.whom_to_look_at()).await,
                () = wake::called(&urgent, soonest) => self.tick(self.whom_to_look_at()).await,
                () = pressure.notified() => self.tick(Look::AtAll).await,
            }
            if self.latest.is_some() {
                view.send_replace(self.view().map(Arc::new));
            }
        }
    }

    /// Time until all guests have to be looked at again.
    fn until_look_at_all(&self) -> Duration {
        let since = |at: Instant| self.controller.settings().tick.saturating_sub(at.elapsed());
        self.looked_at.map_or(Duration::ZERO, since)
    }

    /// Whom a tick asks: those who call without end keep nobody from looking at the others.
    fn whom_to_look_at(&self) -> Look {
        if self.until_look_at_all().is_zero() { Look::AtAll } else { Look::AtUrgent }
    }

    /// Observe, decide, act, record.
    async fn tick(&mut self, look: Look) {
        let wall = clock::wall();
        self.ticked_at = Instant::now();
        let snapshot = match look {
            Look::AtAll => {
                self.looked_at = Some(self.ticked_at);
                self.observer.snapshot().await
            }
            Look::AtUrgent => self.observer.urgent_snapshot(self.controller.in_transfer()).await,
        };
        let begun = Instant::now();
        let plan = self.controller.handle_sample(&snapshot);
        self.decision_cost = begun.elapsed();
        for guest in snapshot.guests() {
            if let Some(allocation) = guest.allocation {
                self.first_held.entry(guest.id.clone()).or_insert(allocation.value);
            }
        }
        let actions: Vec<Action> = std::iter::from_fn(|| self.controller.poll_action()).collect();
        let (waiting, actions) = match &mut self.observer.agents {
            Some(agents) => guests::hold_back(agents, &snapshot, actions),
            None => (Vec::new(), actions),
        };
        let mut outcomes = self.observer.fleet.act_all(clock::now(), &actions).await;
        outcomes.extend(waiting);
        for outcome in &outcomes {
            self.report(outcome);
            self.controller.handle_event(Event::Outcome(outcome.clone()));
            self.outcomes.insert(outcome.guest.clone(), (clock::wall(), outcome.clone()));
        }
        self.outcomes.retain(|id, _| snapshot.guest(id).is_some());
        self.page(&plan);
        if let Some(agents) = &mut self.observer.agents {
            guests::answer(agents, &self.controller, &snapshot, &plan);
        }
        self.ticks += 1;
        for note in &plan.notes {
            match note {
                // Every guest is new for its first seconds: nothing to warn of.
                Note::Newcomers { .. } => debug!("{note}"),
                // One policy may lack several things; each is said once.
                Note::MissingInput { what, .. } => {
                    self.said.warn(&format!("policy {}, {what}", plan.policy), &note.to_string());
                }
                _ => self.said.warn(note.code(), &note.to_string()),
            }
        }
        let limits = self.limits(&snapshot);
        self.recorder.tick(Tick {
            wall,
            snapshot: &snapshot,
            plan: &plan,
            outcomes: &outcomes,
            limits: &limits,
            paused: self.controller.paused(),
            decision_cost: self.decision_cost,
        });
        if self.ticks == 1 {
            notify(&[NotifyState::Ready]);
            info!("watching {} guests", snapshot.guests().len());
        }
        notify(&[NotifyState::Watchdog]);
        self.latest = Some((snapshot, plan));
    }

    /// Hands the plan's orders to the pager, and reports what came of those before.
    fn page(&mut self, plan: &Plan) {
        let Some(pager) = &mut self.pager else { return };
        self.observer.expect_paging(plan);
        let order = |paging: &Paging| {
            let (pid, resident) = self.observer.process_of(&paging.guest)?;
            let coldness = self.observer.coldness(&paging.guest);
            Some(Order { paging: paging.clone(), pid, resident, coldness })
        };
        pager.obey(plan.paging.iter().filter_map(order).collect());
        for paged in pager.paged() {
            paged.say(&mut self.said);
        }
    }

    fn report(&mut self, outcome: &Outcome) {
        debug!("{}: target {}: {}", outcome.guest, outcome.target, outcome.kind);
        if let OutcomeKind::Failed(how) = &outcome.kind {
            self.said.warn(outcome.guest.as_str(), how);
        } else {
            self.said.over(outcome.guest.as_str());
        }
    }

    fn limits(&self, snapshot: &Snapshot) -> BTreeMap<GuestId, GuestLimits> {
        let settings = self.controller.settings();
        let limits_of = |id: &GuestId| (id.clone(), settings.limits_of(id).clone());
        snapshot.guests().iter().map(|guest| limits_of(&guest.id)).collect()
    }

    fn view(&self) -> Option<View> {
        let (snapshot, plan) = self.latest.clone()?;
        Some(View {
            started_at: self.started_at,
            seen_at: clock::wall(),
            limits: self.limits(&snapshot),
            snapshot,
            plan: Plan::clone(&plan),
            outcomes: self.outcomes.clone(),
            policy: self.controller.settings().policy,
            paused: self.controller.paused(),
            tick: self.controller.settings().tick,
            decision_cost: self.decision_cost,
            ticks: self.ticks,
            plans_refused: self.controller.plans_refused(),
            fairness: view::fairness(self.controller.fairness()),
            reload_error: self.reload_error.clone(),
            journal_error: self.recorder.error(),
        })
    }

    /// Carries out an operator's command and records it.
    fn obey(&mut self, command: Command) -> Result<Done, String> {
        let words = command.words();
        let answer = match command {
            Command::DryRun => return self.dry_run(),
            Command::Pause => {
                self.controller.handle_event(Event::Pause);
                Ok("paused: guests keep the targets they have".to_owned())
            }
            Command::Resume => {
                self.controller.handle_event(Event::Resume);
                Ok("acting again".to_owned())
            }
            Command::SetPolicy(name) => {
                let settings = &self.controller.settings().policy_settings;
                match ballast_policy::check(name, settings) {
                    Ok(()) => {
                        self.controller.handle_event(Event::SetPolicy(name));
                        Ok(format!("policy {name} from the next tick on{}", self.missing()))
                    }
                    Err(error) => Err(format!("{error} (as [policy.flexmemd] has it)")),
                }
            }
            Command::SetGuest(id, change) => self.set_guest(id, change),
        };
        info!("operator: {words}: {}", answer.as_ref().unwrap_or_else(|why| why));
        self.recorder.event(Recorded::Command {
            who: "api".to_owned(),
            command: words,
            answer: answer.clone(),
        });
        answer.map(|message| Done { message, plan: None })
    }

    /// What the policy in force lacks, to be added to a sentence.
    fn missing(&self) -> String {
        let Some((snapshot, _)) = &self.latest else { return String::new() };
        let plan = self.controller.dry_run(snapshot);
        let missing = plan.notes.iter().filter(|note| matches!(note, Note::MissingInput { .. }));
        missing.map(|note| format!("; {note}")).collect()
    }

    fn dry_run(&self) -> Result<Done, String> {
        let (snapshot, _) =
            self.latest.as_ref().ok_or("the daemon has not finished its first tick")?;
        let plan = self.controller.dry_run(snapshot);
        Ok(Done { message: "nothing was done".to_owned(), plan: Some(Plan::clone(&plan)) })
    }

    fn set_guest(&mut self, id: GuestId, change: GuestChange) -> Result<String, String> {
        let known = self.latest.as_ref().is_some_and(|(snapshot, _)| snapshot.guest(&id).is_some());
        let settings = self.controller.settings();
        if !known && !settings.limits.contains_key(&id) {
            return Err(format!("no guest `{id}` here, running or configured"));
        }
        let old = settings.limits_of(&id);
        let limits = GuestLimits {
            floor: change.floor.or(old.floor),
            ceiling: change.ceiling.or(old.ceiling),
            shares: change.shares.unwrap_or(old.shares),
            priority: change.priority.unwrap_or(old.priority),
            miss_rate_max: config::objective(change.miss_rate_max).unwrap_or(old.miss_rate_max),
            swap: old.swap,
            managed: change.managed.unwrap_or(old.managed),
        };
        limits.validate().map_err(|e| format!("{id}: {e}"))?;
        let mut all = settings.limits.clone();
        all.insert(id.clone(), limits.clone());
        config::floors_fit(settings.guard.budget, &all)?;
        let message = view::limits_set(&id, &limits);
        self.controller.handle_event(Event::SetLimits(id, limits));
        Ok(message)
    }

    /// Takes in the configuration file again; an invalid one changes nothing.
    fn reload(&mut self) {
        match config::load(&self.config.path) {
            Ok(new) => {
                for what in self.config.needs_restart(&new) {
                    warn!("{what} changed in {}: takes effect after a restart", new.path.display());
                }
                self.controller.handle_event(Event::Reconfigure(Box::new(new.settings.clone())));
                self.recorder.event(Recorded::ConfigLoaded { toml: new.text.clone() });
                if let Some(journal) = &new.journal {
                    self.recorder.keep(journal);
                }
                self.page_by(new.paging);
                self.config.settings = new.settings;
                self.config.on_exit = new.on_exit;
                self.reload_error = None;
                info!("configuration reloaded: policy {}", self.config.settings.policy);
            }
            Err(error) => {
                let why = format!("{error:#}");
                warn!("configuration not reloaded, the last good one stays: {why}");
                self.recorder.event(Recorded::ConfigRefused { why: why.clone() });
                self.reload_error = Some(why);
            }
        }
    }

    /// Leaves guests as configured and closes the journal.
    async fn end(mut self, why: &str) {
        if self.config.on_exit == OnExit::Restore {
            self.restore().await;
        }
        self.recorder.close(why);
    }

    /// From now on pages by these settings. What was on its way ends, and goes on with the next plan.
    fn page_by(&mut self, settings: Option<PagerSettings>) {
        if settings == self.config.paging {
            return;
        }
        match settings.map(Pager::start).transpose() {
            Ok(pager) => (self.pager, self.config.paging) = (pager, settings),
            Err(error) => warn!("guests are paged as before: {error:#}"),
        }
    }

    /// Gives every guest back what it held at first: floors and ceilings are set to that, and the
    /// controller does the rest as safely as ever.
    async fn restore(&mut self) {
        let mut settings = self.controller.settings().clone();
        settings.policy = PolicyName::Static;
        settings.guard.dead_band = Some(Bytes::ZERO);
        settings.guard.step_up_max = None;
        settings.guard.step_down_max = None;
        for (id, held) in &self.first_held {
            let own = settings.limits_of(id).clone();
            let exactly = GuestLimits { floor: Some(*held), ceiling: Some(*held), ..own };
            settings.limits.insert(id.clone(), exactly);
        }
        self.controller.handle_event(Event::Reconfigure(Box::new(settings)));
        info!("restoring what guests held at first");
        for _ in 0..RESTORE_TICKS_MAX {
            self.tick(Look::AtAll).await;
            let Some((snapshot, plan)) = &self.latest else { return };
            let restored = |guest: &ballast_model::GuestPlan| {
                let sample = snapshot.guest(&guest.id);
                let holds = sample.and_then(|sample| sample.allocation);
                guest.estimate.is_none()
                    || holds.map(|holds| holds.value) == self.first_held.get(&guest.id).copied()
            };
            if plan.guests.iter().all(restored) {
                return;
            }
            let wait = self.controller.poll_timeout().saturating_since(clock::now());
            tokio::time::sleep(wait).await;
        }
        warn!("not every guest could be given back what it held at first");
    }
}

/// Tells the service manager, if there is one.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        debug!("service manager not told: {error}");
    }
}
