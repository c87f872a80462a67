//! The table `[policy.external]`: the program that decides under the policy `external`.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::range::{Mistake, in_range};

/// Most arguments of the program.
const ARGS_MAX: usize = 64;
/// Longest wait for an answer if none is configured; at most half a tick.
const DEADLINE_DEFAULT: Duration = Duration::from_millis(500);
/// Shortest wait for an answer that can be configured.
const DEADLINE_MIN: Duration = Duration::from_millis(10);

/// `[policy.external]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ExternalTable {
    program: Option<PathBuf>,
    args: Vec<String>,
    #[serde(with = "ballast_toml_strict::duration::option")]
    deadline: Option<Duration>,
    user: Option<String>,
}

/// The program that decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalSettings {
    /// Its file: an absolute path.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Longest wait for its answer to one decision.
    pub deadline: Duration,
    /// The user it runs as; `None`: the daemon's.
    pub user: Option<String>,
}

impl ExternalTable {
    /// The settings, given the time between ticks; `None`: there is no program.
    ///
    /// # Errors
    /// The key and its mistake. Whether the program exists is seen only when it is started.
    pub(super) fn settings(&self, tick: Duration) -> Result<Option<ExternalSettings>, Mistake> {
        // The other half of a tick remains for sampling, deciding and acting.
        let most = (tick / 2).max(DEADLINE_MIN);
        if let Some(deadline) = self.deadline {
            in_range(deadline, DEADLINE_MIN, most).map_err(|message| ("deadline", message))?;
        }
        if self.args.len() > ARGS_MAX {
            let message = format!("{} arguments: expected at most {ARGS_MAX}", self.args.len());
            return Err(("args", message));
        }
        let Some(program) = &self.program else { return Ok(None) };
        if !program.is_absolute() {
            let message = format!("`{}`: expected an absolute path", program.display());
            return Err(("program", message));
        }
        Ok(Some(ExternalSettings {
            program: program.clone(),
            args: self.args.clone(),
            deadline: self.deadline.unwrap_or(DEADLINE_DEFAULT.min(most)),
            user: self.user.clone(),
        }))
    }
}
