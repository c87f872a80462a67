//! The daemon's journal on a faulty disk, and whether the journal keeps what it reports as kept.
//!
//! Idea: ticks go through the daemon's own [`Journal`], and the next daemon knows only what it
//! finds in the file. After the daemon was killed, everything that was reported as recorded has to
//! be in the file. After a loss of power, everything before the last sync has to be there, and what
//! follows it must have no gap. Failing requests to the disk (`journal_files.rs`) may cost ticks,
//! which has to be reported, but never the file.
//!
//! Cost: some 0.3 ms a tick. Limits: a file is judged when its daemon ends. The contents of a
//! damaged file are not judged; daemons only have to start on it.

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use ballast_control::Settings;
use ballast_daemon::Inherited;
use ballast_model::{Bytes, Plan, Restart, Timestamp};
use ballast_store::{
    ASIDE_MAX, Entry, EntryContent, Event, Journal, JournalConfig, JournalError, JournalTail,
    Range, Reader, Start, Tick,
};
use fastrand::Rng;

use crate::journal_files::{Damage, JournalFiles};
use crate::violation::Violation;

/// The longest wait for a row; a disk in a test never hangs.
const WRITTEN_WITHIN: Duration = Duration::from_secs(30);

/// Nothing is deleted, whatever the wall clock does.
const KEEP: JournalConfig =
    JournalConfig { age_max: Duration::from_secs(1 << 36), bytes_max: Bytes::gib(1) };

/// A journal on a disk.
pub(crate) struct Disk {
    pub(crate) files: JournalFiles,
    /// `None` between two daemons.
    journal: Option<Journal>,
    /// Number of boots of the host so far.
    boots: u32,
    /// What this daemon recorded in the current file.
    plans: Vec<(Timestamp, Plan)>,
    /// The id of the last row before these, if there is one.
    from_id: Option<i64>,
    /// The times of all ticks in that file, and how many of them are synced, so that no loss of
    /// power can take them.
    moments: Vec<Timestamp>,
    synced: usize,
    /// Whether the power was lost while the disk was gone, so that it is not known yet what was
    /// lost.
    is_uncounted: bool,
    /// The number of files moved aside when this daemon was started.
    asides_before: usize,
    /// The number of files moved aside since then, as reported.
    aside: usize,
    /// Whether the file may have damaged rows.
    is_damaged: bool,
    /// What the last recorded tick promised, and whether an operator's pause is in force.
    promised: Restart,
    /// The time of that tick.
    promised_at: Timestamp,
    /// Whether a later tick was not recorded.
    is_behind: bool,
    /// Whether an event that could not be recorded is waiting. It may be written with any later
    /// entry.
    waits: bool,
    /// A violation that was found where it could not be returned.
    broken: Option<Violation>,
}

/// What a daemon finds of the previous one.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    pub(crate) left: Restart,
    /// Whether it is everything that the previous one promised.
    pub(crate) is_told: bool,
    /// Whether it includes the operators' last commands.
    pub(crate) is_pause_known: bool,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Disk {
    /// An empty disk without a journal. If it `lies`, syncs keep nothing.
    pub(crate) fn new(lies: bool) -> std::io::Result<Disk> {
        Ok(Disk {
            files: JournalFiles::new(lies)?,
            journal: None,
            boots: 0,
            plans: Vec::new(),
            from_id: None,
            moments: Vec::new(),
            synced: 0,
            is_uncounted: false,
            asides_before: 0,
            aside: 0,
            is_damaged: false,
            promised: Restart::default(),
            promised_at: Timestamp::ZERO,
            is_behind: false,
            waits: false,
            broken: None,
        })
    }

    fn boot_id(&self) -> String {
        format!("boot {}", self.boots)
    }

    /// Starts a daemon on the files of the previous one, after `damage`; `noise` seeds the damage.
    /// Returns what the daemon finds of the previous one.
    pub(crate) fn start(
        &mut self,
        damage: Damage,
        noise: u64,
        now: Timestamp,
        wall: SystemTime,
    ) -> Result<Recovered, Violation> {
        self.judge()?;
        let mut rng = Rng::with_seed(noise);
        // In some cases the previous daemon closes its file first; then all rows are synced.
        if damage != Damage::Unsynced && rng.u32(0..4) == 0 {
            let failures = self.files.disk.failures();
            self.journal = None;
            if self.files.disk.failures() == failures && !self.files.is_gone {
                self.synced = self.moments.len();
            }
        }
        self.files.copy().expect("the temporary folder takes copies");
        self.journal = None;
        self.files.remove_last();
        self.files.damage(damage, &mut rng);
        if damage == Damage::Unsynced {
            self.boots += 1;
        }
        self.is_damaged |= matches!(damage, Damage::Torn | Damage::Cut);
        self.open(damage, now, wall)
    }

    fn open(
        &mut self,
        damage: Damage,
        now: Timestamp,
        wall: SystemTime,
    ) -> Result<Recovered, Violation> {
        let start = Start {
            wall,
            mono: now,
            boot_id: self.boot_id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: self.files.daemons,
        };
        self.asides_before = self.files.asides();
        let failures = self.files.disk.failures();
        let mut journal = Journal::open(&self.files.file(), KEEP, start).map_err(unreadable)?;
        let left = journal.take_tail();
        let status = journal.status();
        self.aside = status.moved_aside.len();
        let failed = self.files.disk.failures() > failures;
        let is_whole = !self.is_damaged && !self.files.is_gone && !failed;
        self.journal = Some(journal);
        if self.files.is_gone && status.error.is_none() {
            return Err(Violation::Journal("no disk, and no word of it".to_owned()));
        }
        if is_whole && self.aside > 0 {
            let why = &status.moved_aside[0].why;
            return Err(Violation::Journal(format!("a sound journal was moved aside: {why}")));
        }
        // The power was lost while the disk was gone, and nothing was recorded since.
        let was_lost = self.is_uncounted && self.plans.is_empty();
        self.is_uncounted |= damage == Damage::Unsynced && self.files.is_gone;
        if self.aside > 0 {
            self.begun_anew();
        } else if self.is_uncounted {
            self.count_again();
        } else if damage == Damage::Unsynced {
            self.judge_power_loss()?;
        }
        self.plans.clear();
        let last =
            self.quietly(|file| Reader::open(file).and_then(|reader| Ok(reader.info()?.last)));
        self.from_id = last.ok().flatten().map(|(id, ..)| id);
        let left = match left {
            Ok(left) => self.inherited(left, now),
            Err(error) if is_whole => return Err(unreadable(error)),
            // If this daemon finds nothing, the next one may still find what is in the file.
            Err(_) => {
                self.is_behind = false;
                if self.aside > 0 {
                    self.promised = Restart::default();
                } else if let (Damage::Unsynced, Ok(told)) = (damage, self.told(now)) {
                    // Less than was promised, and all of it from another boot.
                    self.promised = told;
                }
                return Ok(Recovered::default());
            }
        };
        // After a loss of power the guests that were promised something run no more.
        let is_another_boot = damage == Damage::Unsynced || was_lost;
        let is_old = now.saturating_since(self.promised_at) > Inherited::AGE_MAX;
        let is_same = is_another_boot || self.is_promised(&left, is_old);
        if is_whole && !is_same {
            let what = "the next daemon is not told what the last one promised";
            return Err(Violation::Journal(what.to_owned()));
        }
        let is_last = is_same && !std::mem::take(&mut self.is_behind);
        let is_forgotten = is_old && !is_another_boot && !self.promised.guests.is_empty();
        self.promised.clone_from(&left);
        let is_pause_known = is_last && !std::mem::take(&mut self.waits);
        Ok(Recovered { left, is_told: is_last && !is_forgotten, is_pause_known })
    }

    fn inherited(&self, tail: JournalTail, now: Timestamp) -> Restart {
        Inherited::of(tail, &self.boot_id(), now, Settings::TICK_DEFAULT).restart
    }

    /// Whether `left` is what was promised; nothing is to guests if that `is_old`. An unrecorded
    /// pause may or may not be in it.
    fn is_promised(&self, left: &Restart, is_old: bool) -> bool {
        let paused = if self.waits { left.paused } else { self.promised.paused };
        let mut promised = Restart { paused, ..self.promised.clone() };
        if is_old {
            promised.guests.clear();
        }
        *left == promised
    }

    /// The journal began a new file.
    fn begun_anew(&mut self) {
        (self.is_damaged, self.is_uncounted) = (false, false);
        (self.from_id, self.synced) = (None, 0);
        self.plans.clear();
        self.moments.clear();
    }

    pub(crate) fn record_tick(&mut self, tick: Tick<'_>, promised: Restart) {
        let Some(journal) = &self.journal else { return };
        let (written, pending) = mpsc::channel();
        let syncs = self.files.disk.syncs();
        let handed_over = journal.record_then(&tick, move |is_written| {
            let _ = written.send(is_written);
        });
        handed_over.expect("the queue is empty");
        let is_written = pending.recv_timeout(WRITTEN_WITHIN).expect("a disk that works");
        let status = journal.status();
        if status.moved_aside.len() > self.aside {
            // The journal found the damage only now.
            self.aside = status.moved_aside.len();
            self.begun_anew();
            self.promised = Restart::default();
        }
        if self.files.disk.syncs() > syncs {
            // The sync may have been made before this tick was written.
            self.synced = self.moments.len();
        }
        self.is_behind = !is_written;
        if is_written {
            self.plans.push((tick.snapshot.taken_at, tick.plan.clone()));
            self.moments.push(tick.snapshot.taken_at);
            (self.promised, self.promised_at) = (promised, tick.snapshot.taken_at);
            self.waits = false;
        } else if status.error.is_none() {
            let what = "a tick is not recorded, and no word of it";
            self.broken = Some(Violation::Journal(what.to_owned()));
        }
    }

    pub(crate) fn record_event(&mut self, wall: SystemTime, now: Timestamp, event: Event) {
        let paused = pause_of(&event);
        let Some(is_written) = self.write_event(wall, now, event) else { return };
        self.waits |= !is_written;
        if let (Some(paused), true) = (paused, is_written) {
            self.promised.paused = paused;
        }
    }

    fn write_event(&self, wall: SystemTime, now: Timestamp, event: Event) -> Option<bool> {
        let (written, pending) = mpsc::channel();
        let handed_over = self.journal.as_ref()?.record_event_then(wall, now, event, move |it| {
            let _ = written.send(it);
        });
        handed_over.expect("the queue is empty");
        Some(pending.recv_timeout(WRITTEN_WITHIN).expect("a disk that works"))
    }

    /// Checks that the file has what this daemon recorded in it.
    pub(crate) fn judge(&mut self) -> Result<(), Violation> {
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        let Some(journal) = self.journal.as_ref().filter(|_| !self.files.is_gone) else {
            return Ok(());
        };
        let moved = self.files.asides() - self.asides_before;
        let said = journal.status().moved_aside.len();
        if moved != said {
            let what = format!("{moved} files were moved aside, and {said} are said to be");
            return Err(Violation::Journal(what));
        }
        // A damaged file is read, too, to check that reading it ends.
        let found = match self.quietly(|file| ticks(file, self.from_id)) {
            _ if self.is_damaged => return Ok(()),
            // No daemon could begin the file yet, or none has recorded since the power was lost.
            Err(_) if self.moments.is_empty() => return Ok(()),
            Err(_) if self.is_uncounted && self.plans.is_empty() => return Ok(()),
            found => found.map_err(unreadable)?,
        };
        let mut expected = self.plans.iter().peekable();
        for tick in &found {
            expected.next_if(|plan| *plan == tick);
        }
        let Some((at, _)) = expected.next() else { return Ok(()) };
        Err(Violation::Journal(format!("the plan of {} ms is not read back", at.as_millis())))
    }

    /// What a daemon of this boot finds in the file.
    fn told(&self, now: Timestamp) -> Result<Restart, JournalError> {
        let tail = self.quietly(|file| Reader::open(file)?.tail())?;
        Ok(self.inherited(tail, now))
    }

    /// Takes what is in the file as what was recorded, once the file can be read.
    fn count_again(&mut self) {
        if self.files.is_gone {
            return;
        }
        if let Ok(found) = self.quietly(|file| ticks(file, None)) {
            self.moments = found.into_iter().map(|(at, _)| at).collect();
            (self.synced, self.is_uncounted) = (0, false);
        }
    }

    /// Checks that after a loss of power everything synced is there, followed by unsynced ticks
    /// without a gap.
    fn judge_power_loss(&mut self) -> Result<(), Violation> {
        if self.is_damaged {
            return Ok(());
        }
        let found = match self.quietly(|file| ticks(file, None)) {
            Ok(found) => found,
            // Nothing was synced yet, and the new daemon could not begin a file.
            Err(JournalError::NotAJournal { .. }) if self.synced == 0 => Vec::new(),
            Err(error) => return Err(unreadable(error)),
        };
        for (at, (found, _)) in found.iter().enumerate() {
            if self.moments.get(at) != Some(found) {
                return Err(Violation::Journal(format!(
                    "after a loss of power the tick of {} ms is in another's place",
                    found.as_millis()
                )));
            }
        }
        if found.len() < self.synced {
            let lost = self.moments[found.len()];
            return Err(Violation::Journal(format!(
                "the tick of {} ms was synced, and a loss of power took it",
                lost.as_millis()
            )));
        }
        self.moments.truncate(found.len());
        self.synced = self.moments.len();
        Ok(())
    }

    /// All faults of the disk are over: checks that the file has what was recorded, and that it can
    /// be written again.
    pub(crate) fn judge_end(&mut self, wall: SystemTime, now: Timestamp) -> Result<(), Violation> {
        self.judge()?;
        self.files.set_gone(false);
        self.files.step(Duration::MAX);
        let loaded = Event::ConfigLoaded { toml: String::new() };
        let is_written = self.write_event(wall, now, loaded);
        // A damaged file stays in place if the allowed number of files is already moved aside.
        if is_written == Some(false) && self.files.asides() < ASIDE_MAX {
            let status = self.journal.as_ref().map(Journal::status).unwrap_or_default();
            let why = status.error.unwrap_or_default();
            return Err(Violation::Journal(format!("a sound disk is not written: {why}")));
        }
        self.judge()
    }

    fn quietly<T>(&self, look: impl FnOnce(&Path) -> T) -> T {
        self.files.disk.quietly(|| look(&self.files.file()))
    }
}

/// The times and plans in a file, after the row `from_id`.
///
/// # Errors
/// The first error, after everything that can be read was read.
fn ticks(file: &Path, from_id: Option<i64>) -> Result<Vec<(Timestamp, Plan)>, JournalError> {
    let reader = Reader::open(file)?;
    let (mut found, mut failed) = (Vec::new(), None);
    for entry in reader.ticks(Range { from_id, ..Range::default() }) {
        match entry {
            Ok(Entry { mono, content: EntryContent::Tick(tick), .. }) => {
                found.push((mono, tick.plan));
            }
            Ok(_) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(found), Err)
}

fn unreadable(error: JournalError) -> Violation {
    Violation::Journal(error.to_string())
}

/// Whether an event pauses the daemon (true) or resumes it (false); `None`: neither.
pub(crate) fn pause_of(event: &Event) -> Option<bool> {
    use ballast_daemon::view::Command;
    let Event::Command { command, answer: Ok(_), .. } = event else { return None };
    match command {
        _ if *command == Command::Pause.words() => Some(true),
        _ if *command == Command::Resume.words() => Some(false),
        _ => None,
    }
}
