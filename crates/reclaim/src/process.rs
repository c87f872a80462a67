//! A hypervisor process, safe against PID reuse.
//!
//! Idea: the kernel reuses PIDs. A descriptor of the process's `/proc` folder and a pidfd stay
//! bound to one process; both are opened once, and everything else goes through them. The start
//! time is compared with the one the caller knows.
//!
//! Source: pidfd_open(2), proc_pid_stat(5).
//! Limits: files of at most [`READ_BYTES_MAX`] bytes.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use ballast_model::{Bytes, PAGE_SIZE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open, openat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::error::ReclaimError;
use crate::line::{KIB_EXPECTED, decimal, kib, malformed, numbered};
use crate::maps::{SmapsTotals, parse_smaps};

/// Longest file accepted: 65,530 mappings, the most a process may have, of 120 bytes each.
const READ_BYTES_MAX: u64 = 8 << 20;

/// A hypervisor process.
#[derive(Debug)]
pub struct VmmProcess {
    pid: u32,
    start_time: u64,
    path: PathBuf,
    folder: OwnedFd,
    pidfd: OwnedFd,
}

impl VmmProcess {
    /// Opens process `pid` of `proc` (usually `/proc`). If `start_time` is given (in clock ticks
    /// since boot, as in `stat`), it must match the process.
    ///
    /// # Errors
    /// [`ReclaimError::Gone`], [`ReclaimError::Reused`], [`ReclaimError::Permission`],
    /// [`ReclaimError::KernelTooOld`], [`ReclaimError::PageSize`] or [`ReclaimError::Unreadable`].
    pub fn open(
        proc: &Path,
        pid: u32,
        start_time: Option<u64>,
    ) -> Result<VmmProcess, ReclaimError> {
        let found = Bytes::new(rustix::param::page_size() as u64);
        if found != Bytes::new(PAGE_SIZE) {
            return Err(ReclaimError::PageSize { found });
        }
        let path = proc.join(pid.to_string());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(&path, flags, Mode::empty()).map_err(|error| {
            ReclaimError::of_process(pid, &path, "open its /proc folder", error)
        })?;
        let raw =
            i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(ReclaimError::Gone { pid })?;
        let pidfd = pidfd_open(raw, PidfdFlags::empty()).map_err(|error| match error {
            Errno::NOSYS => ReclaimError::KernelTooOld { call: "pidfd_open", since: "5.3" },
            error => ReclaimError::of_process(pid, &path, "open a pidfd", error),
        })?;
        let mut vmm = VmmProcess { pid, start_time: 0, path, folder, pidfd };
        // Read through the folder after opening the pidfd: if this succeeds, both belong to the
        // same process.
        let stat = vmm.read("stat")?;
        vmm.start_time = parse_start_time(&stat)
            .map_err(|why| ReclaimError::unreadable(&vmm.path.join("stat"), why))?;
        match start_time {
            Some(expected) if expected != vmm.start_time => {
                Err(ReclaimError::Reused { pid, expected, found: vmm.start_time })
            }
            _ => Ok(vmm),
        }
    }

    /// The PID.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The start time, in clock ticks since boot.
    pub fn start_time(&self) -> u64 {
        self.start_time
    }

    /// Whether the process has not ended.
    pub fn is_alive(&self) -> bool {
        // A pidfd becomes readable when its process ends.
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
    }

    /// Sums up its memory from `smaps_rollup`. The kernel walks the page tables: about 10 ms for
    /// each resident GiB.
    ///
    /// # Errors
    /// [`ReclaimError::Gone`], [`ReclaimError::Permission`] or [`ReclaimError::Unreadable`].
    pub fn totals(&self) -> Result<SmapsTotals, ReclaimError> {
        let name = if self.open_file("smaps_rollup", OFlags::RDONLY).is_ok() {
            "smaps_rollup"
        } else {
            // Kernels before 4.14.
            "smaps"
        };
        let text = self.read(name)?;
        if text.is_empty() {
            return Err(ReclaimError::Gone { pid: self.pid });
        }
        parse_smaps(&text).map_err(|why| ReclaimError::unreadable(&self.path.join(name), why))
    }

    /// Memory in its page tables (`VmRSS`), which any user may read. Off by some hundred KiB,
    /// because the kernel counts per processor.
    ///
    /// # Errors
    /// [`ReclaimError::Gone`] or [`ReclaimError::Unreadable`].
    pub fn resident(&self) -> Result<Bytes, ReclaimError> {
        let text = self.read("status")?;
        let resident = parse_resident(&text)
            .map_err(|why| ReclaimError::unreadable(&self.path.join("status"), why))?;
        // An ending process still exists and has no memory any more.
        resident.ok_or(ReclaimError::Gone { pid: self.pid })
    }

    pub(crate) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a file in its `/proc` folder.
    pub(crate) fn open_file(&self, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        openat(&self.folder, name, flags | OFlags::CLOEXEC, Mode::empty())
    }

    /// As [`VmmProcess::open_file`]; an error says `what` was attempted.
    pub(crate) fn open_for(&self, name: &str, what: &'static str) -> Result<OwnedFd, ReclaimError> {
        self.open_file(name, OFlags::RDONLY)
            .map_err(|error| ReclaimError::of_process(self.pid, &self.path.join(name), what, error))
    }

    /// Reads a file in its `/proc` folder, of at most 8 MiB. Some files of a zombie are empty.
    ///
    /// # Errors
    /// [`ReclaimError::Gone`], [`ReclaimError::Permission`], or [`ReclaimError::Unreadable`] if it
    /// is longer or cannot be read.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, ReclaimError> {
        let path = self.path.join(name);
        let file = File::from(self.open_for(name, "inspect its memory")?);
        let mut text = Vec::new();
        file.take(READ_BYTES_MAX + 1).read_to_end(&mut text).map_err(|error| {
            let error = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            ReclaimError::of_process(self.pid, &path, "inspect its memory", error)
        })?;
        if text.len() as u64 > READ_BYTES_MAX {
            let why = format!("longer than {READ_BYTES_MAX} bytes: expected a shorter kernel file");
            return Err(ReclaimError::unreadable(&path, why));
        }
        Ok(text)
    }
}

/// Parses the start time, in clock ticks since boot, from the text of `/proc/PID/stat`.
///
/// # Errors
/// Field 22 is missing or not a number.
pub fn parse_start_time(text: &[u8]) -> Result<u64, String> {
    // The second field is a name in parentheses that may itself contain blanks and parentheses:
    // count from the last one. `starttime` is field 22, the 20th after the name.
    let close = text.iter().rposition(|&b| b == b')');
    let after = close.map_or(&[][..], |close| &text[close + 1..]);
    let mut fields = after.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let start_time = fields.nth(19).and_then(decimal);
    start_time.ok_or_else(|| malformed(1, text, "a start time as field 22"))
}

/// Parses `VmRSS` in the text of `/proc/PID/status`; `None` for a process without memory.
fn parse_resident(text: &[u8]) -> Result<Option<Bytes>, String> {
    for (at, line) in numbered(text) {
        if let Some(value) = line.strip_prefix(b"VmRSS:") {
            return kib(value).map(Some).ok_or_else(|| malformed(at, line, KIB_EXPECTED));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    const PROC: &str = "/proc";

    #[test]
    fn start_time_is_found_after_any_process_name() {
        let stat = |name: &str| {
            format!("42 ({name}) S 1 42 42 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 5 0 123456 1000 2 3\n")
        };
        for name in ["qemu", "a) b (c", ") 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 9 9 9 9", ""] {
            assert_eq!(parse_start_time(stat(name).as_bytes()), Ok(123_456), "{name}");
        }
        for text in ["", "42 (qemu) S 1", &stat("x").replace("123456", "-1")] {
            let why = parse_start_time(text.as_bytes()).unwrap_err();
            assert!(why.contains("expected a start time as field 22"), "{why}");
        }
    }

    #[test]
    fn resident_memory_is_parsed_from_status() {
        let text = b"Name:\tVmRSS: 9 kB\nVmHWM:\t   12 kB\nVmRSS:\t   8 kB\n";
        assert_eq!(parse_resident(text), Ok(Some(Bytes::kib(8))));
        assert_eq!(parse_resident(b"Name:\tx\nState:\tZ (zombie)\n"), Ok(None));
        let why = parse_resident(b"Name:\tx\nVmRSS:\t-8 kB\n").unwrap_err();
        assert!(why.starts_with("line 2: `VmRSS: -8 kB`: expected a whole number"), "{why}");
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_rejected(text: Vec<u8>, words in "[0-9 ()]{0,80}") {
            let _ = parse_resident(&text);
            let _ = parse_start_time(&text);
            let _ = parse_start_time(words.as_bytes());
        }
    }

    #[test]
    fn a_reused_pid_and_an_ended_process_are_detected() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let open = |start| VmmProcess::open(Path::new(PROC), child.id(), start);
        let vmm = open(None).unwrap();
        assert!(vmm.is_alive());
        let start = vmm.start_time();
        assert_eq!(open(Some(start)).unwrap().start_time(), start);
        let found = open(Some(start + 1)).unwrap_err();
        assert_eq!(
            found,
            ReclaimError::Reused { pid: child.id(), expected: start + 1, found: start }
        );
        assert!(vmm.totals().unwrap().resident > Bytes::ZERO);
        assert!(vmm.resident().unwrap() > Bytes::ZERO);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!vmm.is_alive());
        assert_eq!(vmm.totals(), Err(ReclaimError::Gone { pid: child.id() }));
        assert_eq!(vmm.resident(), Err(ReclaimError::Gone { pid: child.id() }));
        assert_eq!(vmm.read("maps"), Err(ReclaimError::Gone { pid: child.id() }));
    }

    #[test]
    fn a_pid_without_a_process_is_gone() {
        for pid in [u32::MAX, i32::MAX as u32, 0] {
            assert_eq!(
                VmmProcess::open(Path::new(PROC), pid, None).unwrap_err(),
                ReclaimError::Gone { pid }
            );
        }
    }
}
