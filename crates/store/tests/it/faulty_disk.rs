//! A disk that fails every request of one kind: failures are reported, events wait, and recording
//! resumes when the disk works again.

use ballast_faulty_disk::{DiskFaults, FaultyDisk};
use ballast_model::Timestamp;
use ballast_store::{ASIDE_MAX, Event, JournalConfig, Reader, Writer};

use crate::support::{start, wall};

fn record(writer: &mut Writer) -> Result<(), String> {
    let event = Event::ConfigLoaded { toml: String::new() };
    writer.record_event(wall(0), Timestamp::ZERO, event).map_err(|e| e.to_string())
}

/// An empty journal would take one of the few places for journals that are worth keeping.
#[test]
fn a_failing_disk_moves_no_empty_journal_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let disk = FaultyDisk::new(folder.path(), 1).unwrap();
    disk.set_faults(DiskFaults { reads_per_mille: 1000, ..DiskFaults::default() });
    let mut writer = Writer::open(&path, JournalConfig::default(), start()).unwrap();
    for _ in 0..=ASIDE_MAX {
        let why = record(&mut writer).unwrap_err();
        assert!(why.contains("the disk refused"), "{why}");
    }
    assert_eq!(writer.moved_aside(), []);
    disk.set_faults(DiskFaults::default());
    record(&mut writer).unwrap();
    // The start, the events that waited, and the one that was written at last.
    assert_eq!(Reader::open(&path).unwrap().info().unwrap().entries as usize, ASIDE_MAX + 3);
}

#[test]
fn each_kind_of_failure_ends_with_the_disk_working_again() {
    for faults in [
        DiskFaults { writes_per_mille: 1000, ..DiskFaults::default() },
        DiskFaults { syncs_per_mille: 1000, ..DiskFaults::default() },
        DiskFaults { room: Some(0), ..DiskFaults::default() },
        DiskFaults { room: Some(5000), ..DiskFaults::default() },
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.db");
        let disk = FaultyDisk::new(folder.path(), 1).unwrap();
        disk.set_faults(faults);
        let mut writer = Writer::open(&path, JournalConfig::default(), start()).unwrap();
        record(&mut writer).unwrap_err();
        disk.set_faults(DiskFaults::default());
        record(&mut writer).unwrap();
        assert_eq!(writer.moved_aside(), [], "{faults:?}");
        assert_eq!(Reader::open(&path).unwrap().info().unwrap().entries, 3, "{faults:?}");
    }
}
