//! Tests that `imt` and `mrc` can read what `ballast track --record` writes.

use std::fs;

use ballast_daemon::track::fixture::row;
use ballast_daemon::track::{Recording, Row, Signals};
use ballast_model::Bytes;

#[test]
fn a_recording_is_read_by_imt_and_mrc() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("a/b");
    let mut recording = Recording::begin(&folder).unwrap();
    let signals = Signals::default();
    recording.add(&row(1, true), &signals, &[7, 300, 7]).unwrap();
    recording.add(&Row { events: Some(9), ..row(2, false) }, &signals, &[]).unwrap();
    let series = fs::read(folder.join("series.csv")).unwrap();
    let rows = ballast_lab::imt::parse(&series).unwrap();
    let wss: Vec<u64> = rows.iter().map(|row| row.wss.get()).collect();
    assert_eq!(wss, [Bytes::mib(200).get(); 2]);
    assert_eq!(rows.iter().map(|row| row.events).collect::<Vec<_>>(), [200, 9]);
    let columns = |line: &str| line.split(',').count();
    let text = String::from_utf8(series).unwrap();
    let header = text.lines().next().unwrap();
    assert!(text.lines().all(|line| columns(line) == columns(header)), "{text}");
    let pages = fs::read(folder.join("pages.pg")).unwrap();
    assert_eq!(pages, [7_u64, 300, 7].map(u64::to_le_bytes).concat());
    let path = folder.join("pages.pg");
    assert_eq!(ballast_trace::Format::from_path(&path), Some(ballast_trace::Format::U64));
}
