//! The socket that a client connects to, and packets on it.
//!
//! Idea: `SOCK_SEQPACKET` keeps the borders of messages, so a message is a packet and nothing is ever
//! half read. The socket belongs to the hypervisor's user; who connects must be that one or root, which
//! the kernel says (`SO_PEERCRED`).
//!
//! Limits: nothing here waits but [`Listener::wait`] and [`Connection::wait`], up to a bound.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use ballast_track_wire::{Address, Frame, MESSAGE_MAX, Reply};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

/// Files that may come with a message: the ring, and the userfaultfd device.
pub(crate) const FILES_MAX: usize = 2;
/// Clients that may wait to be refused.
const BACKLOG: i32 = 4;

fn to_socket(address: &Address) -> Result<SocketAddrUnix, Errno> {
    match address {
        Address::Path(path) => SocketAddrUnix::new(path),
        Address::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
    }
}

/// A listening socket; its file goes with it.
pub(crate) struct Listener {
    socket: OwnedFd,
    address: Address,
}

fn seqpacket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

impl Listener {
    /// Listens at `address`, of which the remains of an earlier process are removed.
    pub(crate) fn bind(address: Address) -> io::Result<Listener> {
        let address = match address {
            // The process may change its folder before it removes the file.
            Address::Path(path) => Address::Path(std::path::absolute(path)?),
            address => address,
        };
        let socket = seqpacket()?;
        let name = to_socket(&address)?;
        // Before it is bound: it becomes the mode of the file.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        match (rustix::net::bind(&socket, &name), &address) {
            (Err(Errno::ADDRINUSE), Address::Path(path)) => {
                if rustix::net::connect(&seqpacket()?, &name) != Err(Errno::CONNREFUSED) {
                    return Err(Errno::ADDRINUSE.into());
                }
                std::fs::remove_file(path)?;
                rustix::net::bind(&socket, &name)?;
            }
            (bound, _) => bound?,
        }
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Listener { socket, address })
    }

    /// The same for another process that has it too.
    pub(crate) fn another(&self) -> io::Result<Listener> {
        Ok(Listener { socket: self.socket.try_clone()?, address: self.address.clone() })
    }

    /// Waits for a client, or until `stop` is readable.
    pub(crate) fn wait(&self, stop: &OwnedFd) {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        // Whatever it says, the caller looks.
        let _ = poll(&mut fds, None);
    }

    /// The next client, if one waits.
    pub(crate) fn accept(&self) -> Option<Connection> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::accept_with(&self.socket, flags).ok()?;
        Some(Connection { socket })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Address::Path(path) = &self.address {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A client.
pub(crate) struct Connection {
    socket: OwnedFd,
}

/// What came.
pub(crate) enum Received {
    /// A packet and the files with it.
    Packet(Box<Packet>),
    /// Nothing.
    Nothing,
    /// The client is gone.
    Gone,
}

/// A packet.
pub(crate) struct Packet {
    bytes: [u8; MESSAGE_MAX],
    len: usize,
    pub(crate) files: Vec<OwnedFd>,
}

impl Packet {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Connection {
    /// Whether it is root or of the same user as this process.
    pub(crate) fn is_permitted(&self) -> bool {
        let peer = rustix::net::sockopt::socket_peercred(&self.socket);
        peer.is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
    }

    /// Waits until something comes, or another client, up to `time`.
    pub(crate) fn wait(&self, listener: &Listener, time: Duration) {
        let mut fds = [
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::new(&listener.socket, PollFlags::IN),
        ];
        let time = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        let _ = poll(&mut fds, Some(&time));
    }

    /// Whether the client is still there, and whether something of it waits to be received.
    pub(crate) fn look(&self) -> (bool, bool) {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let seen = poll(&mut fds, Some(&zero)).map(|_| fds[0].revents());
        let seen = seen.unwrap_or(PollFlags::empty());
        (!seen.intersects(PollFlags::HUP | PollFlags::ERR), seen.contains(PollFlags::IN))
    }

    /// The next packet, if there is one.
    pub(crate) fn receive(&self) -> Received {
        let mut packet = Box::new(Packet { bytes: [0; MESSAGE_MAX], len: 0, files: Vec::new() });
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut into = [IoSliceMut::new(&mut packet.bytes)];
        let message = match rustix::net::recvmsg(&self.socket, &mut into, &mut control, flags) {
            Ok(message) => message,
            Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
            Err(_) => return Received::Gone,
        };
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = part {
                packet.files.extend(files);
            }
        }
        if message.bytes == 0 {
            return Received::Gone;
        }
        // What was cut off is no message: an empty one, which decoding refuses.
        packet.len = if message.flags.contains(ReturnFlags::TRUNC) { 0 } else { message.bytes };
        Received::Packet(packet)
    }

    /// Sends a reply; `false` if the client does not take it.
    pub(crate) fn send(&self, number: u32, message: Reply) -> bool {
        let (bytes, len) = Frame { number, message }.encode();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut control = SendAncillaryBuffer::default();
        let bytes = [IoSlice::new(&bytes[..len])];
        rustix::net::sendmsg(&self.socket, &bytes, &mut control, flags).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_left_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("track.sock");
        let address = Address::Path(path.clone());
        let first = Listener::bind(address.clone()).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        assert!(Listener::bind(address.clone()).is_err());
        // As after a kill: the file stays, the socket does not.
        let left = std::fs::canonicalize(folder.path()).unwrap().join("left.sock");
        let dead = seqpacket().unwrap();
        rustix::net::bind(&dead, &SocketAddrUnix::new(&left).unwrap()).unwrap();
        drop(dead);
        assert!(left.exists());
        drop(Listener::bind(Address::Path(left.clone())).unwrap());
        assert!(!left.exists());
        drop(first);
        assert!(!path.exists());
    }
}
