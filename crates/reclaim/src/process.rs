//! One hypervisor process, and no other.
//!
//! Idea: a number of a process is given to another one some time after its end. A descriptor of its folder in `/proc`
//! and a pidfd belong to that very process for good; both are opened once, and all else goes through them. When
//! it was started is compared with what the caller knows.
//!
//! Source: pidfd_open(2), proc_pid_stat(5).
//! Limits: files are read up to [`READ_BYTES_MAX`].

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use ballast_model::{Bytes, PAGE_SIZE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open, openat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::Refusal;
use crate::line::{KIB_EXPECTED, decimal, kib, malformed, numbered};
use crate::maps::{Totals, parse_totals};

/// No file is read beyond this: 65,530 mappings, as many as a process may have, of 120 bytes each.
const READ_BYTES_MAX: u64 = 8 << 20;

/// A hypervisor's process, for as long as it lives.
#[derive(Debug)]
pub struct Vmm {
    pid: u32,
    start_time: u64,
    path: PathBuf,
    folder: OwnedFd,
    pidfd: OwnedFd,
}

impl Vmm {
    /// The process `pid` of `proc` (`/proc` on every ordinary host). Where `start_time` is told, in clock ticks since
    /// boot as in its `stat`, it must be that of the process.
    ///
    /// # Errors
    /// [`Refusal::Gone`], [`Refusal::Reused`], [`Refusal::Permission`], [`Refusal::KernelTooOld`],
    /// [`Refusal::PageSize`] or [`Refusal::Unreadable`].
    pub fn open(proc: &Path, pid: u32, start_time: Option<u64>) -> Result<Vmm, Refusal> {
        let found = Bytes::new(rustix::param::page_size() as u64);
        if found != Bytes::new(PAGE_SIZE) {
            return Err(Refusal::PageSize { found });
        }
        let path = proc.join(pid.to_string());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(&path, flags, Mode::empty())
            .map_err(|error| Refusal::of_process(pid, &path, "look at it", error))?;
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Refusal::Gone { pid })?;
        let pidfd = pidfd_open(raw, PidfdFlags::empty()).map_err(|error| match error {
            Errno::NOSYS => Refusal::KernelTooOld { call: "pidfd_open", since: "5.3" },
            error => Refusal::of_process(pid, &path, "name it", error),
        })?;
        let mut vmm = Vmm { pid, start_time: 0, path, folder, pidfd };
        // Read through the folder, after the pidfd was made: while this can be read, both are of one process.
        let stat = vmm.read("stat")?;
        vmm.start_time = parse_start_time(&stat)
            .map_err(|why| Refusal::unreadable(&vmm.path.join("stat"), why))?;
        match start_time.filter(|&expected| expected != vmm.start_time) {
            Some(expected) => Err(Refusal::Reused { pid, expected, found: vmm.start_time }),
            None => Ok(vmm),
        }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// When it was started, in clock ticks since the host booted.
    pub fn start_time(&self) -> u64 {
        self.start_time
    }

    /// Whether it has not ended.
    pub fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        // A pidfd is readable once its process has ended.
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
    }

    /// What its whole memory adds up to. Walks its page tables: about 10 ms for each resident GiB.
    ///
    /// # Errors
    /// [`Refusal::Gone`], [`Refusal::Permission`] or [`Refusal::Unreadable`].
    pub fn totals(&self) -> Result<Totals, Refusal> {
        let name = if self.open_file("smaps_rollup", OFlags::RDONLY).is_ok() {
            "smaps_rollup"
        } else {
            // Kernels before 4.14 have but this.
            "smaps"
        };
        let text = self.read(name)?;
        if text.is_empty() {
            return Err(Refusal::Gone { pid: self.pid });
        }
        parse_totals(&text).map_err(|why| Refusal::unreadable(&self.path.join(name), why))
    }

    /// Memory it has in its page tables, by the kernel's count (`VmRSS`), which anybody may read: some hundred KiB off, as
    /// that is kept for each processor.
    ///
    /// # Errors
    /// [`Refusal::Gone`] or [`Refusal::Unreadable`].
    pub fn resident(&self) -> Result<Bytes, Refusal> {
        let text = self.read("status")?;
        let resident = parse_resident(&text)
            .map_err(|why| Refusal::unreadable(&self.path.join("status"), why))?;
        // A process that ends has no memory any more, and is there still.
        resident.ok_or(Refusal::Gone { pid: self.pid })
    }

    pub(crate) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a file of its folder.
    pub(crate) fn open_file(&self, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        openat(&self.folder, name, flags | OFlags::CLOEXEC, Mode::empty())
    }

    /// As [`Vmm::open_file`], with what it was wanted for in the refusal.
    pub(crate) fn open_for(&self, name: &str, what: &'static str) -> Result<OwnedFd, Refusal> {
        self.open_file(name, OFlags::RDONLY)
            .map_err(|error| Refusal::of_process(self.pid, &self.path.join(name), what, error))
    }

    /// The text of a file of its folder. Empty for some files of a process that has ended and waits for its parent.
    pub(crate) fn read(&self, name: &str) -> Result<Vec<u8>, Refusal> {
        let path = self.path.join(name);
        let file = File::from(self.open_for(name, "look at its memory")?);
        let mut text = Vec::new();
        file.take(READ_BYTES_MAX + 1).read_to_end(&mut text).map_err(|error| {
            let error = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Refusal::of_process(self.pid, &path, "look at its memory", error)
        })?;
        if text.len() as u64 > READ_BYTES_MAX {
            let why = format!(
                "longer than {READ_BYTES_MAX} bytes: expected a shorter file of the kernel"
            );
            return Err(Refusal::unreadable(&path, why));
        }
        Ok(text)
    }
}

/// The start time in the text of `/proc/PID/stat`, in clock ticks since boot.
///
/// # Errors
/// The text has no 22nd field, or it is no number.
pub fn parse_start_time(text: &[u8]) -> Result<u64, String> {
    // The second field, a name in parentheses, may itself hold blanks and parentheses: from the last one on,
    // `starttime` is the 20th.
    let close = text.iter().rposition(|&b| b == b')');
    let mut after =
        close.map_or(&[][..], |close| &text[close + 1..]).split(u8::is_ascii_whitespace);
    let field = after.by_ref().filter(|word| !word.is_empty()).nth(19);
    field.and_then(decimal).ok_or_else(|| malformed(1, text, "a start time as field 22"))
}

/// `VmRSS` in the text of `/proc/PID/status`; `None` for a process without memory.
fn parse_resident(text: &[u8]) -> Result<Option<Bytes>, String> {
    let found =
        numbered(text).find_map(|(at, line)| Some((at, line, line.strip_prefix(b"VmRSS:")?)));
    let Some((at, line, value)) = found else { return Ok(None) };
    kib(value).map(Some).ok_or_else(|| malformed(at, line, KIB_EXPECTED))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    const PROC: &str = "/proc";

    #[test]
    fn start_times_are_after_the_name_whatever_that_is() {
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
    fn what_a_process_has_is_found_among_its_status() {
        let text = b"Name:\tVmRSS: 9 kB\nVmHWM:\t   12 kB\nVmRSS:\t   8 kB\n";
        assert_eq!(parse_resident(text), Ok(Some(Bytes::kib(8))));
        assert_eq!(parse_resident(b"Name:\tx\nState:\tZ (zombie)\n"), Ok(None));
        let why = parse_resident(b"Name:\tx\nVmRSS:\t-8 kB\n").unwrap_err();
        assert!(why.starts_with("line 2: `VmRSS: -8 kB`: expected a whole number"), "{why}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text: Vec<u8>, words in "[0-9 ()]{0,80}") {
            let _ = parse_resident(&text);
            let _ = parse_start_time(&text);
            let _ = parse_start_time(words.as_bytes());
        }
    }

    #[test]
    fn a_process_is_told_from_another_of_its_number_and_its_end_is_seen() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let open = |start| Vmm::open(Path::new(PROC), child.id(), start);
        let vmm = open(None).unwrap();
        assert!(vmm.is_alive());
        let start = vmm.start_time();
        assert_eq!(open(Some(start)).unwrap().start_time(), start);
        let found = open(Some(start + 1)).unwrap_err();
        assert_eq!(found, Refusal::Reused { pid: child.id(), expected: start + 1, found: start });
        assert!(vmm.totals().unwrap().resident > Bytes::ZERO);
        assert!(vmm.resident().unwrap() > Bytes::ZERO);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!vmm.is_alive());
        assert_eq!(vmm.totals(), Err(Refusal::Gone { pid: child.id() }));
        assert_eq!(vmm.resident(), Err(Refusal::Gone { pid: child.id() }));
        assert_eq!(vmm.read("maps"), Err(Refusal::Gone { pid: child.id() }));
    }

    #[test]
    fn what_is_no_process_is_gone() {
        for pid in [u32::MAX, i32::MAX as u32, 0] {
            assert_eq!(Vmm::open(Path::new(PROC), pid, None).unwrap_err(), Refusal::Gone { pid });
        }
    }
}
