//! Checks that a run leaves nothing behind: no process and no folder.

use std::path::PathBuf;

use anyhow::bail;
use ballast_lab_host::{ProcessId, Run};

/// The processes and the folder of a run, noted while it lasts.
pub(super) struct Traces {
    folder: PathBuf,
    guests: Vec<ProcessId>,
}

impl Traces {
    pub(super) fn of(run: &Run) -> Traces {
        let guests = run.guests().map(|guest| guest.record().process).collect();
        Traces { folder: run.folder().path().to_owned(), guests }
    }

    pub(super) fn ensure_gone(&self) -> anyhow::Result<()> {
        if let Some(left) = self.guests.iter().find(|guest| guest.is_alive()) {
            bail!("process {} of a guest is still there: end it with `kill -9 {0}`", left.pid);
        }
        if self.folder.exists() {
            bail!("{} is still there: remove it", self.folder.display());
        }
        Ok(())
    }
}
