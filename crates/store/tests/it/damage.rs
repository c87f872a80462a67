//! Damaged, unreadable and foreign files: opening succeeds whatever lies at the path.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::{bulky, realistic, start, wall};
use ballast_model::{Bytes, Timestamp};
use ballast_store::*;

const KEEP: JournalConfig =
    JournalConfig { age_max: Duration::from_secs(1 << 40), bytes_max: Bytes::gib(1) };

/// SQLite's, and so the journal's.
const PAGE: u64 = 4096;

/// Where the child finds its journal; a test that finds this set is its own child.
const CHILD_PATH: &str = "BALLAST_TEST_READ_ONLY_JOURNAL";

/// The user that owns nothing.
const NOBODY: u32 = 65_534;

/// A journal of `ticks` ticks with one guest, closed in order.
fn journal(path: &Path, ticks: u64) {
    let mut writer = Writer::open(path, KEEP, start()).unwrap();
    for nth in 0..ticks {
        writer.record(&realistic(nth, 1).tick()).unwrap();
    }
}

fn overwrite(path: &Path, offset: u64, bytes: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

/// Bytes that are no page of SQLite.
fn garbage() -> Vec<u8> {
    (0..PAGE).map(|at| (at * 167 % 251) as u8 | 0x80).collect()
}

/// The generation of the last tick that was left.
fn generation_of(tail: Result<JournalTail, JournalError>) -> u64 {
    let (_, tick) = tail.unwrap().last.unwrap();
    tick.plan.generation.0
}

/// Opens the journal, records tick 1000 and closes it. Returns the status and what the last daemon
/// left.
fn use_it(path: &Path) -> (JournalStatus, Result<JournalTail, JournalError>) {
    let mut journal = Journal::open(path, KEEP, start()).unwrap();
    let tail = journal.take_tail();
    let (written, is_written) = std::sync::mpsc::channel();
    journal.record_then(&realistic(1000, 1).tick(), move |it| written.send(it).unwrap()).unwrap();
    let is_written = is_written.recv().unwrap();
    let status = journal.status();
    assert_eq!(is_written, status.error.is_none(), "{status:?}");
    assert_eq!(
        (status.ticks_recorded, status.ticks_lost),
        if is_written { (1, 0) } else { (0, 1) }
    );
    journal.close(wall(9), Timestamp::ZERO, "SIGTERM", Duration::from_secs(60));
    if is_written {
        let (_, tick) = Reader::open(path).unwrap().last_tick().unwrap().unwrap();
        assert_eq!(tick.plan.generation.0, 1001);
    }
    (status, tail)
}

/// The one file that was moved aside.
fn aside(status: &JournalStatus) -> &MovedAside {
    let [moved] = &status.moved_aside[..] else { panic!("{status:?}") };
    assert_eq!(status.error, None);
    moved
}

#[test]
fn a_journal_that_cannot_be_used_is_moved_aside() {
    let newer = |path: &Path| {
        let connection = rusqlite::Connection::open(path).unwrap();
        connection.execute_batch("PRAGMA user_version = 9;").unwrap();
    };
    let without_tables = |path: &Path| {
        let connection = rusqlite::Connection::open(path).unwrap();
        connection.execute_batch("DROP TABLE curve;").unwrap();
    };
    let cut = |path: &Path| {
        let length = fs::metadata(path).unwrap().len();
        fs::OpenOptions::new().write(true).open(path).unwrap().set_len(length / 2).unwrap();
    };
    type Damage<'a> = &'a dyn Fn(&Path);
    let damages: [(&str, Damage<'_>); 6] = [
        ("not an SQLite file", &|path| overwrite(path, 0, &[0; 100])),
        ("not an SQLite file", &|path| overwrite(path, 0, &garbage())),
        ("not an SQLite file", &|path| fs::write(path, "a letter to somebody").unwrap()),
        ("damaged", &cut),
        ("written in format 9", &newer),
        ("no such table", &without_tables),
    ];
    for (what, damage) in damages {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.db");
        journal(&path, 50);
        damage(&path);
        let before = fs::read(&path).unwrap();
        let (status, tail) = use_it(&path);
        assert_eq!(tail.unwrap().last, None, "{what}");
        let moved = aside(&status);
        assert!(moved.why.contains(what), "{what}: {}", moved.why);
        assert_eq!(fs::read(&moved.to).unwrap(), before, "{what}: nothing of it is lost");
        let name = moved.to.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("journal.db.aside-2") && name.ends_with('Z'), "{name}");
        // The next daemon goes on in the new file.
        let (status, tail) = use_it(&path);
        assert_eq!(status.moved_aside, []);
        assert_eq!(generation_of(tail), 1001);
    }
}

#[test]
fn any_damaged_page_costs_only_what_it_held() {
    const TICKS: u64 = 300;
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole.db");
    journal(&whole, TICKS);
    let pages = fs::metadata(&whole).unwrap().len() / PAGE;
    let (mut leaves, mut most) = (0, 0);
    for page in 0..pages {
        let path = folder.path().join(format!("{page}.db"));
        fs::copy(&whole, &path).unwrap();
        overwrite(&path, page * PAGE, &garbage());
        if let Ok(reader) = Reader::open(&path) {
            let found: Vec<_> = reader.ticks(Range::default()).collect();
            let (good, bad) = found.iter().partition::<Vec<_>, _>(|entry| entry.is_ok());
            let lost = TICKS - good.len() as u64;
            assert_eq!(lost > 0, !bad.is_empty(), "page {page}: {lost} lost, {bad:?}");
            let whole_numbers = good.iter().map(|entry| entry.as_ref().unwrap().id);
            assert!(whole_numbers.collect::<Vec<_>>().is_sorted(), "page {page}");
            if (1..TICKS).contains(&lost) {
                leaves += 1;
                most = most.max(lost);
            }
        }
        let (status, _) = use_it(&path);
        assert_eq!(status.error, None, "page {page}");
    }
    assert!(leaves > pages / 2, "{leaves} of {pages} pages hold ticks");
    // A lost whole tick takes its differences along; nothing else is lost.
    assert!(most <= 2 * u64::from(DELTAS_MAX), "{most} ticks were lost with one page");
}

#[test]
fn a_torn_log_costs_only_what_was_torn_off() {
    let folder = tempfile::tempdir().unwrap();
    let (path, torn) = (folder.path().join("journal.db"), folder.path().join("torn.db"));
    let side = |path: &Path| PathBuf::from(format!("{}-wal", path.display()));
    journal(&path, 5);
    let mut writer = Writer::open(&path, KEEP, start()).unwrap();
    for nth in 5..25 {
        writer.record(&realistic(nth, 1).tick()).unwrap();
    }
    fs::copy(&path, &torn).unwrap();
    fs::copy(side(&path), side(&torn)).unwrap();
    let length = fs::metadata(side(&torn)).unwrap().len();
    let log = fs::OpenOptions::new().write(true).open(side(&torn)).unwrap();
    log.set_len(length / 2 + 100).unwrap();
    overwrite(&side(&torn), length / 2, &[0xa5; 100]);
    let (status, tail) = use_it(&torn);
    assert_eq!((status.error, status.moved_aside), (None, vec![]));
    let generation = generation_of(tail);
    assert!((6..25).contains(&generation), "{generation}");
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mail = "CREATE TABLE mail (body TEXT); INSERT INTO mail VALUES ('dear all');";
    rusqlite::Connection::open(at("mail.db")).unwrap().execute_batch(mail).unwrap();
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("folder/file"), "kept").unwrap();
    std::os::unix::fs::symlink("/dev/null", at("device")).unwrap();
    for (name, found) in [
        ("mail.db", "an SQLite file of another program"),
        ("folder", "a folder"),
        ("device", "a device"),
    ] {
        let before = fs::read(at(name)).ok();
        let (status, tail) = use_it(&at(name));
        let error = status.error.unwrap();
        assert!(
            error.contains(found) && error.contains("configure another journal path"),
            "{error}"
        );
        assert_eq!(status.moved_aside, []);
        assert!(tail.is_err(), "{name}");
        assert_eq!(fs::read(at(name)).ok(), before, "{name}");
    }
    assert_eq!(fs::read_to_string(at("folder/file")).unwrap(), "kept");
}

#[test]
fn recording_begins_once_the_path_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    fs::create_dir(&path).unwrap();
    let journal = Journal::open(&path, KEEP, start()).unwrap();
    let loaded = Event::ConfigLoaded { toml: "a = 1\n".into() };
    journal.record_event(wall(1), Timestamp::ZERO, loaded.clone()).unwrap();
    let record = |nth| {
        let (written, is_written) = std::sync::mpsc::channel();
        journal
            .record_then(&realistic(nth, 1).tick(), move |it| written.send(it).unwrap())
            .unwrap();
        is_written.recv().unwrap()
    };
    assert!(!record(0) && !record(1));
    fs::remove_dir(&path).unwrap();
    assert!(record(2));
    let status = journal.status();
    assert_eq!((status.error, status.ticks_recorded, status.ticks_lost), (None, 1, 2));
    let reader = Reader::open(&path).unwrap();
    let entries = reader.events(Range::default());
    let events: Vec<_> = entries.map(|entry| entry.unwrap().content).collect();
    assert!(events.contains(&EntryContent::Event(loaded)), "{events:?}");
    let gap = |event: &Event| matches!(event, Event::Gap { ticks: 2, events: 0, .. });
    let is_gap = |content: &EntryContent| matches!(content, EntryContent::Event(it) if gap(it));
    assert!(events.iter().any(is_gap), "{events:?}");
}

#[test]
fn damage_found_while_writing_begins_a_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let mut writer = Writer::open(&path, KEEP, start()).unwrap();
    for nth in 0..400 {
        writer.record(&bulky(nth, 20_000).tick()).unwrap();
    }
    drop(writer);
    let mut writer = Writer::open(&path, KEEP, start()).unwrap();
    let pages = fs::metadata(&path).unwrap().len() / PAGE;
    for page in 10..pages / 2 {
        overwrite(&path, page * PAGE, &garbage());
    }
    // Retention has to read the damaged pages.
    writer.set_retention(JournalConfig { bytes_max: Bytes::mib(1), ..KEEP });
    for nth in 400..500 {
        writer.record(&bulky(nth, 20_000).tick()).unwrap();
    }
    let [moved] = writer.moved_aside() else { panic!("{:?}", writer.moved_aside()) };
    assert!(moved.why.contains("damaged"), "{}", moved.why);
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.sessions().unwrap()[0].start, start());
    assert_eq!(reader.last_tick().unwrap().unwrap().1.plan, bulky(499, 20_000).plan);
}

#[test]
fn files_moved_aside_do_not_fill_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    for _ in 0..ASIDE_MAX {
        fs::write(&path, "not a journal").unwrap();
        aside(&use_it(&path).0);
    }
    fs::write(&path, "not a journal").unwrap();
    let (status, _) = use_it(&path);
    let error = status.error.unwrap();
    assert!(error.contains("cannot be moved aside: 4 such files lie beside it"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "not a journal");
}

#[test]
fn a_moved_file_is_named_though_no_new_one_begins() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    fs::write(&path, "not a journal").unwrap();
    // SQLite needs a file of that name to create a database.
    let in_the_way = folder.path().join("journal.db-journal");
    fs::create_dir(&in_the_way).unwrap();
    let journal = Journal::open(&path, KEEP, start()).unwrap();
    let record = || {
        let (written, is_written) = std::sync::mpsc::channel();
        let tick = realistic(1000, 1);
        journal.record_then(&tick.tick(), move |it| written.send(it).unwrap()).unwrap();
        (is_written.recv().unwrap(), journal.status())
    };
    assert!(journal.status().error.is_some(), "nothing was recorded");
    let (is_written, status) = record();
    assert!(!is_written && status.error.is_some(), "{status:?}");
    let [moved] = &status.moved_aside[..] else { panic!("{status:?}") };
    assert_eq!(fs::read_to_string(&moved.to).unwrap(), "not a journal");
    fs::remove_dir(&in_the_way).unwrap();
    let (is_written, status) = record();
    assert!(is_written && status.error.is_none(), "{status:?}");
    assert_eq!(status.moved_aside.len(), 1, "{status:?}");
}

/// The child of [`a_folder_that_may_not_be_written_is_read`].
fn in_a_folder_of_others(path: &Path) {
    let (status, tail) = use_it(path);
    assert!(status.error.unwrap().contains("ermission denied"));
    assert_eq!(status.moved_aside, []);
    assert_eq!(generation_of(tail), 5);
    println!("done");
}

#[test]
fn a_folder_that_may_not_be_written_is_read() {
    if let Some(path) = std::env::var_os(CHILD_PATH) {
        return in_a_folder_of_others(Path::new(&path));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    journal(&path, 5);
    let allow = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    for entry in fs::read_dir(folder.path()).unwrap() {
        allow(&entry.unwrap().path(), 0o444).unwrap();
    }
    allow(folder.path(), 0o555).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "damage::a_folder_that_may_not_be_written_is_read", "--nocapture"]);
    child.env(CHILD_PATH, &path);
    // Root may write anywhere.
    if rustix::process::geteuid().is_root() {
        child.uid(NOBODY).gid(NOBODY);
    }
    let output = match child.output() {
        Ok(output) => output,
        Err(e) => return println!("SKIPPED: another user cannot run the test: {e}"),
    };
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success() && said.contains("done"), "{said}");
    allow(folder.path(), 0o755).unwrap();
}
