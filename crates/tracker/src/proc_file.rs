//! Reads a file of another process in `/proc`, up to a bound.
//!
//! A process can make its command line and its environment as long as all that it has mapped
//! (`PR_SET_MM_MAP`), and its list of mappings some hundred MiB long, by the paths in it.
//!
//! Source: proc_pid_cmdline(5), prctl(2).

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::io::Errno;

/// Longest list of mappings accepted: 65,530 mappings, the most a process may have, of 128 bytes
/// each.
pub(crate) const MAPS_BYTES_MAX: u64 = 8 << 20;
/// Longest list of mappings with the figures of each (`smaps`): as many mappings, of 1 KiB each.
pub(crate) const SMAPS_BYTES_MAX: u64 = 64 << 20;

/// The bytes of a file that has at most `bytes_max`.
///
/// # Errors
/// It cannot be read, or is longer (`EFBIG`).
pub(crate) fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(Errno::FBIG.into());
    }
    Ok(bytes)
}

/// The text of a file that has at most `bytes_max`.
///
/// # Errors
/// Those of [`read`]; also if it is not UTF-8 (`EILSEQ`).
pub(crate) fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    String::from_utf8(read(path, bytes_max)?).map_err(|_| Errno::ILSEQ.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_beyond_the_bound_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cmdline");
        std::fs::write(&path, "qemu").unwrap();
        assert_eq!(read(&path, 4).unwrap(), b"qemu");
        assert_eq!(read_text(&path, 4).unwrap(), "qemu");
        let errno = |error| Errno::from_io_error(&error);
        assert_eq!(read(&path, 3).map_err(errno), Err(Some(Errno::FBIG)));
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_text(&path, 4).map_err(errno), Err(Some(Errno::ILSEQ)));
        // All of it would be more than any test machine has.
        File::options().write(true).open(&path).unwrap().set_len(1 << 42).unwrap();
        assert_eq!(read(&path, MAPS_BYTES_MAX).map_err(errno), Err(Some(Errno::FBIG)));
    }
}
