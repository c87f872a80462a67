//! Intervals and touches as files that other commands read.
//!
//! Idea: `series.csv` has a row for every interval, with the columns that `ballast imt` wants and all
//! others that there are, among them every signal of phases ([`Signals`]); `pages.pg` has the pages touched in order, as 64-bit numbers, for `ballast mrc`:
//! of a granule its first.
//! Written as they come, so that what was recorded until an interruption is there.
//!
//! Limits: a page is touched at most once while it stays accessible, and of a sample only its pages are
//! there: `pages.pg` is the trace of every page only where every page was watched, and even then misses
//! what a hot set hides.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use ballast_model::Bytes;

use super::row::Row;
use super::signals::Signals;

/// A recording that goes on.
#[derive(Debug)]
pub(crate) struct Recording {
    series: BufWriter<File>,
    pages: BufWriter<File>,
}

const HEADER: &str = "seconds,length_s,wss_bytes,events,touched_bytes,half_miss_bytes,tracked_bytes,\
    is_on,granule_pages,share,hot_granules,touches,lost,cost_s,trap_ns,revoked_ns";

impl Recording {
    /// Begins one in `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn begin(folder: &Path) -> anyhow::Result<Recording> {
        let shown = folder.display();
        fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {shown}"))?;
        let create = |name: &str| {
            let path = folder.join(name);
            let file = File::create(&path);
            file.map(BufWriter::new).with_context(|| format!("cannot write {}", path.display()))
        };
        let mut recording = Recording { series: create("series.csv")?, pages: create("pages.pg")? };
        writeln!(recording.series, "{HEADER},{}", Signals::HEADER)
            .context("cannot write the recording")?;
        Ok(recording)
    }

    /// Adds an interval. One of rest repeats what was last known of the working set.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn add(
        &mut self,
        row: &Row,
        signals: &Signals,
        touches: &[u64],
    ) -> anyhow::Result<()> {
        self.write(row, signals, touches).context("cannot write the recording")
    }

    fn write(&mut self, row: &Row, signals: &Signals, touches: &[u64]) -> std::io::Result<()> {
        let (at, length) = (row.at.as_secs_f64(), row.length.as_secs_f64());
        let (tracked, cost) = (row.tracked.get(), row.cost.as_secs_f64());
        let wss = row.known.map_or(0, Bytes::get);
        let events = row.events.map_or(String::new(), |events| events.to_string());
        write!(self.series, "{at:.3},{length:.3},{wss},{events},")?;
        match &row.seen {
            None => write!(self.series, ",,{tracked},0,,,,,,{cost:.6},,")?,
            Some(seen) => write!(
                self.series,
                "{},{},{tracked},1,{},{},{},{},{},{cost:.6},{},{}",
                seen.touched.get(),
                seen.half_miss.map_or(String::new(), |size| size.get().to_string()),
                seen.granule_pages,
                seen.share,
                seen.hot_granules.map_or(String::new(), |granules| granules.to_string()),
                seen.touches,
                seen.lost,
                seen.trap.as_nanos(),
                seen.revoked_in.as_nanos(),
            )?,
        }
        writeln!(self.series, ",{}", signals.columns())?;
        for page in touches {
            self.pages.write_all(&page.to_le_bytes())?;
        }
        self.series.flush()?;
        self.pages.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    #[test]
    fn what_is_recorded_is_read_by_the_other_commands() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("a/b");
        let mut recording = Recording::begin(&folder).unwrap();
        let signals = Signals::default();
        recording.add(&row(1, true), &signals, &[7, 300, 7]).unwrap();
        recording.add(&Row { events: Some(9), ..row(2, false) }, &signals, &[]).unwrap();
        let series = fs::read(folder.join("series.csv")).unwrap();
        let rows = crate::imt::parse(&series).unwrap();
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
}
