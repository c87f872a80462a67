//! `/proc/<pid>/status` and `stat`: the memory a hypervisor process occupies.
//!
//! Idea: a [`ProcessReader`] holds the process's `status` open. The descriptor is bound to that
//! process: when the PID is reused, the process reads as ended and never as the new one.
//! Cost: two `pread`s and no allocation per reading.
//! Limits: the kernel counts in batches per processor, so `resident` may be off by some hundred
//! KiB. Swapped-out shared memory is in neither `resident` nor `swapped`.

use std::path::Path;

use ballast_model::Bytes;
use rustix::io::Errno;

use crate::error::ReadError;
use crate::file::KernelFile;
use crate::line::{KIB_EXPECTED, kib, number, numbered};

/// The memory of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Resident memory (`VmRSS`).
    pub resident: Bytes,
    /// All mapped memory of any kind, touched or not (`VmSize`).
    pub mapped: Option<Bytes>,
    /// The private part of `resident` (`RssAnon`, Linux 4.5 and later).
    pub resident_private: Option<Bytes>,
    /// The part in shared memory, such as a guest's memfd (`RssShmem`, Linux 4.5 and later).
    pub resident_shared: Option<Bytes>,
    /// The part in files on disks (`RssFile`, Linux 4.5 and later): the program, its libraries, and
    /// whatever files a guest was given as memory.
    pub resident_file: Option<Bytes>,
    /// Memory in huge pages of hugetlbfs, which is not in `resident` (`HugetlbPages`, Linux 4.4 and
    /// later).
    pub huge: Option<Bytes>,
    /// Private memory in swap (`VmSwap`).
    pub swapped: Option<Bytes>,
    /// Locked memory (`VmLck`): ballooning it frees nothing on the host.
    pub locked: Option<Bytes>,
}

impl ProcessMemory {
    /// The host memory that it occupies, in pages of any size. `shared`: its shared memory as
    /// counted in the files, which replaces the page table's figure, where pages may be missing.
    pub fn occupied(&self, shared: Option<Bytes>) -> Bytes {
        let mapped = self.resident.saturating_add(self.huge.unwrap_or_default());
        let Some(shared) = shared else { return mapped };
        mapped.saturating_sub(self.resident_shared.unwrap_or_default()).saturating_add(shared)
    }
}

/// A line that every process has, except kernel threads and ended processes.
const RESIDENT: &str = "VmRSS:";

/// Reads the memory of one process until it ends.
#[derive(Debug)]
pub struct ProcessReader {
    status: KernelFile,
    pid: u32,
    start_time: u64,
    /// Whether an earlier reading found memory.
    had_memory: bool,
}

impl ProcessReader {
    /// Opens process `pid` in `proc`. `None`: the process does not exist or has ended.
    ///
    /// # Errors
    /// Its files exist and cannot be read or parsed.
    pub fn open(proc: &Path, pid: u32) -> Result<Option<ProcessReader>, ReadError> {
        let folder = proc.join(pid.to_string());
        let mut buffer = Vec::new();
        let mut status = KernelFile::new(folder.join("status"));
        // Opened before `stat` and read again after it: if both reads succeed, the start time is
        // that of the process whose `status` is open.
        if gone_is_none(status.read(&mut buffer))?.is_none() {
            return Ok(None);
        }
        let mut stat = KernelFile::new(folder.join("stat"));
        let Some(text) = gone_is_none(stat.read(&mut buffer))? else { return Ok(None) };
        let start_time = parse_start_time(stat.path(), text)?;
        let alive = gone_is_none(status.read(&mut buffer))?.is_some();
        Ok(alive.then_some(ProcessReader { status, pid, start_time, had_memory: false }))
    }

    /// The PID.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The start time, in clock ticks since boot. PID and start time together identify a process.
    pub fn start_time(&self) -> u64 {
        self.start_time
    }

    /// The process's memory now; `buffer` is scratch space to keep between calls. `None`: the
    /// process has ended or is a zombie; read it no further.
    ///
    /// # Errors
    /// The file exists and cannot be read or parsed.
    pub fn read(&mut self, buffer: &mut Vec<u8>) -> Result<Option<ProcessMemory>, ReadError> {
        let Some(text) = gone_is_none(self.status.read(buffer))? else { return Ok(None) };
        match parse_status(self.status.path(), text) {
            // An ending process loses its memory shortly before its state changes.
            Err(ReadError::MissingLine { name: RESIDENT, .. }) if self.had_memory => Ok(None),
            read => {
                self.had_memory |= matches!(read, Ok(Some(_)));
                read
            }
        }
    }

    /// Path of its `status` file.
    pub fn path(&self) -> &Path {
        self.status.path()
    }
}

/// Turns `ESRCH`, the error of reading a file of an ended process, into `None`.
pub(crate) fn gone_is_none<T>(read: Result<Option<T>, ReadError>) -> Result<Option<T>, ReadError> {
    match read {
        Err(error) if error.is(Errno::SRCH) => Ok(None),
        other => other,
    }
}

/// Parses the text of `/proc/<pid>/status`; `path` is for error messages. `None`: a zombie, whose
/// memory is gone.
///
/// # Errors
/// A line used here is malformed, or a live process has no `VmRSS`.
pub fn parse_status(path: &Path, text: &[u8]) -> Result<Option<ProcessMemory>, ReadError> {
    let mut memory = ProcessMemory::default();
    let mut resident = None;
    let mut ended = false;
    for (number, line) in numbered(text) {
        let Some(colon) = line.iter().position(|&b| b == b':') else { continue };
        let value = &line[colon + 1..];
        let field = match &line[..colon] {
            b"State" => {
                ended = matches!(value.trim_ascii().first(), Some(b'Z' | b'X'));
                continue;
            }
            b"VmRSS" => &mut resident,
            b"VmSize" => &mut memory.mapped,
            b"RssAnon" => &mut memory.resident_private,
            b"RssShmem" => &mut memory.resident_shared,
            b"RssFile" => &mut memory.resident_file,
            b"HugetlbPages" => &mut memory.huge,
            b"VmSwap" => &mut memory.swapped,
            b"VmLck" => &mut memory.locked,
            _ => continue,
        };
        let value =
            kib(value).ok_or_else(|| ReadError::malformed(path, number, line, KIB_EXPECTED))?;
        *field = Some(value);
    }
    match resident {
        Some(resident) => Ok(Some(ProcessMemory { resident, ..memory })),
        None if ended => Ok(None),
        None => Err(ReadError::missing_line(
            path,
            RESIDENT,
            "a process with memory of its own, not a kernel thread",
        )),
    }
}

/// Parses the start time, in clock ticks since boot, from the text of `/proc/<pid>/stat`; `path` is
/// for error messages.
///
/// # Errors
/// Field 22 is missing or not a number.
pub fn parse_start_time(path: &Path, text: &[u8]) -> Result<u64, ReadError> {
    // The second field is the program's name in parentheses, which may itself contain blanks and
    // parentheses: count from the last one. `starttime` is field 22, the 20th after the name.
    let close = text.iter().rposition(|&b| b == b')');
    let after = close.map_or(&[][..], |close| &text[close + 1..]);
    let mut fields = after.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    fields
        .nth(19)
        .and_then(number)
        .ok_or_else(|| ReadError::malformed(path, 1, text, "a start time as field 22"))
}
