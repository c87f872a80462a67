//! The source of `status`, `explain` and `plan`: a running daemon, else the last tick of a journal.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, anyhow};
use ballast_api::{Client, ClientError, Tick};
use ballast_report::note;
use ballast_store::{Latest, Reader};
use ballast_top::recorded::RecordedView;

use super::Connection;

/// How to reach the daemon, and which journal to read if there is none.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Origin {
    #[command(flatten)]
    connection: Connection,
    /// Show the last tick of this journal if no daemon answers
    #[arg(long, value_name = "PATH")]
    journal: Option<PathBuf>,
}

impl Origin {
    /// The daemon's answer to `ask`; if no daemon answers, the result of `view` for the journal's
    /// last tick.
    ///
    /// # Errors
    /// The daemon refuses; or no daemon answers, and no journal was given or it cannot be read.
    pub(super) async fn fetch<T>(
        &self,
        ask: impl AsyncFnOnce(Client) -> Result<T, ClientError>,
        view: impl FnOnce(&Tick<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let asked = match self.connection.client() {
            Ok(client) => ask(client).await.map_err(anyhow::Error::from),
            Err(error) => Err(error),
        };
        match asked {
            Ok(reply) => {
                if let Some(journal) = &self.journal {
                    note(&format!("a daemon answers, so {} is not read", journal.display()));
                }
                Ok(reply)
            }
            Err(error) => {
                let latest = self.last_tick(error)?;
                let recorded = RecordedView::latest(&latest, SystemTime::now());
                view(&recorded.tick())
            }
        }
    }

    /// The last tick of the journal, if `error` means that no daemon answers.
    fn last_tick(&self, error: anyhow::Error) -> anyhow::Result<Latest> {
        if !nobody_answers(&error) {
            return Err(error);
        }
        let Some(journal) = &self.journal else {
            return Err(anyhow!("{error:#}; --journal PATH shows what a daemon last recorded"));
        };
        note(&format!("{error:#}"));
        last_tick(journal)
    }
}

/// Whether `error` means that no daemon answers, rather than that it refused.
fn nobody_answers(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::NoDaemon { .. } | ClientError::TimedOut { .. }) => true,
        Some(_) => false,
        // No socket was given and this user has no default.
        None => true,
    }
}

/// The last tick of the journal at `path`.
pub(super) fn last_tick(path: &Path) -> anyhow::Result<Latest> {
    let latest = Reader::open(path)?
        .latest()?
        .with_context(|| format!("journal {} holds no tick yet", path.display()))?;
    let version = &latest.session.start.version;
    note(&match &latest.stopped {
        Some(why) => format!("the daemon that wrote it (version {version}) ended: {why}"),
        None => format!(
            "the daemon that wrote it (version {version}) did not stop cleanly: it was killed, or \
             it is running and cannot be reached"
        ),
    });
    Ok(latest)
}
