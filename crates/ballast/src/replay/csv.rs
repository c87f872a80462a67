//! Every decision of a replay as CSV, a line for each tick, policy and guest.

use std::path::Path;

use ballast_model::{Bytes, PolicyName};
use ballast_sim::ReplayRow;

use crate::csv::quoted;
use crate::output::files::{Destination, Stream};

/// A file that lines are added to; of times in milliseconds since 1970 and sizes in bytes.
pub(crate) struct CsvFile(Stream);

impl CsvFile {
    /// With its header.
    ///
    /// # Errors
    /// `path` cannot be written.
    pub(crate) fn open(path: &Path) -> anyhow::Result<CsvFile> {
        let mut csv = CsvFile(Destination::open(path)?.stream()?);
        csv.line(format_args!(
            "unix_ms,policy,guest,demand_bytes,recorded_allocation_bytes,\
             imagined_allocation_bytes,recorded_target_bytes,imagined_target_bytes"
        ))?;
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
        let target = |size: Option<Bytes>| size.map(|it| it.get().to_string()).unwrap_or_default();
        rows.iter().try_for_each(|row| {
            self.line(format_args!(
                "{wall_ms},{policy},{},{},{},{},{},{}",
                quoted(row.id.as_str()),
                row.demand.get(),
                row.recorded.get(),
                row.imagined.get(),
                target(row.recorded_target),
                target(row.imagined_target)
            ))
        })
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) -> anyhow::Result<()> {
        self.0.write(|out| writeln!(out, "{text}"))
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        self.0.finish()
    }
}
