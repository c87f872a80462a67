//! The main loop.
//!
//! Idea: one task does everything in order: observe, decide, act, record, publish. Between ticks it
//! handles operators (API commands, SIGHUP) and stops on SIGTERM or SIGINT. The controller makes
//! every decision; nothing here decides by a guest's memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use ballast_control::{Controller, Event};
use ballast_model::{
    Action, Bytes, GuestChange, GuestId, GuestLimits, Note, Outcome, OutcomeKind, Paging, Plan,
    PolicyName, Snapshot,
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
use super::pager::{Order, Pager};
use super::recorder::Recorder;
use super::view::{self, COMMANDS_MAX, Command, Done, Handle, Request, View};
use super::wake;
use super::warn_once::WarnOnce;
use crate::agents::Agents;
use crate::server::{Server, ServerConfig};
use ballast_config::paging::PagerSettings;
use ballast_config::{Config, OnExit};

/// Most ticks spent on restoring the guests' first allocations when the daemon stops
/// (`on_exit = "restore"`).
const RESTORE_TICKS_MAX: u32 = 60;

/// Runs the daemon until a signal stops it.
///
/// # Errors
/// The daemon cannot start: another one runs, or the journal or the socket cannot be opened.
pub async fn run(config: Config) -> anyhow::Result<()> {
    if config.raise_priority {
        let raised =
            ballast_host::raise_priority(Path::new(ballast_host::PROC), Default::default());
        raised.refusals().for_each(|why| info!("cannot raise the daemon's priority: {why}"));
    }
    let socket = config.socket.clone().map_or_else(ballast_api::default_socket, Ok)?;
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
    server.await.context("the API server's task failed")??;
    Ok(())
}

/// The signals the daemon handles.
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

/// Which guests a tick samples.
#[derive(Clone, Copy, Debug)]
enum SampleScope {
    /// Every guest.
    All,
    /// Guests that cannot wait for the next regular tick: those that called, and those that give or
    /// receive memory in transfer.
    Urgent,
}

/// Everything the daemon holds while it runs.
struct Daemon {
    config: Config,
    controller: Controller,
    observer: Observer,
    recorder: Recorder,
    started_at: SystemTime,
    latest: Option<(Snapshot, Arc<Plan>)>,
    /// Each guest's allocation when it was first seen.
    first_held: BTreeMap<GuestId, Bytes>,
    outcomes: BTreeMap<GuestId, (SystemTime, Outcome)>,
    /// Outcomes of the last plan, to be recorded with the next.
    unrecorded: Vec<Outcome>,
    ticks: u64,
    ticked_at: Instant,
    /// When all guests were last sampled; `None`: not yet.
    sampled_all_at: Option<Instant>,
    decision_cost: Duration,
    reload_error: Option<String>,
    warnings: WarnOnce,
    /// `None`: paging by the host is off.
    pager: Option<Pager>,
}

impl Daemon {
    fn new(config: Config) -> anyhow::Result<Self> {
        let (mut recorder, inherited) = Recorder::open(config.journal.as_ref())?;
        recorder.event(Recorded::ConfigLoaded { toml: config.text.clone() });
        let mut controller = Controller::new(config.settings.clone(), clock::now());
        if inherited.restart.paused {
            info!("paused, as the last daemon was: `ballast resume` acts again");
        }
        controller.handle_event(Event::Credits(inherited.credits));
        controller.handle_event(Event::Restart(Box::new(inherited.restart)));
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
        // Guests have half a tick to answer; the other half remains to decide and act.
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
            unrecorded: Vec::new(),
            ticks: 0,
            ticked_at: Instant::now(),
            sampled_all_at: None,
            decision_cost: Duration::ZERO,
            reload_error: None,
            warnings: WarnOnce::default(),
            pager,
        })
    }

    /// Ticks until a signal stops the daemon; returns the signal's name.
    async fn serve(
        &mut self,
        view: &watch::Sender<Option<Arc<View>>>,
        requests: &mut mpsc::Receiver<Request>,
        signals: &mut Signals,
    ) -> &'static str {
        let urgent = self.observer.agents.as_ref().map(Agents::urgent).unwrap_or_default();
        let pressure = wake::alarm();
        loop {
            let next = self.controller.poll_timeout().saturating_since(clock::now());
            let wait = next.min(self.until_sample_all());
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
                    // What an operator was told is done outlives this process.
                    self.recorder.settle().await;
                    // The client may be gone; the command is carried out anyway.
                    let _ = answer.send(done);
                    if decides_anew {
                        self.tick(self.sample_scope()).await;
                    }
                }
                () = tokio::time::sleep(wait) => self.tick(self.sample_scope()).await,
                () = wake::called(&urgent, soonest) => self.tick(self.sample_scope()).await,
                () = pressure.notified() => self.tick(SampleScope::All).await,
            }
            if self.latest.is_some() {
                view.send_replace(self.view().map(Arc::new));
            }
        }
    }

    /// Time until all guests must be sampled again.
    fn until_sample_all(&self) -> Duration {
        let since = |at: Instant| self.controller.settings().tick.saturating_sub(at.elapsed());
        self.sampled_all_at.map_or(Duration::ZERO, since)
    }

    /// Which guests the next tick samples. Guests that call without end cannot delay the regular
    /// sampling of the others.
    fn sample_scope(&self) -> SampleScope {
        if self.until_sample_all().is_zero() { SampleScope::All } else { SampleScope::Urgent }
    }

    /// Observe, decide, act, record.
    async fn tick(&mut self, scope: SampleScope) {
        let wall = clock::wall();
        self.ticked_at = Instant::now();
        let snapshot = match scope {
            SampleScope::All => {
                self.sampled_all_at = Some(self.ticked_at);
                self.observer.snapshot().await
            }
            SampleScope::Urgent => {
                self.observer.urgent_snapshot(self.controller.in_transfer().guests()).await
            }
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
        self.record(wall, &snapshot, &plan).await;
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
                // Normal in every guest's first seconds: no warning.
                Note::Newcomers { .. } => debug!("{note}"),
                // A policy may lack several inputs; each is warned of once.
                Note::MissingInput { what, .. } => {
                    self.warnings
                        .warn(&format!("policy {}, {what}", plan.policy), &note.to_string());
                }
                _ => self.warnings.warn(note.code(), &note.to_string()),
            }
        }
        self.unrecorded = outcomes;
        if self.ticks == 1 {
            notify(&[NotifyState::Ready]);
            info!("watching {} guests", snapshot.guests().len());
        }
        notify(&[NotifyState::Watchdog]);
        self.latest = Some((snapshot, plan));
    }

    /// Records a plan before it is carried out, with the outcomes of the last one.
    async fn record(&mut self, wall: SystemTime, snapshot: &Snapshot, plan: &Plan) {
        self.recorder.tick(Tick {
            wall,
            snapshot,
            plan,
            outcomes: &std::mem::take(&mut self.unrecorded),
            handovers: &self.controller.handovers(),
            limits: &self.limits(snapshot),
            paused: self.controller.paused(),
            decision_cost: self.decision_cost,
        });
        if !plan.actions.is_empty() || !plan.paging.is_empty() {
            self.recorder.settle().await;
        }
    }

    /// Hands the plan's paging orders to the pager and logs the outcomes of earlier ones.
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
            paged.log(&mut self.warnings);
        }
    }

    fn report(&mut self, outcome: &Outcome) {
        debug!("{}: target {}: {}", outcome.guest, outcome.target, outcome.kind);
        if let OutcomeKind::Failed(how) = &outcome.kind {
            self.warnings.warn(outcome.guest.as_str(), how);
        } else {
            self.warnings.over(outcome.guest.as_str());
        }
    }

    fn limits(&self, snapshot: &Snapshot) -> BTreeMap<GuestId, GuestLimits> {
        let settings = self.controller.settings();
        let limits_of = |id: &GuestId| (id.clone(), settings.limits.of(id).clone());
        snapshot.guests().iter().map(|guest| limits_of(&guest.id)).collect()
    }

    fn view(&self) -> Option<View> {
        let (snapshot, plan) = self.latest.clone()?;
        let journal = self.recorder.status();
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
            journal_error: journal.error,
            journal_aside: journal.moved_aside.into_iter().map(|moved| moved.to).collect(),
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
                Ok("resumed: plans are carried out again".to_owned())
            }
            Command::SetPolicy(name) => {
                let settings = &self.controller.settings().policy_settings;
                match ballast_policy::check(name, settings) {
                    Ok(()) => {
                        self.controller.handle_event(Event::SetPolicy(name));
                        Ok(format!("policy {name} from the next tick on{}", self.missing()))
                    }
                    Err(error) => {
                        Err(format!("{error} (see [policy.flexmemd] in the configuration)"))
                    }
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

    /// The inputs the policy in force lacks, as the end of a sentence.
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
        if !known && !settings.limits.named.contains_key(&id) {
            return Err(format!("no guest `{id}` here, running or configured"));
        }
        let limits = change.apply(settings.limits.of(&id));
        limits.validate().map_err(|e| format!("{id}: {e}"))?;
        let mut all = settings.limits.named.clone();
        all.insert(id.clone(), limits.clone());
        ballast_config::floors_fit(settings.guard.budget, &all)?;
        let message = view::limits_set(&id, &limits);
        self.controller.handle_event(Event::SetLimits(id, limits));
        Ok(message)
    }

    /// Reloads the configuration file; an invalid file changes nothing.
    fn reload(&mut self) {
        match ballast_config::load(&self.config.path) {
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
                warn!("cannot reload the configuration; keeping the last good one: {why}");
                self.recorder.event(Recorded::ConfigRefused { why: why.clone() });
                self.reload_error = Some(why);
            }
        }
    }

    /// Applies `on_exit` to the guests and closes the journal.
    async fn end(mut self, why: &str) {
        if self.config.on_exit == OnExit::Restore {
            self.restore().await;
        }
        self.recorder.close(why);
    }

    /// Applies new paging settings. Paging in progress stops and resumes with the next plan.
    fn page_by(&mut self, settings: Option<PagerSettings>) {
        if settings == self.config.paging {
            return;
        }
        match settings.map(Pager::start).transpose() {
            Ok(pager) => (self.pager, self.config.paging) = (pager, settings),
            Err(error) => {
                warn!("cannot apply the new paging settings; keeping the old ones: {error:#}")
            }
        }
    }

    /// Restores every guest's first allocation: sets floor and ceiling to it and lets the
    /// controller move the memory safely.
    async fn restore(&mut self) {
        let mut settings = self.controller.settings().clone();
        settings.policy = PolicyName::Static;
        settings.guard.dead_band = Some(Bytes::ZERO);
        settings.guard.step_up_max = None;
        settings.guard.step_down_max = None;
        for (id, held) in &self.first_held {
            let own = settings.limits.of(id).clone();
            let exactly = GuestLimits { floor: Some(*held), ceiling: Some(*held), ..own };
            settings.limits.named.insert(id.clone(), exactly);
        }
        self.controller.handle_event(Event::Reconfigure(Box::new(settings)));
        info!("restoring the guests' first allocations");
        for _ in 0..RESTORE_TICKS_MAX {
            self.tick(SampleScope::All).await;
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
        warn!("some guests could not be restored to their first allocation");
    }
}

/// Notifies the service manager, if there is one.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        debug!("sd_notify failed: {error}");
    }
}
