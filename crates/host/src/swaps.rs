//! `/proc/swaps`: where the host swaps to.
//!
//! Limits: [`SWAPS_MAX`] areas, as the kernel has.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use ballast_model::Bytes;

use crate::ReadError;
use crate::file::read_once;
use crate::line::{number, numbered};

/// Most swap areas a kernel can have (`MAX_SWAPFILES`, five bits); more lines are refused.
pub const SWAPS_MAX: usize = 32;

const EXPECTED: &str = "`path type size used priority`, sizes in KiB";

/// One swap area of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapArea {
    /// The device or file.
    pub path: PathBuf,
    /// `partition` or `file`, in the kernel's word.
    pub kind: String,
    /// Its size.
    pub size: Bytes,
    /// How much of it is in use.
    pub used: Bytes,
    /// Areas of higher priority are filled first; below zero where nobody set one.
    pub priority: i32,
}

/// Reads `swaps` in `proc`; empty where no swap is on.
///
/// # Errors
/// The file cannot be read or understood.
pub fn read_swaps(proc: &Path) -> Result<Vec<SwapArea>, ReadError> {
    let (path, text) = read_once(proc.join("swaps"))?;
    parse_swaps(&path, &text)
}

/// Understands the text of `/proc/swaps`; `path` is for errors.
///
/// # Errors
/// No heading, a malformed line, or more than [`SWAPS_MAX`] of them.
pub fn parse_swaps(path: &Path, text: &[u8]) -> Result<Vec<SwapArea>, ReadError> {
    if !text.starts_with(b"Filename") {
        return Err(ReadError::missing_line(path, "Filename", "the table's heading first"));
    }
    let mut areas = Vec::new();
    for (at, line) in numbered(text).skip(1).filter(|(_, line)| !line.is_empty()) {
        let area = (areas.len() < SWAPS_MAX).then(|| area(line)).flatten();
        areas.push(area.ok_or_else(|| ReadError::malformed(path, at, line, EXPECTED))?);
    }
    Ok(areas)
}

fn area(line: &[u8]) -> Option<SwapArea> {
    let mut words = line.split(|b| b.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let area = SwapArea {
        path: unescape(words.next()?),
        kind: String::from_utf8(words.next()?.to_vec()).ok()?,
        size: kib(words.next()?)?,
        used: kib(words.next()?)?,
        priority: std::str::from_utf8(words.next()?).ok()?.parse().ok()?,
    };
    words.next().is_none().then_some(area)
}

fn kib(digits: &[u8]) -> Option<Bytes> {
    number(digits)?.checked_mul(1 << 10).map(Bytes::new)
}

/// The kernel writes blanks and backslashes in a path as three octal digits (`\040`).
fn unescape(word: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        match after {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] if first == b'\\' => {
                path.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
                rest = tail;
            }
            _ => {
                path.push(first);
                rest = after;
            }
        }
    }
    OsString::from_vec(path).into()
}
