//! The main loop.
//!
//! Idea: one task drives the engine over the host. Of several things that are due, ticks come
//! first, then signals (SIGHUP reloads, SIGTERM and SIGINT stop), then owners' commands, then
//! readers. The API has its own thread and runtime, so that no number of clients takes time from a
//! tick.
//!
//! Limits: between two ticks there are at least [`PAUSE_MIN`], even if ticks take longer than their
//! period. In that time the daemon takes signals and commands.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use ballast_model::Timestamp;
use ballast_policy::Policy;
use ballast_qmp::fleet::GUESTS_MAX;
use ballast_store::Event as Recorded;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::api_thread::ApiThread;
use super::clock;
use super::engine::{Engine, SampleScope, World};
use super::host_world::HostWorld;
use super::log;
use super::view::{COMMANDS_MAX, DRY_RUNS_MAX, DryRunRequest, Handle, Request, View};
use super::wake::{self, URGENT_APART};
use crate::agents::Agents;
use crate::server::{Explain, MetricsPort, ReplayProgram, Server, ServerConfig};
use ballast_config::{Config, OnExit};

/// Most ticks spent on restoring the guests' first allocations when the daemon stops
/// (`on_exit = "restore"`).
const RESTORE_TICKS_MAX: u32 = 60;
/// Shortest pause from a tick's end to the beginning of the next: more than enough to take a
/// signal, and a small part of the shortest tick.
const PAUSE_MIN: Duration = Duration::from_millis(5);

/// Open files of the daemon itself: clients of the API and the page, the journal, signals, the
/// host's figures.
const OWN_FILES: u64 = 160;
/// Open files per guest: its QMP and agent's sockets, its process, and up to five more while it is
/// tracked, paged or fenced.
const FILES_PER_GUEST: u64 = 8;

/// Most guests for which this many files suffice; `None`: no limit of files.
fn guests_for(files: Option<u64>) -> usize {
    let guests = files.map(|files| files.saturating_sub(OWN_FILES) / FILES_PER_GUEST);
    guests.and_then(|guests| usize::try_from(guests).ok()).unwrap_or(GUESTS_MAX)
}

/// Runs the daemon until a signal stops it. `explain` renders the explanations on its page.
/// `policy` replaces the configured policy until the configuration is loaded again.
///
/// # Errors
/// The daemon cannot start: another one runs, or the journal or the socket cannot be opened.
pub async fn run(
    config: Config,
    policy: Option<Box<dyn Policy>>,
    explain: Explain,
) -> anyhow::Result<()> {
    if config.raise_priority {
        for why in ballast_host::raise_priority(Path::new(ballast_host::PROC)) {
            info!("cannot raise the daemon's priority: {why}");
        }
    }
    ballast_host::keep_freed_memory();
    let guests_max = match ballast_host::raise_open_files() {
        Ok(files) => guests_for(files),
        Err(why) => {
            info!("cannot raise the limit of open files: {why}");
            GUESTS_MAX
        }
    };
    if let Err(why) = ballast_host::lock_memory() {
        info!("the daemon's memory is not locked, so it may wait for swap like others: {why}");
    }
    let socket = config.socket.clone().map_or_else(ballast_api::default_socket, Ok)?;
    let api_config = ServerConfig {
        socket,
        group: config.group.clone(),
        page: config.page.clone(),
        journal: config.journal.as_ref().map(|journal| journal.path.clone()),
        replay: ReplayProgram::default(),
        explain,
        metrics: config.metrics.map(MetricsPort::new),
    };
    let server = Server::bind(&api_config)?;
    let mut signals = UnixSignals::new()?;
    let mut daemon = Daemon::new(config, policy, guests_max)?;

    let (view_sender, view) = watch::channel(None);
    let (commands, command_queue) = mpsc::channel(COMMANDS_MAX);
    let (dry_runs, dry_run_queue) = mpsc::channel(DRY_RUNS_MAX);
    let mut queues = Queues { commands: command_queue, dry_runs: dry_run_queue };
    info!("API on {}", server.socket().display());
    let mut api = ApiThread::start(server, api_config, Handle { view, commands, dry_runs })?;

    let why = daemon.serve(&view_sender, &mut queues, &mut signals, &mut api).await;
    info!("stopping: {why}");
    notify(&[NotifyState::Stopping]);
    daemon.end(why).await;
    api.stop()
}

/// Requests of the API's clients to the main loop.
struct Queues {
    commands: mpsc::Receiver<Request>,
    dry_runs: mpsc::Receiver<DryRunRequest>,
}

/// The signals the daemon handles.
struct UnixSignals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl UnixSignals {
    fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(UnixSignals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }
}

/// Everything the daemon holds while it runs.
struct Daemon {
    config: Config,
    engine: Engine,
    world: HostWorld,
    /// When the pause after the last tick is over.
    rested_at: Timestamp,
}

impl Daemon {
    fn new(
        config: Config,
        policy: Option<Box<dyn Policy>>,
        guests_max: usize,
    ) -> anyhow::Result<Self> {
        let (mut world, inherited) = HostWorld::new(&config, guests_max)?;
        world.recorder.event(Recorded::ConfigLoaded { toml: config.text.clone() });
        let places = config.guest_places().join(", ");
        let settings = config.settings.clone();
        let name = policy.as_ref().map_or(settings.policy, |policy| policy.name());
        info!("policy {name}, guests in {places}");
        let engine = match policy {
            Some(policy) => Engine::with_policy(settings, policy, inherited, &world),
            None => Engine::new(settings, inherited, &world),
        };
        Ok(Daemon { config, engine, world, rested_at: Timestamp::ZERO })
    }

    /// Ticks until a signal stops the daemon; returns the signal's name.
    async fn serve(
        &mut self,
        view: &watch::Sender<Option<Arc<View>>>,
        queues: &mut Queues,
        signals: &mut UnixSignals,
        api: &mut ApiThread,
    ) -> &'static str {
        let urgent = self.world.agents().map(Agents::urgent).unwrap_or_default();
        let (pressure, api_ended) = (wake::alarm(), api.ended());
        // One timer for all iterations, so that it fires however often others wake the loop.
        let mut timer = pin!(sleep(Duration::ZERO));
        let mut is_called = false;
        loop {
            let wait = self.due(is_called).saturating_since(clock::now());
            if wait.is_zero() {
                is_called = false;
                self.tick_now().await;
                api.restart_if_ended();
                self.publish(view, api);
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
                () = self.world.wait_for_event(), if !is_called => {
                    is_called = true;
                    continue;
                }
                () = api_ended.notified() => api.restart_if_ended(),
                () = pressure.notified() => self.tick(SampleScope::All).await,
                Some(Request { command, who, answer }) = queues.commands.recv() => {
                    let decides_anew = command.decides_anew() && self.engine.ticks() > 0;
                    let done = self.engine.obey(command, who, &mut self.world).await;
                    let decides_anew = decides_anew && done.is_ok();
                    // The command is in the journal before its client hears that it was carried
                    // out.
                    self.world.wait_until_recorded().await;
                    // The next reader sees it carried out.
                    self.publish(view, api);
                    // The client may be gone; the command is carried out anyway.
                    let _ = answer.send(done);
                    if decides_anew {
                        self.tick_now().await;
                    }
                }
                Some(answer) = queues.dry_runs.recv() => {
                    let _ = answer.send(self.engine.dry_run());
                    continue;
                }
            }
            self.publish(view, api);
        }
    }

    fn publish(&self, view: &watch::Sender<Option<Arc<View>>>, api: &ApiThread) {
        if let Some(mut latest) = self.engine.view(&self.world) {
            latest.api = api.health();
            latest.log_lines_dropped = log::lines_dropped();
            view.send_replace(Some(Arc::new(latest)));
        }
    }

    /// When to tick next. `is_called`: a guest has called for a tick.
    fn due(&self, is_called: bool) -> Timestamp {
        let due = self.engine.due();
        let due = if is_called { due.min(self.engine.ticked_at() + URGENT_APART) } else { due };
        due.max(self.rested_at)
    }

    async fn tick_now(&mut self) {
        self.tick(self.engine.scope_at(clock::now())).await;
    }

    /// Runs a tick and reports it to the service manager.
    async fn tick(&mut self, scope: SampleScope) {
        self.engine.tick(&mut self.world, scope).await;
        self.rested_at = clock::now() + PAUSE_MIN;
        if self.engine.ticks() == 1 {
            notify(&[NotifyState::Ready]);
            let guests = self.engine.latest().map_or(0, |(snapshot, _)| snapshot.guests().len());
            info!("watching {guests} guests");
        }
        notify(&[NotifyState::Watchdog]);
    }

    /// Reads the configuration file again; an invalid file changes nothing.
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
        match self.config.on_exit {
            OnExit::Keep => {}
            OnExit::Restore => self.restore().await,
        }
        self.world.recorder.close(why);
    }

    /// Restores every guest's first allocation, unless the daemon observes or is paused.
    async fn restore(&mut self) {
        if let Err(held) = self.engine.begin_restore() {
            info!("no guest is restored to what it held first: {held}");
            return;
        }
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
    use tokio::sync::oneshot;

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
        Daemon::new(ballast_config::load(&path).unwrap(), None, GUESTS_MAX).unwrap()
    }

    #[tokio::test]
    async fn ticks_come_before_commands_and_these_before_readers() {
        let folder = tempfile::tempdir().unwrap();
        let mut daemon = without_guests(folder.path());
        let (view, _) = watch::channel(None);
        let (commands, command_queue) = mpsc::channel(COMMANDS_MAX);
        let (dry_runs, dry_run_queue) = mpsc::channel(DRY_RUNS_MAX);
        let mut queues = Queues { commands: command_queue, dry_runs: dry_run_queue };
        // All of them wait before the first tick, which is due.
        let (way_back, dry_run) = oneshot::channel();
        dry_runs.try_send(way_back).unwrap();
        let (way_back, _set) = oneshot::channel();
        let (command, who) = (Command::SetPolicy(PolicyName::Static), "uid 0".to_owned());
        commands.try_send(Request { command, who, answer: way_back }).unwrap();
        assert_ne!(daemon.config.settings.policy, PolicyName::Static);
        let mut signals = UnixSignals::new().unwrap();
        let api_config = crate::server::fixture::config(folder.path().join("api"));
        let handle = Handle { view: view.subscribe(), commands, dry_runs };
        let server = Server::bind(&api_config).unwrap();
        let mut api = ApiThread::start(server, api_config, handle).unwrap();
        let plan = tokio::select! {
            plan = dry_run => plan.unwrap().expect("there was a tick"),
            why = daemon.serve(&view, &mut queues, &mut signals, &mut api) => panic!("{why}"),
        };
        assert_eq!(plan.policy, PolicyName::Static);
    }

    #[test]
    fn files_suffice_for_every_guest_taken() {
        for (files, guests) in
            [(Some(0), 0), (Some(1024), 108), (Some(65_536), 8_172), (None, GUESTS_MAX)]
        {
            assert_eq!(guests_for(files), guests, "{files:?}");
        }
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
