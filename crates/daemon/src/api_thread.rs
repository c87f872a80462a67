//! The thread that serves the API, watched by the main loop.
//!
//! Idea: the API has its own thread and runtime, so that no number of clients takes time from a
//! tick. When that thread ends early, because it panicked or can take no more connections, it wakes
//! the main loop, which logs the reason and starts another. The status and the metrics have the
//! number of restarts and the last reason.
//!
//! Limits: at most one thread is started in [`APART_MIN`]. Without a thread the API cannot be
//! reached; the main loop goes on.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use ballast_host::give_up_raised_priority;
use tokio::sync::{Notify, oneshot};
use tracing::{info, warn};

use super::view::{ApiState, Handle};
use super::worker::panic_text;
use crate::server::{MetricsPort, Server, ServerConfig, ServerError};

/// Shortest time between two starts: a programming fault does not go away by itself.
const APART_MIN: Duration = Duration::from_secs(5);

/// Serves the API on the thread it is called on, until told to stop.
type Serve = fn(Server, Handle, oneshot::Receiver<()>) -> Result<(), ServerError>;

/// The thread, and the history of its predecessors.
pub(crate) struct ApiThread {
    serve: Serve,
    config: ServerConfig,
    handle: Handle,
    running: Option<RunningApi>,
    started_at: Instant,
    health: ApiState,
    /// Notified when a thread ends.
    ended: Arc<Notify>,
}

struct RunningApi {
    thread: JoinHandle<Result<(), ServerError>>,
    /// Dropping it stops the thread too.
    stop: oneshot::Sender<()>,
}

/// Notifies however the thread ends.
struct WakeOnDrop(Arc<Notify>);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl ApiThread {
    /// Serves on `server`, which was bound by `config`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(
        server: Server,
        config: ServerConfig,
        handle: Handle,
    ) -> anyhow::Result<ApiThread> {
        ApiThread::serving(serve, server, config, handle)
    }

    fn serving(
        serve: Serve,
        server: Server,
        config: ServerConfig,
        handle: Handle,
    ) -> anyhow::Result<ApiThread> {
        let mut api = ApiThread {
            serve,
            config,
            handle,
            running: None,
            started_at: Instant::now(),
            health: ApiState::default(),
            ended: Arc::default(),
        };
        api.run(server).context("cannot start the API's thread")?;
        Ok(api)
    }

    /// Notified when the thread ends; then call [`ApiThread::restart_if_ended`].
    pub(crate) fn ended(&self) -> Arc<Notify> {
        Arc::clone(&self.ended)
    }

    /// How often the thread ended early, why last, and what is wrong with the metrics port.
    pub(crate) fn health(&self) -> ApiState {
        let metrics_trouble = self.config.metrics.as_ref().and_then(MetricsPort::trouble);
        ApiState { metrics_trouble, ..self.health.clone() }
    }

    /// If the thread has ended, logs why and starts another, at most once in [`APART_MIN`]. Call
    /// this when [`ApiThread::ended`] is notified, and at every tick.
    pub(crate) fn restart_if_ended(&mut self) {
        if let Some(why) = self.failure() {
            warn!("the API is not served: {why}; it is started again");
            self.health.restarts += 1;
            self.health.trouble = Some(why);
        }
        if self.running.is_some() || self.started_at.elapsed() < APART_MIN {
            return;
        }
        self.started_at = Instant::now();
        let started = Server::bind(&self.config).map_err(anyhow::Error::from);
        if let Err(error) = started.and_then(|server| Ok(self.run(server)?)) {
            let why = format!("{error:#}");
            warn!("the API cannot be served again: {why}");
            self.health.trouble = Some(why);
        }
    }

    /// Tells the thread to stop, and waits until it has closed its connections.
    ///
    /// # Errors
    /// It panicked, or could not take connections.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        let Some(RunningApi { thread, stop }) = self.running.take() else { return Ok(()) };
        let _ = stop.send(());
        let ended = thread.join();
        let served =
            ended.map_err(|panic| anyhow!("the API's thread panicked: {}", panic_text(&*panic)));
        Ok(served??)
    }

    /// Why the thread ended; `None`: it runs, or its end was reported before.
    fn failure(&mut self) -> Option<String> {
        let running = self.running.take_if(|running| running.thread.is_finished())?;
        Some(match running.thread.join() {
            Ok(Ok(())) => "its thread ended".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => format!("its thread panicked: {}", panic_text(&*panic)),
        })
    }

    fn run(&mut self, server: Server) -> io::Result<()> {
        self.health.page_error = server.port_error().map(ToString::to_string);
        if let Some(error) = &self.health.page_error {
            warn!("the page is not served on its port: {error}");
        }
        if let Some(address) = server.port() {
            info!("page on http://{address}/");
        }
        let (stop, stopped) = oneshot::channel();
        let (serve, handle, ended) = (self.serve, self.handle.clone(), self.ended());
        let thread = std::thread::Builder::new().name("api".to_owned()).spawn(move || {
            let _ended = WakeOnDrop(ended);
            serve(server, handle, stopped)
        })?;
        self.running = Some(RunningApi { thread, stop });
        Ok(())
    }
}

/// Serves the API on this thread until told to stop.
fn serve(
    server: Server,
    handle: Handle,
    stopped: oneshot::Receiver<()>,
) -> Result<(), ServerError> {
    // The daemon's raised priority is for ticks, not for the API's clients.
    give_up_raised_priority();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(ServerError::Runtime)?;
    let stopped = async {
        let _ = stopped.await;
    };
    runtime.block_on(server.run(handle, stopped))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::{mpsc, watch};

    use super::*;
    use crate::server::fixture;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Panics at the first call, and serves at the others.
    fn panic_once(
        server: Server,
        handle: Handle,
        stopped: oneshot::Receiver<()>,
    ) -> Result<(), ServerError> {
        static PANICKED: AtomicBool = AtomicBool::new(false);
        assert!(PANICKED.swap(true, Ordering::Relaxed), "a fault");
        serve(server, handle, stopped)
    }

    #[tokio::test]
    async fn a_thread_that_panicked_is_told_of_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("ballast.sock");
        let config = fixture::config(socket.clone());
        let (_view, view) = watch::channel(Some(Arc::new(fixture::view())));
        let (commands, _command_queue) = mpsc::channel(1);
        let (dry_runs, _dry_run_queue) = mpsc::channel(1);
        let handle = Handle { view, commands, dry_runs };
        let server = Server::bind(&config).unwrap();
        let mut api = ApiThread::serving(panic_once, server, config, handle).unwrap();
        tokio::time::timeout(PATIENCE, api.ended().notified())
            .await
            .expect("its end is reported at once");
        // The notice comes just before the thread ends.
        let end = Instant::now() + PATIENCE;
        while api.health().restarts == 0 {
            api.restart_if_ended();
            assert!(Instant::now() < end);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let trouble = Some("its thread panicked: a fault".to_owned());
        let state = ApiState { restarts: 1, trouble, page_error: None, metrics_trouble: None };
        assert_eq!(api.health(), state);
        assert!(api.running.is_none() && UnixStream::connect(&socket).is_err(), "not at once");
        api.started_at -= APART_MIN;
        api.restart_if_ended();
        assert!(UnixStream::connect(&socket).is_ok());
        assert_eq!(api.health().restarts, 1);
        api.stop().unwrap();
        assert!(!socket.exists());
    }
}
