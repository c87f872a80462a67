//! What goes into the journal and what comes out, in the model's terms.
//!
//! Idea: serde writes and reads [`Tick`], [`TickEntry`] and [`Event`] as JSON. Sentences are not
//! stored: the model renders them from the figures.
//!
//! A change that breaks old rows needs a new [`RECORD_FORMAT`] and a conversion; an added optional
//! field needs neither. `tests/fixtures` keeps a file of every format.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ballast_model::{
    CarriedGuest, GuestId, GuestLimits, Handover, ModeChoice, Outcome, Plan, PolicyAnswer,
    Snapshot, Timestamp,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Version of rows that are differences from other rows; whole rows have
/// [`RECORD_FORMAT_WHOLE`].
pub const RECORD_FORMAT: i64 = 3;

/// Version of whole rows. Format 2 moved miss curves into their own table.
pub const RECORD_FORMAT_WHOLE: i64 = 2;

/// One start of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Wall clock at the start.
    pub wall: SystemTime,
    /// Monotonic clock at the start.
    pub mono: Timestamp,
    /// The host's boot; monotonic times are comparable only within one boot.
    pub boot_id: String,
    /// Version of the program.
    pub version: String,
    /// Process number.
    pub pid: u32,
}

/// One tick to record. Its monotonic time is the snapshot's.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Tick<'a> {
    /// Wall clock when the snapshot was taken.
    #[serde(skip)]
    pub wall: SystemTime,
    /// What was observed.
    #[serde(rename = "sample")]
    pub snapshot: &'a Snapshot,
    /// What the policy's program answered to this decision; `None`: it was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<&'a PolicyAnswer>,
    /// What was decided.
    pub plan: &'a Plan,
    /// Outcomes that arrived since the previous tick, in order; each names its plan. Those of this
    /// plan come with the next tick, as a plan is recorded before it is carried out.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub outcomes: &'a [Outcome],
    /// What guests brought along from other hosts since the previous tick, in order.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub carried: &'a [CarriedGuest],
    /// What the plan leaves to the next daemon beside its targets.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub handovers: &'a [Handover],
    /// The bounds in force for each guest; default bounds are not written.
    #[serde(serialize_with = "write_limits", skip_serializing_if = "are_default")]
    pub limits: &'a BTreeMap<GuestId, GuestLimits>,
    /// Whether the operator had paused Ballast.
    #[serde(skip_serializing_if = "is_false")]
    pub paused: bool,
    /// The mode, and who set it.
    #[serde(skip_serializing_if = "is_default_mode")]
    pub mode: ModeChoice,
    /// Time the decision took.
    #[serde(rename = "decision_ns", serialize_with = "write_ns")]
    pub decision_cost: Duration,
}

impl Tick<'_> {
    /// An owned copy, without the wall clock.
    pub(crate) fn to_entry(self) -> TickEntry {
        let Tick { snapshot, answer, plan, outcomes, carried, handovers, .. } = self;
        TickEntry {
            snapshot: snapshot.clone(),
            answer: answer.cloned(),
            plan: plan.clone(),
            outcomes: outcomes.to_vec(),
            carried: carried.to_vec(),
            handovers: handovers.to_vec(),
            limits: self.limits.clone(),
            paused: self.paused,
            mode: self.mode,
            decision_cost: self.decision_cost,
        }
    }
}

fn is_own(limits: &GuestLimits) -> bool {
    *limits != GuestLimits::default()
}

fn are_default(limits: &BTreeMap<GuestId, GuestLimits>) -> bool {
    !limits.values().any(is_own)
}

fn write_limits<S: Serializer>(
    limits: &BTreeMap<GuestId, GuestLimits>,
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_map(limits.iter().filter(|(_, limits)| is_own(limits)))
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_default_mode(mode: &ModeChoice) -> bool {
    *mode == ModeChoice::default()
}

/// Nanoseconds, up to 584 years.
fn write_ns<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

fn read_ns<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    u64::deserialize(from).map(Duration::from_nanos)
}

/// A tick that was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TickEntry {
    /// What was observed.
    #[serde(rename = "sample")]
    pub snapshot: Snapshot,
    /// What the policy's program answered to this decision; `None`: it was not asked. It is an
    /// input like the samples: a replay passes it in before them.
    #[serde(default)]
    pub answer: Option<PolicyAnswer>,
    /// What was decided.
    pub plan: Plan,
    /// Outcomes that arrived since the previous tick.
    #[serde(default)]
    pub outcomes: Vec<Outcome>,
    /// What guests brought along from other hosts since the previous tick: an input like the
    /// samples.
    #[serde(default)]
    pub carried: Vec<CarriedGuest>,
    /// What the plan leaves to the next daemon beside its targets.
    #[serde(default)]
    pub handovers: Vec<Handover>,
    /// The bounds in force, of guests without default bounds.
    #[serde(default)]
    pub limits: BTreeMap<GuestId, GuestLimits>,
    /// Whether the operator had paused Ballast.
    #[serde(default)]
    pub paused: bool,
    /// The mode, and who set it.
    #[serde(default)]
    pub mode: ModeChoice,
    /// Time the decision took.
    #[serde(rename = "decision_ns", deserialize_with = "read_ns")]
    pub decision_cost: Duration,
}

impl TickEntry {
    /// The bounds in force for one guest.
    pub fn limits_of(&self, id: &GuestId) -> GuestLimits {
        self.limits.get(id).cloned().unwrap_or_default()
    }

    /// Borrows this as a [`Tick`] with the wall clock `wall`.
    pub fn at(&self, wall: SystemTime) -> Tick<'_> {
        let TickEntry { snapshot, plan, outcomes, carried, handovers, limits, .. } = self;
        let answer = self.answer.as_ref();
        let (paused, mode, decision_cost) = (self.paused, self.mode, self.decision_cost);
        Tick {
            wall,
            snapshot,
            answer,
            plan,
            outcomes,
            carried,
            handovers,
            limits,
            paused,
            mode,
            decision_cost,
        }
    }
}

/// An event between ticks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "kebab-case")]
pub enum Event {
    /// The daemon started; the journal writes this when it is opened.
    Started,
    /// A configuration took effect.
    ConfigLoaded {
        /// Its full text, stored in the table of configurations; the event's row has its number.
        #[serde(skip)]
        toml: String,
    },
    /// A reload was refused; the last good configuration stays in force.
    ConfigRefused {
        /// Why.
        why: String,
    },
    /// An operator sent a command.
    Command {
        /// Who: `uid 0` on the API's socket, `page, uid 0` in a browser there, `page, owner token`
        /// on the page's port; `api` in journals of versions that did not record the sender.
        who: String,
        /// The command, in the daemon's words.
        command: String,
        /// The daemon's answer, or why it refused.
        #[serde(flatten, with = "Answer")]
        answer: Result<String, String>,
    },
    /// Ticks or events were not recorded; the journal writes this when it can write again.
    Gap {
        /// Ticks not recorded.
        ticks: u64,
        /// Events not recorded.
        events: u64,
        /// The last cause.
        why: String,
    },
    /// The daemon stopped in order. A session without this event was killed or crashed.
    Stopped {
        /// Why.
        why: String,
    },
}

/// Gives the field the name `answer` or `refused`.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Result")]
enum Answer<T, E> {
    #[serde(rename = "answer")]
    Ok(T),
    #[serde(rename = "refused")]
    Err(E),
}

/// One row of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number: grows by one per row and is never reused, whatever clocks do.
    pub id: i64,
    /// The session it belongs to: one start of the daemon.
    pub session: i64,
    /// The configuration in force ([`Reader::config`](crate::Reader::config)); `None` before one
    /// was recorded.
    pub config: Option<i64>,
    /// Wall clock, milliseconds since 1970.
    pub wall_ms: i64,
    /// Monotonic clock of that boot.
    pub mono: Timestamp,
    /// Its content.
    pub content: EntryContent,
}

impl Entry {
    /// Its wall-clock time.
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
pub enum EntryContent {
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
    /// When it started, and which program; the wall clock is exact to the millisecond.
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

/// Milliseconds since 1970; negative before 1970. Saturates.
pub fn wall_ms(wall: SystemTime) -> i64 {
    let ms = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    match wall.duration_since(UNIX_EPOCH) {
        Ok(after) => ms(after),
        Err(before) => -ms(before.duration()),
    }
}
