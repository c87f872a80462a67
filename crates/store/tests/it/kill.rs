//! `kill -9` at any moment: the file stays intact, has no gap, and lacks no confirmed tick.

use crate::support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ballast_model::Bytes;
use ballast_store::{Entry, EntryContent, JournalConfig, Range, Reader, Writer};

/// Where the child writes. The test starts itself as its child: a process that finds this set is
/// the child.
const CHILD_PATH: &str = "BALLAST_TEST_KILLED_JOURNAL";

/// Kills per run of the tests; `make soak` asks for more.
const ROUNDS_DEFAULT: u64 = 8;

const RETENTION: JournalConfig =
    JournalConfig { age_max: Duration::from_secs(1 << 40), bytes_max: Bytes::mib(2) };

#[test]
fn a_killed_writer_loses_no_confirmed_tick() {
    if let Some(path) = std::env::var_os(CHILD_PATH) {
        record(Path::new(&path));
    }
    let rounds = std::env::var("BALLAST_SOAK_ROUNDS").ok().and_then(|text| text.parse().ok());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    for round in 0..rounds.unwrap_or(ROUNDS_DEFAULT) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::a_killed_writer_loses_no_confirmed_tick", "--nocapture"])
            .env(CHILD_PATH, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The moment differs from round to round: soon after the start, or when old rows are
        // already being deleted.
        let enough = 3 + round * 67 % 400;
        let mut confirmed = None;
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for line in lines.by_ref().map_while(Result::ok) {
            confirmed =
                line.strip_prefix("recorded ").map(|nth| nth.parse().unwrap()).or(confirmed);
            if confirmed >= Some(enough) {
                break;
            }
        }
        child.kill().unwrap();
        // Ticks that it still confirmed before it died.
        for line in lines.map_while(Result::ok) {
            confirmed =
                line.strip_prefix("recorded ").and_then(|nth| nth.parse().ok()).or(confirmed);
        }
        child.wait().unwrap();
        check(&path, round, confirmed.unwrap());
    }
}

/// The child: it never ends by itself.
fn record(path: &Path) -> ! {
    let mut writer = Writer::open(path, RETENTION, support::start()).unwrap();
    for nth in 0.. {
        writer.record(&support::realistic(nth, 20).tick()).unwrap();
        println!("recorded {nth}");
    }
    unreachable!("it is killed first");
}

fn check(path: &Path, round: u64, confirmed: u64) {
    let verdict: String = rusqlite::Connection::open(path)
        .unwrap()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(verdict, "ok", "round {round}");
    let reader = Reader::open(path).unwrap();
    let entries: Vec<Entry> = reader.entries(Range::default()).map(Result::unwrap).collect();
    assert!(entries.windows(2).all(|pair| pair[1].id == pair[0].id + 1), "round {round}: a gap");
    let generations: Vec<u64> = entries
        .iter()
        .filter(|entry| entry.session == round as i64 + 1)
        .filter_map(|entry| match &entry.content {
            EntryContent::Tick(tick) => Some(tick.plan.generation.0),
            EntryContent::Event(_) => None,
        })
        .collect();
    assert!(generations.windows(2).all(|pair| pair[1] == pair[0] + 1), "round {round}");
    // Tick `nth` has generation `nth + 1`. One more may be in the file than was confirmed.
    let last = *generations.last().unwrap();
    assert!(
        (confirmed + 1..=confirmed + 2).contains(&last),
        "round {round}: confirmed tick {confirmed}, last generation in the file {last}"
    );
}
