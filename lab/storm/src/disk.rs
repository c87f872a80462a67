//! The journal that the daemon writes, on a real disk, and what disks do to it.
//!
//! Idea: ticks go through the daemon's own [`Journal`], and the next daemon is told what it finds in
//! the file. When a daemon is killed, its files are copied as they are at that moment and go on as the
//! copy: so nothing that SQLite does when it is closed comes to the help of the next one. Damage is
//! done to the copy. The files are on a [`FaultyDisk`], which is full, fails, or dies in mid write when
//! it is told to, and knows what was written and not synced: a loss of power takes any part of that.
//!
//! Judged: the journal opens again whatever was done to it; where it does not record it says why; where
//! nothing is wrong any more it records; and what is read of it is what was recorded, after a loss of
//! power the beginning of that, with all that was there when the log was last synced.
//!
//! Cost: some 0.3 ms a tick. Limits: those of the faulty disk; after damage to a file's content only that
//! the journal goes on is judged.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use ballast_daemon::Inherited;
use ballast_faulty_disk::{FaultyDisk, Trouble};
use ballast_model::{Bytes, Plan, Restart, Timestamp};
use ballast_store::{
    Event, Journal, JournalConfig, JournalError, Range, Reader, Start, Tick, What,
};
use fastrand::Rng;
use tempfile::TempDir;

use crate::damage::{self, Damage, FILE, copy_files};
use crate::violation::Violation;

/// Longest wait for a row: no disk of a test hangs.
const WRITTEN_WITHIN: Duration = Duration::from_secs(30);

/// Everything is kept, whatever the wall clock does.
const KEEP: JournalConfig =
    JournalConfig { age_max: Duration::from_secs(1 << 36), bytes_max: Bytes::gib(1) };

/// A tick that was recorded in the file in use.
#[derive(Debug)]
struct Row {
    mono: Timestamp,
    plan: Plan,
    /// What it promised.
    promised: Restart,
    /// What operators' pauses were since, before the next one.
    paused: Vec<bool>,
}

/// A journal on a disk.
pub(crate) struct Disk {
    /// `None` between two daemons. Closed before the disk is like any other again.
    journal: Option<Journal>,
    faulty: FaultyDisk,
    folder: TempDir,
    /// Until when the trouble lasts that it is in.
    trouble_until: Duration,
    /// Daemons so far; each has files of its own, and this as its process number.
    daemons: u32,
    /// Boots of the host so far.
    boots: u32,
    /// Whether the folder of the files is gone for now.
    is_gone: bool,
    /// What is recorded in the file that is written now.
    rows: Vec<Row>,
    /// The first of them that this daemon recorded, and the number of the last entry before it.
    from: usize,
    from_id: Option<i64>,
    /// How many of them no loss of power can take any more.
    durable: usize,
    /// Files moved aside that are known.
    aside: usize,
    /// Whether the power was lost since its rows were looked at.
    has_lost: bool,
    /// Whether the file may have damaged rows.
    is_damaged: bool,
    /// What the last recorded tick promised.
    promised: Option<Restart>,
    /// Whether a later tick was not recorded.
    is_behind: bool,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").field("daemons", &self.daemons).finish_non_exhaustive()
    }
}

impl Disk {
    /// A disk with room and no journal.
    pub(crate) fn new() -> io::Result<Disk> {
        let folder = tempfile::Builder::new().prefix("ballast-storm-").tempdir()?;
        Ok(Disk {
            journal: None,
            faulty: FaultyDisk::new(folder.path()),
            folder,
            trouble_until: Duration::ZERO,
            daemons: 0,
            boots: 0,
            is_gone: false,
            rows: Vec::new(),
            from: 0,
            from_id: None,
            durable: 0,
            aside: 0,
            has_lost: false,
            is_damaged: false,
            promised: None,
            is_behind: false,
        })
    }

    fn folder_of(&self, daemon: u32, is_gone: bool) -> PathBuf {
        let name = if is_gone { format!("{daemon}.gone") } else { daemon.to_string() };
        self.folder.path().join(name)
    }

    fn file(&self) -> PathBuf {
        self.folder_of(self.daemons, false).join(FILE)
    }

    fn boot_id(&self) -> String {
        format!("boot {}", self.boots)
    }

    /// Starts a daemon on what the last one left after `damage`; `noise` draws what is damaged. Returns
    /// what it is told of the last one, and whether that is all there was to tell.
    pub(crate) fn start(
        &mut self,
        damage: Damage,
        noise: u64,
        now: Timestamp,
        wall: SystemTime,
    ) -> Result<(Restart, bool), Violation> {
        self.judge()?;
        let mut rng = Rng::with_seed(noise);
        // A file that was closed has all its rows, and no log.
        let is_closed = damage != Damage::Unsynced && rng.u32(0..4) == 0;
        if is_closed {
            let syncs = self.faulty.log_syncs();
            self.journal = None;
            self.note_syncs(syncs);
        }
        self.copy().expect("the temporary folder takes copies");
        self.journal = None;
        let folder = self.folder_of(self.daemons, self.is_gone);
        match damage {
            Damage::None => {}
            Damage::Torn => damage::tear(&folder, &mut rng),
            Damage::Cut => damage::cut(&folder, &mut rng),
            Damage::Unsynced => {
                self.boots += 1;
                self.faulty.lose_power(&folder, noise).expect("the files take writes");
            }
            Damage::Unfinished => self.faulty.set_trouble(Trouble::None, 0),
        }
        self.is_damaged |= matches!(damage, Damage::Torn | Damage::Cut);
        self.open(damage, now, wall)
    }

    fn open(
        &mut self,
        damage: Damage,
        now: Timestamp,
        wall: SystemTime,
    ) -> Result<(Restart, bool), Violation> {
        let start = Start {
            wall,
            mono: now,
            boot_id: self.boot_id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: self.daemons,
        };
        let opened = Journal::open(&self.file(), KEEP, start);
        let mut journal = opened.map_err(|e| Violation::Journal { what: e.to_string() })?;
        let left = journal.take_left();
        let status = journal.status();
        let is_new = !status.moved_aside.is_empty();
        self.aside = status.moved_aside.len();
        // What cannot be read is not known to be sound.
        let is_seen = !self.is_gone && !self.cannot_read();
        let is_whole = !self.is_damaged && is_seen;
        self.journal = Some(journal);
        if self.is_gone && status.error.is_none() {
            return Err(journal_violation("no disk, and no word of it"));
        }
        if is_whole && is_new {
            return Err(journal_violation("a sound journal was moved aside"));
        }
        let mut promised = self.promised.clone();
        if is_new {
            self.begin_anew();
        }
        self.has_lost |= damage == Damage::Unsynced;
        if self.judge_power_loss()? {
            promised.clone_from(&self.promised);
        }
        let file = self.file();
        let last = self.faulty.without_trouble(|| Reader::open(&file).and_then(|it| it.info()));
        self.from_id = last.ok().and_then(|info| Some(info.last?.0));
        self.from = self.rows.len();
        let boot_id = self.boot_id();
        let left = match left {
            Ok(left) => left.map(|left| Inherited::of(left, &boot_id).restart),
            // A file without rows may be one that could not be begun yet.
            Err(error) if is_whole && !self.rows.is_empty() => return Err(unreadable(error)),
            Err(_) => None,
        };
        // After a loss of power nobody runs who was promised anything.
        let is_same = damage == Damage::Unsynced || left == promised;
        if is_whole && !is_same {
            return Err(journal_violation(
                "the next daemon is not told what the last one promised",
            ));
        }
        let is_told = is_same && !std::mem::take(&mut self.is_behind);
        if is_seen || self.is_damaged {
            self.promised.clone_from(&left);
        }
        Ok((left.unwrap_or_default(), is_told))
    }

    /// A new file was begun.
    fn begin_anew(&mut self) {
        (self.is_damaged, self.has_lost) = (false, false);
        (self.from, self.from_id, self.durable) = (0, None, 0);
        (self.rows, self.promised) = (Vec::new(), None);
    }

    /// Whether what is on the disk cannot be seen for now.
    fn cannot_read(&self) -> bool {
        self.faulty.trouble() == Trouble::FailsReads
    }

    /// If the log was synced since there were `syncs`, what is recorded cannot be lost any more.
    fn note_syncs(&mut self, syncs: u64) {
        if self.faulty.log_syncs() > syncs {
            self.durable = self.rows.len();
        }
    }

    /// What a loss of power left is the beginning of what was recorded, and all that was synced. Judged
    /// as soon as it can be seen; whether it was.
    fn judge_power_loss(&mut self) -> Result<bool, Violation> {
        if !self.has_lost || self.is_damaged || self.is_gone || self.cannot_read() {
            return Ok(false);
        }
        self.has_lost = false;
        let file = self.file();
        let found = self.faulty.without_trouble(|| -> Result<_, JournalError> {
            let reader = Reader::open(&file)?;
            let mut ticks = Vec::new();
            for entry in reader.ticks(Range::default()) {
                let entry = entry?;
                if let What::Tick(tick) = entry.what {
                    ticks.push((entry.mono, tick.plan));
                }
            }
            Ok((ticks, reader.left()?))
        });
        let (ticks, left) = match found {
            // Nothing of it was synced, or there is no room for it yet.
            Err(_) if self.durable == 0 => (Vec::new(), None),
            found => found.map_err(unreadable)?,
        };
        let is_prefix = ticks.len() <= self.rows.len()
            && ticks.iter().zip(&self.rows).all(|(it, row)| (it.0, &it.1) == (row.mono, &row.plan));
        if !is_prefix {
            return Err(journal_violation("a loss of power left what was not recorded so"));
        }
        if ticks.len() < self.durable {
            let (left, durable) = (ticks.len(), self.durable);
            let what = format!("a loss of power left {left} ticks, and {durable} were synced");
            return Err(Violation::Journal { what });
        }
        self.rows.truncate(ticks.len());
        self.durable = ticks.len();
        self.from = self.from.min(ticks.len());
        let promised = left.map(|left| {
            let boot_id = left.session.start.boot_id.clone();
            Inherited::of(left, &boot_id).restart
        });
        let is_known = match (&promised, self.rows.last()) {
            (None, None) => true,
            (Some(promised), Some(row)) => {
                let is_paused =
                    promised.paused == row.promised.paused || row.paused.contains(&promised.paused);
                let same = Restart { paused: row.promised.paused, ..promised.clone() };
                is_paused && same == row.promised
            }
            _ => false,
        };
        // Another boot has nothing of this one.
        self.promised = promised.map(|_| Restart::default());
        match is_known {
            true => Ok(true),
            false => Err(journal_violation("a loss of power left other promises than were made")),
        }
    }

    /// The disk is gone, or back.
    pub(crate) fn set_gone(&mut self, is_gone: bool) {
        if self.is_gone != is_gone {
            let (from, to) =
                (self.folder_of(self.daemons, !is_gone), self.folder_of(self.daemons, is_gone));
            fs::rename(&from, &to).expect("a folder can be renamed");
            self.faulty.renamed(&from, &to);
            self.is_gone = is_gone;
        }
    }

    /// The disk is in this trouble until then; `noise` draws what fails.
    pub(crate) fn set_trouble(&mut self, trouble: Trouble, until: Duration, noise: u64) {
        self.trouble_until = until;
        self.faulty.set_trouble(trouble, noise);
    }

    /// Time has passed.
    pub(crate) fn step(&mut self, now: Duration) -> Result<(), Violation> {
        if now >= self.trouble_until && self.faulty.trouble() != Trouble::None {
            self.faulty.set_trouble(Trouble::None, 0);
        }
        self.judge_power_loss().map(|_| ())
    }

    /// It says that it synced, and does not.
    pub(crate) fn lie(&self) {
        self.faulty.lie();
    }

    pub(crate) fn record_tick(
        &mut self,
        tick: Tick<'_>,
        promised: Restart,
    ) -> Result<(), Violation> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let syncs = self.faulty.log_syncs();
        let (written, pending) = mpsc::channel();
        let handed_over = journal.record_and(&tick, move |is_written| {
            let _ = written.send(is_written);
        });
        handed_over.expect("the queue is empty");
        let is_written = pending.recv_timeout(WRITTEN_WITHIN).expect("a disk that works");
        let status = journal.status();
        self.note_syncs(syncs);
        let is_sound = !self.is_damaged && !self.is_gone && self.faulty.trouble() == Trouble::None;
        if status.moved_aside.len() > self.aside {
            if is_sound {
                return Err(journal_violation("a sound journal was moved aside"));
            }
            // The damage showed only now, and a new file was begun.
            self.aside = status.moved_aside.len();
            self.begin_anew();
        }
        if is_written == status.error.is_some() {
            let what = format!("a tick was written: {is_written}, and said: {:?}", status.error);
            return Err(Violation::Journal { what });
        }
        if let (true, false, Some(error)) = (is_sound, is_written, status.error) {
            return Err(Violation::Journal { what: format!("nothing is wrong, but {error}") });
        }
        self.is_behind = !is_written;
        if is_written {
            let (mono, plan) = (tick.snapshot.taken_at, tick.plan.clone());
            self.rows.push(Row { mono, plan, promised: promised.clone(), paused: Vec::new() });
            self.promised = Some(promised);
        }
        Ok(())
    }

    pub(crate) fn record_event(&mut self, wall: SystemTime, now: Timestamp, event: Event) {
        let Some(journal) = &self.journal else { return };
        let (written, pending) = mpsc::channel();
        let paused = pause_of(&event);
        let handed_over = journal.record_event_and(wall, now, event, move |is_written| {
            let _ = written.send(is_written);
        });
        handed_over.expect("the queue is empty");
        let is_written = pending.recv_timeout(WRITTEN_WITHIN).expect("a disk that works");
        if let (Some(paused), Some(promised), true) = (paused, &mut self.promised, is_written) {
            promised.paused = paused;
            self.rows.iter_mut().last().into_iter().for_each(|row| row.paused.push(paused));
        }
    }

    /// Whether the file says what this daemon recorded in it.
    pub(crate) fn judge(&self) -> Result<(), Violation> {
        if self.journal.is_none() || self.is_gone {
            return Ok(());
        }
        self.faulty.without_trouble(|| self.judge_rows())
    }

    fn judge_rows(&self) -> Result<(), Violation> {
        let mut expected = self.rows[self.from..].iter().peekable();
        let reader = match Reader::open(&self.file()) {
            Ok(reader) => reader,
            Err(_) if self.is_damaged || expected.peek().is_none() => return Ok(()),
            Err(error) => return Err(unreadable(error)),
        };
        for entry in reader.ticks(Range { from_id: self.from_id, ..Range::default() }) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(_) if self.is_damaged => continue,
                Err(error) => return Err(unreadable(error)),
            };
            let What::Tick(tick) = entry.what else { continue };
            let is_mine = |row: &&Row| row.mono == entry.mono && row.plan == tick.plan;
            if expected.peek().is_some_and(is_mine) {
                expected.next();
            }
        }
        match expected.next() {
            Some(row) if !self.is_damaged => Err(Violation::Journal {
                what: format!("the plan of {} ms is not read back", row.mono.as_millis()),
            }),
            _ => Ok(()),
        }
    }

    /// Copies the files as they are, for the next daemon.
    fn copy(&mut self) -> io::Result<()> {
        let from = self.folder_of(self.daemons, self.is_gone);
        self.daemons += 1;
        let to = self.folder_of(self.daemons, self.is_gone);
        fs::create_dir(&to)?;
        self.faulty.copied(&from, &to);
        if from.exists() { copy_files(&from, &to) } else { Ok(()) }
    }
}

fn unreadable(error: JournalError) -> Violation {
    Violation::Journal { what: error.to_string() }
}

fn journal_violation(what: &str) -> Violation {
    Violation::Journal { what: what.to_owned() }
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
