//! A journal's file with rows of any bytes, references and numbers, in the tables of the first
//! format and of the present one. Reading and migrating end. A row that cannot be read gives an
//! error with the file and the row, and hides no other row. Migrating changes no row.
#![no_main]

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use ballast_fuzz::Source;
use ballast_model::Timestamp;
use ballast_store::{JournalConfig, Range, Reader, Start, Writer};
use rusqlite::{Connection, params};

/// Most rows of one file.
const ROWS_MAX: u64 = 12;
/// The daemon that opens the file.
const START: Start = Start {
    wall: UNIX_EPOCH,
    mono: Timestamp::ZERO,
    boot_id: String::new(),
    version: String::new(),
    pid: 1,
};

/// The tables of format 1, as the first version wrote them.
const TABLES: &str = "
PRAGMA application_id = 0x426c7374;
CREATE TABLE session (id INTEGER PRIMARY KEY, wall_ms INTEGER NOT NULL, mono_ms INTEGER NOT NULL,
    boot_id TEXT NOT NULL, version TEXT NOT NULL, pid INTEGER NOT NULL) STRICT;
CREATE TABLE config (id INTEGER PRIMARY KEY, sha256 TEXT NOT NULL, toml TEXT NOT NULL) STRICT;
CREATE TABLE entry (id INTEGER PRIMARY KEY, session INTEGER NOT NULL, config INTEGER,
    kind INTEGER NOT NULL, format INTEGER NOT NULL, wall_ms INTEGER NOT NULL,
    mono_ms INTEGER NOT NULL, body BLOB NOT NULL) STRICT;
CREATE INDEX entry_event ON entry (id) WHERE kind = 1;
PRAGMA user_version = 1;";

/// What format 2 adds.
const CURVES: &str = "
ALTER TABLE entry ADD COLUMN curve INTEGER;
CREATE INDEX entry_curve ON entry (id) WHERE curve IS NOT NULL;
CREATE TABLE curve (id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
PRAGMA user_version = 2;";

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut from = Source::new(bytes);
    let path = file();
    let rows = write(&path, &mut from).expect("a file is written");
    let before = read(&path);
    assert_eq!(before.len(), rows, "a row that cannot be read hides another");
    // Opening for writing migrates; nothing is recorded yet.
    let config =
        JournalConfig { age_max: Duration::from_secs(1 << 40), ..JournalConfig::default() };
    match Writer::open(&path, config, START.clone()) {
        Ok(writer) => drop(writer),
        Err(error) => panic!("{error}"),
    }
    let after = read(&path);
    assert_eq!(after[..before.len()], before[..], "migrating changed a row");
});

/// The file of this process, in memory if the system has a folder for that.
fn file() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let path = folder.join(format!("ballast-fuzz-{}", std::process::id()));
    for suffix in ["", "-wal", "-shm", ".lock"] {
        let mut name = path.clone().into_os_string();
        name.push(suffix);
        // Most of them do not exist.
        let _ = std::fs::remove_file(name);
    }
    path
}

/// Writes a journal and returns the number of its rows.
fn write(path: &Path, from: &mut Source<'_>) -> rusqlite::Result<usize> {
    let file = Connection::open(path)?;
    file.execute_batch("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; BEGIN;")?;
    file.execute_batch(TABLES)?;
    let has_curves = from.yes();
    if has_curves {
        file.execute_batch(CURVES)?;
    }
    let mut rows = 0;
    for id in 0..from.below(ROWS_MAX) {
        let (id, body) = (id as i64, body(from));
        match from.byte() % 8 {
            0 => {
                file.execute(
                    "INSERT INTO session VALUES (?1, ?2, ?3, 'b', 'v', ?4)",
                    params![id, number(from), number(from), number(from)],
                )?;
            }
            1 => {
                let toml = String::from_utf8_lossy(&body).into_owned();
                file.execute("INSERT INTO config VALUES (?1, 's', ?2)", params![id, toml])?;
            }
            2 if has_curves => {
                file.execute("INSERT INTO curve VALUES (?1, ?2)", params![id, body])?;
            }
            _ => {
                file.execute(
                    "INSERT INTO entry (id, session, config, kind, format, wall_ms, mono_ms, body)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                    params![
                        id,
                        from.below(4) as i64,
                        from.perhaps(|from| from.below(4) as i64),
                        from.below(3) as i64,
                        from.below(4) as i64,
                        // Young enough to be kept.
                        number(from) % (1 << 40),
                        number(from),
                        body
                    ],
                )?;
                rows += 1;
            }
        }
    }
    file.execute_batch("COMMIT;")?;
    Ok(rows)
}

fn number(from: &mut Source<'_>) -> i64 {
    from.number() as i64
}

/// Usually compressed JSON, otherwise raw bytes.
fn body(from: &mut Source<'_>) -> Vec<u8> {
    const WHOLE: [&str; 6] = [
        r#"{"code":"started"}"#,
        r#"{"code":"config-loaded"}"#,
        r#"{"code":"stopped","why":"x"}"#,
        r#"{"step_bytes":4096,"interval_ns":1,"misses":[3,2,1]}"#,
        include_str!("../seeds/journal_record/small-tick"),
        include_str!("../seeds/journal_record/curves"),
    ];
    let kind = from.byte() % 4;
    let len = usize::from(from.byte());
    match kind {
        0 => from.bytes(len).to_vec(),
        1 => zstd::bulk::compress(from.bytes(len), 1).expect("it fits"),
        _ => zstd::bulk::compress(from.one_of(&WHOLE).as_bytes(), 1).expect("it fits"),
    }
}

/// All rows: each entry as text, `None` for an error.
fn read(path: &Path) -> Vec<Option<String>> {
    let reader = Reader::open(path).expect("the tables are in order");
    let named = path.display().to_string();
    let told = |row: Result<ballast_store::Entry, ballast_store::JournalError>| match row {
        Ok(entry) => Some(format!("{entry:?}")),
        Err(error) => {
            let error = error.to_string();
            assert!(error.contains(&named), "{error}");
            None
        }
    };
    let rows: Vec<Option<String>> = reader.entries(Range::default()).map(told).collect();
    let _ = (reader.info(), reader.last_tick(), reader.latest(), reader.sessions());
    rows
}
