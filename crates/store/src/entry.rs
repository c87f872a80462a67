//! What goes into the journal and what comes out, in the model's terms.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ballast_model::{GuestId, GuestLimits, Outcome, Plan, Snapshot, Timestamp};

/// One start of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Wall clock at the start.
    pub wall: SystemTime,
    /// Monotonic clock at the start.
    pub mono: Timestamp,
    /// Which boot of the host: monotonic times are comparable only within one.
    pub boot_id: String,
    /// Version of the program.
    pub version: String,
    /// Process number.
    pub pid: u32,
}

/// One tick to be recorded. Its monotonic time is that of the snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Tick<'a> {
    /// Wall clock when the snapshot was taken.
    pub wall: SystemTime,
    /// What was seen.
    pub snapshot: &'a Snapshot,
    /// What was decided.
    pub plan: &'a Plan,
    /// The outcomes that came in since the tick before, in order; each names its plan.
    pub outcomes: &'a [Outcome],
    /// The bounds in force for each guest.
    pub limits: &'a BTreeMap<GuestId, GuestLimits>,
    /// Whether the operator had paused acting.
    pub paused: bool,
    /// Time the decision took.
    pub decision_cost: Duration,
}

/// A tick that was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TickEntry {
    /// What was seen.
    pub snapshot: Snapshot,
    /// What was decided.
    pub plan: Plan,
    /// The outcomes that came in since the tick before.
    pub outcomes: Vec<Outcome>,
    /// The bounds in force for guests that did not have the default ones.
    pub limits: BTreeMap<GuestId, GuestLimits>,
    /// Whether the operator had paused acting.
    pub paused: bool,
    /// Time the decision took.
    pub decision_cost: Duration,
}

impl TickEntry {
    /// The bounds in force for one guest.
    pub fn limits_of(&self, id: &GuestId) -> GuestLimits {
        self.limits.get(id).cloned().unwrap_or_default()
    }
}

/// Something that happened between ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The daemon started; written by the journal when it is opened.
    Started,
    /// A configuration took effect.
    ConfigLoaded {
        /// Its full text.
        toml: String,
    },
    /// A reload was refused; the last good configuration stays.
    ConfigRefused {
        /// Why.
        why: String,
    },
    /// An operator said something.
    Command {
        /// Who, such as `uid 1000`.
        who: String,
        /// What, in words that the daemon chose.
        command: String,
        /// The daemon's answer, or why it refused.
        answer: Result<String, String>,
    },
    /// Ticks or events could not be recorded; written by the journal when it can write again.
    Gap {
        /// Ticks not recorded.
        ticks: u64,
        /// Events not recorded.
        events: u64,
        /// What stood in the way at last.
        why: String,
    },
    /// The daemon ended in order. A start without this was killed or crashed.
    Stopped {
        /// Why.
        why: String,
    },
}

/// One row of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number: grows by one per row and is never used again, whatever clocks do.
    pub id: i64,
    /// The start of the daemon it belongs to.
    pub session: i64,
    /// The configuration in force ([`Reader::config`](crate::Reader::config)); `None` before one
    /// was recorded.
    pub config: Option<i64>,
    /// Wall clock, milliseconds since 1970.
    pub wall_ms: i64,
    /// Monotonic clock of that boot.
    pub mono: Timestamp,
    /// What it says.
    pub what: What,
}

impl Entry {
    /// Wall clock of the entry.
    pub fn wall(&self) -> SystemTime {
        let span = Duration::from_millis(self.wall_ms.unsigned_abs());
        let moment = match self.wall_ms {
            0.. => UNIX_EPOCH.checked_add(span),
            _ => UNIX_EPOCH.checked_sub(span),
        };
        moment.unwrap_or(UNIX_EPOCH)
    }
}

/// The content of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A tick.
    Tick(Box<TickEntry>),
    /// An event.
    Event(Event),
}

/// One start of the daemon, as recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its number.
    pub id: i64,
    /// The particulars; wall clock to the millisecond.
    pub start: Start,
}

/// A configuration that was in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its number.
    pub id: i64,
    /// SHA-256 of the text, in hexadecimal, as `sha256sum` prints it.
    pub sha256: String,
    /// The full text.
    pub toml: String,
}

/// Milliseconds since 1970; negative before, saturating far away.
pub fn wall_ms(wall: SystemTime) -> i64 {
    let ms = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    match wall.duration_since(UNIX_EPOCH) {
        Ok(after) => ms(after),
        Err(before) => -ms(before.duration()),
    }
}
