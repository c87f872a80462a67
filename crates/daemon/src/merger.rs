//! Adjusts the kernel's search for equal pages of guests (KSM), unless another program does.
//!
//! Idea: a thread writes the decisions of [`MergingTuner`], because the kernel may block a writer
//! while it scans. The main loop never waits. The settings found at first are restored while
//! nothing is moved, and when the daemon stops. If another program adjusts the search, Ballast
//! leaves it alone.
//!
//! Cost: one thread, which searches all processes for another tuner every ten seconds.
//! Limits: a daemon that is killed restores nothing; the search keeps its last settings.

use std::path::Path;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

use ballast_actuation::merging::MergingTuner;
use ballast_host::{KSM, MergingControl, PROC, merging_owner};
use ballast_model::{MergingKnobs, Snapshot};
use tracing::{info, warn};

use super::warn_once::WarnOnce;
use super::worker::{END_WAIT_MAX, Inbox, Letter, Worker, WorkerDeadline, wait_for_end};

/// Most outcomes that wait for a tick; there is one for each step.
const OUTCOMES_MAX: usize = 16;
/// Writing takes milliseconds; a step that takes this long hangs.
const HANGS_AFTER: Duration = Duration::from_secs(5);
/// The merger's name in the log.
const SUBJECT: &str = "ksm";

/// An order to the thread.
#[derive(Clone, Copy, Debug)]
enum MergingOrder {
    Set(MergingKnobs),
    /// Restore the settings found at first.
    LeaveAlone,
}

/// Adjusts the search. Dropping it restores the settings found at first, within a bounded time.
#[derive(Debug)]
pub(crate) struct Merger {
    tuner: MergingTuner,
    worker: Option<Worker<MergingOrder>>,
    outcomes: SyncSender<Result<(), String>>,
    done: Receiver<Result<(), String>>,
    /// Whether the search runs by the last order; `None`: it is left alone.
    is_running: Option<bool>,
    warnings: WarnOnce,
}

impl Merger {
    /// Sets nothing yet.
    pub(crate) fn new() -> Merger {
        let (outcomes, done) = mpsc::sync_channel(OUTCOMES_MAX);
        Merger {
            tuner: MergingTuner::default(),
            worker: None,
            outcomes,
            done,
            is_running: None,
            warnings: WarnOnce::default(),
        }
    }

    /// Takes in a snapshot. Never waits.
    pub(crate) fn adjust(&mut self, snapshot: &Snapshot, is_held: bool) {
        self.check_thread();
        for outcome in self.done.try_iter() {
            match outcome {
                Ok(()) => drop(self.warnings.clear(SUBJECT)),
                Err(why) => self.warnings.warn(SUBJECT, &why),
            }
        }
        if is_held {
            if self.is_running.take().is_some() {
                self.order(MergingOrder::LeaveAlone);
            }
        } else if let Some(knobs) = self.tuner.step(snapshot) {
            if self.is_running.replace(knobs.is_running) != Some(knobs.is_running) {
                let what = if knobs.is_running { "searches for like pages" } else { "rests" };
                info!("{SUBJECT}: {what}");
            }
            self.order(MergingOrder::Set(knobs));
        }
    }

    fn order(&mut self, order: MergingOrder) {
        if self.worker.is_none() {
            let outcomes = self.outcomes.clone();
            let work = move |inbox: &Inbox<MergingOrder>| {
                work(inbox, Path::new(PROC), Path::new(KSM), &outcomes);
            };
            match Worker::start(SUBJECT, work) {
                Ok(worker) => self.worker = Some(worker),
                Err(error) => {
                    self.warnings.warn(SUBJECT, &format!("cannot start a thread: {error}"));
                }
            }
        }
        if let Some(worker) = &self.worker {
            worker.order(order);
        }
    }

    fn check_thread(&mut self) {
        let deadline = WorkerDeadline {
            after: HANGS_AFTER,
            subject: "ksm (hangs)",
            what: "the kernel takes no setting of its search for like pages",
        };
        let Some(worker) = &mut self.worker else { return };
        if !worker.state().lives_on("ksm (thread)", deadline, &mut self.warnings) {
            self.worker = None;
        }
    }
}

impl Drop for Merger {
    fn drop(&mut self) {
        if let Some(worker) = &self.worker {
            worker.end();
        }
        wait_for_end(END_WAIT_MAX, || {
            self.check_thread();
            self.worker.is_none()
        });
        if self.worker.is_some() {
            warn!("{SUBJECT}: the search for like pages may stay as it was set");
        }
    }
}

/// Obeys orders until told to end.
fn work(
    inbox: &Inbox<MergingOrder>,
    proc: &Path,
    folder: &Path,
    outcomes: &SyncSender<Result<(), String>>,
) {
    let mut control = MergingControl::new(folder);
    loop {
        let outcome = match inbox.wait(None) {
            Letter::Order(MergingOrder::Set(knobs)) => match merging_owner(proc) {
                Some((pid, owner)) => {
                    control.give_up();
                    Err(format!("left alone, as {owner} (process {pid}) tunes it"))
                }
                None => control.set(knobs),
            },
            Letter::Order(MergingOrder::LeaveAlone) => control.restore(),
            Letter::None => continue,
            Letter::End => break,
        };
        // An outcome that finds no room is only missing from the log.
        let _ = outcomes.try_send(outcome);
    }
    if let Err(why) = control.restore() {
        warn!("{SUBJECT}: {why}");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn knobs(pages_to_scan: u64) -> MergingKnobs {
        MergingKnobs { is_running: true, pages_to_scan, sleep: Duration::from_millis(10) }
    }

    /// A folder of processes, and one with KSM's files.
    fn folders() -> (tempfile::TempDir, tempfile::TempDir) {
        let (proc, ksm) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (name, value) in [("run", "0"), ("pages_to_scan", "100"), ("sleep_millisecs", "20")] {
            fs::write(ksm.path().join(name), value).unwrap();
        }
        (proc, ksm)
    }

    fn start(proc: &Path, ksm: &Path) -> (Worker<MergingOrder>, Receiver<Result<(), String>>) {
        let (outcomes, done) = mpsc::sync_channel(OUTCOMES_MAX);
        let (proc, ksm) = (proc.to_owned(), ksm.to_owned());
        let worker = Worker::start("test", move |inbox: &Inbox<MergingOrder>| {
            work(inbox, &proc, &ksm, &outcomes);
        });
        (worker.unwrap(), done)
    }

    fn files(ksm: &Path) -> [String; 3] {
        ["run", "pages_to_scan", "sleep_millisecs"]
            .map(|name| fs::read_to_string(ksm.join(name)).unwrap())
    }

    #[test]
    fn orders_are_written_and_the_end_restores() {
        let (proc, ksm) = folders();
        let (worker, done) = start(proc.path(), ksm.path());
        worker.order(MergingOrder::Set(knobs(364)));
        assert_eq!(done.recv_timeout(PATIENCE), Ok(Ok(())));
        assert_eq!(files(ksm.path()), ["1", "364", "10"]);
        worker.order(MergingOrder::LeaveAlone);
        assert_eq!(done.recv_timeout(PATIENCE), Ok(Ok(())));
        assert_eq!(files(ksm.path()), ["0", "100", "20"]);
        worker.order(MergingOrder::Set(knobs(664)));
        assert_eq!(done.recv_timeout(PATIENCE), Ok(Ok(())));
        worker.end();
        // The thread ends by dropping its end of the channel.
        while done.recv_timeout(PATIENCE).is_ok() {}
        assert_eq!(files(ksm.path()), ["0", "100", "20"]);
    }

    #[test]
    fn another_owner_is_left_alone() {
        let (proc, ksm) = folders();
        let (worker, done) = start(proc.path(), ksm.path());
        worker.order(MergingOrder::Set(knobs(364)));
        assert_eq!(done.recv_timeout(PATIENCE), Ok(Ok(())));
        fs::create_dir(proc.path().join("7")).unwrap();
        fs::write(proc.path().join("7/comm"), "ksmtuned\n").unwrap();
        fs::write(proc.path().join("7/status"), "Uid:\t0\t0\t0\t0\n").unwrap();
        worker.order(MergingOrder::Set(knobs(664)));
        let why = done.recv_timeout(PATIENCE).unwrap().unwrap_err();
        assert!(why.contains("ksmtuned (process 7)"), "{why}");
        worker.end();
        while done.recv_timeout(PATIENCE).is_ok() {}
        // As the other program has set it by now.
        assert_eq!(files(ksm.path()), ["1", "364", "10"]);
    }
}
