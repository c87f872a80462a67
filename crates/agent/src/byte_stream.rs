//! The interface of every transport to the host, and what transports share.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Carries bytes both ways.
pub trait Transport {
    /// The descriptor to poll.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Whether the host's end is open.
    fn is_open(&self) -> bool;
    /// Reads available bytes; `None` if there are none.
    ///
    /// # Errors
    /// The transport is broken.
    fn read(&mut self, chunk: &mut [u8]) -> io::Result<Option<usize>>;
    /// Writes as much as possible without blocking; may return 0.
    ///
    /// # Errors
    /// The transport is broken.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
}

/// Opens a device that is read and written without blocking.
pub(crate) fn open_device(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    File::options().read(true).write(true).custom_flags(flags).open(path)
}

/// The result of a read or write; `None` if it would block.
pub(crate) fn would_block_as_none(done: io::Result<usize>) -> io::Result<Option<usize>> {
    use io::ErrorKind::{Interrupted, WouldBlock};
    match done {
        Err(error) if matches!(error.kind(), Interrupted | WouldBlock) => Ok(None),
        other => other.map(Some),
    }
}
