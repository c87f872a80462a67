//! The kernel's files of DAMON and tracefs: their paths, and reading and writing them.
//!
//! Limits: files are read up to [`READ_BYTES_MAX`]; a missing file is never created.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use crate::error::DamonError;

/// Longest file read, in bytes.
const READ_BYTES_MAX: u64 = 4096;
/// Longest part of a file shown in an error, in characters.
const SHOWN_CHARS_MAX: usize = 80;

/// The files of one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamonPaths {
    /// `kdamonds` of DAMON's sysfs files.
    pub(crate) kdamonds: PathBuf,
    /// The places where tracefs may be mounted, the preferred one first.
    pub(crate) tracing: [PathBuf; 2],
    /// The file with the kernel's lockdown state.
    pub(crate) lockdown: PathBuf,
    /// `/proc`.
    pub(crate) proc: PathBuf,
}

impl DamonPaths {
    /// The files under `root`, which is `/` except in tests.
    pub fn under(root: &Path) -> DamonPaths {
        DamonPaths {
            kdamonds: root.join("sys/kernel/mm/damon/admin/kdamonds"),
            tracing: ["sys/kernel/tracing", "sys/kernel/debug/tracing"].map(|it| root.join(it)),
            lockdown: root.join("sys/kernel/security/lockdown"),
            proc: root.join("proc"),
        }
    }
}

impl Default for DamonPaths {
    fn default() -> DamonPaths {
        DamonPaths::under(Path::new("/"))
    }
}

/// The text of a file, without blanks around it.
pub(crate) fn read(path: &Path) -> Result<String, DamonError> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(DamonError::system("open", path))?;
    file.take(READ_BYTES_MAX).read_to_end(&mut text).map_err(DamonError::system("read", path))?;
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}

/// The number in a file.
pub(crate) fn read_number(path: &Path) -> Result<u64, DamonError> {
    let text = read(path)?;
    text.parse().map_err(|_| DamonError::Unexpected {
        path: path.to_owned(),
        found: text.chars().take(SHOWN_CHARS_MAX).collect(),
        expected: "a number",
    })
}

/// Writes to a file that exists.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), DamonError> {
    let file = File::options().write(true).truncate(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(DamonError::system("write to", path))
}
