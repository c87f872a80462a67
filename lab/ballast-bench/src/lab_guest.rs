//! A run of the lab with one guest.

use std::time::Duration;

use anyhow::bail;
use ballast_lab_host::{AccelChoice, Guest, GuestSpec, Run, RunOptions};
use ballast_model::{Bytes, GuestId};

/// The guest's name.
const NAME: &str = "bench";
/// Far longer than a shell line takes.
const PATIENCE: Duration = Duration::from_secs(180);

/// A run with one guest.
pub(crate) struct LabGuest {
    pub(crate) run: Run,
}

impl LabGuest {
    /// Boots a guest with `memory` for the benchmark `bench`; `change` adds its other properties.
    ///
    /// # Errors
    /// Something needed is missing, or it does not get ready.
    pub(crate) fn start(
        bench: &str,
        memory: Bytes,
        accel: AccelChoice,
        change: impl FnOnce(&mut GuestSpec),
        say: &dyn Fn(&str),
    ) -> anyhow::Result<LabGuest> {
        let mut spec = GuestSpec::new(NAME.parse()?, memory);
        change(&mut spec);
        let name: GuestId = format!("bench-{bench}-{}", std::process::id()).parse()?;
        // There is no other guest, so no limit is needed.
        let options = RunOptions { accel, limit_cpu: false, ..RunOptions::new(name, vec![spec]) };
        Ok(LabGuest { run: Run::start(&options, say)? })
    }

    pub(crate) fn guest(&self) -> anyhow::Result<&Guest> {
        Ok(self.run.guest(NAME)?)
    }

    /// The output of a shell line in the guest.
    ///
    /// # Errors
    /// It fails there, or the guest is gone.
    pub(crate) fn shell(&self, line: &str) -> anyhow::Result<String> {
        let output = self.guest()?.exec(&["/bin/sh", "-c", line].map(str::to_owned), PATIENCE)?;
        if !output.end.is_success() {
            bail!("`{line}` failed in the guest: {}", output.stderr.trim());
        }
        Ok(output.stdout.trim().to_owned())
    }
}
