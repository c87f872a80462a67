//! The virtio-serial port to the host, or a console that the kernel's arguments name instead.
//!
//! Idea: found by its name, opened once, and never blocking: reads and writes transfer what they
//! can at once. `POLLHUP` means that the host is not connected; the kernel then reports it at every
//! poll, so a caller must not poll without a timeout. A console never reports it.
//! Limits: a port belongs to one process at a time. On a console, messages of the kernel may come
//! between ours.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use ballast_lab_guest::protocol::{PORT_ARGUMENT, PORT_NAME};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

/// Longest wait for the port: the driver learns of its ports only after it is loaded.
const FIND_TIME_MAX: Duration = Duration::from_secs(30);
/// Time between two searches for the port.
const FIND_PAUSE: Duration = Duration::from_millis(20);
/// Most bytes per write: the kernel copies them to memory that it must allocate, perhaps under
/// pressure.
const WRITE_BYTES_MAX: usize = 4096;

/// The port.
pub(crate) struct Port {
    file: File,
}

impl Port {
    /// Waits for the port to appear and opens it.
    pub(crate) fn open() -> Result<Port, String> {
        if let Some(name) = console() {
            let opened = open_console(&Path::new("/dev").join(&name));
            return opened.map(|file| Port { file }).map_err(|error| format!("{name}: {error}"));
        }
        let deadline = Instant::now() + FIND_TIME_MAX;
        loop {
            match try_open() {
                Ok(file) => return Ok(Port { file }),
                Err(error) if Instant::now() >= deadline => {
                    return Err(format!("virtio-serial port `{PORT_NAME}`: {error}"));
                }
                Err(_) => std::thread::sleep(FIND_PAUSE),
            }
        }
    }

    /// File descriptor to poll.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Whether the host is connected.
    pub(crate) fn connected(&self) -> bool {
        let mut fds = [PollFd::new(&self.file, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&now)).is_ok()
            && !fds[0].revents().contains(PollFlags::HUP)
    }

    /// Reads what is available; 0 if nothing is.
    pub(crate) fn read(&mut self, chunk: &mut [u8]) -> Result<usize, String> {
        zero_if_blocked(self.file.read(chunk)).map_err(|error| format!("reading the port: {error}"))
    }

    /// Writes what it can without blocking; 0 if nothing.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let some = &bytes[..bytes.len().min(WRITE_BYTES_MAX)];
        zero_if_blocked(self.file.write(some)).map_err(|error| format!("writing the port: {error}"))
    }
}

fn zero_if_blocked(done: io::Result<usize>) -> io::Result<usize> {
    use io::ErrorKind::{Interrupted, WouldBlock};
    match done {
        Err(error) if matches!(error.kind(), Interrupted | WouldBlock) => Ok(0),
        other => other,
    }
}

/// The console that the kernel's arguments name.
pub(crate) fn console() -> Option<String> {
    let arguments = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    console_of(&arguments).map(str::to_owned)
}

fn console_of(arguments: &str) -> Option<&str> {
    arguments.split_whitespace().find_map(|argument| argument.strip_prefix(PORT_ARGUMENT))
}

/// Opens a terminal that passes on every byte unchanged.
fn open_console(device: &Path) -> io::Result<File> {
    let file = open_device(device)?;
    let mut settings = tcgetattr(&file)?;
    settings.make_raw();
    tcsetattr(&file, OptionalActions::Now, &settings)?;
    Ok(file)
}

fn open_device(device: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    File::options().read(true).write(true).custom_flags(flags).open(device)
}

fn try_open() -> io::Result<File> {
    for port in fs::read_dir("/sys/class/virtio-ports")?.flatten() {
        let name = fs::read_to_string(port.path().join("name")).unwrap_or_default();
        if name.trim() == PORT_NAME {
            return open_device(&Path::new("/dev").join(port.file_name()));
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "no port has this name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_console_is_named_by_the_kernels_arguments() {
        assert_eq!(console_of("quiet ballast.port=hvc0 panic=-1\n"), Some("hvc0"));
        assert_eq!(console_of("console=ttyS0 quiet\n"), None);
    }
}
