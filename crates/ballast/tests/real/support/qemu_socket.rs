//! Sockets of a guest's QEMU, on which a test speaks instead of QEMU.
//!
//! Idea: the kernel reports as a socket's owner the process that called `listen` or `connect`. So
//! QEMU calls it, and the test takes a copy of the file descriptor. To the other end, the peer is
//! QEMU.
//! Limits: needs the right to trace QEMU.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde_json::json;

use super::monitor::Monitor;
use crate::harness::wait_for;

/// A copy of the socket with which process `pid` listens at `path`.
pub fn listening_socket(pid: i32, path: &Path) -> UnixListener {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    let path = path.display().to_string();
    let is_listening = |fields: &Vec<&str>| fields.len() == 8 && fields[3] == "00010000";
    let inode = sockets
        .lines()
        .map(|line| line.split_whitespace().collect())
        .filter(is_listening)
        .find_map(|fields| (fields[7] == path).then(|| fields[6].to_owned()))
        .expect("a socket that listens");
    let name = format!("socket:[{inode}]");
    let file = sockets_of(pid).into_iter().find(|(_, link)| *link == name);
    UnixListener::from(copy(pid, file.expect("a file of QEMU").0))
}

/// A copy of the socket with which process `pid` is connected to a socket whose file name is
/// `name`.
pub fn connected_socket(pid: i32, name: &str) -> Option<UnixStream> {
    let streams = sockets_of(pid).into_iter().map(|(file, _)| UnixStream::from(copy(pid, file)));
    streams.into_iter().find(|stream| {
        let peer = stream.peer_addr().ok();
        let path = peer.as_ref().and_then(|peer| peer.as_pathname());
        path.and_then(Path::file_name).is_some_and(|it| it == name)
    })
}

/// The file descriptors of process `pid` that are sockets, with the names in their links.
fn sockets_of(pid: i32) -> Vec<(i32, String)> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let socket = |file: std::fs::DirEntry| {
        let link = std::fs::read_link(file.path()).ok()?.to_str()?.to_owned();
        let number = file.file_name().to_str()?.parse().ok()?;
        link.starts_with("socket:").then_some((number, link))
    };
    files.filter_map(socket).collect()
}

fn copy(pid: i32, file: i32) -> OwnedFd {
    let process = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
    pidfd_getfd(process, file, PidfdGetfdFlags::empty()).unwrap()
}

/// A copy of the socket at which QEMU listens at `path`, and a client that keeps QEMU busy: as long
/// as it is connected, QEMU accepts no other.
pub fn taken_over(pid: i32, path: &Path, monitor: &mut Monitor) -> (UnixListener, UnixStream) {
    // QEMU serves one client, and accepts no other meanwhile.
    let first = UnixStream::connect(path).unwrap();
    wait_for("QEMU to be busy", || {
        let devices = monitor.run("query-chardev", &json!({})).to_string();
        let waiting = format!("disconnected:unix:{}", path.display());
        (!devices.contains(&waiting)).then_some(())
    });
    (listening_socket(pid, path), first)
}
