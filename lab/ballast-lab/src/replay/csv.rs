//! Every decision of a replay as CSV, one line for each tick, policy and guest.

use std::path::Path;

use ballast_model::{Bytes, PolicyName};
use ballast_replay::ReplayRow;
use ballast_report::files::{Destination, Stream};
use ballast_report::{Report, csv_field};

/// A tick in milliseconds since 1970, a policy, and the decision for a guest.
type ReplayedPoint<'a> = (i64, PolicyName, &'a ReplayRow);

/// A CSV file that is written line by line; sizes are in bytes.
pub(crate) struct CsvFile(Stream);

impl CsvFile {
    /// Opens the file and writes the header.
    ///
    /// # Errors
    /// `path` cannot be written.
    pub(crate) fn open(path: &Path) -> anyhow::Result<CsvFile> {
        let mut csv = CsvFile(Destination::open(path)?.stream()?);
        csv.0.write(|out| columns().write_csv_head(out))?;
        Ok(csv)
    }

    /// Adds the rows of one tick.
    ///
    /// # Errors
    /// They cannot be written.
    pub(crate) fn rows(
        &mut self,
        wall_ms: i64,
        policy: PolicyName,
        rows: &[ReplayRow],
    ) -> anyhow::Result<()> {
        let rows = rows.iter().map(|row| (wall_ms, policy, row));
        self.0.write(|out| columns().write_csv(rows, out))
    }

    /// Finishes the file and moves it to its final path.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        self.0.finish()
    }
}

fn columns<'a>() -> Report<'a, ReplayedPoint<'a>> {
    let size = |size: Option<Bytes>| csv_field(size.map(Bytes::get));
    Report::<ReplayedPoint<'a>>::new()
        .figure("unix_ms", |it| it.0)
        .text("policy", |it| it.1)
        .text("guest", |it| it.2.id.to_string())
        .figure("demand_bytes", |it| it.2.demand.get())
        .figure("recorded_allocation_bytes", |it| it.2.recorded.get())
        .figure("imagined_allocation_bytes", |it| it.2.imagined.get())
        .figure("recorded_target_bytes", move |it| size(it.2.recorded_target))
        .figure("imagined_target_bytes", move |it| size(it.2.imagined_target))
}
