//! The last hours of the journal, for plots and for the list of events.
//!
//! Idea: a plot needs some hundred ticks, however long its span is. Evenly spaced ticks are read
//! from the newest back, until a time limit. Of events, every one is read, in the same direction.
//! There is one reader at a time, on another thread than the server's, because parsing a row takes
//! a millisecond.
//! Limits: swap-in is a counter since a guest's boot; the plot computes rates.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use ballast_model::{Bytes, GuestId};
use ballast_store::{
    Entry, EntryContent, Event, JournalError, Place, Range, Reader, Seek, TickEntry, wall_ms,
};
use serde::Serialize;

/// Most ticks in a reply about one guest.
const TICKS_MAX: i64 = 240;
/// Most ticks in a reply about all guests.
const TICKS_OF_ALL_MAX: i64 = 60;
/// Most guests in a reply.
const GUESTS_MAX: usize = 500;
/// Most events in a reply.
const EVENTS_MAX: usize = 200;
/// How old an event may be.
const EVENTS_AGE_MAX: Duration = Duration::from_secs(7 * 86_400);
/// How long a reply may take; it has what was found by then.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Figures of ticks, oldest first. All lists are as long as that of moments.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Past {
    at_unix_ms: VecDeque<i64>,
    guests: BTreeMap<String, GuestLines>,
}

/// One guest's figures; `None`: unknown, or the guest was not there.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct GuestLines {
    allocation_bytes: VecDeque<Option<u64>>,
    demand_bytes: VecDeque<Option<u64>>,
    target_bytes: VecDeque<Option<u64>>,
    swap_in_bytes: VecDeque<Option<u64>>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct JournalEvent {
    at_unix_ms: i64,
    code: &'static str,
    text: String,
}

impl Past {
    /// The last `span` of the journal at `path`, for one guest or, more coarsely, for all.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub(super) fn read(
        path: &Path,
        span: Duration,
        guest: Option<&GuestId>,
    ) -> Result<Past, JournalError> {
        let begun = Instant::now();
        let reader = Reader::open(path)?;
        let mut past = Past::default();
        let Some(newest) = reader.seek(Place { id: 0, wall_ms: 0 }, Seek::Last)? else {
            return Ok(past);
        };
        let ticks = if guest.is_some() { TICKS_MAX } else { TICKS_OF_ALL_MAX };
        let span_ms = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        let step = u32::try_from(span_ms / ticks).unwrap_or(u32::MAX);
        let mut at = newest;
        loop {
            let one = Range { from_id: Some(at.id), to_id: Some(at.id), ..Range::default() };
            // A damaged row is a gap in a plot.
            if let Some(Ok(entry)) = reader.ticks(one).next() {
                past.put_before(&entry, guest);
            }
            let Some(earlier) = reader.seek(at, Seek::Earlier(step))? else { break };
            // If a clock was set back, older ticks are not part of this span.
            let is_over = earlier.id >= at.id
                || earlier.wall_ms >= at.wall_ms
                || earlier.wall_ms < newest.wall_ms.saturating_sub(span_ms);
            if is_over || past.at_unix_ms.len() as i64 > ticks || begun.elapsed() > TIME_MAX {
                break;
            }
            at = earlier;
        }
        Ok(past)
    }

    fn put_before(&mut self, entry: &Entry, only: Option<&GuestId>) {
        let EntryContent::Tick(tick) = &entry.content else { return };
        self.at_unix_ms.push_front(entry.wall_ms);
        let ticks = self.at_unix_ms.len();
        let ids = tick.snapshot.guests().iter().map(|sample| &sample.id);
        for id in ids.filter(|id| only.is_none_or(|only| only == *id)) {
            if self.guests.len() < GUESTS_MAX || self.guests.contains_key(id.as_str()) {
                self.guests.entry(id.to_string()).or_default().put_before(tick, id, ticks);
            }
        }
        // Guests without a sample in this tick get unknown figures.
        self.guests.values_mut().for_each(|lines| lines.fill(ticks));
    }
}

impl GuestLines {
    fn put_before(&mut self, tick: &TickEntry, id: &GuestId, ticks: usize) {
        // The newer ticks may have no sample of this guest.
        self.fill(ticks - 1);
        let sample = tick.snapshot.guest(id);
        let plan = tick.plan.guest(id);
        let estimate = plan.and_then(|plan| plan.estimate.as_ref());
        let stats = sample.and_then(|sample| sample.stats);
        let allocation = sample.and_then(|sample| sample.allocation);
        self.allocation_bytes.push_front(allocation.map(|measured| measured.value.get()));
        self.demand_bytes.push_front(estimate.map(|estimate| estimate.demand.size.get()));
        self.target_bytes.push_front(plan.and_then(|plan| plan.target).map(Bytes::get));
        self.swap_in_bytes.push_front(stats.and_then(|stats| stats.value.swap_in).map(Bytes::get));
    }

    /// Puts unknown figures before the first one, up to `ticks` in total.
    fn fill(&mut self, ticks: usize) {
        let lines = [
            &mut self.allocation_bytes,
            &mut self.demand_bytes,
            &mut self.target_bytes,
            &mut self.swap_in_bytes,
        ];
        for line in lines {
            while line.len() < ticks {
                line.push_front(None);
            }
        }
    }
}

/// The last events of the journal at `path`, newest first.
///
/// # Errors
/// The journal cannot be read.
pub(super) fn events(path: &Path, now: SystemTime) -> Result<Vec<JournalEvent>, JournalError> {
    events_within(path, now, TIME_MAX)
}

/// As many of the last events as are found within `time_max`, but at least the newest.
fn events_within(
    path: &Path,
    now: SystemTime,
    time_max: Duration,
) -> Result<Vec<JournalEvent>, JournalError> {
    let begun = Instant::now();
    let from = now.checked_sub(EVENTS_AGE_MAX).map_or(i64::MIN, wall_ms);
    let mut found = Vec::new();
    let reader = Reader::open(path)?;
    let mut before = i64::MAX;
    while let Some(Place { id, .. }) = reader.event_before(before, from)? {
        let one = Range { from_id: Some(id), to_id: Some(id), ..Range::default() };
        // A damaged row is skipped; `ballast journal export` reports it.
        let entry = reader.events(one).next();
        if let Some(Ok(Entry { wall_ms, content: EntryContent::Event(event), .. })) = entry {
            let (code, text) = words(event);
            found.push(JournalEvent { at_unix_ms: wall_ms, code, text });
        }
        if found.len() == EVENTS_MAX || begun.elapsed() > time_max {
            break;
        }
        before = id;
    }
    Ok(found)
}

/// An event's stable code and its sentence.
fn words(event: Event) -> (&'static str, String) {
    match event {
        Event::Started => ("started", "the daemon started".to_owned()),
        Event::ConfigLoaded { .. } => ("config-loaded", "a configuration took effect".to_owned()),
        Event::ConfigRefused { why } => ("config-refused", format!("a reload was refused: {why}")),
        Event::Command { who, command, answer: Ok(answer) } => {
            ("command", format!("{command}, by {who}: {answer}"))
        }
        Event::Command { who, command, answer: Err(why) } => {
            ("command-refused", format!("{command}, by {who}, was refused: {why}"))
        }
        Event::Gap { ticks, events, why } => {
            ("gap", format!("{ticks} ticks and {events} events were not recorded: {why}"))
        }
        Event::Stopped { why } => ("stopped", format!("the daemon stopped: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use ballast_model::{GuestSample, Measured, Snapshot, Timestamp};
    use ballast_store::{JournalConfig, Start, Writer};

    use super::*;
    use crate::server::fixture;

    /// The time of the newest tick of [`journal`].
    const NEWEST_S: u64 = 1_700_000_000;
    /// Ticks of [`journal`], a second apart.
    const TICKS: u64 = 300;

    fn wall(s: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(s)
    }

    /// A journal of `grow` and its neighbours; `old` is only in the newer half.
    fn journal() -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.db");
        let boot_id = "a boot".to_owned();
        let (wall_first, version) = (wall(NEWEST_S - TICKS), "0.1.0".to_owned());
        let start = Start { wall: wall_first, mono: Timestamp::ZERO, boot_id, version, pid: 1 };
        let mut writer = Writer::open(&path, JournalConfig::default(), start).unwrap();
        let view = fixture::view();
        for nth in 1..=TICKS {
            let guests = view.snapshot.guests().iter().map(|guest| {
                let held = Measured::fresh(Bytes::mib(nth));
                GuestSample { allocation: guest.allocation.map(|_| held), ..guest.clone() }
            });
            let guests = guests.filter(|guest| nth > TICKS / 2 || guest.id.as_str() != "old");
            let now = Timestamp::from_millis(nth * 1000);
            let snapshot = Snapshot::new(now, view.snapshot.host.clone(), guests.collect());
            writer
                .record(&ballast_store::Tick {
                    wall: wall(NEWEST_S - TICKS + nth),
                    snapshot: &snapshot,
                    answer: None,
                    plan: &view.plan,
                    outcomes: &[],
                    carried: &[],
                    handovers: &[],
                    limits: &view.limits,
                    paused: false,
                    mode: view.mode,
                    decision_cost: view.decision_cost,
                })
                .unwrap();
        }
        (folder, path)
    }

    fn mib(nth: u64) -> Option<u64> {
        Some(Bytes::mib(nth).get())
    }

    #[test]
    fn a_plot_has_a_figure_or_none_for_each_tick() {
        let (_folder, path) = journal();
        let past = Past::read(&path, Duration::from_secs(120), None).unwrap();
        let ticks = past.at_unix_ms.len();
        assert_eq!(ticks, 61, "one every two seconds");
        assert!(past.at_unix_ms.iter().is_sorted());
        assert_eq!(past.at_unix_ms.back(), Some(&(NEWEST_S as i64 * 1000)));
        for lines in past.guests.values() {
            let all = [&lines.demand_bytes, &lines.target_bytes, &lines.swap_in_bytes];
            assert!(all.iter().all(|line| line.len() == ticks));
        }
        let held = &past.guests["grow"].allocation_bytes;
        assert_eq!([held[0], held[1], held[60]], [mib(180), mib(182), mib(300)]);
        assert!(past.guests["mute"].allocation_bytes.iter().all(Option::is_none));
    }

    #[test]
    fn a_guest_that_came_later_begins_with_gaps() {
        let (_folder, path) = journal();
        let past = Past::read(&path, Duration::from_secs(3600), None).unwrap();
        // A minute apart, back to the oldest.
        let held = |name: &str| Vec::from(past.guests[name].allocation_bytes.clone());
        assert_eq!(held("grow"), [1, 60, 120, 180, 240, 300].map(mib));
        assert_eq!(held("old"), [None, None, None, mib(180), mib(240), mib(300)]);
    }

    #[test]
    fn one_guest_is_told_of_alone_and_more_finely() {
        let (_folder, path) = journal();
        let span = Duration::from_secs(240);
        let past = Past::read(&path, span, Some(&fixture::id("grow"))).unwrap();
        assert_eq!(past.guests.keys().collect::<Vec<_>>(), ["grow"]);
        assert_eq!(past.at_unix_ms.len(), 241);
        let none = Past::read(&path, span, Some(&fixture::id("nobody"))).unwrap();
        assert!(none.guests.is_empty());
    }

    #[test]
    fn events_come_newest_first_with_a_sentence() {
        let (_folder, path) = journal();
        let command = |answer: Result<&str, &str>| Event::Command {
            who: "uid 0".to_owned(),
            command: "pause".to_owned(),
            answer: answer.map(str::to_owned).map_err(str::to_owned),
        };
        for (event, expected) in [
            (Event::ConfigRefused { why: "bad".to_owned() }, "a reload was refused: bad"),
            (command(Ok("paused")), "pause, by uid 0: paused"),
            (command(Err("busy")), "pause, by uid 0, was refused: busy"),
            (Event::Stopped { why: "SIGTERM".to_owned() }, "the daemon stopped: SIGTERM"),
        ] {
            assert_eq!(words(event).1, expected);
        }
        let found = events(&path, wall(NEWEST_S)).unwrap();
        assert_eq!(found.last().unwrap().text, "the daemon started");
        assert!(found.iter().rev().map(|it| it.at_unix_ms).is_sorted());
        assert!(events(&path, wall(NEWEST_S) + EVENTS_AGE_MAX * 2).unwrap().is_empty());
        let missing = events(Path::new("/nonexistent/journal.db"), SystemTime::now());
        assert!(matches!(missing.unwrap_err(), JournalError::Missing { .. }));
    }

    #[test]
    fn the_newest_events_are_told_whatever_time_there_is() {
        let (_folder, path) = journal();
        let start = Start {
            wall: wall(NEWEST_S),
            mono: Timestamp::from_millis(TICKS * 1000),
            boot_id: "a boot".to_owned(),
            version: "0.1.0".to_owned(),
            pid: 2,
        };
        let mut writer = Writer::open(&path, JournalConfig::default(), start).unwrap();
        let more = EVENTS_MAX as u64 + 50;
        for nth in 1..=more {
            let refused = Event::ConfigRefused { why: format!("reason {nth}") };
            writer.record_event(wall(NEWEST_S + nth), Timestamp::ZERO, refused).unwrap();
        }
        let now = wall(NEWEST_S + more);
        let texts =
            |found: Vec<JournalEvent>| found.into_iter().map(|it| it.text).collect::<Vec<_>>();
        let refusal = |nth: u64| format!("a reload was refused: reason {nth}");
        let all = texts(events(&path, now).unwrap());
        assert_eq!(all.len(), EVENTS_MAX);
        assert_eq!((&all[0], &all[EVENTS_MAX - 1]), (&refusal(more), &refusal(51)));
        // On a slow disk, or with a long journal, there is time for one only.
        assert_eq!(texts(events_within(&path, now, Duration::ZERO).unwrap()), [refusal(more)]);
        // An event with a wrong clock hides no earlier ones.
        let stopped = Event::Stopped { why: "SIGTERM".to_owned() };
        writer.record_event(SystemTime::UNIX_EPOCH, Timestamp::ZERO, stopped).unwrap();
        assert_eq!(texts(events(&path, now).unwrap())[0], refusal(more));
    }
}
