//! The journal as a whole: order, retention, events, reading beside writing, export, wrong files.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::{bulky, realistic, start, wall};
use ballast_model::{Bytes, Timestamp};
use ballast_store::*;
use proptest::prelude::*;

const KEEP: JournalConfig =
    JournalConfig { age_max: Duration::from_secs(1 << 40), bytes_max: Bytes::gib(1) };

fn ids(reader: &Reader) -> Vec<i64> {
    reader.entries(Range::default()).map(|entry| entry.unwrap().id).collect()
}

fn events(reader: &Reader) -> Vec<Event> {
    let event = |entry: Result<Entry, _>| match entry.unwrap().content {
        EntryContent::Event(event) => event,
        EntryContent::Tick(_) => panic!("a tick among events"),
    };
    reader.events(Range::default()).map(event).collect()
}

fn loaded(toml: &str) -> Event {
    Event::ConfigLoaded { toml: toml.into() }
}

fn sql(path: &Path, text: &str) {
    rusqlite::Connection::open(path).unwrap().execute_batch(text).unwrap();
}

fn number(path: &Path, query: &str) -> i64 {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.query_row(query, [], |row| row.get(0)).unwrap()
}

#[test]
fn entries_keep_their_order_whatever_the_clock_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let mut writer = Writer::open(&path, KEEP, start()).unwrap();
    for (nth, wall_ms) in [5_000, 1_000, -7, i64::MAX / 2_000_000, 3_000].into_iter().enumerate() {
        let mut owned = realistic(nth as u64, 1);
        owned.wall_ms = wall_ms;
        writer.record(&owned.tick()).unwrap();
    }
    let reader = Reader::open(&path).unwrap();
    assert_eq!(ids(&reader), [1, 2, 3, 4, 5, 6]);
    let generations: Vec<u64> = reader
        .ticks(Range::default())
        .map(|entry| match entry.unwrap().content {
            EntryContent::Tick(tick) => tick.plan.generation.0,
            EntryContent::Event(_) => panic!(),
        })
        .collect();
    assert_eq!(generations, [1, 2, 3, 4, 5]);
    assert_eq!(reader.last_tick().unwrap().unwrap().0.wall_ms, 3_000);
}

#[test]
fn ranges_are_inclusive_and_combine() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    for _ in 0..2 {
        let mut writer = Writer::open(&path, KEEP, start()).unwrap();
        for nth in 0..40 {
            writer.record(&realistic(nth, 1).tick()).unwrap();
        }
    }
    let reader = Reader::open(&path).unwrap();
    let count = |range| reader.ticks(range).map(Result::unwrap).count();
    let ms = |nth: u64| Some(realistic(nth, 0).wall_ms);
    assert_eq!(count(Range::default()), 80);
    assert_eq!(count(Range { session: Some(2), ..Range::default() }), 40);
    assert_eq!(count(Range { from_id: Some(2), to_id: Some(11), ..Range::default() }), 10);
    assert_eq!(count(Range { from_wall_ms: ms(1), to_wall_ms: ms(3), ..Range::default() }), 6);
    assert_eq!(count(Range { from_id: Some(i64::MAX), ..Range::default() }), 0);
    assert_eq!(reader.sessions().unwrap().len(), 2);
    assert_eq!(reader.session(1).unwrap().unwrap().start, start());
}

#[test]
fn a_seek_leads_to_ticks_and_stops_at_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let mut writer = Writer::open(&path, KEEP, start()).unwrap();
    let reader = Reader::open(&path).unwrap();
    let anywhere = Place { id: 7, wall_ms: 0 };
    assert_eq!(reader.seek(anywhere, Seek::First).unwrap(), None);
    // The ticks get the numbers 2, 3, 5 and 6; the clock is set back before the last one.
    for (nth, wall_ms) in [1_000, 2_000, 61_000, 1_500].into_iter().enumerate() {
        let mut owned = realistic(nth as u64, 1);
        owned.wall_ms = wall_ms;
        writer.record(&owned.tick()).unwrap();
        if nth == 1 {
            writer.record_event(wall(1), Timestamp::ZERO, loaded("a = 1\n")).unwrap();
        }
    }
    for (from, wall_ms, seek, to) in [
        (5, 61_000, Seek::First, 2),
        (2, 1_000, Seek::Last, 6),
        (3, 2_000, Seek::Next, 5),
        (6, 1_500, Seek::Next, 6),
        (5, 61_000, Seek::Previous, 3),
        (2, 1_000, Seek::Previous, 2),
        (2, 1_000, Seek::Later(1_000), 3),
        (2, 1_000, Seek::Later(1_001), 5),
        (5, 61_000, Seek::Later(1), 6),
        (5, 61_000, Seek::Earlier(59_000), 3),
        (5, 61_000, Seek::Earlier(59_001), 2),
        (5, 61_000, Seek::Earlier(u32::MAX), 2),
    ] {
        let place = reader.seek(Place { id: from, wall_ms }, seek).unwrap().unwrap();
        assert_eq!(place.id, to, "{seek:?} from {from}");
    }
    let until = |id| reader.latest_until(id).unwrap().map(|latest| latest.entry.id);
    assert_eq!([1, 4, 5, i64::MAX].map(until), [None, Some(3), Some(5), Some(6)]);
    // Events have the numbers 1 and 4; the clock was wrong at the second.
    let before = |id, wall_ms| reader.event_before(id, wall_ms).unwrap().map(|it| it.id);
    assert_eq!([i64::MAX, 4, 1].map(|id| before(id, i64::MIN)), [Some(4), Some(1), None]);
    assert_eq!((before(i64::MAX, 1), before(i64::MAX, 2)), (Some(4), Some(1)));
}

#[test]
fn events_and_configurations_read_back_in_full() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let mut writer = Writer::open(&path, KEEP, start()).unwrap();
    let command = |answer| Event::Command {
        who: "uid 0".into(),
        command: "set web-1 floor 256MiB".into(),
        answer,
    };
    let sent = [
        loaded("a = 1\n"),
        loaded("a = 1\n"),
        Event::ConfigRefused { why: "line 3: `flor`: did you mean `floor`?".into() },
        command(Ok("floor of web-1 is 256MiB".into())),
        command(Err("no guest `web-1`".into())),
        loaded("a = 2\n"),
        Event::Stopped { why: "SIGTERM".into() },
    ];
    for event in sent.clone() {
        writer.record_event(wall(1), Timestamp::from_millis(2), event).unwrap();
    }
    writer.record(&realistic(0, 1).tick()).unwrap();
    let reader = Reader::open(&path).unwrap();
    let found = events(&reader);
    assert_eq!(found[0], Event::Started);
    assert_eq!(found[1..], sent);
    let config = reader.last_tick().unwrap().unwrap().0.config.unwrap();
    assert_eq!(config, 2, "the same text twice is one row");
    let config = reader.config(config).unwrap().unwrap();
    assert_eq!(config.toml, "a = 2\n");
    // What `printf 'a = 2\n' | sha256sum` says.
    assert_eq!(config.sha256, "1382c01db535c28d9d2e3137ea7b6ff14ed03537bc4dab2e8d40182bd48bbd69");
}

#[test]
fn old_rows_are_deleted_without_a_gap() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let retention = JournalConfig { age_max: Duration::from_secs(10), bytes_max: Bytes::gib(1) };
    for _ in 0..2 {
        let mut writer = Writer::open(&path, retention, start()).unwrap();
        writer.record_event(wall(start_ms()), Timestamp::ZERO, loaded("a = 1\n")).unwrap();
        for nth in 0..100 {
            writer.record(&realistic(nth, 1).tick()).unwrap();
        }
    }
    let reader = Reader::open(&path).unwrap();
    let left = ids(&reader);
    let last = *left.last().unwrap();
    assert_eq!(left, (left[0]..=last).collect::<Vec<_>>(), "no gap");
    let kept = 11..=11 + i64::from(DELTAS_MAX);
    assert!(kept.contains(&(left.len() as i64)), "ten seconds, the newest, and what they need");
    assert_eq!(reader.info().unwrap().entries, left.len() as u64);
    assert_eq!(reader.ticks(Range::default()).map(Result::unwrap).count(), left.len());
    assert_eq!(reader.info().unwrap().sessions, 1, "a start without rows is gone");
    let config = reader.last_tick().unwrap().unwrap().0.config.unwrap();
    assert_eq!(reader.config(config).unwrap().unwrap().toml, "a = 1\n", "what is in force stays");
}

fn start_ms() -> i64 {
    wall_ms(start().wall)
}

#[test]
fn a_row_from_the_future_does_not_block_retention() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let retention = JournalConfig { age_max: Duration::from_secs(10), bytes_max: Bytes::gib(1) };
    let mut writer = Writer::open(&path, retention, start()).unwrap();
    let mut future = realistic(0, 1);
    future.wall_ms += 1_000_000_000;
    writer.record(&future.tick()).unwrap();
    // The row ahead of time has made all others due. Now the clock is right again.
    for nth in 0..150 {
        writer.record(&realistic(nth, 1).tick()).unwrap();
    }
    let reader = Reader::open(&path).unwrap();
    assert!(ids(&reader).len() <= 12 + DELTAS_MAX as usize, "{:?}", ids(&reader));
}

/// Keeps ten seconds.
const BRIEF: JournalConfig = JournalConfig { age_max: Duration::from_secs(10), ..KEEP };

/// Records ticks, one a second.
fn record_ticks(writer: &mut Writer, nths: std::ops::Range<u64>) {
    for nth in nths {
        writer.record(&realistic(nth, 1).tick()).unwrap();
    }
}

/// Records events in the second of tick `nth`.
fn record_events(writer: &mut Writer, nth: u64, count: u64) {
    let at = wall(start_ms() + nth as i64 * 1_000);
    for _ in 0..count {
        let event = Event::ConfigRefused { why: "line 3".into() };
        writer.record_event(at, Timestamp::ZERO, event).unwrap();
    }
}

/// The numbers of the rows. Each row can be read, and none is missing.
fn readable(path: &Path) -> Vec<i64> {
    let left = ids(&Reader::open(path).unwrap());
    assert_eq!(left, (left[0]..=*left.last().unwrap()).collect::<Vec<_>>());
    left
}

#[test]
fn events_among_ticks_do_not_stop_retention() {
    // 75 events and a minute of ticks; and more events than ticks.
    for events in [75, 200] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.db");
        let mut writer = Writer::open(&path, BRIEF, start()).unwrap();
        record_ticks(&mut writer, 0..1);
        record_events(&mut writer, 0, events);
        record_ticks(&mut writer, 1..60);
        let last = *readable(&path).last().unwrap();
        let farthest = number(&path, "SELECT max(id - base) FROM entry");
        assert!(farthest <= i64::from(DELTAS_MAX), "{farthest} rows have to be deleted at once");
        record_ticks(&mut writer, 1_000..1_150);
        let left = readable(&path);
        assert!(left[0] > last && left.len() <= 11 + DELTAS_MAX as usize, "{events}: {left:?}");
    }
}

/// A thousand events between a whole tick and its nine differences, as earlier versions wrote.
fn long_group(path: &Path) {
    let mut writer = Writer::open(path, KEEP, start()).unwrap();
    record_ticks(&mut writer, 0..10);
    drop(writer);
    sql(
        path,
        "UPDATE entry SET id = id + 1000 WHERE id > 2;
         WITH RECURSIVE n (nth) AS (SELECT 3 UNION ALL SELECT nth + 1 FROM n WHERE nth < 1002)
         INSERT INTO entry (id, session, config, kind, format, wall_ms, mono_ms, body)
         SELECT nth, session, config, kind, format, wall_ms, mono_ms, body
         FROM n JOIN entry WHERE id = 1;",
    );
    assert_eq!(readable(path).len(), 1_011);
    assert_eq!(number(path, "SELECT count(base) FROM entry"), 9);
}

#[test]
fn a_whole_tick_stays_however_far_its_differences_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    long_group(&path);
    let later = Start { wall: wall(start_ms() + 10_000), ..start() };
    let mut writer = Writer::open(&path, BRIEF, later).unwrap();
    // The whole tick, the events and some of the differences are due.
    record_ticks(&mut writer, 15..18);
    assert_eq!(readable(&path)[0], 2);
    record_ticks(&mut writer, 1_000..1_020);
    assert!(readable(&path)[0] > 1_011);
}

#[test]
fn differences_that_lost_their_whole_tick_age_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    long_group(&path);
    sql(&path, "DELETE FROM entry WHERE id < 100;");
    let mut writer = Writer::open(&path, BRIEF, start()).unwrap();
    record_ticks(&mut writer, 1_000..1_020);
    assert!(readable(&path)[0] > 1_011);
}

#[test]
fn no_tick_refers_to_one_that_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let mut writer = Writer::open(&path, BRIEF, start()).unwrap();
    record_ticks(&mut writer, 0..3);
    // No tick is left.
    record_events(&mut writer, 100, 2);
    record_ticks(&mut writer, 101..104);
    assert_eq!(readable(&path), [5, 6, 7, 8, 9]);
}

proptest! {
    // Each case opens a file.
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// Runs of ticks (`true`) and of events, with seconds after each.
    #[test]
    fn rows_are_readable_until_they_age_out(
        runs in prop::collection::vec((any::<bool>(), 1..150u64, 0..60u64), 1..6),
        age_s in 0..40u64,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.db");
        let retention = JournalConfig { age_max: Duration::from_secs(age_s), ..KEEP };
        let mut writer = Writer::open(&path, retention, start()).unwrap();
        let mut now = 0;
        for (are_ticks, count, pause) in runs {
            if are_ticks {
                record_ticks(&mut writer, now..now + count);
                now += count;
            } else {
                record_events(&mut writer, now, count);
            }
            readable(&path);
            now += pause;
        }
        let last = *readable(&path).last().unwrap();
        record_ticks(&mut writer, now + 1_000..now + 1_250);
        let left = readable(&path);
        let most = age_s + 1 + u64::from(DELTAS_MAX);
        prop_assert!(left[0] > last && left.len() as u64 <= most, "after {last}: {left:?}");
    }
}

#[test]
fn the_file_keeps_to_its_limit_and_shrinks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let retention = JournalConfig { bytes_max: Bytes::mib(8), ..KEEP };
    let mut writer = Writer::open(&path, retention, start()).unwrap();
    let size = || fs::metadata(&path).unwrap().len();
    for nth in 0..600 {
        writer.record(&bulky(nth, 40_000).tick()).unwrap();
        assert!(writer.file_bytes() <= Bytes::mib(9), "tick {nth}: {}", writer.file_bytes());
        assert!(writer.wal_bytes() <= Bytes::mib(8), "tick {nth}: {}", writer.wal_bytes());
    }
    let reader = Reader::open(&path).unwrap();
    let left = ids(&reader);
    assert!(left.len() > 150 && left[0] > 1, "{} rows from {}", left.len(), left[0]);
    assert_eq!(left, (left[0]..=601).collect::<Vec<_>>());
    assert!(size() > 6 << 20, "{}", size());

    writer.set_retention(JournalConfig { bytes_max: Bytes::mib(2), ..KEEP });
    for nth in 0..100 {
        writer.record(&realistic(nth, 1).tick()).unwrap();
    }
    drop((reader, writer));
    assert!(size() < 4 << 20, "{}", size());
}

#[test]
fn the_newest_row_stays_however_small_the_limit() {
    let no_time = JournalConfig { age_max: Duration::ZERO, ..KEEP };
    let no_room = JournalConfig { bytes_max: Bytes::ZERO, ..KEEP };
    for nothing in [no_time, no_room] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.db");
        let mut writer = Writer::open(&path, nothing, start()).unwrap();
        for nth in 0..130 {
            writer.record(&realistic(nth, 10).tick()).unwrap();
            let left = ids(&Reader::open(&path).unwrap());
            // The first tick has the same time as the start, so the start is not yet too old then.
            let most = 2 + DELTAS_MAX as usize;
            assert!(left.len() <= most && left.last() == Some(&(nth as i64 + 2)), "{left:?}");
        }
        let (_, tick) = Reader::open(&path).unwrap().last_tick().unwrap().unwrap();
        assert_eq!(tick.snapshot, realistic(129, 10).snapshot);
    }
}

#[test]
fn a_slow_reader_does_not_block_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let mut writer = Writer::open(&path, KEEP, start()).unwrap();
    let mut nth = 0;
    let mut record = |count: u64| {
        for _ in 0..count {
            writer.record(&bulky(nth, 40_000).tick()).unwrap();
            nth += 1;
        }
        writer.wal_bytes()
    };
    record(20);
    let reader = Reader::open(&path).unwrap();
    let mut ticks = reader.ticks(Range::default());
    assert!(ticks.next().is_some());
    // Far more than the log holds. An open read transaction would keep it from being
    // checkpointed.
    assert!(record(500) < Bytes::mib(8));
    assert_eq!(ticks.map(Result::unwrap).count(), 519);
    assert_eq!(Reader::open(&path).unwrap().info().unwrap().entries, 521);
}

#[test]
fn a_foreign_read_transaction_is_reported_and_bounds_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let mut writer = Writer::open(&path, KEEP, start()).unwrap();
    let foreign = rusqlite::Connection::open(&path).unwrap();
    foreign.execute_batch("BEGIN; SELECT count(*) FROM entry;").unwrap();
    let tick = bulky(0, 4_000_000);
    let mut numbers = 1..40;
    let refused = |nth| writer.record(&bulky(nth, 4_000_000).tick()).err();
    let error = numbers.find_map(refused).unwrap();
    assert!(error.to_string().contains("some program keeps a read transaction open"), "{error}");
    assert!(writer.wal_bytes() < Bytes::mib(80), "{}", writer.wal_bytes());
    foreign.execute_batch("COMMIT;").unwrap();
    writer.record(&tick.tick()).unwrap();
    assert!(writer.wal_bytes() < Bytes::mib(16), "{}", writer.wal_bytes());
}

#[test]
fn the_last_state_is_readable_without_a_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let journal = Journal::open(&path, KEEP, start()).unwrap();
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.latest().unwrap(), None);
    for nth in 0..12 {
        journal.record(&realistic(nth, 30).tick()).unwrap();
    }
    assert!(journal.close(wall(9), Timestamp::ZERO, "SIGTERM", Duration::from_secs(60)));
    let latest = reader.latest().unwrap().unwrap();
    let expected = realistic(11, 30);
    assert_eq!(latest.tick.snapshot, expected.snapshot);
    assert_eq!(latest.tick.plan, expected.plan);
    assert_eq!(latest.tick.limits, expected.limits);
    assert_eq!(latest.stopped.as_deref(), Some("SIGTERM"));
    assert_eq!(latest.session.start, start());
    // Every guest was resized in one of the last ten ticks: the last outcome of each is known.
    assert_eq!(latest.outcomes.len(), 30);
    let (at, outcome) = &latest.outcomes[&"guest-009".parse().unwrap()];
    assert_eq!((*at, outcome.generation.0), (wall(expected.wall_ms), 11));
}

#[test]
fn a_dropped_journal_has_written_its_queue() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let journal = Journal::open(&path, KEEP, start()).unwrap();
    let handed =
        (0..1_000).filter(|&nth| journal.record(&realistic(nth, 1).tick()).is_ok()).count();
    let status = journal.status();
    drop(journal);
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.ticks(Range::default()).count(), handed);
    assert_eq!(status.error, None);
    // Ticks that did not fit into the queue are counted, in the status and in the journal itself.
    let reported: u64 = events(&reader)
        .iter()
        .map(|event| if let Event::Gap { ticks, .. } = event { *ticks } else { 0 })
        .sum();
    let lost = 1_000 - handed as u64;
    assert!(status.ticks_lost == lost && reported <= lost, "{status:?}, {reported} of {lost}");
}

#[test]
fn one_journal_has_one_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let first = Writer::open(&path, KEEP, start()).unwrap();
    let error = Writer::open(&path, KEEP, start()).map(drop).unwrap_err();
    assert!(matches!(error, JournalError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("another daemon records here"), "{error}");
    drop(first);
    Writer::open(&path, KEEP, start()).unwrap();
}

#[test]
fn other_files_are_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("text"), "not a journal\n".repeat(100)).unwrap();
    fs::write(at("short"), "x").unwrap();
    fs::create_dir(at("folder")).unwrap();
    sql(&at("other"), "CREATE TABLE mail (body TEXT);");
    for (name, found) in [
        ("text", "not an SQLite file"),
        ("short", "not an SQLite file"),
        ("folder", "a folder"),
        ("other", "an SQLite file of another program"),
    ] {
        let path = at(name);
        let before = fs::read(&path).ok();
        let message = Reader::open(&path).map(drop).unwrap_err().to_string();
        assert!(message.contains(found) && message.contains(name), "{name}: {message}");
        assert!(message.contains("move that file away"), "{name}: {message}");
        assert_eq!(fs::read(&path).ok(), before, "{name} was changed");
    }
    let error = Reader::open(&at("nothing")).unwrap_err().to_string();
    assert!(error.contains("nothing"), "{error}");
    let error = Writer::open(&at("no/folder"), KEEP, start()).map(drop).unwrap_err().to_string();
    assert!(error.contains("no/folder"), "{error}");
    fs::write(at("empty"), "").unwrap();
    assert!(Reader::open(&at("empty")).unwrap_err().to_string().contains("an empty file"));
    let writer = Writer::open(&at("whole"), KEEP, start()).unwrap();
    fs::copy(at("whole"), at("no-log")).unwrap();
    let error = Reader::open(&at("no-log")).unwrap_err().to_string();
    assert!(error.contains("without tables"), "{error}");
    drop(writer);
    Writer::open(&at("empty"), KEEP, start()).unwrap();
}

#[test]
fn a_later_format_is_refused_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    drop(Writer::open(&path, KEEP, start()).unwrap());
    sql(&path, "UPDATE entry SET format = 7;");
    let error = Reader::open(&path).unwrap().entries(Range::default()).next().unwrap().unwrap_err();
    assert!(error.to_string().contains("written in format 7"), "{error}");
    sql(&path, "PRAGMA user_version = 9;");
    let message = Reader::open(&path).map(drop).unwrap_err().to_string();
    assert!(message.contains("written in format 9, this version reads up to 3"), "{message}");
}

#[test]
fn a_damaged_row_is_named_and_spoils_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let mut writer = Writer::open(&path, KEEP, start()).unwrap();
    for nth in 0..4 {
        writer.record(&realistic(nth, 1).tick()).unwrap();
    }
    drop(writer);
    sql(
        &path,
        "UPDATE entry SET body = x'00' WHERE id = 3;
         UPDATE entry SET body = substr(body, 1, length(body) - 9) WHERE id = 4;
         UPDATE entry SET kind = 9 WHERE id = 2;",
    );
    let reader = Reader::open(&path).unwrap();
    let entries: Vec<_> = reader.entries(Range::default()).collect();
    for (at, entry) in entries.iter().enumerate() {
        match entry {
            Ok(_) => assert!(matches!(at, 0 | 4), "{at}"),
            Err(e) => assert!(e.to_string().contains(&format!("row {}: ", at + 1)), "{e}"),
        }
    }
    assert_eq!(entries.len(), 5);
}

#[test]
fn a_removed_file_is_recreated_with_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let mut writer = Writer::open(&path, KEEP, start()).unwrap();
    writer.record_event(wall(1), Timestamp::ZERO, loaded("a = 1\n")).unwrap();
    writer.record(&realistic(0, 1).tick()).unwrap();
    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(folder.path().join(format!("journal.db{suffix}"))).unwrap();
    }
    writer.record(&realistic(1, 1).tick()).unwrap();
    let reader = Reader::open(&path).unwrap();
    let (entry, tick) = reader.last_tick().unwrap().unwrap();
    assert_eq!(tick.plan, realistic(1, 1).plan);
    assert_eq!(reader.config(entry.config.unwrap()).unwrap().unwrap().toml, "a = 1\n");
    assert_eq!(reader.sessions().unwrap()[0].start, start());
}

#[test]
fn export_writes_one_json_line_per_entry_with_sentences() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let mut writer = Writer::open(&path, KEEP, start()).unwrap();
    writer.record_event(wall(1), Timestamp::ZERO, loaded("a = 1\n")).unwrap();
    let owned = realistic(0, 3);
    writer.record(&owned.tick()).unwrap();
    let mut out = Vec::new();
    assert_eq!(Reader::open(&path).unwrap().export(Range::default(), &mut out).unwrap(), 3);
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [started, config, tick] = &lines[..] else { panic!("{text}") };
    assert_eq!(started["event"]["code"], "started");
    assert_eq!(started["event"]["version"], "0.1.0");
    assert_eq!(config["event"]["toml"], "a = 1\n");
    assert_eq!(config["event"]["sha256"].as_str().unwrap().len(), 64);
    for (line, kind) in [(started, "event"), (config, "event"), (tick, "tick")] {
        assert_eq!((&line["v"], &line["kind"]), (&1.into(), &kind.into()));
        assert!(line["id"].is_i64() && line["session"].is_i64() && line["wall_ms"].is_i64());
    }
    let guest = &tick["plan"]["guests"][1];
    let plan = &owned.plan.guests[1];
    assert_eq!(guest["change"]["text"], plan.change.to_string());
    assert_eq!(guest["change"]["figures"]["code"], "dead-band");
    assert_eq!(
        guest["desired"]["reason"]["text"],
        plan.desired.as_ref().unwrap().reason.to_string()
    );
    assert_eq!(guest["compliance"]["text"], "compliant");
    assert_eq!(tick["plan"]["guests"][0]["clamps"][0]["code"], "step-up");
    assert_eq!(
        tick["plan"]["guests"][0]["clamps"][0]["text"],
        owned.plan.guests[0].clamps[0].to_string()
    );
    assert_eq!(tick["sample"]["guests"][0]["id"], "guest-000");
}

/// Commands to a daemon that ended before it recorded a tick.
#[test]
fn commands_before_a_first_tick_are_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let command = |words: &str| Event::Command {
        who: "uid 0".to_owned(),
        command: words.to_owned(),
        answer: Ok("done".to_owned()),
    };
    let run = |start: Start, ticks: bool, event: Event| {
        let mut journal = Journal::open(&path, KEEP, start).unwrap();
        let tail = journal.take_tail().unwrap();
        if ticks {
            journal.record(&realistic(0, 1).tick()).unwrap();
        }
        journal.record_event(wall(9), Timestamp::ZERO, event).unwrap();
        journal.close(wall(9), Timestamp::ZERO, "SIGTERM", Duration::from_secs(60));
        tail
    };
    let here = |words: &str| (start().boot_id, command(words));
    assert!(run(start(), false, command("pause")).last.is_none());
    let tail = run(start(), true, command("resume"));
    assert!(tail.last.is_none() && tail.events.contains(&here("pause")), "{tail:?}");
    let tail = run(start(), false, command("pause web"));
    assert!(tail.last.is_some() && tail.events.contains(&here("resume")), "{tail:?}");
    assert!(!tail.events.contains(&here("pause")), "before the last tick");
    let after_boot = Start { boot_id: "another".to_owned(), ..start() };
    run(after_boot.clone(), false, command("pause"));
    let tail = run(after_boot, false, command("resume"));
    assert!(tail.events.contains(&here("pause web")));
    assert!(tail.events.contains(&("another".to_owned(), command("pause"))));
}

/// If there are more commands than are kept, the last ones are kept.
#[test]
fn the_last_events_are_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let mut journal = Journal::open(&path, KEEP, start()).unwrap();
    for number in 0..200 {
        let event = Event::Command {
            who: "uid 0".to_owned(),
            command: format!("pause {number}"),
            answer: Ok(String::new()),
        };
        while journal.record_event(wall(9), Timestamp::ZERO, event.clone()).is_err() {
            std::thread::yield_now();
        }
    }
    journal.close(wall(9), Timestamp::ZERO, "SIGTERM", Duration::from_secs(60));
    journal = Journal::open(&path, KEEP, start()).unwrap();
    let events = journal.take_tail().unwrap().events;
    let is_last = |event: &Event| match event {
        Event::Command { command, .. } => command == "pause 199",
        _ => false,
    };
    assert!(events.len() <= 64 && events.iter().any(|(_, event)| is_last(event)), "{events:?}");
    journal.close(wall(9), Timestamp::ZERO, "SIGTERM", Duration::from_secs(60));
}
