//! The transport to the host.
//!
//! A [`Transport`] carries bytes both ways; the rest of the program does not know which kind it
//! has. Reads and writes never block.
//!
//! Limits: while the host's end of a virtio-serial port is closed, every poll returns `POLLHUP`, so
//! the port cannot be waited for. A socket that fails is replaced.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ballast_agent_proto::wire::{PORT_NAME, VSOCK_PORT};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, VsockAddr};
use rustix::event::{PollFd, PollFlags, Timespec};
use thiserror::Error;

pub use crate::byte_stream::Transport;
use crate::byte_stream::{open_device, would_block_as_none};
use crate::linux::port;
use crate::xenstore::{XENBUS, Xenstore};

/// The host's context number of vsock.
const VSOCK_HOST: u32 = 2;
/// Most bytes of one write: the kernel copies them to newly allocated memory, perhaps under memory
/// pressure.
const WRITE_BYTES_MAX: usize = 4096;

/// Address of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostAddress {
    /// The name of a virtio-serial port.
    VirtioPort(String),
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// Keys of xenstore, by that device.
    Xenstore(PathBuf),
    /// A vsock port.
    Vsock {
        /// The context, 2 for the host.
        context: u32,
        /// The port.
        port: u32,
    },
}

/// A text that is not an address.
#[derive(Debug, Error)]
#[error(
    "`{0}` is not an address: expected `virtio:NAME`, `unix:PATH`, `vsock:CONTEXT:PORT` or \
     `xenstore`, such as `virtio:org.ballast.agent` or `vsock:2:9873`"
)]
pub struct AddressError(String);

impl Default for HostAddress {
    fn default() -> HostAddress {
        HostAddress::VirtioPort(PORT_NAME.to_owned())
    }
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostAddress::VirtioPort(name) => write!(f, "virtio:{name}"),
            HostAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            HostAddress::Xenstore(path) => write!(f, "xenstore:{}", path.display()),
            HostAddress::Vsock { context, port } => write!(f, "vsock:{context}:{port}"),
        }
    }
}

impl FromStr for HostAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<HostAddress, AddressError> {
        let invalid = || AddressError(text.to_owned());
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match (kind, rest) {
            ("virtio", "") => Ok(HostAddress::default()),
            // A name, not a path.
            ("virtio", name) if !name.contains('/') => Ok(HostAddress::VirtioPort(name.to_owned())),
            ("unix", path) if !path.is_empty() => Ok(HostAddress::Unix(path.into())),
            ("xenstore", "") => Ok(HostAddress::Xenstore(XENBUS.into())),
            ("xenstore", path) => Ok(HostAddress::Xenstore(path.into())),
            ("vsock", "") => Ok(HostAddress::Vsock { context: VSOCK_HOST, port: VSOCK_PORT }),
            ("vsock", rest) => {
                let (context, port) = rest.split_once(':').ok_or_else(invalid)?;
                match (context.parse(), port.parse()) {
                    (Ok(context), Ok(port)) => Ok(HostAddress::Vsock { context, port }),
                    _ => Err(invalid()),
                }
            }
            _ => Err(invalid()),
        }
    }
}

impl HostAddress {
    /// Opens the transport.
    ///
    /// # Errors
    /// The host cannot be reached.
    pub fn open(&self) -> io::Result<Box<dyn Transport>> {
        match self {
            HostAddress::VirtioPort(name) => {
                let device = port::find(Path::new("/"), name).ok_or_else(|| {
                    let what = format!("no virtio-serial port is named `{name}`");
                    io::Error::new(io::ErrorKind::NotFound, what)
                })?;
                Ok(Box::new(VirtioPort(open_device(&device)?)))
            }
            HostAddress::Unix(path) => HostSocket::of(UnixStream::connect(path)?.into()),
            HostAddress::Xenstore(path) => Xenstore::open(path),
            HostAddress::Vsock { context, port } => {
                let kind = (SockType::Stream, SockFlag::SOCK_CLOEXEC);
                let fd = nix::sys::socket::socket(AddressFamily::Vsock, kind.0, kind.1, None)?;
                nix::sys::socket::connect(fd.as_raw_fd(), &VsockAddr::new(*context, *port))?;
                HostSocket::of(fd)
            }
        }
    }
}

struct VirtioPort(File);

impl Transport for VirtioPort {
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
        // A port whose host end is closed reads 0 bytes; that is not the end of the stream.
        Ok(would_block_as_none(self.0.read(chunk))?.filter(|n| *n > 0))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let some = bytes.get(..WRITE_BYTES_MAX).unwrap_or(bytes);
        Ok(would_block_as_none(self.0.write(some))?.unwrap_or(0))
    }
}

struct HostSocket(File);

impl HostSocket {
    fn of(fd: OwnedFd) -> io::Result<Box<dyn Transport>> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Box::new(HostSocket(File::from(fd))))
    }
}

impl Transport for HostSocket {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn is_open(&self) -> bool {
        true
    }

    fn read(&mut self, chunk: &mut [u8]) -> io::Result<Option<usize>> {
        match would_block_as_none(self.0.read(chunk))? {
            Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            other => Ok(other),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(would_block_as_none(self.0.write(bytes))?.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        for (text, expected) in [
            ("virtio", "virtio:org.ballast.agent"),
            ("virtio:org.other", "virtio:org.other"),
            ("unix:/run/a.sock", "unix:/run/a.sock"),
            ("vsock", "vsock:2:9873"),
            ("vsock:3:7", "vsock:3:7"),
            ("xenstore", "xenstore:/dev/xen/xenbus"),
            ("xenstore:/run/xenstored/socket", "xenstore:/run/xenstored/socket"),
        ] {
            assert_eq!(text.parse::<HostAddress>().unwrap().to_string(), expected);
        }
        for text in ["", "tcp:1", "unix:", "virtio:/dev/x", "vsock:1", "vsock:a:b"] {
            let error = text.parse::<HostAddress>().unwrap_err().to_string();
            assert!(error.contains("expected `virtio:NAME`"), "{error}");
        }
    }

    #[test]
    fn a_closed_socket_reads_as_an_error() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut socket = HostSocket::of(ours.into()).unwrap();
        let mut chunk = [0; 4];
        assert_eq!(socket.read(&mut chunk).unwrap(), None);
        (&theirs).write_all(b"ab").unwrap();
        assert_eq!(socket.read(&mut chunk).unwrap(), Some(2));
        drop(theirs);
        assert!(socket.read(&mut chunk).is_err());
    }
}
