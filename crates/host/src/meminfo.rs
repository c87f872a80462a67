//! `/proc/meminfo`: how much memory the host has, and how much of it could be handed out.
//!
//! Limits: reads the lines Ballast decides by and leaves the others alone.

use std::path::Path;

use ballast_model::Bytes;

use crate::ReadError;
use crate::file::read_once;
use crate::line::{KIB_EXPECTED, kib, numbered};

/// The lines of `/proc/meminfo` that matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemInfo {
    /// Memory the kernel manages (`MemTotal`).
    pub total: Bytes,
    /// Memory that could be handed out without swapping (`MemAvailable`); kernels before 3.14 do
    /// not say.
    pub available: Option<Bytes>,
    /// Swap configured (`SwapTotal`).
    pub swap_total: Option<Bytes>,
    /// Swap not in use (`SwapFree`).
    pub swap_free: Option<Bytes>,
}

/// Reads `meminfo` in `proc`.
///
/// # Errors
/// The file cannot be read, has a malformed line among those wanted, or no `MemTotal`.
pub fn read_meminfo(proc: &Path) -> Result<MemInfo, ReadError> {
    let (path, text) = read_once(proc.join("meminfo"))?;
    parse_meminfo(&path, &text)
}

/// Understands the text of `/proc/meminfo`; `path` is for errors.
///
/// # Errors
/// A malformed line among those wanted, or no `MemTotal`.
pub fn parse_meminfo(path: &Path, text: &[u8]) -> Result<MemInfo, ReadError> {
    let mut info = MemInfo::default();
    let mut total = None;
    for (number, line) in numbered(text) {
        let Some(colon) = line.iter().position(|&b| b == b':') else { continue };
        let field = match &line[..colon] {
            b"MemTotal" => &mut total,
            b"MemAvailable" => &mut info.available,
            b"SwapTotal" => &mut info.swap_total,
            b"SwapFree" => &mut info.swap_free,
            _ => continue,
        };
        let value = kib(&line[colon + 1..])
            .ok_or_else(|| ReadError::malformed(path, number, line, KIB_EXPECTED))?;
        *field = Some(value);
    }
    info.total = total.ok_or_else(|| ReadError::missing_line(path, "MemTotal:", KIB_EXPECTED))?;
    Ok(info)
}
