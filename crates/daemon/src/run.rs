//! The main loop.
//!
//! Idea: one task drives the engine over the host. Between ticks it handles operators (API
//! commands, SIGHUP) and stops on SIGTERM or SIGINT.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use ballast_store::Event as Recorded;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, info, warn};

use super::clock;
use super::engine::{Engine, SampleScope};
use super::host_world::HostWorld;
use super::recorder::Recorder;
use super::view::{COMMANDS_MAX, Handle, Request, View};
use super::wake;
use crate::agents::Agents;
use crate::server::{Server, ServerConfig};
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

/// Everything the daemon holds while it runs.
struct Daemon {
    config: Config,
    engine: Engine,
    world: HostWorld,
}

impl Daemon {
    fn new(config: Config) -> anyhow::Result<Self> {
        let mut world = HostWorld::new(&config)?;
        world.recorder.event(Recorded::ConfigLoaded { toml: config.text.clone() });
        let credits = Recorder::credits(config.journal.as_ref()).unwrap_or_else(|why| {
            warn!("cannot restore credits; starting from defaults: {why:#}");
            Vec::new()
        });
        let folders: Vec<String> =
            config.qmp_folders.iter().map(|folder| folder.display().to_string()).collect();
        info!("policy {}, guests in {}", config.settings.policy, folders.join(", "));
        let engine = Engine::new(config.settings.clone(), credits, &world);
        Ok(Daemon { config, engine, world })
    }

    /// Ticks until a signal stops the daemon; returns the signal's name.
    async fn serve(
        &mut self,
        view: &watch::Sender<Option<Arc<View>>>,
        requests: &mut mpsc::Receiver<Request>,
        signals: &mut Signals,
    ) -> &'static str {
        let urgent = self.world.agents().map(Agents::urgent).unwrap_or_default();
        let pressure = wake::alarm();
        loop {
            let wait = self.engine.due().saturating_since(clock::now());
            let soonest = self.engine.ticked_at() + wake::URGENT_APART;
            tokio::select! {
                biased;
                _ = signals.terminate.recv() => return "SIGTERM",
                _ = signals.interrupt.recv() => return "SIGINT",
                _ = signals.hang_up.recv() => self.reload(),
                Some((command, answer)) = requests.recv() => {
                    let decides_anew = command.decides_anew() && self.engine.ticks() > 0;
                    let done = self.engine.obey(command, &mut self.world);
                    let decides_anew = decides_anew && done.is_ok();
                    // The client may be gone; the command is carried out anyway.
                    let _ = answer.send(done);
                    if decides_anew {
                        self.tick_now().await;
                    }
                }
                () = tokio::time::sleep(wait) => self.tick_now().await,
                () = wake::called(&urgent, soonest) => self.tick_now().await,
                () = pressure.notified() => self.tick(SampleScope::All).await,
            }
            if let Some(latest) = self.engine.view(&self.world) {
                view.send_replace(Some(Arc::new(latest)));
            }
        }
    }

    async fn tick_now(&mut self) {
        self.tick(self.engine.scope_at(clock::now())).await;
    }

    /// A tick, of which the service manager is told.
    async fn tick(&mut self, scope: SampleScope) {
        self.engine.tick(&mut self.world, scope).await;
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
