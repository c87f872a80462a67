//! The journal that the daemon writes, on a real disk, and what disks do to it.
//!
//! Idea: ticks go through the daemon's own [`Journal`], and the next daemon is told what it finds in
//! the file. When a daemon is killed, its files are copied as they are at that moment and go on as the
//! copy: so nothing that SQLite does when it is closed comes to the help of the next one. Damage is
//! done to the copy.
//!
//! Cost: some 0.3 ms a tick. Limits: a full disk is played by one that is gone for a while, as nothing
//! can fill a disk without root; what is written but not synced is taken to be the end of the
//! write-ahead log, as SQLite syncs that before it touches anything else.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use ballast_daemon::Inherited;
use ballast_model::{Bytes, Plan, Restart, Timestamp};
use ballast_store::{Event, Journal, JournalConfig, Range, Reader, Start, Tick, What};
use fastrand::Rng;
use tempfile::TempDir;

use crate::violation::Violation;

/// The file with the rows, and its write-ahead log.
const FILE: &str = "journal.db";
const LOG: &str = "journal.db-wal";

/// What a disk writes at once, bytes.
const SECTOR: u64 = 512;

/// Longest wait for a row: no disk of a test hangs.
const WRITTEN_WITHIN: Duration = Duration::from_secs(30);

/// Everything is kept, whatever the wall clock does.
const KEEP: JournalConfig =
    JournalConfig { age_max: Duration::from_secs(1 << 36), bytes_max: Bytes::gib(1) };

/// What happens to the files while no daemon writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// Nothing.
    None,
    /// A sector has other bytes than were written.
    Torn,
    /// The end of a file is gone.
    Cut,
    /// The end of the log is gone, which was not synced: the host lost its power.
    Unsynced,
}

/// A journal on a disk.
pub(crate) struct Disk {
    folder: TempDir,
    /// `None` between two daemons.
    journal: Option<Journal>,
    /// Daemons so far; each has files of its own, and this as its process number.
    daemons: u32,
    /// Boots of the host so far.
    boots: u32,
    /// Whether the folder of the files is gone for now.
    is_gone: bool,
    /// What this daemon recorded in the file that it writes now.
    plans: Vec<(Timestamp, Plan)>,
    /// The number of the last row before these, if there is one.
    from_id: Option<i64>,
    /// Files moved aside that are known.
    aside: usize,
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
        Ok(Disk {
            folder: tempfile::Builder::new().prefix("ballast-storm-").tempdir()?,
            journal: None,
            daemons: 0,
            boots: 0,
            is_gone: false,
            plans: Vec::new(),
            from_id: None,
            aside: 0,
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
            self.journal = None;
        }
        self.copy().expect("the temporary folder takes copies");
        self.journal = None;
        match damage {
            Damage::None => {}
            Damage::Torn => self.tear(&mut rng),
            Damage::Cut => self.cut(if rng.bool() { FILE } else { LOG }, &mut rng),
            Damage::Unsynced => {
                self.boots += 1;
                self.cut(LOG, &mut rng);
            }
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
        self.aside = status.moved_aside.len();
        let is_whole = !self.is_damaged && !self.is_gone;
        self.journal = Some(journal);
        self.plans.clear();
        let last = Reader::open(&self.file()).and_then(|reader| reader.info());
        self.from_id = last.ok().and_then(|info| Some(info.last?.0));
        if self.aside > 0 {
            // A new file was begun.
            self.is_damaged = false;
        }
        if self.is_gone && status.error.is_none() {
            return Err(journal_violation("no disk, and no word of it"));
        }
        if is_whole && self.aside > 0 {
            return Err(journal_violation("a sound journal was moved aside"));
        }
        let left = match left {
            Ok(left) => left.map(|left| Inherited::of(left, &self.boot_id()).restart),
            Err(error) if is_whole => {
                return Err(Violation::Journal { what: error.to_string() });
            }
            Err(_) => None,
        };
        // After a loss of power nobody runs who was promised anything.
        let is_same = damage == Damage::Unsynced || left == self.promised;
        if is_whole && !is_same {
            return Err(journal_violation(
                "the next daemon is not told what the last one promised",
            ));
        }
        let is_told = is_same && !std::mem::take(&mut self.is_behind);
        self.promised.clone_from(&left);
        Ok((left.unwrap_or_default(), is_told))
    }

    /// The disk is gone, or back.
    pub(crate) fn set_gone(&mut self, is_gone: bool) {
        if self.is_gone != is_gone {
            let (from, to) =
                (self.folder_of(self.daemons, !is_gone), self.folder_of(self.daemons, is_gone));
            fs::rename(from, to).expect("a folder can be renamed");
            self.is_gone = is_gone;
        }
    }

    pub(crate) fn record_tick(&mut self, tick: Tick<'_>, promised: Restart) {
        let Some(journal) = &self.journal else { return };
        let (written, pending) = mpsc::channel();
        let handed_over = journal.record_and(&tick, move |is_written| {
            let _ = written.send(is_written);
        });
        handed_over.expect("the queue is empty");
        let is_written = pending.recv_timeout(WRITTEN_WITHIN).expect("a disk that works");
        let aside = journal.status().moved_aside.len();
        if aside > self.aside {
            // The damage showed only now, and a new file was begun.
            (self.aside, self.is_damaged, self.from_id) = (aside, false, None);
            self.plans.clear();
        }
        self.is_behind = !is_written;
        if is_written {
            self.plans.push((tick.snapshot.taken_at, tick.plan.clone()));
            self.promised = Some(promised);
        }
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
        }
    }

    /// Whether the file says what this daemon recorded in it.
    pub(crate) fn judge(&self) -> Result<(), Violation> {
        if self.journal.is_none() || self.is_gone {
            return Ok(());
        }
        let unreadable =
            |e: ballast_store::JournalError| Violation::Journal { what: e.to_string() };
        let reader = match Reader::open(&self.file()) {
            Ok(reader) => reader,
            Err(_) if self.is_damaged => return Ok(()),
            Err(error) => return Err(unreadable(error)),
        };
        let mut expected = self.plans.iter().peekable();
        for entry in reader.ticks(Range { from_id: self.from_id, ..Range::default() }) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(_) if self.is_damaged => continue,
                Err(error) => return Err(unreadable(error)),
            };
            let What::Tick(tick) = entry.what else { continue };
            let is_mine = |plan: &&(Timestamp, Plan)| plan.0 == entry.mono && plan.1 == tick.plan;
            if expected.peek().is_some_and(is_mine) {
                expected.next();
            }
        }
        match expected.next() {
            Some((at, _)) if !self.is_damaged => Err(Violation::Journal {
                what: format!("the plan of {} ms is not read back", at.as_millis()),
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
        if !from.exists() {
            return Ok(());
        }
        for entry in fs::read_dir(&from)? {
            let entry = entry?;
            let name = entry.file_name();
            // The log's index is made anew from the log, as after a loss of power.
            if !name.as_encoded_bytes().ends_with(b"-shm") {
                fs::copy(entry.path(), to.join(name))?;
            }
        }
        Ok(())
    }

    fn tear(&self, rng: &mut Rng) {
        let name = if rng.bool() { FILE } else { LOG };
        let path = self.folder_of(self.daemons, self.is_gone).join(name);
        let Ok(file) = OpenOptions::new().write(true).open(&path) else { return };
        let sectors = file.metadata().map_or(0, |it| it.len()) / SECTOR;
        if sectors > 0 {
            let noise: Vec<u8> =
                std::iter::repeat_with(|| rng.u8(..)).take(SECTOR as usize).collect();
            file.write_all_at(&noise, rng.u64(0..sectors) * SECTOR).expect("the file takes writes");
        }
    }

    fn cut(&self, name: &str, rng: &mut Rng) {
        let path = self.folder_of(self.daemons, self.is_gone).join(name);
        let Ok(file) = OpenOptions::new().write(true).open(&path) else { return };
        let length = file.metadata().map_or(0, |it| it.len());
        file.set_len(rng.u64(0..=length)).expect("the file can be cut");
    }
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
