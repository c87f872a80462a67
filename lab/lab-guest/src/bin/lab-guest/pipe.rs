//! What a child writes, the end of it.
//!
//! Idea: read whatever is there without waiting, keep the last bytes only.
//! Limits: at most [`READ_BYTES_MAX`] are read at a time, so that a chatty child cannot keep process 1
//! from its other work.

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
    /// Keeps at most `bytes_max` of what comes.
    pub(crate) fn new(end: OwnedFd, bytes_max: usize) -> Result<Pipe, String> {
        rustix::io::ioctl_fionbio(&end, true).map_err(|error| format!("pipe: {error}"))?;
        Ok(Pipe { file: Some(end.into()), kept: Vec::new(), bytes_max, truncated: false })
    }

    /// What to wait for; `None` after the end.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Takes what is there.
    pub(crate) fn read(&mut self) {
        let Some(file) = &mut self.file else { return };
        let mut chunk = [0; 4096];
        for _ in 0..READ_BYTES_MAX / chunk.len() {
            match file.read(&mut chunk) {
                Ok(0) => {
                    self.file = None;
                    break;
                }
                Ok(n) => self.kept.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
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

    /// What was kept, as text, and whether anything before it was not.
    pub(crate) fn into_text(self) -> (String, bool) {
        let text = match String::from_utf8(self.kept) {
            Ok(text) => text,
            // One byte for each that is no text: a replacement must not make the text longer.
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
    fn keeps_the_end() {
        let (mut pipe, write) = piped(b"0123456789", 4);
        pipe.read();
        assert!(pipe.fd().is_some(), "the writer is still there");
        drop(write);
        pipe.read();
        assert!(pipe.fd().is_none());
        assert_eq!(pipe.into_text(), ("6789".to_owned(), true));
    }

    #[test]
    fn what_is_no_text_becomes_no_longer() {
        let (mut pipe, _write) = piped(b"ab\xff\xfe", 4);
        pipe.read();
        assert_eq!(pipe.into_text(), ("ab??".to_owned(), false));
    }
}
