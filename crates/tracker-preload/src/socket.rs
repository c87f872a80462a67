//! The tracker's socket and its packets.
//!
//! `SOCK_SEQPACKET` preserves message boundaries, so a message is a packet and is never read in
//! part. The socket is a file. Root and one more user may connect, which is checked by the kernel's
//! word (`SO_PEERCRED`): the daemon's user if one is named, else the hypervisor's own. Without a
//! named user the file's mode already shuts others out. A named user needs access by the file's
//! group, which is the folder's group if the folder has the setgid bit (mode 2770).
//!
//! Limits: only [`Listener::wait`] and [`ClientSocket::wait`] block.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use ballast_tracker_proto::{Frame, MESSAGE_MAX, TrackerAddress, TrackerReply};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::Uid;

/// Files that may come with a message: the ring, and the userfaultfd device.
pub(crate) const FILES_MAX: usize = 2;
/// Most pending clients.
const BACKLOG: i32 = 4;

/// A listening socket. Dropping it removes its file.
pub(crate) struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    /// The user that may connect beside root.
    user: Uid,
}

fn seqpacket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

impl Listener {
    /// Listens at `address` for root and for the user with the number `user`, by default this
    /// process's own; replaces a socket file whose process is gone.
    pub(crate) fn bind(address: &TrackerAddress, user: Option<u32>) -> io::Result<Listener> {
        // The process may change its working directory before it removes the file.
        let path = std::path::absolute(address.path())?;
        let own = rustix::process::geteuid();
        let user = user.map_or(own, Uid::from_raw);
        let socket = seqpacket()?;
        let name = SocketAddrUnix::new(&path)?;
        // Set before binding: it becomes the mode of the file.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        match rustix::net::bind(&socket, &name) {
            Err(Errno::ADDRINUSE) => {
                if rustix::net::connect(&seqpacket()?, &name) != Err(Errno::CONNREFUSED) {
                    return Err(Errno::ADDRINUSE.into());
                }
                std::fs::remove_file(&path)?;
                rustix::net::bind(&socket, &name)?;
            }
            bound => bound?,
        }
        if user != own && !user.is_root() {
            // Set after binding, because the process's umask would clear these bits. Nobody can
            // connect before the socket listens.
            rustix::fs::chmod(&path, Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP)?;
        }
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Listener { socket, path, user })
    }

    /// A copy of the socket for a child process that takes it over. It listens again, because
    /// clients see the process that called `listen` last, which has to be the child.
    pub(crate) fn duplicate(&self) -> io::Result<Listener> {
        let socket = self.socket.try_clone()?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Listener { socket, path: self.path.clone(), user: self.user })
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

    /// Whether a client is root or the user that may connect.
    pub(crate) fn permits(&self, client: &ClientSocket) -> bool {
        peer_user(&client.socket).is_some_and(|user| user.is_root() || user == self.user)
    }
}

/// The user of the process at the other end; `None` if the kernel does not say. Not by rustix,
/// which cannot represent a process outside this PID namespace, as a daemon is to a hypervisor in a
/// container: the daemon would be refused, or worse.
fn peer_user(socket: &OwnedFd) -> Option<Uid> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` has the length that is passed, and takes any bytes.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    let is_known = failed == 0 && len as usize == size_of::<libc::ucred>();
    (is_known && peer.uid != u32::MAX).then(|| Uid::from_raw(peer.uid))
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

pub(crate) struct ClientSocket {
    socket: OwnedFd,
}

/// The result of receiving.
pub(crate) enum Received {
    Packet(Box<Packet>),
    Nothing,
    Gone,
}

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
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_sockets_of_dead_processes_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("track.sock");
        let address = TrackerAddress::new(&path);
        let first = Listener::bind(&address, None).unwrap();
        assert!(Listener::bind(&address, None).is_err());
        // As after a kill: the file remains without a socket.
        let left = std::fs::canonicalize(folder.path()).unwrap().join("left.sock");
        let dead = seqpacket().unwrap();
        rustix::net::bind(&dead, &SocketAddrUnix::new(&left).unwrap()).unwrap();
        drop(dead);
        assert!(left.exists());
        drop(Listener::bind(&TrackerAddress::new(&left), None).unwrap());
        assert!(!left.exists());
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn the_mode_is_no_wider_than_the_user_needs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("track.sock");
        let address = TrackerAddress::new(&path);
        let own = rustix::process::geteuid().as_raw();
        for (user, expected) in
            [(None, 0o600), (Some(own), 0o600), (Some(0), 0o600), (Some(own + 1), 0o660)]
        {
            let listener = Listener::bind(&address, user).unwrap();
            let mode = path.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, expected, "{user:?}");
            drop(listener);
        }
    }
}
