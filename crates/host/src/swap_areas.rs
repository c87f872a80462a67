//! `/proc/swaps`: the host's swap areas.
//!
//! Limits: the device below a partition is not examined; only zram is recognized, by its name.

use std::path::Path;

use ballast_model::Bytes;

use crate::error::ReadError;
use crate::line::{number, numbered};

const EXPECTED: &str = "`NAME partition|file SIZE USED PRIORITY`, sizes in kB";
const HEAD: &str = "Filename";

/// What a swap area is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapKind {
    /// Compressed memory: swapped-out pages stay in the host's memory, in less space.
    Zram,
    /// A disk or a part of one.
    Disk,
    /// A file.
    File,
}

impl SwapKind {
    /// Its name for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            SwapKind::Zram => "zram",
            SwapKind::Disk => "disk",
            SwapKind::File => "file",
        }
    }
}

/// One place to swap to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapArea {
    /// The device or file, as the kernel writes it.
    pub name: String,
    /// What it is.
    pub kind: SwapKind,
    /// Its capacity.
    pub size: Bytes,
    /// The part in use.
    pub used: Bytes,
}

/// Parses the text of `/proc/swaps`; `path` is for error messages.
///
/// # Errors
/// The first line is not the head, or a line is malformed.
pub fn parse_swaps(path: &Path, text: &[u8]) -> Result<Vec<SwapArea>, ReadError> {
    if !text.starts_with(HEAD.as_bytes()) {
        return Err(ReadError::missing_line(path, HEAD, EXPECTED));
    }
    let mut areas = Vec::new();
    for (at, line) in numbered(text).skip(1).filter(|(_, line)| !line.is_empty()) {
        let area = area(line).ok_or_else(|| ReadError::malformed(path, at, line, EXPECTED))?;
        areas.push(area);
    }
    Ok(areas)
}

fn area(line: &[u8]) -> Option<SwapArea> {
    // Blanks within a name are written as `\040`.
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let [name, kind, size, used, _priority] = [(); 5].map(|()| words.next());
    let name = name?.to_owned();
    let kind = match kind? {
        "partition" if name.starts_with("/dev/zram") => SwapKind::Zram,
        "partition" => SwapKind::Disk,
        "file" => SwapKind::File,
        _ => return None,
    };
    let kib = |word: Option<&str>| number(word?.as_bytes())?.checked_mul(1024).map(Bytes::new);
    Some(SwapArea { name, kind, size: kib(size)?, used: kib(used)? })
}
