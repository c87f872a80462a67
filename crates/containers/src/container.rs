//! One container.
//!
//! Idea: a sample reads the files of its cgroup. An order sets limits in a thread of its own,
//! because the kernel reclaims within the write; the thread reports when that is over.
//! Limits: at most [`WRITES_MAX`] orders run at a time.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ballast_backend::GenerationGate;
use ballast_model::{
    Bytes, Capabilities, GuestId, GuestSample, GuestStats, LinkState, Measured, ProcessId,
    RunState, Timestamp,
};
use tokio::sync::oneshot;

use crate::figures::{MemoryStat, parse_amount, parse_memory_stat, parse_stalled};
use crate::note::{Limits, Note};
use crate::probe::Prober;

/// Most orders of one container that run at a time.
const WRITES_MAX: usize = 2;

/// Receives the result of an order, once the kernel has carried it out.
pub(crate) type PendingOrder = oneshot::Receiver<Result<(), String>>;

/// The figures in its files.
#[derive(Clone, Copy, Debug)]
struct CgroupFigures {
    /// Memory charged to it, without swap.
    holds: Bytes,
    limits: Limits,
    /// `memory.max`; `None`: no limit.
    max: Option<Bytes>,
    stat: MemoryStat,
    /// Its memory in swap; `None` if the kernel does not account for swap.
    swapped: Option<Bytes>,
    /// How long its tasks have waited for memory; `None` if the kernel does not report it.
    stalled: Option<Duration>,
    is_frozen: bool,
}

impl CgroupFigures {
    fn read(folder: &Path) -> Result<CgroupFigures, String> {
        let events = text(folder, "cgroup.events")?;
        Ok(CgroupFigures {
            holds: amount(folder, "memory.current")?.unwrap_or_default(),
            limits: Limits {
                high: amount(folder, "memory.high")?,
                low: amount(folder, "memory.low")?,
            },
            max: amount(folder, "memory.max")?,
            stat: parsed(folder, "memory.stat", parse_memory_stat)?,
            swapped: amount(folder, "memory.swap.current").ok().flatten(),
            stalled: parsed(folder, "memory.pressure", parse_stalled).ok(),
            is_frozen: events.split(|byte| *byte == b'\n').any(|line| line == b"frozen 1"),
        })
    }
}

fn text(folder: &Path, name: &str) -> Result<Vec<u8>, String> {
    let path = folder.join(name);
    fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
}

fn parsed<T>(
    folder: &Path,
    name: &str,
    parse: impl Fn(&[u8]) -> Result<T, String>,
) -> Result<T, String> {
    parse(&text(folder, name)?).map_err(|why| format!("{}: {why}", folder.join(name).display()))
}

fn amount(folder: &Path, name: &str) -> Result<Option<Bytes>, String> {
    parsed(folder, name, parse_amount)
}

/// A cgroup that is a guest.
#[derive(Debug)]
pub(crate) struct Container {
    folder: PathBuf,
    /// Inode of its folder: a later cgroup of the same name has another one.
    inode: u64,
    pub(crate) gate: GenerationGate,
    note: Note,
    latest: CgroupFigures,
    read_at: Timestamp,
    /// The most that it may have if it has no limit.
    memory: Option<Bytes>,
    /// Written to swap since it was found.
    swapped_out: Bytes,
    /// Its floor in the last plan, protected by `memory.low` once it is given orders.
    floor: Bytes,
    /// Whether the last plan manages it, so that it may be probed.
    takes_part: bool,
    prober: Prober,
    /// Number of orders that are running.
    writes: Arc<AtomicUsize>,
    /// The state of its probe.
    probe: Arc<AtomicUsize>,
}

impl Container {
    /// The cgroup of `folder`, whose inode is `inode`. `memory` is the most that it may have if it
    /// has no limit.
    ///
    /// # Errors
    /// It cannot be read, or nothing limits it; the text says which.
    pub(crate) fn open(
        folder: &Path,
        inode: u64,
        memory: Option<Bytes>,
        now: Timestamp,
    ) -> Result<Container, String> {
        let latest = CgroupFigures::read(folder)?;
        let container = Container {
            folder: folder.to_owned(),
            inode,
            gate: GenerationGate::default(),
            note: Note::read(folder, latest.limits),
            latest,
            read_at: now,
            memory,
            swapped_out: latest.swapped.unwrap_or_default(),
            floor: Bytes::ZERO,
            takes_part: false,
            prober: Prober::default(),
            writes: Arc::default(),
            probe: Arc::default(),
        };
        let unlimited =
            "has no memory.max: set one (systemd: MemoryMax=), or `memory` in [containers]";
        container.most().map(|_| ()).ok_or(unlimited.to_owned())?;
        Ok(container)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }

    /// Reads its files.
    ///
    /// # Errors
    /// A file cannot be read; the last figures stay, and age.
    pub(crate) fn observe(&mut self, now: Timestamp) -> Result<(), String> {
        let before = self.latest;
        self.latest = CgroupFigures::read(&self.folder)?;
        self.read_at = now;
        if let (Some(now), Some(before)) = (self.latest.swapped, before.swapped) {
            self.swapped_out = self.swapped_out.saturating_add(now.saturating_sub(before));
        }
        // While an order runs, either value may be in force.
        if self.writes.load(Ordering::Acquire) == 0 {
            self.note = self.note.observed(self.latest.limits);
        }
        Ok(())
    }

    /// The most that it may have: the lowest limit that Ballast did not set.
    fn most(&self) -> Option<Bytes> {
        let limits = [self.latest.max, self.note.found.high].into_iter().flatten();
        limits.min().or(self.memory).map(Bytes::page_floor)
    }

    /// Its sample at `now`.
    pub(crate) fn sample(&self, id: &GuestId, now: Timestamp) -> GuestSample {
        let CgroupFigures { holds, limits, stat, is_frozen, .. } = self.latest;
        let age = now.saturating_since(self.read_at);
        let most = self.most().unwrap_or(holds);
        let may_hold = limits.high.map_or(most, |high| high.min(most)).max(holds).page_floor();
        let free = may_hold.saturating_sub(holds);
        let droppable = stat.inactive_file.saturating_add(stat.slab_reclaimable).min(holds);
        let stats = GuestStats {
            total: None,
            free: Some(free),
            available: Some(free.saturating_add(droppable).min(may_hold)),
            disk_caches: Some(stat.file),
            swap_in: Some(stat.refaulted),
            swap_out: Some(self.swapped_out),
            major_faults: Some(stat.major_faults),
            minor_faults: Some(stat.minor_faults),
        };
        GuestSample {
            run_state: Some(if is_frozen { RunState::Paused } else { RunState::Running }),
            allocation: Some(Measured { value: may_hold, age }),
            boot_memory: Some(most),
            // A container has no single process: its cgroup identifies it.
            process: Some(ProcessId { pid: 0, start_ticks: self.inode }),
            resident: Some(Measured { value: holds, age }),
            overhead: Some(Bytes::ZERO),
            stats: Some(Measured { value: stats, age }),
            capabilities: Capabilities {
                balloon: Some(true),
                statistics: Some(true),
                free_page_reporting: Some(true),
                deflate_on_oom: Some(false),
                memory_devices: Some(false),
                discard_inhibited: Some(false),
                shared_control: Some(true),
            },
            ..GuestSample::unknown(id.clone(), LinkState::Up)
        }
    }

    /// Takes in the last plan: its floor, and whether it may be probed (`takes_part`). Raises or
    /// lowers `memory.low` with the floor.
    pub(crate) fn planned(&mut self, floor: Bytes, takes_part: bool) {
        (self.floor, self.takes_part) = (floor, takes_part);
        let Note { found, set, .. } = self.note;
        let low = set.high.filter(|_| set != found).and_then(|high| self.low(high));
        if low.is_some() && low != set.low {
            // If this fails, the next plan tries again.
            let _ = self.set(Limits { low, ..set });
        }
    }

    /// `memory.low` for a target: its floor, but at most the target, or the value that others have
    /// set if that is higher.
    fn low(&self, target: Bytes) -> Option<Bytes> {
        self.note.found.low.map(|low| low.max(self.floor.min(target)))
    }

    /// Sets its limits for `target`. At its maximum the limits found are restored.
    ///
    /// # Errors
    /// Nothing was set; the text says why.
    pub(crate) fn order(&mut self, target: Bytes) -> Result<PendingOrder, String> {
        let to = match self.most() {
            Some(most) if target < most => Limits { high: Some(target), low: self.low(target) },
            _ => self.note.found,
        };
        self.set(to)
    }

    /// Notes the limits, then sets them.
    fn set(&mut self, to: Limits) -> Result<PendingOrder, String> {
        if self.writes.load(Ordering::Acquire) >= WRITES_MAX {
            return Err("the kernel is still reclaiming for earlier orders".to_owned());
        }
        let Note { found, set: from, .. } = self.note;
        let note = Note { found, set: to, before: from };
        // Once the limits found are in force again, no note is needed.
        if to != found {
            note.write(&self.folder)?;
        }
        self.note = note;
        let folder = self.folder.clone();
        self.in_thread(move || {
            set_limits(&folder, from, to)?;
            if to == found { note.write(&folder) } else { Ok(()) }
        })
    }

    /// Reclaims a little of its memory, if that is due. What it needs of that is read back.
    pub(crate) fn probe(&mut self, now: Timestamp) {
        let Some(stalled) = self.latest.stalled.filter(|_| self.takes_part) else { return };
        match self.probe.load(Ordering::Acquire) {
            BEING_PROBED => return,
            CAME_SHORT => self.prober.came_short(now),
            _ => {}
        }
        self.probe.store(NOT_PROBED, Ordering::Release);
        let (holds, least) = (self.latest.holds, self.floor);
        let Some(amount) = self.prober.step(now, stalled, holds, least) else { return };
        self.probe.store(BEING_PROBED, Ordering::Release);
        let (path, state) = (self.folder.join("memory.reclaim"), Arc::clone(&self.probe));
        let reclaim = move || {
            let done = write(&path, &amount.get().to_string());
            state.store(if done.is_ok() { NOT_PROBED } else { CAME_SHORT }, Ordering::Release);
        };
        if thread::Builder::new().name("probe".to_owned()).spawn(reclaim).is_err() {
            self.probe.store(NOT_PROBED, Ordering::Release);
        }
    }

    /// Carries an order out in a thread of its own.
    fn in_thread(
        &self,
        order: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Result<PendingOrder, String> {
        let (sender, receiver) = oneshot::channel();
        let writes = Arc::clone(&self.writes);
        writes.fetch_add(1, Ordering::AcqRel);
        let body = move || {
            let result = order();
            writes.fetch_sub(1, Ordering::AcqRel);
            // If it is late, the caller no longer waits.
            let _ = sender.send(result);
        };
        match thread::Builder::new().name("container".to_owned()).spawn(body) {
            Ok(_) => Ok(receiver),
            Err(error) => {
                self.writes.fetch_sub(1, Ordering::AcqRel);
                Err(format!("no thread can be started: {error}"))
            }
        }
    }
}

/// States of a container's probe.
const NOT_PROBED: usize = 0;
const BEING_PROBED: usize = 1;
const CAME_SHORT: usize = 2;

/// Writes the limits that differ.
fn set_limits(folder: &Path, from: Limits, to: Limits) -> Result<(), String> {
    let changes = [("memory.low", from.low, to.low), ("memory.high", from.high, to.high)];
    for (name, from, to) in changes {
        if from != to {
            let path = folder.join(name);
            let text = to.map_or("max".to_owned(), |limit| limit.get().to_string());
            write(&path, &text).map_err(|error| format!("{} = {text}: {error}", path.display()))?;
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).truncate(true).open(path)?.write_all(text.as_bytes())
}
