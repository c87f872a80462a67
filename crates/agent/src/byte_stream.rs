//! The interface of every transport to the host.

use std::io;
use std::os::fd::BorrowedFd;

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
