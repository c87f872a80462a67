//! A journal's ticks in the form of a daemon's replies.
//!
//! Idea: a [`RecordedView`] makes a recorded tick into a [`Tick`] of the API, for all commands that
//! read journals. A `Recording` is the view's place in a journal: a step ahead reads one row, any
//! other move reads the rows of one `History`. Cost: only those rows in memory, however long the
//! journal is; about 1 ms a row of a hundred guests. Limits: a damaged row is left out of the
//! history; if it is the row to be shown, that is an error.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use anyhow::Context;
use ballast_api::{ExplainReply, Source, StatusReply, Tick};
use ballast_model::{GuestId, GuestLimits, LimitSources, Outcome};
use ballast_store::{Entry, EntryContent, Latest, Place, Range, Reader, Seek, TickEntry};

use crate::history::{HISTORY_TICKS, History};

/// The last outcome of each guest, with its wall clock.
type Outcomes = BTreeMap<GuestId, (SystemTime, Outcome)>;

/// The source of limits is not in a journal, which has the limits in force.
static NO_SOURCES: BTreeMap<GuestId, LimitSources> = BTreeMap::new();

/// A recorded tick, from which replies are made.
#[derive(Debug)]
pub struct RecordedView<'a> {
    tick: &'a TickEntry,
    seen_at: SystemTime,
    now: SystemTime,
    outcomes: &'a Outcomes,
    limits: BTreeMap<GuestId, GuestLimits>,
}

impl<'a> RecordedView<'a> {
    /// The last tick of a journal, as of `now`.
    pub fn latest(latest: &'a Latest, now: SystemTime) -> RecordedView<'a> {
        RecordedView::new(&latest.tick, latest.entry.wall(), now, &latest.outcomes)
    }

    fn new(
        tick: &'a TickEntry,
        seen_at: SystemTime,
        now: SystemTime,
        outcomes: &'a Outcomes,
    ) -> RecordedView<'a> {
        let guests = tick.snapshot.guests().iter();
        let limits = guests.map(|guest| (guest.id.clone(), tick.limits_of(&guest.id))).collect();
        RecordedView { tick, seen_at, now, outcomes, limits }
    }

    /// The tick in the form of the API.
    pub fn tick(&self) -> Tick<'_> {
        Tick {
            source: Source::Journal,
            now: self.now,
            seen_at: self.seen_at,
            snapshot: &self.tick.snapshot,
            plan: &self.tick.plan,
            limits: &self.limits,
            limit_sources: &NO_SOURCES,
            outcomes: self.outcomes,
            paused: self.tick.paused,
            mode: self.tick.mode.in_force(),
            decision_cost: self.tick.decision_cost,
            daemon: None,
        }
    }
}

/// A tick of a journal with the ticks before it.
#[derive(Clone, Debug)]
pub(crate) struct RecordedTick {
    /// The tick.
    pub(crate) status: StatusReply,
    /// The figures of the ticks up to it.
    pub(crate) history: History,
    /// The oldest tick, this one, and the newest.
    pub(crate) places: [Place; 3],
}

/// A journal, and the place in it that is shown.
#[derive(Debug)]
pub(crate) struct Recording {
    reader: Reader,
    at: Place,
    history: History,
}

impl Recording {
    /// Opens the journal at `path`.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Recording> {
        let reader = Reader::open(path)?;
        Ok(Recording { reader, at: Place { id: 0, wall_ms: 0 }, history: History::default() })
    }

    /// Goes to another tick.
    ///
    /// # Errors
    /// There is no tick, or the tick to be shown cannot be read. The place stays as it is then.
    pub(crate) fn seek(&mut self, seek: Seek) -> anyhow::Result<RecordedTick> {
        let place = |seek| {
            let found = self.reader.seek(self.at, seek)?;
            found.context("the journal holds no tick yet")
        };
        let [first, to, last] = [place(Seek::First)?, place(seek)?, place(Seek::Last)?];
        if seek != Seek::Next {
            // After any move but one step ahead, the ticks before the new place are read again.
            self.history = History::default();
        }
        let ticks = i64::try_from(HISTORY_TICKS).unwrap_or(i64::MAX);
        let from = match seek {
            Seek::Next => self.at.id.saturating_add(1).min(to.id),
            _ => to.id.saturating_sub(ticks - 1),
        };
        let range = Range { from_id: Some(from), to_id: Some(to.id), ..Range::default() };
        let mut shown = None;
        for entry in self.reader.ticks(range) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    shown = Some(Err(error));
                    continue;
                }
            };
            if let Some(status) = status_of(&entry) {
                self.history.push(&status);
                shown = Some(Ok((entry.id, status)));
            }
        }
        let (id, status) = shown.context("retention deleted this tick meanwhile")??;
        anyhow::ensure!(id == to.id, "row {} cannot be read", to.id);
        self.at = to;
        Ok(RecordedTick { status, history: self.history.clone(), places: [first, to, last] })
    }

    /// The explanation of `guest` in the tick that is shown; its ages are as of then.
    ///
    /// # Errors
    /// The tick cannot be read, or has no such guest.
    pub(crate) fn explain(&self, guest: &GuestId) -> anyhow::Result<ExplainReply> {
        let latest = self.reader.latest_until(self.at.id)?;
        let latest = latest.context("retention deleted this tick meanwhile")?;
        let reply =
            ExplainReply::new(&RecordedView::latest(&latest, latest.entry.wall()).tick(), guest);
        reply.with_context(|| format!("there is no guest `{guest}` in this tick"))
    }
}

/// The status of a recorded tick. A status does not show outcomes, so they are not looked up.
fn status_of(entry: &Entry) -> Option<StatusReply> {
    let EntryContent::Tick(tick) = &entry.content else { return None };
    let wall = entry.wall();
    Some(StatusReply::from(&RecordedView::new(tick, wall, wall, &Outcomes::new()).tick()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A journal of the current format, from the fixtures of the store.
    fn recording() -> Recording {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/tests/fixtures/v3.db");
        // Reading leaves files beside a journal, so a copy is read.
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("journal.db");
        std::fs::copy(path, &copy).unwrap();
        Recording::open(&copy).unwrap()
    }

    #[test]
    fn a_step_ahead_shows_what_a_jump_there_shows() {
        let mut stepped = recording();
        let mut shown = stepped.seek(Seek::First).unwrap();
        let mut steps = 0;
        while shown.places[1] != shown.places[2] {
            shown = stepped.seek(Seek::Next).unwrap();
            steps += 1;
        }
        assert_eq!(steps, 3);
        let jumped = recording().seek(Seek::Last).unwrap();
        assert_eq!(shown.status, jumped.status);
        assert_eq!(shown.places, jumped.places);
        assert_eq!(format!("{:?}", shown.history), format!("{:?}", jumped.history));
        // A step ahead from the last tick stays there.
        let again = stepped.seek(Seek::Next).unwrap();
        assert_eq!(format!("{:?}", shown.history), format!("{:?}", again.history));
    }

    #[test]
    fn a_step_back_shows_the_tick_before() {
        let mut recording = recording();
        let last = recording.seek(Seek::Last).unwrap();
        let before = recording.seek(Seek::Previous).unwrap();
        assert!(before.places[1].id < last.places[1].id);
        assert!(before.status.tick.generation < last.status.tick.generation);
        assert_eq!(recording.seek(Seek::Next).unwrap().status, last.status);
    }

    #[test]
    fn explanations_are_of_the_tick_shown() {
        let mut recording = recording();
        let shown = recording.seek(Seek::First).unwrap();
        let guest: GuestId = shown.status.guests[0].guest.parse().unwrap();
        let reply = recording.explain(&guest).unwrap();
        assert_eq!((reply.tick, reply.guest), (shown.status.tick, guest.to_string()));
        let error = recording.explain(&"nobody".parse().unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "there is no guest `nobody` in this tick");
    }
}
