//! Tests of SQLite on a faulty disk: SQLite notices each fault, and a loss of power costs only
//! unsynced rows.

use std::path::Path;

use rusqlite::{Connection, ErrorCode};

use crate::{DiskFaults, FaultyDisk};

/// A table in a file with a write-ahead log, as the journal uses it.
fn table(path: &Path) -> Connection {
    let connection = Connection::open(path).expect("a folder takes a file");
    let settings = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
        CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;";
    connection.execute_batch(settings).expect("a sound disk");
    connection
}

fn add(connection: &Connection, rows: i64) -> rusqlite::Result<()> {
    for _ in 0..rows {
        connection.execute("INSERT INTO t (body) VALUES (zeroblob(3000))", [])?;
    }
    Ok(())
}

fn count(connection: &Connection) -> i64 {
    let sound: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a file");
    assert_eq!(sound, "ok");
    connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).expect("a table")
}

fn code(failed: rusqlite::Result<()>) -> Option<ErrorCode> {
    failed.expect_err("the disk has a fault").sqlite_error_code()
}

#[test]
fn sqlite_is_told_of_every_fault() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(folder.path(), 1).unwrap();
    let connection = table(&folder.path().join("a.db"));
    disk.set_faults(DiskFaults { writes_per_mille: 1000, ..DiskFaults::default() });
    assert_eq!(code(add(&connection, 1)), Some(ErrorCode::SystemIoFailure));
    disk.set_faults(DiskFaults { room: Some(5000), ..DiskFaults::default() });
    assert_eq!(code(add(&connection, 4)), Some(ErrorCode::DiskFull));
    disk.set_faults(DiskFaults { syncs_per_mille: 1000, ..DiskFaults::default() });
    let checkpoint = connection.query_row("PRAGMA wal_checkpoint(FULL)", [], |_| Ok(()));
    assert_eq!(code(checkpoint), Some(ErrorCode::SystemIoFailure));
    drop(connection);
    disk.set_faults(DiskFaults { reads_per_mille: 1000, ..DiskFaults::default() });
    let unread = Connection::open(folder.path().join("a.db"))
        .and_then(|it| it.query_row("SELECT count(*) FROM t", [], |_| Ok(())));
    assert_eq!(code(unread), Some(ErrorCode::SystemIoFailure));
    assert!(disk.failures() >= 4);
    disk.quietly(|| assert!(count(&table(&folder.path().join("a.db"))) <= 1));
}

#[test]
fn a_loss_of_power_costs_unsynced_rows_and_no_file() {
    let (mut all, mut none) = (0, 0);
    for seed in 0..60 {
        let folder = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::new(folder.path(), seed).unwrap();
        let (before, after) = (folder.path().join("before"), folder.path().join("after"));
        for folder in [&before, &after] {
            std::fs::create_dir(folder).unwrap();
        }
        let connection = table(&before.join("a.db"));
        add(&connection, 5).unwrap();
        connection.query_row("PRAGMA wal_checkpoint(FULL)", [], |_| Ok(())).unwrap();
        add(&connection, 5).unwrap();
        for name in ["a.db", "a.db-wal"] {
            std::fs::copy(before.join(name), after.join(name)).unwrap();
            disk.copied(&before.join(name), &after.join(name));
        }
        disk.lose_power(&after, seed).unwrap();
        let left = count(&table(&after.join("a.db")));
        assert!((5..=10).contains(&left), "seed {seed}: {left} rows");
        all += u32::from(left == 10);
        none += u32::from(left == 5);
    }
    assert!(all > 5 && none > 5, "{all} kept all, {none} none");
}

#[test]
fn files_of_other_folders_meet_no_fault() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let disk = FaultyDisk::new(folder.path(), 1).unwrap();
    let faults =
        DiskFaults { reads_per_mille: 1000, writes_per_mille: 1000, ..DiskFaults::default() };
    disk.set_faults(faults);
    let connection = table(&other.path().join("a.db"));
    add(&connection, 10).unwrap();
    assert_eq!(count(&connection), 10);
    assert_eq!(disk.failures(), 0);
}
