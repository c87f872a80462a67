//! The tracker's socket and its packets.
//!
//! `SOCK_SEQPACKET` preserves message boundaries, so a message is a packet and is never read in
//! part. The socket belongs to the hypervisor's user; only that user and root may connect, which
//! the kernel attests (`SO_PEERCRED`).
//!
//! Limits: only [`Listener::wait`] and [`ClientSocket::wait`] block.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use ballast_tracker_proto::{Frame, MESSAGE_MAX, TrackerAddress, TrackerReply};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

/// Files that may come with a message: the ring, and the userfaultfd device.
pub(crate) const FILES_MAX: usize = 2;
/// Most pending clients.
const BACKLOG: i32 = 4;

fn to_socket(address: &TrackerAddress) -> Result<SocketAddrUnix, Errno> {
    match address {
        TrackerAddress::Path(path) => SocketAddrUnix::new(path),
        TrackerAddress::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
    }
}

/// A listening socket. Dropping it removes its file.
pub(crate) struct Listener {
    socket: OwnedFd,
    address: TrackerAddress,
}

fn seqpacket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

impl Listener {
    /// Listens at `address`; replaces a socket file whose process is gone.
    pub(crate) fn bind(address: TrackerAddress) -> io::Result<Listener> {
        let address = match address {
            // The process may change its working directory before it removes the file.
            TrackerAddress::Path(path) => TrackerAddress::Path(std::path::absolute(path)?),
            address => address,
        };
        let socket = seqpacket()?;
        let name = to_socket(&address)?;
        // Set before binding: it becomes the mode of the file.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        match (rustix::net::bind(&socket, &name), &address) {
            (Err(Errno::ADDRINUSE), TrackerAddress::Path(path)) => {
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

    /// A copy for a child process that takes it over.
    pub(crate) fn duplicate(&self) -> io::Result<Listener> {
        Ok(Listener { socket: self.socket.try_clone()?, address: self.address.clone() })
    }

    /// Waits for a client, or until `stop` is readable.
    pub(crate) fn wait(&self, stop: &OwnedFd) {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        // The caller checks both, whatever this returns.
        let _ = poll(&mut fds, None);
    }

    /// Accepts a client, if one is pending.
    pub(crate) fn accept(&self) -> Option<ClientSocket> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::accept_with(&self.socket, flags).ok()?;
        Some(ClientSocket { socket })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let TrackerAddress::Path(path) = &self.address {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The socket of a client.
pub(crate) struct ClientSocket {
    socket: OwnedFd,
}

/// The result of receiving.
pub(crate) enum Received {
    /// A packet with its files.
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

impl ClientSocket {
    /// Whether the client is root or the user of this process.
    pub(crate) fn is_permitted(&self) -> bool {
        let peer = rustix::net::sockopt::socket_peercred(&self.socket);
        peer.is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
    }

    /// Waits up to `time` for a packet or another client.
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

    /// Whether the client is still connected, and whether a packet is pending.
    pub(crate) fn status(&self) -> (bool, bool) {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let events = poll(&mut fds, Some(&zero)).map(|_| fds[0].revents());
        let events = events.unwrap_or(PollFlags::empty());
        (!events.intersects(PollFlags::HUP | PollFlags::ERR), events.contains(PollFlags::IN))
    }

    /// Receives a packet, if one is pending.
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
        // A truncated packet becomes an empty one, which decoding refuses.
        packet.len = if message.flags.contains(ReturnFlags::TRUNC) { 0 } else { message.bytes };
        Received::Packet(packet)
    }

    /// Sends a reply; `false` if the client does not accept it.
    pub(crate) fn send(&self, number: u32, message: TrackerReply) -> bool {
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
    fn only_sockets_of_dead_processes_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("track.sock");
        let address = TrackerAddress::Path(path.clone());
        let first = Listener::bind(address.clone()).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        assert!(Listener::bind(address.clone()).is_err());
        // As after a kill: the file remains without a socket.
        let left = std::fs::canonicalize(folder.path()).unwrap().join("left.sock");
        let dead = seqpacket().unwrap();
        rustix::net::bind(&dead, &SocketAddrUnix::new(&left).unwrap()).unwrap();
        drop(dead);
        assert!(left.exists());
        drop(Listener::bind(TrackerAddress::Path(left.clone())).unwrap());
        assert!(!left.exists());
        drop(first);
        assert!(!path.exists());
    }
}
