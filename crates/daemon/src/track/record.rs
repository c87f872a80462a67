//! Records intervals and touches to files that other commands read.
//!
//! Idea: `series.csv` has one row per interval, with the columns that `ballast imt` reads and all
//! others, among them every phase signal ([`Signals`]). `pages.pg` has the touched pages in order
//! as 64-bit numbers for `ballast mrc`, a granule as its first page. Both are flushed after each
//! interval, so an interrupted recording is usable.
//!
//! Limits: `pages.pg` has only sampled pages, each at most once while it stays accessible. It is a
//! complete trace only if every page was watched, and even then a hot set hides repeated touches.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use ballast_model::Bytes;

use super::row::Row;
use super::signals::Signals;

/// A recording in progress.
#[derive(Debug)]
pub struct Recording {
    series: BufWriter<File>,
    pages: BufWriter<File>,
}

const HEADER: &str = "seconds,length_s,wss_bytes,events,touched_bytes,half_miss_bytes,tracked_bytes,\
    is_on,granule_pages,share,hot_granules,touches,lost,cost_s,trap_ns,revoked_ns";

impl Recording {
    /// Starts a recording in `folder`, which is created if missing.
    ///
    /// # Errors
    /// The folder or a file cannot be written.
    pub fn begin(folder: &Path) -> anyhow::Result<Recording> {
        let shown = folder.display();
        fs::create_dir_all(folder).with_context(|| format!("cannot create the folder {shown}"))?;
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

    /// Adds an interval. A resting one repeats the last known working set.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn add(&mut self, row: &Row, signals: &Signals, touches: &[u64]) -> anyhow::Result<()> {
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
