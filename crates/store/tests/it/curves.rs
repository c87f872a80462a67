//! Miss curves: each is stored once, read back with every tick, and deleted with its last tick.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{OwnedTick, realistic, start, wall};
use ballast_model::{
    Bytes, GuestSample, Measured, MissCurve, Snapshot, Timestamp, TrackerReport, TrackingSource,
};
use ballast_store::*;

const KEEP: JournalConfig =
    JournalConfig { age_max: Duration::from_secs(1 << 40), bytes_max: Bytes::gib(1) };
const GUESTS: u64 = 4;

/// Misses that fall to nothing over 300 steps, in a way of its own for each `kind`.
fn curve(kind: u64) -> Arc<MissCurve> {
    let misses = (0..=300).rev().map(|k: u64| k * k + kind + k * 37 % (kind + 5) / 9);
    let mut misses: Vec<u64> = misses.collect();
    misses.sort_unstable_by(|a, b| b.cmp(a));
    Arc::new(MissCurve::new(Bytes::mib(1), Duration::from_secs(5), misses).unwrap())
}

/// Tick `nth`: guest `i` has the curve `kinds(i)` and is estimated with it shifted by `kept`.
fn tracked(nth: u64, kept: Bytes, kinds: impl Fn(u64) -> u64) -> OwnedTick {
    let mut owned = realistic(nth, GUESTS);
    let Snapshot { taken_at, host, .. } = owned.snapshot.clone();
    let guests = owned.snapshot.guests().iter().zip(0..).map(|(guest, i)| GuestSample {
        tracker: Some(Box::new(Measured {
            value: TrackerReport {
                working_set: Bytes::mib(500),
                curve: Some(curve(kinds(i))),
                source: TrackingSource::Library,
            },
            age: Duration::from_millis(nth),
        })),
        ..guest.clone()
    });
    owned.snapshot = Snapshot::new(taken_at, host, guests.collect());
    for (guest, i) in owned.plan.guests.iter_mut().zip(0..) {
        let estimate = guest.estimate.as_mut().expect("realistic guests have estimates");
        estimate.curve = Some(Arc::new(curve(kinds(i)).shifted(kept)));
    }
    owned
}

fn number(path: &Path, sql: &str) -> i64 {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// A tick as the JSON of a whole row.
fn bytes(tick: &Tick<'_>) -> Vec<u8> {
    serde_json::to_vec(tick).unwrap()
}

fn is_given_back(path: &Path, recorded: &[OwnedTick]) {
    let reader = Reader::open(path).unwrap();
    let entries: Vec<Entry> = reader.ticks(Range::default()).map(Result::unwrap).collect();
    assert_eq!(entries.len(), recorded.len());
    for (entry, owned) in entries.iter().zip(recorded) {
        let EntryContent::Tick(tick) = &entry.content else { panic!("{entry:?}") };
        assert!(bytes(&tick.at(entry.wall())) == bytes(&owned.tick()), "tick {}", entry.id);
    }
}

fn written(path: &Path, recorded: &[OwnedTick]) {
    let mut writer = Writer::open(path, KEEP, start()).unwrap();
    for owned in recorded {
        writer.record(&owned.tick()).unwrap();
    }
}

#[test]
fn a_curve_is_written_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    // One guest's curve changes once; for all guests, what the kernel keeps changes once.
    let kinds = |nth: u64| move |i: u64| if i == 2 && nth >= 25 { 100 } else { i };
    let kept = |nth| if nth < 10 { Bytes::ZERO } else { Bytes::mib(3) };
    let recorded: Vec<OwnedTick> = (0..50).map(|nth| tracked(nth, kept(nth), kinds(nth))).collect();
    written(&path, &recorded);
    assert_eq!(number(&path, "SELECT count(*) FROM curve"), GUESTS as i64 + 1);
    is_given_back(&path, &recorded);
    // Without the curves, a tick is about as small as one of guests that have none.
    let with = number(&path, "SELECT max(length(body)) FROM entry WHERE kind = 0");
    let without = folder.path().join("without.db");
    let plain: Vec<OwnedTick> = (0..50).map(|nth| realistic(nth, GUESTS)).collect();
    written(&without, &plain);
    let without = number(&without, "SELECT max(length(body)) FROM entry WHERE kind = 0");
    assert!(with < without + 200, "{with} bytes a tick, {without} without curves");
}

#[test]
fn an_estimate_with_another_curve_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let mut recorded: Vec<OwnedTick> = (0..6).map(|nth| tracked(nth, Bytes::ZERO, |i| i)).collect();
    for owned in &mut recorded {
        let estimate = owned.plan.guests[1].estimate.as_mut().unwrap();
        estimate.curve = Some(curve(77));
    }
    written(&path, &recorded);
    assert_eq!(number(&path, "SELECT count(*) FROM curve"), GUESTS as i64 + 1);
    is_given_back(&path, &recorded);
}

#[test]
fn a_restarted_daemon_appends_to_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let recorded: Vec<OwnedTick> = (0..6).map(|nth| tracked(nth, Bytes::ZERO, |i| i)).collect();
    written(&path, &recorded[..3]);
    written(&path, &recorded[3..]);
    is_given_back(&path, &recorded);
    assert_eq!(number(&path, "SELECT max(id) FROM curve"), 2 * GUESTS as i64);
}

#[test]
fn curves_are_deleted_with_their_last_tick() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let retention = JournalConfig { age_max: Duration::from_secs(10), ..KEEP };
    let mut writer = Writer::open(&path, retention, start()).unwrap();
    // The curve of guest 0 never changes, those of the others change with every tick.
    let tick = |nth| tracked(nth, Bytes::mib(2), move |i| if i == 0 { 0 } else { nth * 10 + i });
    for nth in 0..700 {
        writer.record(&tick(nth).tick()).unwrap();
    }
    // The unchanged one is written again after 600 ticks, so that the others can go.
    let kept = number(&path, "SELECT count(*) FROM curve");
    let ticks = number(&path, "SELECT count(*) FROM entry");
    assert!(kept <= 100 * (GUESTS as i64 - 1) + 1, "{kept} curves");
    let recorded: Vec<OwnedTick> = (700 - ticks as u64..700).map(tick).collect();
    is_given_back(&path, &recorded);
    // Once no guest is tracked any more, no curve is kept.
    for nth in 700..730 {
        writer.record(&realistic(nth, 1).tick()).unwrap();
    }
    assert_eq!(number(&path, "SELECT count(*) FROM curve"), 0);
    writer.record(&tick(731).tick()).unwrap();
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.last_tick().unwrap().unwrap().1.snapshot, tick(731).snapshot);
}

#[test]
fn a_curve_that_was_deleted_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let retention = JournalConfig { age_max: Duration::from_secs(10), ..KEEP };
    let mut writer = Writer::open(&path, retention, start()).unwrap();
    let [early, late] = [0, 100].map(|nth| tracked(nth, Bytes::ZERO, |i| i));
    writer.record(&early.tick()).unwrap();
    // With this event the only tick is deleted, and with it its curves.
    let event = Event::ConfigRefused { why: "line 3".into() };
    writer.record_event(wall(late.wall_ms), Timestamp::ZERO, event).unwrap();
    writer.record(&late.tick()).unwrap();
    is_given_back(&path, &[late]);
}

#[test]
fn a_lost_curve_is_named_and_spoils_one_tick() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let recorded: Vec<OwnedTick> =
        (0..3).map(|nth| tracked(nth, Bytes::ZERO, |i| i + nth)).collect();
    written(&path, &recorded);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "DELETE FROM curve WHERE id = 6; UPDATE curve SET body = x'00' WHERE id = 9;",
        )
        .unwrap();
    let reader = Reader::open(&path).unwrap();
    let read: Vec<Result<Entry, JournalError>> = reader.ticks(Range::default()).collect();
    assert!(read[0].is_ok());
    for (at, needle) in [(1, "row 3: curve 6: there is none"), (2, "row 4: curve 9: ")] {
        let error = read[at].as_ref().unwrap_err().to_string();
        assert!(error.contains(needle), "{error}");
    }
}
