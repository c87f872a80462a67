//! The last output of a child process.
//!
//! Idea: read what is available without blocking, and keep only the last bytes.
//! Limits: at most [`READ_BYTES_MAX`] are read at a time, so that a child that writes without pause
//! cannot block process 1.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most bytes taken from a pipe at a time.
const READ_BYTES_MAX: usize = 64 << 10;

/// The reading end of a pipe.
pub(crate) struct Pipe {
    file: Option<File>,
    kept: Vec<u8>,
    bytes_max: usize,
    truncated: bool,
}

impl Pipe {
    /// Creates a reader that keeps the last `bytes_max` bytes.
    pub(crate) fn new(end: OwnedFd, bytes_max: usize) -> Result<Pipe, String> {
        rustix::io::ioctl_fionbio(&end, true).map_err(|error| format!("pipe: {error}"))?;
        Ok(Pipe { file: Some(end.into()), kept: Vec::new(), bytes_max, truncated: false })
    }

    /// File descriptor to poll; `None` after the end of the output.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Reads what is available.
    pub(crate) fn read(&mut self) {
        let Some(file) = &mut self.file else { return };
        let mut chunk = [0; 4096];
        for _ in 0..READ_BYTES_MAX / chunk.len() {
            match file.read(&mut chunk) {
                Ok(n @ 1..) => self.kept.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(0) | Err(_) => {
                    self.file = None;
                    break;
                }
            }
        }
        let excess = self.kept.len().saturating_sub(self.bytes_max);
        if excess > 0 {
            self.kept.drain(..excess);
            self.truncated = true;
        }
    }

    /// The bytes kept, as text, and whether earlier bytes were dropped.
    pub(crate) fn into_text(self) -> (String, bool) {
        let text = match String::from_utf8(self.kept) {
            Ok(text) => text,
            // Replaces each byte with one byte: replacement characters would make the text longer.
            Err(error) => {
                let ascii = |b: &u8| if b.is_ascii() { char::from(*b) } else { '?' };
                error.as_bytes().iter().map(ascii).collect()
            }
        };
        (text, self.truncated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn piped(bytes: &[u8], bytes_max: usize) -> (Pipe, File) {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut write = File::from(write);
        write.write_all(bytes).unwrap();
        (Pipe::new(read, bytes_max).unwrap(), write)
    }

    #[test]
    fn only_the_last_bytes_are_kept() {
        let (mut pipe, write) = piped(b"0123456789", 4);
        pipe.read();
        assert!(pipe.fd().is_some(), "the writer is still open");
        drop(write);
        pipe.read();
        assert!(pipe.fd().is_none());
        assert_eq!(pipe.into_text(), ("6789".to_owned(), true));
    }

    #[test]
    fn invalid_utf8_does_not_lengthen_the_text() {
        let (mut pipe, _write) = piped(b"ab\xff\xfe", 4);
        pipe.read();
        assert_eq!(pipe.into_text(), ("ab??".to_owned(), false));
    }
}
