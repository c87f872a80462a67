//! `/proc/meminfo`: the host's total, available and swap memory.
//!
//! Limits: reads only the lines Ballast uses.

use std::path::Path;

use ballast_model::Bytes;

use crate::error::ReadError;
use crate::line::{KIB_EXPECTED, kib, numbered};

/// The figures read from `/proc/meminfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemInfo {
    /// Memory managed by the kernel (`MemTotal`).
    pub total: Bytes,
    /// Memory that could be allocated without swapping (`MemAvailable`, Linux 3.14 and later).
    pub available: Option<Bytes>,
    /// Swap configured (`SwapTotal`).
    pub swap_total: Option<Bytes>,
    /// Swap not in use (`SwapFree`).
    pub swap_free: Option<Bytes>,
}

/// Parses the text of `/proc/meminfo`; `path` is for error messages.
///
/// # Errors
/// A line used here is malformed, or `MemTotal` is missing.
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
