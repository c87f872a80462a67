//! The main loop's journal: recording never makes a tick fail, nor delays one for long.
//!
//! Idea: a plan is recorded before it is carried out, so that the next daemon knows everything that
//! guests were promised. The loop waits until the kernel has the row
//! ([`Recorder::wait_until_recorded`]), but at most [`SETTLES_IN`], and not at all while an earlier
//! row still waits for the disk. After that, a daemon that is killed loses nothing that it has
//! carried out.
//! Limits: without a journal, or with a slower disk, plans are carried out unrecorded, with a
//! warning.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use ballast_host::{PROC, boot_id};
use ballast_store::{Event, Journal, JournalConfig, JournalStatus, Start, Tick};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::clock;
use super::inherited::Inherited;
use super::warn_once::WarnOnce;
use ballast_config::JournalSettings;

/// Longest wait for the last entries to reach the disk when the daemon stops.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(5);

/// Longest wait for an entry to reach the kernel: an eighth of the time that an action may wait,
/// and a hundred times as long as a write takes.
const SETTLES_IN: Duration = Duration::from_millis(250);

/// Records if a journal is configured; warns once when it cannot.
#[derive(Debug)]
pub(super) struct Recorder {
    journal: Option<Journal>,
    warnings: WarnOnce,
    /// Receives a message when the last recorded entry is written; closed if the entry is lost.
    pending: Option<oneshot::Receiver<bool>>,
    /// The same for an entry that was not written in time.
    overdue: Option<oneshot::Receiver<bool>>,
    /// Files moved aside that were reported.
    reported: BTreeSet<PathBuf>,
}

impl Recorder {
    /// Opens the journal. Warns about problems with the file and its disk, and if the state left by
    /// the last daemon cannot be read or is too old. `period` is the time between ticks.
    ///
    /// # Errors
    /// Another daemon records there, or the host's boot time cannot be read.
    pub(super) fn open(
        settings: Option<&JournalSettings>,
        period: Duration,
    ) -> anyhow::Result<(Recorder, Inherited)> {
        let mut recorder = Recorder {
            journal: None,
            warnings: WarnOnce::default(),
            pending: None,
            overdue: None,
            reported: BTreeSet::new(),
        };
        let Some(settings) = settings else { return Ok((recorder, Inherited::default())) };
        let boot_id = boot_id(PROC.as_ref()).context("cannot tell this boot from others")?;
        let now = clock::now();
        let start = Start {
            wall: clock::wall(),
            mono: now,
            boot_id: boot_id.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
        };
        let mut journal = Journal::open(&settings.path, retention(settings), start)?;
        let inherited = match journal.take_tail() {
            Ok(tail) => Inherited::of(tail, &boot_id, now, period),
            Err(error) => {
                tracing::warn!(
                    "cannot read what the last daemon promised, starting without it: {error}"
                );
                Inherited::default()
            }
        };
        recorder.journal = Some(journal);
        recorder.report_trouble(None);
        Ok((recorder, inherited))
    }

    /// Changes the retention.
    pub(super) fn keep(&mut self, settings: &JournalSettings) {
        let Some(journal) = &self.journal else { return };
        if let Err(error) = journal.set_retention(retention(settings)) {
            self.warnings.warn("journal", &error.to_string());
        }
    }

    pub(super) fn tick(&mut self, tick: Tick<'_>) {
        let Some(journal) = &self.journal else { return };
        let (written, pending) = oneshot::channel();
        let handed_over = journal.record_then(&tick, |is_written| {
            // The receiver is gone if the loop does not wait for this entry.
            let _ = written.send(is_written);
        });
        self.pending = Some(pending);
        self.report_trouble(handed_over.err().map(|e| e.to_string()));
    }

    /// Records something that happened between ticks.
    pub(super) fn event(&mut self, event: Event) {
        let Some(journal) = &self.journal else { return };
        let (written, pending) = oneshot::channel();
        let handed_over =
            journal.record_event_then(clock::wall(), clock::now(), event, |is_written| {
                let _ = written.send(is_written);
            });
        self.pending = Some(pending);
        if let Err(error) = handed_over {
            self.warnings.warn("journal", &error.to_string());
        }
    }

    /// Waits until the kernel has what was recorded so far, or it is clear that it will not in
    /// time.
    pub(super) async fn wait_until_recorded(&mut self) {
        let Some(mut pending) = self.pending.take() else { return };
        if let Some(overdue) = &mut self.overdue
            && matches!(overdue.try_recv(), Err(TryRecvError::Empty))
        {
            return;
        }
        self.overdue = None;
        if tokio::time::timeout(SETTLES_IN, &mut pending).await.is_ok() {
            self.warnings.clear("slow journal");
            return;
        }
        self.overdue = Some(pending);
        let what = "the journal's disk is slow: guests are moved before the plan is recorded";
        self.warnings.warn("slow journal", what);
    }

    /// Reports once what is wrong and when it is over, and which files were moved aside.
    fn report_trouble(&mut self, trouble: Option<String>) {
        let JournalStatus { error, moved_aside, .. } = self.status();
        for moved in moved_aside {
            if self.reported.insert(moved.to.clone()) {
                tracing::warn!(
                    "{}; it is now {}, and a new journal is begun",
                    moved.why,
                    moved.to.display()
                );
            }
        }
        match trouble.or(error) {
            Some(why) => self.warnings.warn("journal", &why),
            None if self.warnings.clear("journal") => tracing::info!("journal: recording resumed"),
            None => {}
        }
    }

    /// The journal's state; empty without a journal.
    pub(super) fn status(&self) -> JournalStatus {
        self.journal.as_ref().map(Journal::status).unwrap_or_default()
    }

    /// Records an orderly stop and closes the journal.
    pub(super) fn close(mut self, why: &str) {
        let Some(journal) = self.journal.take() else { return };
        if !journal.close(clock::wall(), clock::now(), why, CLOSE_WAIT_MAX) {
            tracing::warn!("journal: the last entries may not have been written");
        }
    }
}

fn retention(settings: &JournalSettings) -> JournalConfig {
    JournalConfig { age_max: settings.keep_age, bytes_max: settings.keep_bytes }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Instant;

    use ballast_model::Bytes;
    use ballast_store::{Range, Reader};

    use super::*;
    use crate::server::fixture;

    const TICK: Duration = Duration::from_secs(1);

    fn settings(path: &Path) -> JournalSettings {
        let keep_age = Duration::from_secs(3600);
        JournalSettings { path: path.to_owned(), keep_age, keep_bytes: Bytes::gib(1) }
    }

    fn record(recorder: &mut Recorder) {
        let view = fixture::view();
        recorder.tick(Tick {
            wall: view.seen_at,
            snapshot: &view.snapshot,
            answer: None,
            plan: &view.plan,
            outcomes: &[],
            carried: &[],
            handovers: &[],
            limits: &view.limits,
            paused: view.paused,
            mode: view.mode,
            decision_cost: view.decision_cost,
        });
    }

    #[tokio::test]
    async fn a_settled_plan_is_in_the_journal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.db");
        let (mut recorder, inherited) = Recorder::open(Some(&settings(&path)), TICK).unwrap();
        assert_eq!(inherited, Inherited::default());
        let reader = Reader::open(&path).unwrap();
        for nth in 1..20 {
            record(&mut recorder);
            recorder.wait_until_recorded().await;
            // Another process could read it now, so it is not in this process alone.
            assert_eq!(reader.ticks(Range::default()).count(), nth);
        }
        recorder.wait_until_recorded().await;
        recorder.close("SIGTERM");
        let (_, inherited) = Recorder::open(Some(&settings(&path)), TICK).unwrap();
        assert!(inherited.restart.guests.iter().all(|guest| guest.target.is_some()));
    }

    #[tokio::test]
    async fn a_disk_that_hangs_delays_only_one_plan() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.db");
        let (mut recorder, _) = Recorder::open(Some(&settings(&path)), TICK).unwrap();
        record(&mut recorder);
        recorder.wait_until_recorded().await;
        // Nothing can be written while another program writes.
        let other = rusqlite::Connection::open(&path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE;").unwrap();
        let began = Instant::now();
        for _ in 0..100 {
            record(&mut recorder);
            recorder.wait_until_recorded().await;
        }
        assert!(began.elapsed() < 20 * SETTLES_IN, "{:?}", began.elapsed());
    }
}
