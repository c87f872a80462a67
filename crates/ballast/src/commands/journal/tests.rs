//! Tests of reading a journal that the store has written.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use ballast_api::{ExplainReply, Source, StatusReply};
use ballast_model::{Bytes, GuestLimits};
use ballast_store::{Journal, JournalConfig, Reader, Start, Tick};
use expect_test::expect;

use super::*;
use crate::commands::source::last_tick;
use ballast_daemon::server::fixture;
use ballast_top::recorded::RecordedView;

/// A journal of one tick, written by a daemon that ended in order.
fn write(path: &Path) {
    let view = fixture::view();
    let start = Start {
        wall: view.started_at,
        mono: ballast_model::Timestamp::ZERO,
        boot_id: "boot".to_owned(),
        version: "0.1.0".to_owned(),
        pid: 7,
    };
    let floor = Some(Bytes::mib(128));
    let limits = view.snapshot.guests().iter().map(|guest| guest.id.clone());
    let limits: BTreeMap<_, _> =
        limits.map(|id| (id, GuestLimits { floor, ..GuestLimits::default() })).collect();
    let outcomes: Vec<_> = view.outcomes.values().map(|(_, outcome)| outcome.clone()).collect();
    let journal = Journal::open(path, JournalConfig::default(), start).unwrap();
    journal
        .record(&Tick {
            wall: view.seen_at,
            snapshot: &view.snapshot,
            answer: None,
            plan: &view.plan,
            outcomes: &outcomes,
            carried: &[],
            handovers: &[],
            limits: &limits,
            paused: false,
            mode: ballast_model::ModeChoice::default(),
            decision_cost: view.decision_cost,
        })
        .unwrap();
    let end = view.seen_at + Duration::from_secs(1);
    let mono = ballast_model::Timestamp::from_millis(101_000);
    assert!(journal.close(end, mono, "SIGTERM", Duration::from_secs(60)));
}

fn now() -> SystemTime {
    fixture::seen_at() + Duration::from_secs(7400)
}

#[test]
fn the_last_tick_tells_what_the_daemon_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    write(&path);
    let view = fixture::view();
    let mut live = StatusReply::from(&ballast_daemon::server::routes::tick(&view, now()));
    live.daemon = None;
    live.tick.source = Source::Journal;
    let latest = last_tick(&path).unwrap();
    let recorded = RecordedView::latest(&latest, now());
    assert_eq!(StatusReply::from(&recorded.tick()), live);
    let explained = ExplainReply::new(&recorded.tick(), &fixture::id("grow")).unwrap();
    assert_eq!(explained.outcome.unwrap().kind.code, "accepted");
}

#[test]
fn a_missing_or_empty_journal_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let error = || last_tick(&path).unwrap_err().to_string();
    assert!(error().starts_with("there is no journal at "), "{}", error());
    std::fs::write(&path, "this is not a journal, and longer than a header of SQLite's").unwrap();
    assert!(error().contains("not a journal"), "{}", error());
}

#[test]
fn an_export_for_one_guest_has_rows_and_events() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    write(&path);
    let reader = Reader::open(&path).unwrap();
    let export = |guest: &str| {
        let mut out = Vec::new();
        let guest = fixture::id(guest);
        let mut one = OneGuest { guest: &guest, line: Vec::new(), out: &mut out };
        reader.export(Range::default(), &mut one).unwrap();
        let lines = String::from_utf8(out).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let lines = export("grow");
    let kinds: Vec<_> = lines.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["event", "tick", "event"]);
    let tick = &lines[1];
    for (list, name) in [
        ("/sample/guests", "id"),
        ("/plan/guests", "id"),
        ("/plan/actions", "guest"),
        ("/outcomes", "guest"),
    ] {
        let items = tick.pointer(list).and_then(Value::as_array).unwrap();
        assert_eq!(items.len(), 1, "{list}");
        assert_eq!(items[0][name], "grow", "{list}");
    }
    assert_eq!(tick["limits"].as_object().unwrap().len(), 1);
    let kinds = export("nobody").len();
    assert_eq!(kinds, 2, "events only");
}

#[test]
fn info_says_what_there_is() {
    let info = InfoReply {
        path: "/var/lib/ballast/journal.db".into(),
        entries: 7201,
        first_unix_ms: None,
        last_unix_ms: None,
        sessions: 2,
        file_bytes: 31 << 20,
        wal_bytes: 4 << 20,
    };
    expect![[r#"
        journal   /var/lib/ballast/journal.db
        entries   7201, of 2 starts of the daemon
        oldest    none
        newest    none
        size      31MiB, and 4MiB of write-ahead log
    "#]]
    .assert_eq(&render(&info));
    let text = render(&InfoReply { first_unix_ms: Some(0), ..info });
    assert!(text.contains("19"), "{text}");
}

#[test]
fn the_default_path_is_where_the_daemon_records() {
    let text = "[qmp]\nfolders = [\"/run\"]\n";
    let config = ballast_config::parse(text, Path::new("ballast.toml")).unwrap();
    assert_eq!(config.journal.unwrap().path, Path::new(JOURNAL_DEFAULT));
}
