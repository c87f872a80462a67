//! Sends a QMP command to a guest, for tests.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use ballast_lab_host::Guest;

/// Sends a command to the guest's QEMU over the lab's socket and returns the answer.
pub(crate) fn qmp(guest: &Guest, command: &str) -> String {
    ask(&UnixStream::connect(guest.lab_qmp_socket()).unwrap(), command)
}

/// Sends a command over a new connection to a QEMU and returns the answer.
pub(crate) fn ask(mut socket: &UnixStream, command: &str) -> String {
    let mut lines = BufReader::new(socket).lines();
    let mut answer = || {
        let mut lines = lines.by_ref().map(Result::unwrap);
        lines.find(|line| !line.contains("\"event\"")).unwrap()
    };
    answer();
    socket.write_all(b"{\"execute\":\"qmp_capabilities\"}\n").unwrap();
    answer();
    socket.write_all(format!("{command}\n").as_bytes()).unwrap();
    answer()
}
