//! The whole state of the view: what is known and what is shown.
//!
//! Idea: `State::update` takes in one [`Event`] and returns what to do about it, an [`Order`]. It
//! reads no clock and does no I/O: time comes as an event. At most one order of each kind is under
//! way, so nothing queues up while a key is held down: a key is ignored while its kind of order is
//! under way. `keys.rs` says what each key does.

use std::time::Duration;

use ballast_api::StatusReply;
use ballast_model::GuestId;
use ballast_report::command_line::quoted;
use ballast_report::format::span;
use ballast_store::{Place, Seek};
use crossterm::event::KeyEvent;
use jiff::tz::TimeZone;

use crate::dialog::Dialog;
use crate::guests::{self, Row, TableOptions};
use crate::history::History;
use crate::order::Order;
use crate::recorded::RecordedTick;

/// Time between recorded ticks while they are played.
const PLAYBACK_PERIOD: Duration = Duration::from_millis(250);
/// Time after which ages are drawn again.
const AGE_PERIOD: Duration = Duration::from_secs(1);

/// An input of the state.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// The terminal now has this many columns and rows.
    Size(u16, u16),
    /// The time since the start. It precedes every other event.
    Time(Duration),
    /// [`State::timeout`] went by without another event.
    Timeout,
    /// The daemon's status, or why there is none.
    Status(Result<Box<StatusReply>, String>),
    /// A tick of the journal, or why it cannot be read.
    Recorded(Result<Box<RecordedTick>, String>),
    /// A guest's explanation, or why there is none.
    Explained(String, Result<String, String>),
    /// The result of a command.
    Done(Result<String, String>),
}

/// The source of what is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A running daemon.
    Daemon {
        /// Its socket if one was named, so that the commands shown name it too.
        socket: Option<String>,
    },
    /// A journal.
    Journal(JournalCursor),
}

/// A journal, and where in it the view is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JournalCursor {
    /// The file.
    pub(crate) file: String,
    /// The oldest tick, the one shown, and the newest; `None`: none was read yet.
    pub(crate) places: Option<[Place; 3]>,
    /// Whether it is being played.
    pub(crate) playing: bool,
}

/// The selected line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selected {
    /// A guest.
    Guest(String),
    /// The guests at rest.
    Rest,
}

/// One guest's explanation, in place of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Explanation {
    /// The guest.
    pub(crate) guest: GuestId,
    /// The text; `None`: it has not arrived yet.
    pub(crate) text: Option<String>,
    /// Why the last request for it failed.
    pub(crate) error: Option<String>,
    /// Lines above the first one shown.
    pub(crate) scroll: usize,
}

/// A message in the last line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// The text.
    pub(crate) text: String,
    /// Whether it is about a failure.
    pub(crate) is_failure: bool,
}

/// Why there is nothing new to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// The error.
    pub(crate) text: String,
    /// Since when.
    pub(crate) since: Duration,
}

/// The state of the view.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// The source of what is shown.
    pub(crate) source: Source,
    /// Whether colours may be used.
    pub(crate) colour: bool,
    /// The time zone of the clock times shown.
    pub(crate) zone: TimeZone,
    /// Columns and rows of the terminal.
    pub(crate) size: (u16, u16),
    /// Time since the start.
    pub(crate) now: Duration,
    /// The last status; `None`: none has arrived yet.
    pub(crate) status: Option<Box<StatusReply>>,
    /// When that arrived, since the start.
    pub(crate) arrived: Duration,
    /// The last ticks.
    pub(crate) history: History,
    /// Why there is no newer status.
    pub(crate) trouble: Option<Trouble>,
    /// The last message; the next key clears it.
    pub(crate) message: Option<Message>,
    /// Which guests are shown, and how.
    pub(crate) options: TableOptions,
    /// Whether keys go to the filter.
    pub(crate) filtering: bool,
    /// The selected line; `None`: there is none.
    pub(crate) selected: Option<Selected>,
    /// The explanation that is shown in place of the table.
    pub(crate) explanation: Option<Explanation>,
    /// The dialog over the view.
    pub(crate) dialog: Option<Dialog>,
    /// The number of the selected line, to select a neighbour when it disappears.
    pub(crate) at: usize,
    pub(crate) under_way: UnderWay,
}

/// Orders without a result yet, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnderWay {
    pub(crate) explain: bool,
    pub(crate) command: bool,
    pub(crate) seek: bool,
}

impl State {
    /// The state before the first event.
    pub(crate) fn new(source: Source, colour: bool, zone: TimeZone) -> State {
        State {
            source,
            colour,
            zone,
            size: (0, 0),
            now: Duration::ZERO,
            status: None,
            arrived: Duration::ZERO,
            history: History::default(),
            trouble: None,
            message: None,
            options: TableOptions::default(),
            filtering: false,
            selected: None,
            explanation: None,
            dialog: None,
            at: 0,
            under_way: UnderWay::default(),
        }
    }

    /// Takes in `event`; returns what is to be done about it.
    pub(crate) fn update(&mut self, event: Event) -> Option<Order> {
        let orders = match event {
            Event::Key(key) => self.key(key),
            Event::Size(columns, rows) => {
                self.size = (columns, rows);
                None
            }
            Event::Time(now) => {
                self.now = now;
                None
            }
            Event::Timeout => self.play(),
            Event::Status(Ok(status)) => {
                self.history.push(&status);
                let tick =
                    |status: &StatusReply| (status.tick.seen_at_unix_ms, status.tick.generation);
                let is_new = self.status.as_deref().map(tick) != Some(tick(&status));
                self.show(status, is_new)
            }
            Event::Recorded(Ok(recorded)) => {
                self.under_way.seek = false;
                self.history = recorded.history;
                let mut is_new = true;
                if let Source::Journal(cursor) = &mut self.source {
                    let [_, at, last] = recorded.places;
                    is_new = cursor.places.is_none_or(|[_, before, _]| before != at);
                    cursor.playing &= at.id < last.id;
                    cursor.places = Some(recorded.places);
                }
                self.show(Box::new(recorded.status), is_new)
            }
            Event::Status(Err(error)) => self.fail(error),
            Event::Recorded(Err(error)) => {
                self.under_way.seek = false;
                if let Source::Journal(cursor) = &mut self.source {
                    cursor.playing = false;
                }
                self.fail(error)
            }
            Event::Explained(guest, text) => {
                self.under_way.explain = false;
                self.take_explanation(&guest, text)
            }
            Event::Done(result) => {
                self.under_way.command = false;
                let is_failure = result.is_err();
                let (Ok(text) | Err(text)) = result;
                self.message = Some(Message { text, is_failure });
                None
            }
        };
        self.restore_selection();
        orders
    }

    /// The time after which [`Event::Timeout`] is due.
    pub(crate) fn timeout(&self) -> Duration {
        match &self.source {
            Source::Journal(JournalCursor { playing: true, .. }) => PLAYBACK_PERIOD,
            _ => AGE_PERIOD,
        }
    }

    /// The age of what is shown; `None`: nothing is shown, or it is from a journal.
    pub(crate) fn age(&self) -> Option<Duration> {
        let status = self.status.as_ref().filter(|_| self.is_live())?;
        let passed = self.now.saturating_sub(self.arrived);
        Some(Duration::from_millis(status.tick.age_ms).saturating_add(passed))
    }

    /// Whether it shows a daemon rather than a journal.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.source, Source::Daemon { .. })
    }

    /// The lines of the table, filtered, sorted and folded.
    pub(crate) fn rows(&self) -> Vec<Row<'_>> {
        match &self.status {
            Some(status) => guests::rows(status, &self.history, &self.options),
            None => vec![],
        }
    }

    /// The number of the selected line among `rows`.
    pub(crate) fn position(&self, rows: &[Row<'_>]) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        rows.iter().position(|row| is_selected(row, selected))
    }

    /// The `ballast` command with these arguments, and with the socket if one was named.
    pub(crate) fn command(&self, arguments: &str) -> String {
        match &self.source {
            Source::Daemon { socket: Some(socket) } => {
                format!("ballast {arguments} --socket {}", quoted(socket.clone()))
            }
            _ => format!("ballast {arguments}"),
        }
    }

    pub(crate) fn show_message(&mut self, text: impl Into<String>) -> Option<Order> {
        self.message = Some(Message { text: text.into(), is_failure: false });
        None
    }

    pub(crate) fn select(&mut self, at: usize) {
        let rows = self.rows();
        let at = at.min(rows.len().saturating_sub(1));
        let selected = rows.get(at).map(|row| match row {
            Row::Guest(guest) => Selected::Guest(guest.guest.clone()),
            Row::Rest(_) => Selected::Rest,
        });
        (self.selected, self.at) = (selected, at);
    }

    pub(crate) fn explain(&mut self, guest: GuestId) -> Option<Order> {
        if std::mem::replace(&mut self.under_way.explain, true) {
            return None;
        }
        Some(Order::Explain(guest))
    }

    pub(crate) fn seek(&mut self, seek: Seek) -> Option<Order> {
        if self.is_live() || std::mem::replace(&mut self.under_way.seek, true) {
            return None;
        }
        Some(Order::Seek(seek))
    }

    fn play(&mut self) -> Option<Order> {
        match &self.source {
            Source::Journal(JournalCursor { playing: true, .. }) => self.seek(Seek::Next),
            _ => None,
        }
    }

    /// Shows a tick. If an explanation is open and the tick is new, asks for that of the tick.
    fn show(&mut self, status: Box<StatusReply>, is_new: bool) -> Option<Order> {
        self.arrived = self.now;
        self.status = Some(status);
        let returned = self.trouble.take().filter(|_| self.is_live());
        if let Some(trouble) = returned {
            let away = self.now.saturating_sub(trouble.since).as_millis();
            let away = span(away.try_into().unwrap_or(u64::MAX));
            self.show_message(format!("the daemon answers again, after {away}"));
        }
        let open = self.explanation.as_ref().map(|explanation| explanation.guest.clone());
        match open {
            Some(guest) if is_new => self.explain(guest),
            _ => None,
        }
    }

    fn fail(&mut self, text: String) -> Option<Order> {
        let since = self.trouble.as_ref().map_or(self.now, |trouble| trouble.since);
        self.trouble = Some(Trouble { text, since });
        None
    }

    fn take_explanation(&mut self, guest: &str, result: Result<String, String>) -> Option<Order> {
        let explanation = self.explanation.as_mut()?;
        if explanation.guest.as_str() != guest {
            // The explanation of another guest was opened meanwhile.
            let wanted = explanation.guest.clone();
            return self.explain(wanted);
        }
        match result {
            Ok(text) => (explanation.text, explanation.error) = (Some(text), None),
            Err(error) => explanation.error = Some(error),
        }
        None
    }

    /// If the selected line is gone, selects the line in its place.
    fn restore_selection(&mut self) {
        let rows = self.rows();
        match self.position(&rows) {
            Some(at) => self.at = at,
            None => self.select(self.at),
        }
    }
}

fn is_selected(row: &Row<'_>, selected: &Selected) -> bool {
    match (row, selected) {
        (Row::Guest(guest), Selected::Guest(name)) => guest.guest == *name,
        (Row::Rest(_), Selected::Rest) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
