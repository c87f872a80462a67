//! `/proc/vmstat`: what the host's own memory management did since boot.
//!
//! Limits: counters that this kernel does not have are `None`; they wrap at 64 bits.

use std::path::Path;

use ballast_model::Bytes;

use crate::ReadError;
use crate::file::read_once;
use crate::line::{number, numbered};

/// Counters since the host booted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmCounters {
    /// Faults that waited for a disk (`pgmajfault`).
    pub major_faults: Option<u64>,
    /// Memory read back from swap (`pswpin`).
    pub swap_in: Option<Bytes>,
    /// Memory written to swap (`pswpout`).
    pub swap_out: Option<Bytes>,
    /// Processes killed for lack of memory (`oom_kill`).
    pub oom_kills: Option<u64>,
}

/// Reads `vmstat` in `proc`.
///
/// # Errors
/// The file cannot be read, or has a malformed line among those wanted.
pub fn read_vmstat(proc: &Path) -> Result<VmCounters, ReadError> {
    let (path, text) = read_once(proc.join("vmstat"))?;
    parse_vmstat(&path, &text)
}

/// Understands the text of `/proc/vmstat`; `path` is for errors.
///
/// # Errors
/// A malformed line among those wanted.
pub fn parse_vmstat(path: &Path, text: &[u8]) -> Result<VmCounters, ReadError> {
    let mut counters = VmCounters::default();
    // The kernel counts in its own pages, which need not be a guest's.
    let page = rustix::param::page_size() as u64;
    for (at, line) in numbered(text) {
        let blank = line.iter().position(|&b| b == b' ').unwrap_or(line.len());
        let name = &line[..blank];
        if !matches!(name, b"pgmajfault" | b"pswpin" | b"pswpout" | b"oom_kill") {
            continue;
        }
        let value = number(line[blank..].trim_ascii())
            .ok_or_else(|| ReadError::malformed(path, at, line, "a whole number after the name"))?;
        let pages = || Some(Bytes::new(value.saturating_mul(page)));
        match name {
            b"pgmajfault" => counters.major_faults = Some(value),
            b"pswpin" => counters.swap_in = pages(),
            b"pswpout" => counters.swap_out = pages(),
            _ => counters.oom_kills = Some(value),
        }
    }
    Ok(counters)
}
