//! A kernel file that stays open and is read repeatedly.
//!
//! Idea: the kernel generates the text for every read from offset 0, so an open descriptor and
//! `pread` save the path lookup. The descriptor of a process's file stays bound to that process:
//! when the PID is reused, reads fail instead of returning another process's figures.
//! Cost: one `pread` for the text and one to find its end; no allocation once the buffer has grown.
//! Limits: [`READ_BYTES_MAX`] bytes.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::ReadError;

/// Longest file accepted. `vmstat`, the longest one read, has about 5 KiB; a process's `status`
/// lists its user groups and may exceed 16 KiB in unusual set-ups.
pub const READ_BYTES_MAX: usize = 64 << 10;

/// Initial size of a buffer: every file read once a tick fits.
const READ_BYTES_FIRST: usize = 8 << 10;

/// A file that is opened at its first read and then stays open.
#[derive(Debug)]
pub(crate) struct KernelFile {
    path: PathBuf,
    file: Option<File>,
}

impl KernelFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        KernelFile { path, file: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file's current text into `buffer`. `None`: the file does not exist.
    pub(crate) fn read<'b>(
        &mut self,
        buffer: &'b mut Vec<u8>,
    ) -> Result<Option<&'b [u8]>, ReadError> {
        if self.file.is_none() {
            match File::open(&self.path) {
                Ok(file) => self.file = Some(file),
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
                Err(e) => return Err(ReadError::io(&self.path, e)),
            }
        }
        let Some(file) = &self.file else { return Ok(None) };
        let mut length = 0;
        loop {
            if length == buffer.len() {
                if length == READ_BYTES_MAX {
                    return Err(ReadError::TooLong {
                        path: self.path.clone(),
                        max: READ_BYTES_MAX,
                    });
                }
                buffer.resize((2 * length).clamp(READ_BYTES_FIRST, READ_BYTES_MAX), 0);
            }
            match file.read_at(&mut buffer[length..], length as u64) {
                Ok(0) => return Ok(Some(&buffer[..length])),
                Ok(n) => length += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => {
                    self.file = None;
                    return Err(ReadError::io(&self.path, e));
                }
            }
        }
    }
}

/// Reads a file once; returns its path and text.
pub(crate) fn read_once(path: PathBuf) -> Result<(PathBuf, Vec<u8>), ReadError> {
    let mut file = KernelFile::new(path);
    let mut buffer = Vec::new();
    match file.read(&mut buffer)? {
        Some(text) => {
            let length = text.len();
            buffer.truncate(length);
            Ok((file.path, buffer))
        }
        None => Err(ReadError::io(&file.path, io::Error::from(ErrorKind::NotFound))),
    }
}

/// Reads a file once and parses it. `None`: the file does not exist.
pub(crate) fn read_fact<T>(
    path: PathBuf,
    parse: impl FnOnce(&Path, &[u8]) -> Result<T, ReadError>,
) -> Result<Option<T>, ReadError> {
    let (mut file, mut buffer) = (KernelFile::new(path), Vec::new());
    match file.read(&mut buffer)? {
        Some(text) => parse(file.path(), text).map(Some),
        None => Ok(None),
    }
}

/// Reads a file once, and no more than its first [`READ_BYTES_MAX`] bytes: a process can make its
/// command line and its environment as long as all that it has mapped (`PR_SET_MM_MAP`).
pub(crate) fn read_start(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(READ_BYTES_MAX as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_bound_is_read_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cmdline");
        assert_eq!(read_start(&path).unwrap_err().kind(), ErrorKind::NotFound);
        std::fs::write(&path, "a\0b\0").unwrap();
        assert_eq!(read_start(&path).unwrap(), b"a\0b\0");
        // All of it would be more than any test machine has.
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(1 << 42).unwrap();
        assert_eq!(read_start(&path).unwrap().len(), READ_BYTES_MAX);
    }
}
