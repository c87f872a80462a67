//! The journal that the daemon writes, on a faulty disk, and whether it keeps what it says.
//!
//! Idea: ticks go through the daemon's own [`Journal`], and the next daemon knows what it finds
//! in the file. What was said to be recorded has to be there when the daemon was killed; when the
//! host lost its power, what the last sync came after, and of the rest as much as there is without
//! a gap. Requests of the disk that fail (`journal_files.rs`) cost ticks, which is said, and no
//! file.
//!
//! Cost: some 0.3 ms a tick. Limits: what a file says is judged when its daemon ends; a file that
//! was damaged is judged no more, but for that daemons start on it.

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use ballast_daemon::Inherited;
use ballast_model::{Bytes, Plan, Restart, Timestamp};
use ballast_store::{
    ASIDE_MAX, Entry, Event, Journal, JournalConfig, JournalError, Range, Reader, Start, Tick, What,
};
use fastrand::Rng;

use crate::fault::Fault;
use crate::journal_files::{Damage, JournalFiles};
use crate::violation::Violation;

/// Longest wait for a row: no disk of a test hangs.
const WRITTEN_WITHIN: Duration = Duration::from_secs(30);

/// Everything is kept, whatever the wall clock does.
const KEEP: JournalConfig =
    JournalConfig { age_max: Duration::from_secs(1 << 36), bytes_max: Bytes::gib(1) };

/// A journal on a disk.
pub(crate) struct Disk {
    files: JournalFiles,
    /// `None` between two daemons.
    journal: Option<Journal>,
    /// Boots of the host so far.
    boots: u32,
    /// What this daemon recorded in the file that it writes now.
    plans: Vec<(Timestamp, Plan)>,
    /// The number of the last row before these, if there is one.
    from_id: Option<i64>,
    /// The moments of all ticks in that file, and how many of them no loss of power can take.
    moments: Vec<Timestamp>,
    synced: usize,
    /// Whether the power was lost while the disk was gone: nobody has counted what that took.
    is_uncounted: bool,
    /// Files that lay beside it when this daemon was started.
    asides_before: usize,
    /// Files moved aside since that are known.
    aside: usize,
    /// Whether the file may have damaged rows.
    is_damaged: bool,
    /// What the last recorded tick promised, and whether an operator has paused since.
    promised: Restart,
    /// Whether a later tick was not recorded.
    is_behind: bool,
    /// Whether an event waits that was not recorded: it may be with the next entry, whatever that
    /// is.
    waits: bool,
    /// What was found wrong while there was nobody to tell.
    broken: Option<Violation>,
}

/// What a daemon learns of the last one.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    pub(crate) left: Restart,
    /// Whether that is all that the last one promised.
    pub(crate) is_told: bool,
    /// Whether the last words of operators are in it.
    pub(crate) is_pause_known: bool,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Disk {
    /// A disk with room and no journal. If it `lies`, it keeps nothing that it says to keep.
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
            is_behind: false,
            waits: false,
            broken: None,
        })
    }

    fn boot_id(&self) -> String {
        format!("boot {}", self.boots)
    }

    pub(crate) fn set_gone(&mut self, is_gone: bool) {
        self.files.set_gone(is_gone);
    }

    pub(crate) fn strike(&mut self, fault: Fault, until: Duration, noise: u64) {
        self.files.strike(fault, until, noise);
    }

    pub(crate) fn step(&mut self, now: Duration) {
        self.files.step(now);
    }

    /// Starts a daemon on what the last one left after `damage`; `noise` draws what is damaged.
    /// Returns what it learns of the last one.
    pub(crate) fn start(
        &mut self,
        damage: Damage,
        noise: u64,
        now: Timestamp,
        wall: SystemTime,
    ) -> Result<Recovered, Violation> {
        self.judge()?;
        let mut rng = Rng::with_seed(noise);
        // A file that was closed has all its rows.
        if damage != Damage::Unsynced && rng.u32(0..4) == 0 {
            let failures = self.files.disk().failures();
            self.journal = None;
            if self.files.disk().failures() == failures && !self.files.is_gone() {
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
            pid: self.files.daemons(),
        };
        self.asides_before = self.files.asides();
        let failures = self.files.disk().failures();
        let opened = Journal::open(&self.files.file(), KEEP, start);
        let mut journal = opened.map_err(|e| Violation::Journal { what: e.to_string() })?;
        let left = journal.take_left();
        let status = journal.status();
        self.aside = status.moved_aside.len();
        let failed = self.files.disk().failures() > failures;
        let is_whole = !self.is_damaged && !self.files.is_gone() && !failed;
        self.journal = Some(journal);
        if self.files.is_gone() && status.error.is_none() {
            return Err(journal_violation("no disk, and no word of it"));
        }
        if is_whole && self.aside > 0 {
            let why = &status.moved_aside[0].why;
            return Err(journal_violation(&format!("a sound journal was moved aside: {why}")));
        }
        // Power that was lost while the disk was gone, and nothing was recorded since.
        let was_lost = self.is_uncounted && self.plans.is_empty();
        self.is_uncounted |= damage == Damage::Unsynced && self.files.is_gone();
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
            Ok(left) => Inherited::of(left, &self.boot_id()).restart,
            Err(error) if is_whole => {
                return Err(Violation::Journal { what: error.to_string() });
            }
            // What the file says is there for the daemon after this one, if this one says nothing.
            Err(_) => {
                self.is_behind = false;
                if self.aside > 0 {
                    self.promised = Restart::default();
                } else if let (Damage::Unsynced, Ok(told)) = (damage, self.told()) {
                    // That is less than was promised, and all of another boot.
                    self.promised = told;
                }
                return Ok(Recovered::default());
            }
        };
        // After a loss of power nobody runs who was promised anything.
        let is_same = damage == Damage::Unsynced || was_lost || self.is_promised(&left);
        if is_whole && !is_same {
            return Err(journal_violation(
                "the next daemon is not told what the last one promised",
            ));
        }
        let is_told = is_same && !std::mem::take(&mut self.is_behind);
        self.promised.clone_from(&left);
        let is_pause_known = is_told && !std::mem::take(&mut self.waits);
        Ok(Recovered { left, is_told, is_pause_known })
    }

    /// Whether `left` is what was promised. Whether a pause that was not recorded is there, nobody
    /// knows.
    fn is_promised(&self, left: &Restart) -> bool {
        let paused = if self.waits { left.paused } else { self.promised.paused };
        *left == Restart { paused, ..self.promised.clone() }
    }

    /// A new file was begun.
    fn begun_anew(&mut self) {
        (self.is_damaged, self.is_uncounted) = (false, false);
        (self.from_id, self.synced) = (None, 0);
        self.plans.clear();
        self.moments.clear();
    }

    pub(crate) fn record_tick(&mut self, tick: Tick<'_>, promised: Restart) {
        let Some(journal) = &self.journal else { return };
        let (written, pending) = mpsc::channel();
        let syncs = self.files.disk().syncs();
        let handed_over = journal.record_and(&tick, move |is_written| {
            let _ = written.send(is_written);
        });
        handed_over.expect("the queue is empty");
        let is_written = pending.recv_timeout(WRITTEN_WITHIN).expect("a disk that works");
        let status = journal.status();
        if status.moved_aside.len() > self.aside {
            // The damage showed only now.
            self.aside = status.moved_aside.len();
            self.begun_anew();
            self.promised = Restart::default();
        }
        if self.files.disk().syncs() > syncs {
            // It may have come before this tick.
            self.synced = self.moments.len();
        }
        self.is_behind = !is_written;
        if is_written {
            self.plans.push((tick.snapshot.taken_at, tick.plan.clone()));
            self.moments.push(tick.snapshot.taken_at);
            self.promised = promised;
            self.waits = false;
        } else if status.error.is_none() {
            self.broken = Some(journal_violation("a tick is not recorded, and no word of it"));
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
        let handed_over = self.journal.as_ref()?.record_event_and(wall, now, event, move |it| {
            let _ = written.send(it);
        });
        handed_over.expect("the queue is empty");
        Some(pending.recv_timeout(WRITTEN_WITHIN).expect("a disk that works"))
    }

    /// Whether the file says what this daemon recorded in it.
    pub(crate) fn judge(&mut self) -> Result<(), Violation> {
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        let Some(journal) = self.journal.as_ref().filter(|_| !self.files.is_gone()) else {
            return Ok(());
        };
        let (moved, said) =
            (self.files.asides() - self.asides_before, journal.status().moved_aside.len());
        if moved != said {
            let what = format!("{moved} files were moved aside, and {said} are said to be");
            return Err(journal_violation(&what));
        }
        // A damaged file is read as well: that has to come to an end.
        let found = match self.quietly(|file| ticks(file, self.from_id)) {
            _ if self.is_damaged => return Ok(()),
            // Nobody could begin the file yet, or nobody has since the power was lost.
            Err(_) if self.moments.is_empty() => return Ok(()),
            Err(_) if self.is_uncounted && self.plans.is_empty() => return Ok(()),
            found => found.map_err(unreadable)?,
        };
        let mut expected = self.plans.iter().peekable();
        for tick in &found {
            expected.next_if(|plan| *plan == tick);
        }
        match expected.next() {
            Some((at, _)) => Err(not_read_back(*at)),
            None => Ok(()),
        }
    }

    /// What the file tells a daemon of this boot.
    fn told(&self) -> Result<Restart, JournalError> {
        let left = self.quietly(|file| Reader::open(file)?.left())?;
        Ok(Inherited::of(left, &self.boot_id()).restart)
    }

    /// Takes what the file says for what was recorded, once it can be seen.
    fn count_again(&mut self) {
        if self.files.is_gone() {
            return;
        }
        if let Ok(found) = self.quietly(|file| ticks(file, None)) {
            self.moments = found.into_iter().map(|(at, _)| at).collect();
            (self.synced, self.is_uncounted) = (0, false);
        }
    }

    /// What was synced is there after a loss of power, and of the rest a beginning.
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
                return Err(journal_violation(&format!(
                    "after a loss of power the tick of {} ms is in another's place",
                    found.as_millis()
                )));
            }
        }
        if found.len() < self.synced {
            let lost = self.moments[found.len()];
            return Err(journal_violation(&format!(
                "the tick of {} ms was synced, and a loss of power took it",
                lost.as_millis()
            )));
        }
        self.moments.truncate(found.len());
        self.synced = self.moments.len();
        Ok(())
    }

    /// All faults of the disk are over: the file says what was recorded, and is written again.
    pub(crate) fn judge_end(&mut self, wall: SystemTime, now: Timestamp) -> Result<(), Violation> {
        self.judge()?;
        self.files.set_gone(false);
        self.files.step(Duration::MAX);
        let loaded = Event::ConfigLoaded { toml: String::new() };
        let is_written = self.write_event(wall, now, loaded);
        // A damaged file in its way stays there, where as many as may be lie beside it already.
        if is_written == Some(false) && self.files.asides() < ASIDE_MAX {
            let status = self.journal.as_ref().map(Journal::status).unwrap_or_default();
            let why = status.error.unwrap_or_default();
            return Err(journal_violation(&format!("a sound disk is not written: {why}")));
        }
        self.judge()
    }

    fn quietly<T>(&self, look: impl FnOnce(&Path) -> T) -> T {
        self.files.disk().quietly(|| look(&self.files.file()))
    }
}

/// The moments and plans of a file, from a row on.
///
/// # Errors
/// The first one, after all that can be read was.
fn ticks(file: &Path, from_id: Option<i64>) -> Result<Vec<(Timestamp, Plan)>, JournalError> {
    let reader = Reader::open(file)?;
    let (mut found, mut failed) = (Vec::new(), None);
    for entry in reader.ticks(Range { from_id, ..Range::default() }) {
        match entry {
            Ok(Entry { mono, what: What::Tick(tick), .. }) => found.push((mono, tick.plan)),
            Ok(_) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(found), Err)
}

fn journal_violation(what: &str) -> Violation {
    Violation::Journal { what: what.to_owned() }
}

fn unreadable(error: JournalError) -> Violation {
    Violation::Journal { what: error.to_string() }
}

fn not_read_back(at: Timestamp) -> Violation {
    Violation::Journal { what: format!("the plan of {} ms is not read back", at.as_millis()) }
}

/// Whether an event pauses the daemon, or resumes; `None`: neither.
pub(crate) fn pause_of(event: &Event) -> Option<bool> {
    use ballast_daemon::view::Command;
    let Event::Command { command, answer: Ok(_), .. } = event else { return None };
    match command {
        _ if *command == Command::Pause.words() => Some(true),
        _ if *command == Command::Resume.words() => Some(false),
        _ => None,
    }
}
