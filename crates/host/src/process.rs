//! `/proc/<pid>/status` and `stat`: what a hypervisor process really occupies.
//!
//! Idea: a [`ProcessReader`] holds the process's `status` open. The descriptor belongs to that very
//! process, so that a reused process number reads as "vanished" and never as another's memory.
//! Cost: two `pread`s and no allocation per reading.
//! Limits: the kernel counts in batches per processor, so `resident` may be off by some hundred KiB.
//! Shared memory that was swapped out is in neither `resident` nor `swapped`.

use std::path::Path;

use ballast_model::Bytes;

use crate::ReadError;
use crate::file::KernelFile;
use crate::line::{KIB_EXPECTED, kib, number, numbered};

/// Memory of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Host memory it occupies (`VmRSS`).
    pub resident: Bytes,
    /// The private part of that (`RssAnon`); kernels before 4.5 do not say.
    pub resident_private: Option<Bytes>,
    /// The part that is shared memory, such as a guest's memfd (`RssShmem`).
    pub resident_shared: Option<Bytes>,
    /// Private memory that is swapped out (`VmSwap`).
    pub swapped: Option<Bytes>,
    /// Memory locked in place (`VmLck`): ballooning it away gains the host nothing.
    pub locked: Option<Bytes>,
}

/// The line that every process with memory of its own has.
const RESIDENT: &str = "VmRSS:";

/// Follows one process.
#[derive(Debug)]
pub struct ProcessReader {
    status: KernelFile,
    pid: u32,
    start_time: u64,
    /// Whether it was seen with memory of its own.
    had_memory: bool,
}

impl ProcessReader {
    /// Begins to follow `pid`, as seen in `proc`. `None`: there is no such process (any more).
    ///
    /// # Errors
    /// Its files are there and cannot be read or understood.
    pub fn open(proc: &Path, pid: u32) -> Result<Option<ProcessReader>, ReadError> {
        let folder = proc.join(pid.to_string());
        let mut buffer = Vec::new();
        let mut status = KernelFile::new(folder.join("status"));
        // Before `stat`, so that the start time read next is that of the same process or a later one.
        if gone_is_none(status.read(&mut buffer))?.is_none() {
            return Ok(None);
        }
        let mut stat = KernelFile::new(folder.join("stat"));
        let Some(text) = gone_is_none(stat.read(&mut buffer))? else { return Ok(None) };
        let start_time = parse_start_time(stat.path(), text)?;
        // Still the first one: then both files were of one process.
        let alive = gone_is_none(status.read(&mut buffer))?.is_some();
        Ok(alive.then_some(ProcessReader { status, pid, start_time, had_memory: false }))
    }

    /// The process's number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// When it was started, in clock ticks since the host booted: together with the number this
    /// names a process for good.
    pub fn start_time(&self) -> u64 {
        self.start_time
    }

    /// Its memory now; `buffer` is scratch space that callers keep between calls. `None`: it has
    /// ended, or ended and waits for its parent; follow no further.
    ///
    /// # Errors
    /// The file is there and cannot be read or understood.
    pub fn read(&mut self, buffer: &mut Vec<u8>) -> Result<Option<ProcessMemory>, ReadError> {
        let Some(text) = gone_is_none(self.status.read(buffer))? else { return Ok(None) };
        match parse_status(self.status.path(), text) {
            // A process that ends gives up its memory a moment before its state tells of the end.
            Err(ReadError::MissingLine { name: RESIDENT, .. }) if self.had_memory => Ok(None),
            read => {
                self.had_memory |= matches!(read, Ok(Some(_)));
                read
            }
        }
    }

    /// The file it reads.
    pub fn path(&self) -> &Path {
        self.status.path()
    }
}

/// Reading a file of a process that has ended fails with `ESRCH`.
fn gone_is_none<T>(read: Result<Option<T>, ReadError>) -> Result<Option<T>, ReadError> {
    match read {
        Err(ReadError::Io { source, .. })
            if source.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) =>
        {
            Ok(None)
        }
        other => other,
    }
}

/// Understands the text of `/proc/<pid>/status`; `path` is for errors. `None`: a process that has
/// ended and whose memory is gone.
///
/// # Errors
/// A malformed line among those wanted, or a live process without `VmRSS`.
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
            b"RssAnon" => &mut memory.resident_private,
            b"RssShmem" => &mut memory.resident_shared,
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

/// The start time in the text of `/proc/<pid>/stat`, in clock ticks since boot; `path` is for errors.
///
/// # Errors
/// The text has no 22nd field, or it is not a number.
pub fn parse_start_time(path: &Path, text: &[u8]) -> Result<u64, ReadError> {
    // The second field is the program's name in parentheses and may itself hold blanks and
    // parentheses: count from the last one. `starttime` is field 22, the 20th after the name.
    text.iter()
        .rposition(|&b| b == b')')
        .and_then(|close| {
            text[close + 1..].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).nth(19)
        })
        .and_then(number)
        .ok_or_else(|| ReadError::malformed(path, 1, text, "a start time as field 22"))
}
