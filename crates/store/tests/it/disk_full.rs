//! A full disk is reported with its remedy, lost ticks are counted, and recording resumes as soon
//! as there is room.
//!
//! The full disk is a small tmpfs in a mount namespace of its own, which needs root; the limit on
//! file sizes needs no rights. Both happen in a child process, because they affect a whole process.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{bulky, realistic, start, wall};
use ballast_model::{Bytes, Timestamp};
use ballast_store::{
    EntryContent, Event, Journal, JournalConfig, JournalError, Range, Reader, Writer,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Where the child writes; a test that finds this set is its own child.
const CHILD_FOLDER: &str = "BALLAST_TEST_FULL_FOLDER";

/// Far more ticks than fit on the disk or under the limit on file sizes.
const TICKS_MAX: u64 = 2_000;

const KEEP: JournalConfig =
    JournalConfig { age_max: Duration::from_secs(1 << 40), bytes_max: Bytes::gib(1) };

/// Size of a tick: a good part of the room.
const TICK_BYTES: u64 = 40_000;

/// Failures in a row after which the disk counts as full: even closing and opening the file found
/// no more room.
const FAILURES: u64 = 5;

#[derive(Default)]
struct Filled {
    recorded: u64,
    lost: u64,
    error: Option<JournalError>,
}

/// Records until that fails `FAILURES` times in a row.
fn fill(writer: &mut Writer) -> Filled {
    let mut filled = Filled::default();
    let mut in_a_row = 0;
    for nth in 0..TICKS_MAX {
        match writer.record(&bulky(nth, TICK_BYTES).tick()) {
            Ok(()) => {
                filled.recorded += 1;
                in_a_row = 0;
            }
            Err(e) => {
                filled.lost += 1;
                filled.error.get_or_insert(e);
                in_a_row += 1;
            }
        }
        if in_a_row == FAILURES {
            return filled;
        }
    }
    panic!("{TICKS_MAX} ticks fitted into the bound");
}

/// What the journal says after what was `filled` and one more tick.
fn check(path: &Path, filled: &Filled) {
    let reader = Reader::open(path).unwrap();
    let (mut ticks, mut missing, mut commands) = (0, 0, 0);
    for entry in reader.entries(Range::default()) {
        match entry.unwrap().content {
            EntryContent::Tick(_) => ticks += 1,
            EntryContent::Event(Event::Gap { ticks, events, why }) => {
                missing += ticks;
                assert!(events == 0 && why.starts_with("journal: "), "{why}");
            }
            EntryContent::Event(Event::Command { .. }) => commands += 1,
            EntryContent::Event(_) => {}
        }
    }
    assert_eq!(ticks, filled.recorded + 1);
    assert_eq!(missing, filled.lost);
    assert_eq!(commands, 1, "the event was written at once or waited for room");
    let verdict: String = rusqlite::Connection::open(path)
        .unwrap()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(verdict, "ok");
}

fn command() -> Event {
    Event::Command { who: "uid 0".into(), command: "pause".into(), answer: Ok("paused".into()) }
}

/// The child of [`a_full_disk_is_reported_counted_and_survived`].
fn on_a_full_disk(folder: &Path) {
    let path = folder.join("journal.db");
    let stone = folder.join("stone");
    fs::write(&stone, vec![1; 2 << 20]).unwrap();

    let mut writer = Writer::open(&path, KEEP, start()).unwrap();
    let filled = fill(&mut writer);
    let Some(error) = &filled.error else { panic!("no error") };
    let message = error.to_string();
    assert!(matches!(error, JournalError::NoSpace { .. }), "{error:?}");
    for part in ["journal: ", "/journal.db: no space left", "free some on that disk"] {
        assert!(message.contains(part), "{message}");
    }
    // The event is small and may just fit.
    let _ = writer.record_event(wall(1), Timestamp::ZERO, command());
    // While the disk is full, everything recorded so far can be read.
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.ticks(Range::default()).count() as u64, filled.recorded);
    fs::remove_file(&stone).unwrap();
    writer.record(&bulky(0, TICK_BYTES).tick()).unwrap();
    drop((reader, writer));
    check(&path, &filled);

    // A daemon that starts on a full disk runs, says so, and records when there is room.
    fs::remove_file(&path).unwrap();
    let room = rustix::fs::statvfs(folder).unwrap();
    fs::write(&stone, vec![1; (room.f_bavail * room.f_frsize) as usize]).unwrap();
    let journal = Journal::open(&path, KEEP, start()).unwrap();
    journal.record(&realistic(0, 100).tick()).unwrap();
    while journal.status().ticks_lost == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(journal.status().error.unwrap().contains("no space left"));
    fs::remove_file(&stone).unwrap();
    journal.record(&realistic(1, 100).tick()).unwrap();
    while journal.status().ticks_recorded == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(journal.status().error, None);
    drop(journal);

    // A journal that nobody writes can be read on a read-only disk.
    let remounted =
        Command::new("mount").args(["-o", "remount,ro"]).arg(folder).status().unwrap().success();
    assert!(remounted);
    let latest = Reader::open(&path).unwrap().latest().unwrap().unwrap();
    assert_eq!(latest.tick.snapshot, realistic(1, 100).snapshot);
    println!("done");
}

#[test]
fn a_full_disk_is_reported_counted_and_survived() {
    if let Some(folder) = std::env::var_os(CHILD_FOLDER) {
        return on_a_full_disk(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let inside = "mount -t tmpfs -o size=4m tmpfs \"$0\" && exec \"$@\"";
    let child = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", inside])
        .arg(folder.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "disk_full::a_full_disk_is_reported_counted_and_survived", "--nocapture"])
        .env(CHILD_FOLDER, folder.path())
        .output();
    let output = match child {
        Ok(output) => output,
        Err(e) => return println!("SKIPPED: no unshare: {e}"),
    };
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let refused = ["Operation not permitted", "permission denied", "must be superuser"];
    if refused.iter().any(|word| said.contains(word)) {
        return println!("SKIPPED: only root may mount: {}", said.trim());
    }
    assert!(output.status.success() && said.contains("done"), "{said}");
}

/// The child of [`a_file_size_limit_is_reported_counted_and_survived`].
fn with_a_limit_on_file_sizes(folder: &Path) {
    let path = folder.join("journal.db");
    let limits = getrlimit(Resource::Fsize);
    let mut writer = Writer::open(&path, KEEP, start()).unwrap();
    setrlimit(Resource::Fsize, Rlimit { current: Some(1 << 20), ..limits }).unwrap();
    let filled = fill(&mut writer);
    let Some(error) = &filled.error else { panic!("no error") };
    let message = error.to_string();
    assert!(matches!(error, JournalError::Disk { .. }), "{error:?}");
    assert!(message.contains("check quotas and limits on file sizes"), "{message}");
    let _ = writer.record_event(wall(1), Timestamp::ZERO, command());
    setrlimit(Resource::Fsize, limits).unwrap();
    writer.record(&bulky(0, TICK_BYTES).tick()).unwrap();
    drop(writer);
    check(&path, &filled);
    println!("done");
}

#[test]
fn a_file_size_limit_is_reported_counted_and_survived() {
    if let Some(folder) = std::env::var_os(CHILD_FOLDER) {
        return with_a_limit_on_file_sizes(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    // Ignoring the signal is inherited; the write then fails instead of the process.
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "disk_full::a_file_size_limit_is_reported_counted_and_survived",
            "--nocapture",
        ])
        .env(CHILD_FOLDER, folder.path())
        .output()
        .unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success() && said.contains("done"), "{said}");
}
