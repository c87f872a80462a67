//! A guest's QEMU once more, into which the guest moves.
//!
//! Idea: the same command line as that of the QEMU it moves out of, as `/proc` has it, with other
//! names for all that can be there once, and waiting for the guest to come in. Limits: guests
//! without disks, whose files are inherited.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ballast_lab_guest::protocol::{FromGuest, PROTOCOL_VERSION, ToGuest};
use serde_json::json;

use super::monitor::Monitor;
use super::{CHECKSUM, Data};
use crate::harness::wait_for;

const INCOMING: &str = "-incoming";
const SECOND_QMP: &str = "qmp";
/// The lab's port, by the name of its device.
const CHANNEL: &str = "lab";
const CONSOLE_LOG: &str = "log";
/// What a kernel prints on its console when it dies.
const DEATHS: [&str; 3] = ["Oops: ", "Kernel panic", "general protection fault"];
const CHANNEL_PATIENCE: Duration = Duration::from_secs(20);

/// The QEMU that is moved into; it ends with this.
pub struct Destination {
    child: Child,
    incoming: String,
    qmp: PathBuf,
    folder: PathBuf,
}

impl Destination {
    /// Waits for the guest of process `pid`. Its QMP socket is `qmp`, everything else it makes is
    /// in `folder`.
    pub fn start(pid: i32, qmp: &Path, folder: &Path) -> Destination {
        let socket: PathBuf = folder.join("in");
        let incoming = format!("unix:{}", socket.display());
        let destination = Destination::spawn(pid, qmp, folder, &[INCOMING, &incoming]);
        wait_for("the QEMU to move into", || socket.exists().then_some(()));
        destination
    }

    /// The same, but it listens nowhere until an order comes, and does not start the guest.
    pub fn empty(pid: i32, qmp: &Path, folder: &Path) -> Destination {
        let destination = Destination::spawn(pid, qmp, folder, &[INCOMING, "defer", "-S"]);
        let monitor = destination.second_qmp();
        wait_for("the QEMU to move into", || UnixStream::connect(&monitor).ok());
        destination
    }

    fn spawn(pid: i32, qmp: &Path, folder: &Path, waits: &[&str]) -> Destination {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        let words: Vec<String> = line
            .split(|byte| *byte == 0)
            .filter(|word| !word.is_empty())
            .map(|word| String::from_utf8(word.to_vec()).unwrap())
            // One that was moved into itself: that comes last.
            .take_while(|word| word != INCOMING)
            .collect();
        let mut sockets = 0;
        let mut renamed = |word: &String| match word {
            word if word.starts_with("unix:") => {
                sockets += 1;
                let path = if sockets == 1 { qmp.to_owned() } else { folder.join(SECOND_QMP) };
                format!("unix:{},server=on,wait=off", path.display())
            }
            word if word.starts_with("socket,id=") => {
                let (device, _) = word.split_once(",path=").unwrap();
                let path = folder.join(device.rsplit('=').next().unwrap());
                format!("{device},path={},server=on,wait=off", path.display())
            }
            word if word.starts_with("file:") => {
                format!("file:{}", folder.join(CONSOLE_LOG).display())
            }
            word => word.clone(),
        };
        let arguments: Vec<String> = words[1..].iter().map(&mut renamed).collect();
        let child = Command::new(&words[0])
            .args(arguments)
            .args(waits)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let incoming = waits[1].to_owned();
        Destination { child, incoming, qmp: qmp.to_owned(), folder: folder.to_owned() }
    }

    /// A QMP socket that the daemon does not use.
    pub fn second_qmp(&self) -> PathBuf {
        self.folder.join(SECOND_QMP)
    }

    /// Of its process.
    pub fn pid(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    /// By its second QMP socket.
    pub fn monitor(&self) -> Monitor {
        Monitor::connect(&self.second_qmp())
    }

    /// Reads all of the guest's data where it is now, and compares.
    pub fn assert_intact(&self, data: &Data) {
        let found = wait_for("the guest's answer", || self.try_shell(CHECKSUM));
        assert_eq!(found, data.sum, "data of {}", data.guest);
    }

    /// What a line of shell prints in the guest. `None`: it was not heard, as its port is about to
    /// open.
    fn try_shell(&self, line: &str) -> Option<String> {
        let mut stream = UnixStream::connect(self.folder.join(CHANNEL)).unwrap();
        stream.set_read_timeout(Some(CHANNEL_PATIENCE)).unwrap();
        let hello = ToGuest::Hello { version: PROTOCOL_VERSION, nonce: 1 };
        for message in [hello, ToGuest::shell(1, line, CHANNEL_PATIENCE.as_millis() as u64)] {
            write!(stream, "\n{}\n", serde_json::to_string(&message).unwrap()).unwrap();
        }
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        lines.find_map(|line| match serde_json::from_str(&line) {
            Ok(FromGuest::ExecDone { stdout, .. }) => Some(stdout),
            _ => None,
        })
    }

    /// Whether the guest's kernel has died here. Under emulation it may, through no fault of
    /// Ballast's: QEMU 7.2 can lose a write that a guest makes while its memory is copied.
    pub fn has_kernel_died(&self) -> bool {
        let console = std::fs::read(self.folder.join(CONSOLE_LOG)).unwrap_or_default();
        let console = String::from_utf8_lossy(&console);
        DEATHS.iter().any(|death| console.contains(death))
    }

    /// Its process is gone.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.qmp);
    }

    /// Begins to move the guest of `source`, so slowly that there is something to see: so many MiB
    /// a second.
    pub fn begin(&self, source: &mut Monitor, mib_per_s: u64) {
        source.run("migrate-set-parameters", &json!({ "max-bandwidth": mib_per_s << 20 }));
        source.run("migrate", &json!({ "uri": self.incoming }));
    }

    /// From now on as fast as can be; waits until the guest is here.
    pub fn finish(&self, source: &mut Monitor) {
        source.run("migrate-set-parameters", &json!({ "max-bandwidth": 4_u64 << 30 }));
        wait_for("the end of the move", || {
            let seen = source.run("query-migrate", &json!({}));
            assert!(!["failed", "cancelled"].contains(&seen["status"].as_str()?), "{seen}");
            (seen["status"] == "completed").then_some(())
        });
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        self.end();
    }
}
