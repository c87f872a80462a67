//! A kdamond's own report, read by Ballast and by DAMON's own tool.
//!
//! Idea: `trace.txt` is the report of Debian's Linux 6.12 about two processes: one is idle, the
//! other works and sleeps in turn. `damo.txt` is the output of `damo` 3.4 for it, window by window.
//! The scripts beside the files made both.

use std::collections::BTreeSet;

use ballast_damon::{DamonTarget, WindowReader, parse_record};

const TRACE: &str = include_str!("../fixtures/trace.txt");
const DAMO: &str = include_str!("../fixtures/damo.txt");

#[test]
fn a_kdamonds_windows_are_those_that_damo_reads() {
    let targets = [0, 1].map(|number| {
        let records = TRACE.lines().filter_map(parse_record);
        let pages: BTreeSet<u64> =
            records.filter(|it| it.target == number).map(|it| it.start).collect();
        DamonTarget { pid: 1, pages: pages.into_iter().collect() }
    });
    assert_eq!(targets.each_ref().map(|target| target.pages.len()), [8, 8]);
    let (mut reader, mut windows) = (WindowReader::new(&targets), Vec::new());
    reader.read(TRACE.as_bytes(), &mut windows);
    // `damo` lists all windows of one target before those of the next.
    windows.sort_by_key(|window| window.target);
    let mut read = String::new();
    for window in &windows {
        read += &window.target.to_string();
        for &at in &window.touched {
            read += &format!(" {}", targets[window.target].pages[at as usize]);
        }
        read.push('\n');
    }
    assert_eq!(read, DAMO);
    assert!(windows.iter().any(|it| it.touched.len() > 3) && windows.len() == 18);
}
