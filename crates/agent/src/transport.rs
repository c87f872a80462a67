//! The way to the host.
//!
//! Idea: whatever carries bytes both ways is a [`Transport`]; the rest of the program does not know
//! which. Nothing here waits: reading and writing take what goes at once.
//!
//! Limits: a virtio-serial port stays open while the host's end is not, which shows as `POLLHUP` at
//! every poll and so cannot be waited for; sockets are made anew.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ballast_agent_wire::{PORT_NAME, VSOCK_PORT};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, VsockAddr};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use thiserror::Error;

use crate::linux::port;

/// The host, as a context of vsock.
const VSOCK_HOST: u32 = 2;
/// Most bytes of one write: the kernel copies them to memory that it must allocate, perhaps under
/// pressure.
const WRITE_BYTES_MAX: usize = 4096;

/// Something that carries bytes both ways.
pub trait Transport {
    /// What to wait for.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Whether the host's end is open.
    fn is_open(&self) -> bool;
    /// Reads what is there; `None`: nothing is.
    ///
    /// # Errors
    /// It is of no more use.
    fn read(&mut self, chunk: &mut [u8]) -> io::Result<Option<usize>>;
    /// Writes what goes at once; 0 where nothing does.
    ///
    /// # Errors
    /// It is of no more use.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
}

/// Where the host is to be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A virtio-serial port by its name.
    Port(String),
    /// A Unix socket.
    Unix(PathBuf),
    /// A port of vsock.
    Vsock {
        /// The context, 2 for the host.
        context: u32,
        /// The port.
        port: u32,
    },
}

/// It is none.
#[derive(Debug, Error)]
#[error(
    "`{0}` is no address: expected `virtio:NAME`, `unix:PATH` or `vsock:CONTEXT:PORT`, such as \
     `virtio:org.ballast.agent` or `vsock:2:9873`"
)]
pub struct NoAddress(String);

impl Default for Address {
    fn default() -> Address {
        Address::Port(PORT_NAME.to_owned())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Port(name) => write!(f, "virtio:{name}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Vsock { context, port } => write!(f, "vsock:{context}:{port}"),
        }
    }
}

impl FromStr for Address {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Address, NoAddress> {
        let no_address = || NoAddress(text.to_owned());
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match (kind, rest) {
            ("virtio", "") => Ok(Address::default()),
            // A name, not a path.
            ("virtio", name) if !name.contains('/') => Ok(Address::Port(name.to_owned())),
            ("unix", path) if !path.is_empty() => Ok(Address::Unix(path.into())),
            ("vsock", "") => Ok(Address::Vsock { context: VSOCK_HOST, port: VSOCK_PORT }),
            ("vsock", rest) => {
                let (context, port) = rest.split_once(':').ok_or_else(no_address)?;
                match (context.parse(), port.parse()) {
                    (Ok(context), Ok(port)) => Ok(Address::Vsock { context, port }),
                    _ => Err(no_address()),
                }
            }
            _ => Err(no_address()),
        }
    }
}

impl Address {
    /// Opens the way there.
    ///
    /// # Errors
    /// It is not there, or may not be used.
    pub fn open(&self) -> io::Result<Box<dyn Transport>> {
        match self {
            Address::Port(name) => {
                let device = port::find(Path::new("/"), name).ok_or_else(|| {
                    let what = format!("no virtio-serial port is named `{name}`");
                    io::Error::new(io::ErrorKind::NotFound, what)
                })?;
                let flags = OFlags::NONBLOCK.bits().cast_signed();
                let file =
                    File::options().read(true).write(true).custom_flags(flags).open(device)?;
                Ok(Box::new(Port(file)))
            }
            Address::Unix(path) => Socket::of(UnixStream::connect(path)?.into()),
            Address::Vsock { context, port } => {
                let kind = (SockType::Stream, SockFlag::SOCK_CLOEXEC);
                let fd = nix::sys::socket::socket(AddressFamily::Vsock, kind.0, kind.1, None)?;
                nix::sys::socket::connect(fd.as_raw_fd(), &VsockAddr::new(*context, *port))?;
                Socket::of(fd)
            }
        }
    }
}

/// A virtio-serial port.
struct Port(File);

impl Transport for Port {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn is_open(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&now)).is_ok()
            && !fds[0].revents().contains(PollFlags::HUP)
    }

    fn read(&mut self, chunk: &mut [u8]) -> io::Result<Option<usize>> {
        // An end that is not open reads as nothing, which is not the end.
        Ok(nothing_yet(self.0.read(chunk))?.filter(|n| *n > 0))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let some = bytes.get(..WRITE_BYTES_MAX).unwrap_or(bytes);
        Ok(nothing_yet(self.0.write(some))?.unwrap_or(0))
    }
}

/// A connected socket.
struct Socket(File);

impl Socket {
    fn of(fd: OwnedFd) -> io::Result<Box<dyn Transport>> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Box::new(Socket(File::from(fd))))
    }
}

impl Transport for Socket {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn is_open(&self) -> bool {
        true
    }

    fn read(&mut self, chunk: &mut [u8]) -> io::Result<Option<usize>> {
        match nothing_yet(self.0.read(chunk))? {
            Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            other => Ok(other),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(nothing_yet(self.0.write(bytes))?.unwrap_or(0))
    }
}

fn nothing_yet(done: io::Result<usize>) -> io::Result<Option<usize>> {
    use io::ErrorKind::{Interrupted, WouldBlock};
    match done {
        Err(error) if matches!(error.kind(), Interrupted | WouldBlock) => Ok(None),
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, expected) in [
            ("virtio", "virtio:org.ballast.agent"),
            ("virtio:org.other", "virtio:org.other"),
            ("unix:/run/a.sock", "unix:/run/a.sock"),
            ("vsock", "vsock:2:9873"),
            ("vsock:3:7", "vsock:3:7"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), expected);
        }
        for text in ["", "tcp:1", "unix:", "virtio:/dev/x", "vsock:1", "vsock:a:b"] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains("expected `virtio:NAME`"), "{error}");
        }
    }

    #[test]
    fn a_socket_that_ends_is_of_no_more_use() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut socket = Socket::of(ours.into()).unwrap();
        let mut chunk = [0; 4];
        assert_eq!(socket.read(&mut chunk).unwrap(), None);
        (&theirs).write_all(b"ab").unwrap();
        assert_eq!(socket.read(&mut chunk).unwrap(), Some(2));
        drop(theirs);
        assert!(socket.read(&mut chunk).is_err());
    }
}
