//! Where `status`, `explain` and `plan` get what they show: a running daemon, or the last tick of a
//! journal where none answers.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, anyhow};
use ballast_api::{Client, ClientError, Source, Tick};
use ballast_store::Reader;

use super::Connection;

/// How to reach the daemon, and what to read where there is none.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Origin {
    #[command(flatten)]
    connection: Connection,
    /// Show the last tick of this journal if no daemon answers
    #[arg(long, value_name = "PATH")]
    journal: Option<PathBuf>,
}

impl Origin {
    /// What the daemon answers to `ask`, or else what `tell` makes of the journal's last tick.
    ///
    /// # Errors
    /// The daemon refuses; or none answers and no journal was named, or it cannot be read.
    pub(super) async fn fetch<T>(
        self,
        ask: impl AsyncFnOnce(Client) -> Result<T, ClientError>,
        tell: impl FnOnce(&Tick<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let asked = match self.connection.client() {
            Ok(client) => ask(client).await.map_err(anyhow::Error::from),
            Err(error) => Err(error),
        };
        match (asked, self.journal) {
            (Ok(reply), Some(journal)) => {
                note(&format!("a daemon answers, so {} is not read", journal.display()));
                Ok(reply)
            }
            (Ok(reply), None) => Ok(reply),
            (Err(error), Some(journal)) if nobody_answers(&error) => {
                note(&format!("{error:#}"));
                tell_journal(&journal, SystemTime::now(), tell)
            }
            (Err(error), None) if nobody_answers(&error) => {
                Err(anyhow!("{error:#}; --journal PATH shows what a daemon last recorded"))
            }
            (Err(error), _) => Err(error),
        }
    }
}

/// Whether `error` means that there is no daemon to ask, rather than that it said no.
fn nobody_answers(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::NoDaemon { .. } | ClientError::TimedOut { .. }) => true,
        Some(_) => false,
        // No socket was named and this user has no default one.
        None => true,
    }
}

/// The journal at `path`.
pub(super) fn open_journal(path: &Path) -> anyhow::Result<Reader> {
    anyhow::ensure!(
        path.exists(),
        "there is no journal at {}: name the daemon's with --journal PATH (`path` under [journal] in \
         its configuration)",
        path.display()
    );
    Ok(Reader::open(path)?)
}

/// What `tell` makes at `now` of the last tick of the journal at `path`.
pub(super) fn tell_journal<T>(
    path: &Path,
    now: SystemTime,
    tell: impl FnOnce(&Tick<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let latest = open_journal(path)?
        .latest()?
        .with_context(|| format!("journal {} holds no tick yet", path.display()))?;
    let version = &latest.session.start.version;
    note(&match &latest.stopped {
        Some(why) => format!("the daemon that wrote it (version {version}) ended: {why}"),
        None => format!(
            "the daemon that wrote it (version {version}) did not end in order: it was killed, or \
             it runs and cannot be reached"
        ),
    });
    let guests = latest.tick.snapshot.guests().iter();
    let limits = guests.map(|guest| (guest.id.clone(), latest.tick.limits_of(&guest.id))).collect();
    tell(&Tick {
        source: Source::Journal,
        now,
        seen_at: latest.entry.wall(),
        snapshot: &latest.tick.snapshot,
        plan: &latest.tick.plan,
        limits: &limits,
        outcomes: &latest.outcomes,
        paused: latest.tick.paused,
        decision_cost: latest.tick.decision_cost,
        daemon: None,
    })
}

/// Something to know beside the answer; standard output stays clean for it.
pub(super) fn note(text: &str) {
    // Nobody is left to tell if standard error is gone.
    let _ = writeln!(io::stderr(), "note: {text}");
}
