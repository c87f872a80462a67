//! The loop of the view, with all I/O: terminal, signals, daemon and journal.
//!
//! Idea: one loop waits for a key, a reply, the time or a signal, passes it to the state, carries
//! out the state's orders, and draws. Requests run beside the loop, so neither a slow daemon nor a
//! large journal delays a key. The daemon is asked once a tick, soon after the tick; if it does not
//! answer, it is asked again until it does.
//! However the loop ends (`q`, a signal, an error, a panic), the terminal is restored.
//! Limits: needs a tokio runtime with I/O and time enabled.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ballast_api::{Client, ExplainReply, StatusReply};
use ballast_model::GuestId;
use ballast_store::Seek;
use crossterm::event::{Event as TerminalEvent, EventStream};
use futures_util::StreamExt;
use jiff::tz::TimeZone;
use ratatui::DefaultTerminal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc};

use crate::order::Order;
use crate::recorded::Recording;
use crate::state::{Event, JournalCursor, Source, State};
use crate::view;

/// Most replies that wait for the loop: one of each kind, and some more.
const REPLIES_MAX: usize = 8;
/// Most requests that wait for the journal: the state has at most one of each kind under way.
const REQUESTS_MAX: usize = 2;
/// Longest time after a tick until the daemon publishes it.
const PUBLISH_DELAY_MAX: Duration = Duration::from_millis(50);
/// Shortest time between two requests for the status, however short the daemon's tick is.
const POLLS_APART_MIN: Duration = Duration::from_millis(100);
/// Longest time between two requests for the status: the tick may become shorter, and the operator
/// wants to see that the daemon answers.
const POLLS_APART_MAX: Duration = Duration::from_secs(10);
/// Time after which a daemon that does not answer is asked again.
const RETRY: Duration = Duration::from_secs(1);

/// What to show.
pub enum Origin {
    /// A running daemon, and its socket if one was named.
    Daemon(Client, Option<PathBuf>),
    /// A journal.
    Journal(PathBuf),
}

/// What to show, and how.
pub struct Options {
    /// What to show.
    pub origin: Origin,
    /// Whether colours may be used.
    pub colour: bool,
    /// Renders an explanation as text, one step a line.
    pub explain: fn(&ExplainReply) -> String,
}

/// Shows the view until it is quit or a signal ends it.
///
/// # Errors
/// Standard output or input is not a terminal, the terminal fails, or the journal cannot be read.
pub async fn run(options: Options) -> anyhow::Result<()> {
    for (is_terminal, name, does) in [
        (io::stdout().is_terminal(), "output", "draws on"),
        (io::stdin().is_terminal(), "input", "reads keys from"),
    ] {
        if !is_terminal {
            bail!(
                "standard {name} is not a terminal, which `ballast top` {does}: `ballast status` \
                 prints the same figures once, for programs with --json"
            );
        }
    }
    let (replies, mut received) = mpsc::channel(REPLIES_MAX);
    let (source, handler) = match options.origin {
        Origin::Daemon(client, socket) => {
            let socket = socket.map(|socket| socket.display().to_string());
            let handler = DaemonHandler::new(client, options.explain, replies);
            (Source::Daemon { socket }, OrderHandler::Daemon(handler))
        }
        Origin::Journal(path) => {
            let mut recording = Recording::open(&path)?;
            // An error of the file is reported before the screen is taken.
            let last = recording.seek(Seek::Last).with_context(|| path.display().to_string())?;
            replies.try_send(Event::Recorded(Ok(Box::new(last)))).context("no room")?;
            let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
            let requests = read_journal(recording, options.explain, replies)?;
            let cursor = JournalCursor { file, places: None, playing: false };
            (Source::Journal(cursor), OrderHandler::Journal(requests))
        }
    };
    let mut state = State::new(source, options.colour, TimeZone::system());
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let mut hang_up = signal(SignalKind::hangup()).context("cannot wait for SIGHUP")?;
    let mut screen = Screen::open()?;
    let mut keys = EventStream::new();
    let size = screen.terminal.size().context("cannot learn the terminal's size")?;
    state.update(Event::Size(size.width, size.height));
    let begun = Instant::now();
    loop {
        screen
            .terminal
            .draw(|frame| view::draw(&state, frame))
            .context("cannot draw on the terminal")?;
        let event = tokio::select! {
            key = keys.next() => match key {
                Some(Ok(TerminalEvent::Key(key))) => Event::Key(key),
                Some(Ok(TerminalEvent::Resize(columns, rows))) => Event::Size(columns, rows),
                Some(Ok(_)) => continue,
                Some(Err(error)) => return Err(error).context("cannot read keys"),
                None => return Ok(()),
            },
            Some(reply) = received.recv() => reply,
            () = tokio::time::sleep(state.timeout()) => Event::Timeout,
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = hang_up.recv() => return Ok(()),
        };
        state.update(Event::Time(begun.elapsed()));
        if let Some(order) = state.update(event) {
            match (order, &handler) {
                (Order::Quit, _) => return Ok(()),
                (order, OrderHandler::Daemon(handler)) => handler.carry_out(order),
                (order, OrderHandler::Journal(requests)) => carry_out(order, requests)?,
            }
        }
    }
}

/// The terminal while the view uses it; restored when dropped.
struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    fn open() -> anyhow::Result<Screen> {
        match ratatui::try_init() {
            Ok(terminal) => Ok(Screen { terminal }),
            Err(error) => {
                // The terminal may have been prepared in part.
                ratatui::restore();
                Err(error).context("cannot prepare the terminal")
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// What carries out orders.
enum OrderHandler {
    Daemon(DaemonHandler),
    Journal(SyncSender<JournalRequest>),
}

/// Carries out orders by requests to the daemon.
struct DaemonHandler {
    client: Client,
    explain: fn(&ExplainReply) -> String,
    replies: mpsc::Sender<Event>,
    /// Makes the status be asked for at once, before the next tick.
    at_once: Arc<Notify>,
}

impl DaemonHandler {
    /// Also starts the task that asks for the status.
    fn new(
        client: Client,
        explain: fn(&ExplainReply) -> String,
        replies: mpsc::Sender<Event>,
    ) -> DaemonHandler {
        let at_once = Arc::new(Notify::new());
        let (asking, wake, to) = (client.clone(), Arc::clone(&at_once), replies.clone());
        tokio::spawn(async move {
            loop {
                let status = asking.status().await;
                let wait = status.as_ref().map_or(RETRY, until_next_tick);
                let status = status.map(Box::new).map_err(|error| error.to_string());
                if to.send(Event::Status(status)).await.is_err() {
                    return;
                }
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = wake.notified() => {}
                }
            }
        });
        DaemonHandler { client, explain, replies, at_once }
    }

    fn carry_out(&self, order: Order) {
        let (client, replies, at_once) =
            (self.client.clone(), self.replies.clone(), Arc::clone(&self.at_once));
        let explain = self.explain;
        tokio::spawn(async move {
            let reply = match order {
                Order::Explain(guest) => {
                    let text = client.explain(&guest).await.map(|reply| explain(&reply));
                    Event::Explained(guest.to_string(), text.map_err(|error| error.to_string()))
                }
                Order::Pause => done(client.pause().await),
                Order::Resume => done(client.resume().await),
                Order::Set(guest, change) => done(client.set_guest(&guest, &change).await),
                // These are not requests to the daemon.
                Order::Quit | Order::Seek(_) => return,
            };
            let is_done = matches!(reply, Event::Done(Ok(_)));
            // Fails only when the view is ending.
            let _ = replies.send(reply).await;
            if is_done {
                at_once.notify_one();
            }
        });
    }
}

fn done(result: Result<ballast_api::CommandReply, ballast_api::ClientError>) -> Event {
    Event::Done(result.map(|reply| reply.message).map_err(|error| error.to_string()))
}

/// Time until the daemon has published its next tick.
fn until_next_tick(status: &StatusReply) -> Duration {
    let tick_ms = status.daemon.as_ref().map_or(1000, |daemon| daemon.tick_ms);
    let left = Duration::from_millis(tick_ms.saturating_sub(status.tick.age_ms));
    left.saturating_add(PUBLISH_DELAY_MAX).clamp(POLLS_APART_MIN, POLLS_APART_MAX)
}

/// A request to the thread that reads the journal.
enum JournalRequest {
    Seek(Seek),
    Explain(GuestId),
}

/// Starts the thread that reads the journal. It ends when the sender of its requests is dropped.
fn read_journal(
    mut recording: Recording,
    explain: fn(&ExplainReply) -> String,
    replies: mpsc::Sender<Event>,
) -> anyhow::Result<SyncSender<JournalRequest>> {
    let (requests, received) = sync_channel(REQUESTS_MAX);
    let read = move || {
        for request in received {
            let reply = match request {
                JournalRequest::Seek(seek) => {
                    let tick = recording.seek(seek).map(Box::new);
                    Event::Recorded(tick.map_err(|error| format!("{error:#}")))
                }
                JournalRequest::Explain(guest) => {
                    let text = recording.explain(&guest).map(|reply| explain(&reply));
                    Event::Explained(guest.to_string(), text.map_err(|error| format!("{error:#}")))
                }
            };
            if replies.blocking_send(reply).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("journal".to_owned());
    thread.spawn(read).context("cannot start the thread that reads the journal")?;
    Ok(requests)
}

fn carry_out(order: Order, requests: &SyncSender<JournalRequest>) -> anyhow::Result<()> {
    let request = match order {
        Order::Seek(seek) => JournalRequest::Seek(seek),
        Order::Explain(guest) => JournalRequest::Explain(guest),
        // The state gives no such orders for a journal.
        Order::Quit | Order::Pause | Order::Resume | Order::Set(..) => return Ok(()),
    };
    match requests.try_send(request) {
        Ok(()) => Ok(()),
        Err(TrySendError::Full(_)) => bail!("the journal has more than {REQUESTS_MAX} requests"),
        Err(TrySendError::Disconnected(_)) => bail!("the thread that reads the journal ended"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::status;

    #[test]
    fn the_daemon_is_asked_soon_after_its_next_tick() {
        let mut status = status(10, vec![]);
        assert_eq!(until_next_tick(&status), Duration::from_millis(650));
        status.tick.age_ms = 5000;
        assert_eq!(until_next_tick(&status), POLLS_APART_MIN);
        status.tick.age_ms = 0;
        status.daemon.as_mut().unwrap().tick_ms = 60_000;
        assert_eq!(until_next_tick(&status), POLLS_APART_MAX);
    }
}
