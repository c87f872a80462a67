//! The main loop.
//!
//! Idea: one task drives the engine over the host. What is due first comes first: ticks, then
//! signals (SIGHUP reloads, SIGTERM and SIGINT stop), then owners' commands, then readers. The API
//! has a thread and a runtime of its own, so that no number of clients takes time from a tick.
//!
//! Limits: between two ticks there are at least [`PAUSE_MIN`], even if ticks take longer than their
//! period: in it the daemon hears signals and commands.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use ballast_model::Timestamp;
use ballast_store::Event as Recorded;
use rustix::process::{getpriority_process, setpriority_process};
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::clock;
use super::engine::{Engine, SampleScope};
use super::host_world::HostWorld;
use super::recorder::Recorder;
use super::view::{COMMANDS_MAX, DRY_RUNS_MAX, DryRunRequest, Handle, Request, View};
use super::wake::{self, URGENT_APART};
use super::worker::words;
use crate::agents::Agents;
use crate::server::{Server, ServerConfig};
use ballast_config::{Config, OnExit};

/// Most ticks spent on restoring the guests' first allocations when the daemon stops
/// (`on_exit = "restore"`).
const RESTORE_TICKS_MAX: u32 = 60;
/// Shortest pause between a tick's end and the next one's begin: more than enough to hear a signal,
/// and little of the shortest tick.
const PAUSE_MIN: Duration = Duration::from_millis(5);

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
    if let Err(why) = ballast_host::raise_open_files() {
        info!("cannot raise the limit of open files: {why}");
    }
    if let Err(why) = ballast_host::lock_memory() {
        info!("the daemon's memory is not locked, so it may wait for swap like others: {why}");
    }
    let socket = config.socket.clone().map_or_else(ballast_api::default_socket, Ok)?;
    let server = Server::bind(&ServerConfig { socket, group: config.group.clone() })?;
    let mut signals = Signals::new()?;
    let mut daemon = Daemon::new(config)?;

    let (view_sender, view) = watch::channel(None);
    let (commands, command_queue) = mpsc::channel(COMMANDS_MAX);
    let (dry_runs, dry_run_queue) = mpsc::channel(DRY_RUNS_MAX);
    let mut queues = Queues { commands: command_queue, dry_runs: dry_run_queue };
    let (stop_server, server_stopped) = oneshot::channel::<()>();
    info!("API on {}", server.socket().display());
    let handle = Handle { view, commands, dry_runs };
    let api = std::thread::Builder::new()
        .name("api".to_owned())
        .spawn(move || serve_api(server, handle, server_stopped))
        .context("cannot start the API's thread")?;

    let why = daemon.serve(&view_sender, &mut queues, &mut signals).await;
    info!("stopping: {why}");
    notify(&[NotifyState::Stopping]);
    daemon.end(why).await;
    let _ = stop_server.send(());
    api.join().map_err(|panic| anyhow!("the API's thread panicked: {}", words(&*panic)))?
}

/// Serves the API on this thread until told to stop.
fn serve_api(server: Server, handle: Handle, stopped: oneshot::Receiver<()>) -> anyhow::Result<()> {
    // The daemon's raised priority is for ticks, not for those who read about them. On Linux it
    // belongs to a thread: this one.
    if getpriority_process(None).is_ok_and(|nice| nice < 0) {
        let _ = setpriority_process(None, 0);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stopped = async {
        let _ = stopped.await;
    };
    let served = runtime.block_on(server.run(handle, stopped));
    if let Err(error) = &served {
        warn!("the API is no longer served: {error}");
    }
    Ok(served?)
}

/// What the API's clients ask of the main loop.
struct Queues {
    commands: mpsc::Receiver<Request>,
    dry_runs: mpsc::Receiver<DryRunRequest>,
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
        queues: &mut Queues,
        signals: &mut Signals,
    ) -> &'static str {
        let urgent = self.world.agents().map(Agents::urgent).unwrap_or_default();
        let pressure = wake::alarm();
        // One timer for all iterations: however often others wake the loop, it comes up.
        let mut timer = pin!(sleep(Duration::ZERO));
        let mut is_called = false;
        loop {
            let wait = self.due(is_called).saturating_since(clock::now());
            if wait.is_zero() {
                is_called = false;
                self.tick_now().await;
                self.publish(view);
                continue;
            }
            let at = Instant::now() + wait;
            if timer.is_elapsed() || at < timer.deadline() {
                timer.as_mut().reset(at);
            }
            tokio::select! {
                biased;
                () = &mut timer => continue,
                _ = signals.terminate.recv() => return "SIGTERM",
                _ = signals.interrupt.recv() => return "SIGINT",
                _ = signals.hang_up.recv() => self.reload(),
                () = urgent.notified(), if !is_called => {
                    is_called = true;
                    continue;
                }
                () = pressure.notified() => self.tick(SampleScope::All).await,
                Some((command, answer)) = queues.commands.recv() => {
                    let decides_anew = command.decides_anew() && self.engine.ticks() > 0;
                    let done = self.engine.obey(command, &mut self.world);
                    let decides_anew = decides_anew && done.is_ok();
                    // What an operator was told is done outlives this process.
                    self.recorder.settle().await;
                    // The client may be gone; the command is carried out anyway.
                    let _ = answer.send(done);
                    if decides_anew {
                        self.tick_now().await;
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
            }
            self.publish(view);
        }
        self.unrecorded = outcomes;
        if self.ticks == 1 {
            notify(&[NotifyState::Ready]);
            let guests = self.engine.latest().map_or(0, |(snapshot, _)| snapshot.guests().len());
            info!("watching {guests} guests");
        }
        notify(&[NotifyState::Watchdog]);
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
        let loaded = ballast_config::load(&self.config.path).map_err(|error| format!("{error:#}"));
        let settings = loaded.as_ref().map(|new| (new.settings.clone(), new.text.clone()));
        self.engine.reload(settings.map_err(String::clone), &mut self.world);
        let Ok(new) = loaded else { return };
        for what in self.config.needs_restart(&new) {
            warn!("{what} changed in {}: takes effect after a restart", new.path.display());
        }
        self.world.reload(&new);
        self.config.on_exit = new.on_exit;
    }

    /// Applies `on_exit` to the guests and closes the journal.
    async fn end(mut self, why: &str) {
        if self.config.on_exit == OnExit::Restore {
            self.restore().await;
        }
        self.world.recorder.close(why);
    }

    /// Restores every guest's first allocation.
    async fn restore(&mut self) {
        self.engine.begin_restore();
        for _ in 0..RESTORE_TICKS_MAX {
            self.tick(SampleScope::All).await;
            if self.engine.is_restored() {
                return;
            }
            tokio::time::sleep(self.engine.due().saturating_since(clock::now())).await;
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

#[cfg(test)]
mod tests {
    use ballast_model::PolicyName;

    use super::*;
    use crate::view::Command;

    /// A daemon without guests that ticks every 100 ms.
    fn without_guests(folder: &Path) -> Daemon {
        let path = folder.join("ballast.toml");
        let text = format!(
            "[daemon]\ntick = \"100ms\"\n[qmp]\nfolders = [{folder:?}]\n[agents]\nenabled = false\n\
             [journal]\nenabled = false\n"
        );
        std::fs::write(&path, text).unwrap();
        Daemon::new(ballast_config::load(&path).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn ticks_come_before_commands_and_these_before_readers() {
        let folder = tempfile::tempdir().unwrap();
        let mut daemon = without_guests(folder.path());
        let (view, _) = watch::channel(None);
        let (commands, command_queue) = mpsc::channel(COMMANDS_MAX);
        let (dry_runs, dry_run_queue) = mpsc::channel(DRY_RUNS_MAX);
        let mut queues = Queues { commands: command_queue, dry_runs: dry_run_queue };
        // All wait before the first tick, which is due.
        let (way_back, dry_run) = oneshot::channel();
        dry_runs.try_send(way_back).unwrap();
        let (way_back, _set) = oneshot::channel();
        commands.try_send((Command::SetPolicy(PolicyName::Static), way_back)).unwrap();
        assert_ne!(daemon.config.settings.policy, PolicyName::Static);
        let mut signals = Signals::new().unwrap();
        let plan = tokio::select! {
            plan = dry_run => plan.unwrap().expect("there was a tick"),
            why = daemon.serve(&view, &mut queues, &mut signals) => panic!("{why}"),
        };
        assert_eq!(plan.policy, PolicyName::Static);
    }

    #[tokio::test]
    async fn ticks_that_take_too_long_leave_room_for_commands() {
        let folder = tempfile::tempdir().unwrap();
        let mut daemon = without_guests(folder.path());
        daemon.tick_now().await;
        assert!(daemon.rested_at > daemon.engine.ticked_at());
        // As if the tick had taken longer than its period.
        daemon.rested_at = daemon.engine.due() + PAUSE_MIN;
        assert_eq!((daemon.due(false), daemon.due(true)), (daemon.rested_at, daemon.rested_at));
    }
}
