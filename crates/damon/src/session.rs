//! Use of DAMON by one program: set-up, reading, and removal.
//!
//! Idea: one kdamond has one context with the operations `fvaddr` (virtual addresses, fixed
//! regions) and a target for each guest. A window is one sample: the sampling and the aggregation
//! interval are the same, so the kernel clears a page's accessed bit at the window's start and
//! checks it at the end. The results come through the event `damon_aggregated`, in a tracefs
//! instance of our own. The minimum and the maximum number of regions are the same, so that the
//! kernel neither merges nor splits regions.
//!
//! The event is used rather than `tried_regions` of a scheme: that needs Linux 6.2 (Debian 12 has
//! 6.1), it has a folder of four files for each page and window, and it must be requested, while
//! the event comes by itself. A scheme's `sz_tried`, which 6.1 has, is one sum over all guests.
//!
//! When the set of guests changes, the kdamond is stopped and set up again, and its window in
//! progress is lost.
//!
//! Cost: two small files to write per page when guests change; a kernel buffer of 128 bytes per
//! page, for each processor of the host.
//! Source: Linux, mm/damon/sysfs.c, mm/damon/vaddr.c.
//! Limits: [`SAMPLES_MAX`] pages, windows of [`WINDOW_MIN`] and more: newer kernels do not flush
//! translations when they clear accessed bits, so a page in use may look idle for a shorter time.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

use crate::error::DamonError;
use crate::ownership::{SIGNATURE_US, claim, release};
use crate::paths::{DamonPaths, read, read_number, write};
use crate::window::{DamonTarget, DamonWindow, WindowReader};

/// Most pages sampled of all guests together: 16 guests with 1,024 each.
pub const SAMPLES_MAX: usize = 1 << 14;
/// Fewest pages that DAMON accepts.
const SAMPLES_MIN: usize = 3;
/// Shortest window.
pub const WINDOW_MIN: Duration = Duration::from_secs(1);
/// The name of our tracefs instance.
const INSTANCE: &str = "ballast-damon";
/// Space that one event takes in the kernel's buffer, in bytes, rounded up.
const EVENT_BYTES: usize = 64;
/// Smallest buffer for each processor, in KiB.
const BUFFER_KIB_MIN: usize = 64;
/// Bytes per read, and most reads before returning to the caller.
const PIECE_BYTES: usize = 1 << 16;
const PIECES_MAX: usize = 64;

/// Exclusive use of DAMON by this program. Dropping it leaves nothing behind.
#[derive(Debug)]
pub struct DamonSession {
    paths: DamonPaths,
    instance: PathBuf,
    running: Option<RunningSession>,
    /// The file that is locked while it is open.
    _lock: File,
}

/// A kdamond that was turned on.
#[derive(Debug)]
struct RunningSession {
    pipe: File,
    reader: WindowReader,
}

impl DamonSession {
    /// Takes DAMON into use, after stopping a kdamond that a killed program of Ballast left.
    ///
    /// # Errors
    /// The kernel lacks something, or DAMON is in use. Nothing is changed then.
    pub fn begin(paths: DamonPaths) -> Result<DamonSession, DamonError> {
        if read(&paths.lockdown).is_ok_and(|text| text.contains("[confidentiality]")) {
            return Err(DamonError::Lockdown);
        }
        let count = paths.kdamonds.join("nr_kdamonds");
        if !count.exists() {
            return Err(DamonError::Absent(count));
        }
        let tracing = mounted_tracefs(&paths)?;
        let (event, instances) =
            (tracing.join("events/damon/damon_aggregated"), tracing.join("instances"));
        if !event.is_dir() {
            return Err(DamonError::NoTracepoint(event));
        }
        let lock = claim(&paths)?;
        let instance = instances.join(INSTANCE);
        match fs::create_dir(&instance) {
            Ok(()) => {}
            // The instance was left by a killed daemon; its records are dropped before use.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(DamonError::system("create", &instance)(error)),
        }
        Ok(DamonSession { paths, instance, running: None, _lock: lock })
    }

    /// Checks by trying that DAMON can be taken into use now. Leaves nothing behind.
    ///
    /// # Errors
    /// Those of [`DamonSession::begin`] and [`DamonError::Operations`].
    pub fn probe(paths: DamonPaths) -> Result<(), DamonError> {
        let session = DamonSession::begin(paths)?;
        let created = session.create_context();
        let released = release(&session.paths);
        created.and(released)
    }

    /// Samples these guests from now on, in place of those before, window by window.
    ///
    /// # Errors
    /// [`DamonError::Samples`]; a guest is gone, or the kernel refuses. No guest is sampled then.
    pub fn watch(&mut self, targets: &[DamonTarget], window: Duration) -> Result<(), DamonError> {
        self.stop();
        let samples: usize = targets.iter().map(|target| target.pages.len()).sum();
        if !(SAMPLES_MIN..=SAMPLES_MAX).contains(&samples) {
            return Err(DamonError::Samples(samples));
        }
        let begun = self.set_up(targets, window, samples);
        if begun.is_err() {
            let _ = release(&self.paths);
        }
        self.running = Some(begun?);
        Ok(())
    }

    /// Changes the length of windows to `window`, with the same pages. The window in progress is
    /// lost. Does nothing while no guest is sampled.
    ///
    /// # Errors
    /// A guest is gone, or the kernel refuses. No guest is sampled then.
    pub fn set_window(&mut self, window: Duration) -> Result<(), DamonError> {
        if self.running.is_none() {
            return Ok(());
        }
        // The files keep the regions, which are the larger part of a set-up.
        let changed = write(&self.kdamond().join("state"), "off")
            .and_then(|()| write_window(&self.kdamond().join("contexts/0"), window))
            .and_then(|()| self.turn_on());
        if changed.is_err() {
            self.stop();
        }
        changed
    }

    /// Returns the windows that have ended since the last call, one per guest and window. Does not
    /// wait.
    ///
    /// # Errors
    /// [`DamonError::Stopped`], or an error of the kernel.
    pub fn read(&mut self) -> Result<Vec<DamonWindow>, DamonError> {
        let mut windows = Vec::new();
        let Some(RunningSession { pipe, reader }) = &mut self.running else { return Ok(windows) };
        let mut piece = vec![0; PIECE_BYTES];
        for _ in 0..PIECES_MAX {
            match pipe.read(&mut piece) {
                Ok(0) => break,
                Ok(len) => reader.read(&piece[..len], &mut windows),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => {
                    return Err(DamonError::system("read", &self.instance.join("trace_pipe"))(
                        error,
                    ));
                }
            }
        }
        let is_on = read(&self.kdamond().join("state")).is_ok_and(|state| state == "on");
        if is_on || !windows.is_empty() { Ok(windows) } else { Err(DamonError::Stopped) }
    }

    /// Processor time of the kdamond since it was turned on; `None` if unknown.
    pub fn cost(&self) -> Option<Duration> {
        self.running.as_ref()?;
        let pid = read_number(&self.kdamond().join("pid")).ok()?;
        let text = read(&self.paths.proc.join(format!("{pid}/schedstat"))).ok()?;
        text.split_ascii_whitespace().next()?.parse().ok().map(Duration::from_nanos)
    }

    fn set_up(
        &self,
        targets: &[DamonTarget],
        window: Duration,
        samples: usize,
    ) -> Result<RunningSession, DamonError> {
        let context = self.create_context()?;
        let set = |name: &str, value: u64| write(&context.join(name), &value.to_string());
        write_window(&context, window)?;
        set("monitoring_attrs/nr_regions/min", samples as u64)?;
        set("monitoring_attrs/nr_regions/max", samples as u64)?;
        set("targets/nr_targets", targets.len() as u64)?;
        for (number, target) in targets.iter().enumerate() {
            set_up_target(&context.join(format!("targets/{number}")), target)?;
        }
        let pipe = self.trace(samples)?;
        self.turn_on()?;
        Ok(RunningSession { pipe, reader: WindowReader::new(targets) })
    }

    fn kdamond(&self) -> PathBuf {
        self.paths.kdamonds.join("0")
    }

    fn turn_on(&self) -> Result<(), DamonError> {
        write(&self.kdamond().join("state"), "on").map_err(|error| match error {
            DamonError::System { source, .. } if source.kind() == ErrorKind::ResourceBusy => {
                DamonError::Kernel
            }
            other => other,
        })
    }

    /// Creates the kdamond's context, signed and for chosen addresses. Returns its folder.
    fn create_context(&self) -> Result<PathBuf, DamonError> {
        let kdamond = self.kdamond();
        let context = kdamond.join("contexts/0");
        write(&self.paths.kdamonds.join("nr_kdamonds"), "1")?;
        write(&kdamond.join("contexts/nr_contexts"), "1")?;
        let update = context.join("monitoring_attrs/intervals/update_us");
        write(&update, &SIGNATURE_US.to_string())?;
        let operations = read(&context.join("avail_operations"))?;
        if !operations.split_ascii_whitespace().any(|it| it == "fvaddr") {
            return Err(DamonError::Operations(operations.replace('\n', " ")));
        }
        write(&context.join("operations"), "fvaddr")?;
        Ok(context)
    }

    /// Begins to record DAMON's events, in an empty buffer.
    fn trace(&self, samples: usize) -> Result<File, DamonError> {
        let instance = |name: &str| self.instance.join(name);
        // The kernel reports all regions at once: the buffer must hold two whole windows.
        let kib = (2 * samples * EVENT_BYTES).div_ceil(1024).max(BUFFER_KIB_MIN);
        write(&instance("tracing_on"), "0")?;
        write(&instance("buffer_size_kb"), &kib.to_string())?;
        write(&instance("trace"), "")?;
        write(&instance("events/damon/damon_aggregated/enable"), "1")?;
        write(&instance("tracing_on"), "1")?;
        let path = instance("trace_pipe");
        let mut options = File::options();
        options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
        options.open(&path).map_err(DamonError::system("open", &path))
    }

    /// Stops sampling. Errors are ignored, because the next step reports them.
    pub fn stop(&mut self) {
        if self.running.take().is_some() {
            let _ = release(&self.paths);
            let _ = write(&self.instance.join("events/damon/damon_aggregated/enable"), "0");
        }
    }
}

impl Drop for DamonSession {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir(&self.instance);
    }
}

/// The place where tracefs is mounted.
fn mounted_tracefs(paths: &DamonPaths) -> Result<&Path, DamonError> {
    let [first, _] = &paths.tracing;
    match paths.tracing.iter().find(|it| it.join("instances").is_dir()) {
        Some(mounted) => Ok(mounted),
        // Only root may list tracefs.
        None => match fs::read_dir(first) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                Err(DamonError::system("read", first)(error))
            }
            _ => Err(DamonError::NoTracefs(first.clone())),
        },
    }
}

/// A window is one sample: the two intervals are the same.
fn write_window(context: &Path, window: Duration) -> Result<(), DamonError> {
    let window_us = u64::try_from(window.max(WINDOW_MIN).as_micros()).unwrap_or(u64::MAX);
    for name in ["sample_us", "aggr_us"] {
        write(&context.join("monitoring_attrs/intervals").join(name), &window_us.to_string())?;
    }
    Ok(())
}

fn set_up_target(folder: &Path, target: &DamonTarget) -> Result<(), DamonError> {
    use ballast_model::PAGE_SIZE;
    write(&folder.join("pid_target"), &target.pid.to_string())?;
    let regions = folder.join("regions");
    write(&regions.join("nr_regions"), &target.pages.len().to_string())?;
    for (number, page) in target.pages.iter().enumerate() {
        let region = regions.join(number.to_string());
        write(&region.join("start"), &page.to_string())?;
        write(&region.join("end"), &(page + PAGE_SIZE).to_string())?;
    }
    Ok(())
}
