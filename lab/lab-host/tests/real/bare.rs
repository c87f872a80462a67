//! A QEMU with the page tracker, and a guest of ninety bytes, for tests.
//!
//! Idea: testing the tracker inside a real hypervisor needs no operating system. The firmware of
//! this guest goes through its memory forever, page after page, and adds one to the first word of
//! each page. So it is ready at once, touches known pages, and its progress can be read from the
//! file of its memory without touching a mapping of it.
//!
//! Limits: one virtual processor; no devices, no system calls into guest memory.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::host_side::PATIENCE;
use ballast_lab_host::{NESTED_VARIABLE, TRACK_LIBRARY};
use ballast_tracker::{IntervalObservation, TrackerError, TrackingSession, WatchSettings};
use ballast_tracker_proto::{
    Granule, GranuleSample, RefusalReason, SOCKET_VARIABLE, TrackerAddress, TrackerRefusal,
    WatchMode,
};

/// The guest's memory.
pub(crate) const MEMORY: u64 = 64 << 20;
/// The number of pages that it touches, from address `FIRST` on.
pub(crate) const TOUCHED: u64 = 4096;
const FIRST: u64 = 1 << 20;

/// The firmware: switches from real mode to 32 bits, then touches pages.
const FIRMWARE: [u8; 86] = [
    0xfa, // cli
    0x2e, 0x66, 0x0f, 0x01, 0x16, 0x50, 0x00, // lgdt cs:[0x50]
    0x0f, 0x20, 0xc0, // mov eax, cr0
    0x0c, 0x01, // or al, 1
    0x0f, 0x22, 0xc0, // mov cr0, eax
    0x66, 0xea, 0x18, 0x00, 0x0f, 0x00, 0x08, 0x00, // jmp 8:0xf0018
    0x66, 0xb8, 0x10, 0x00, // mov ax, 16
    0x8e, 0xd8, // mov ds, ax
    0xbf, 0x00, 0x00, 0x10, 0x00, // again: mov edi, 0x100000
    0xb9, 0x00, 0x10, 0x00, 0x00, // mov ecx, 4096
    0xff, 0x07, // next: inc dword [edi]
    0x81, 0xc7, 0x00, 0x10, 0x00, 0x00, // add edi, 4096
    0x49, // dec ecx
    0x75, 0xf5, // jnz next
    0xeb, 0xe9, // jmp again
    0, 0, 0, // to a multiple of 8
    0, 0, 0, 0, 0, 0, 0, 0, // 0x38, the table: nothing,
    0xff, 0xff, 0x00, 0x00, 0x00, 0x9b, 0xcf, 0x00, // code, all of memory,
    0xff, 0xff, 0x00, 0x00, 0x00, 0x93, 0xcf, 0x00, // and data
    0x17, 0x00, 0x38, 0x00, 0x0f, 0x00, // 0x50: 24 bytes at 0xf0038
];
const FIRMWARE_LEN: usize = 1 << 16;
/// The address at which the processor begins, and a jump to the first byte.
const RESET: usize = 0xfff0;
const JUMP: [u8; 3] = [0xe9, 0x0d, 0x00];

/// Whether QEMU uses KVM: it does in an outer machine of `ballast-lab nested`, where KVM is known
/// to work.
pub(crate) fn is_kvm() -> bool {
    std::env::var_os(NESTED_VARIABLE).is_some()
}

/// How the QEMU is started.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// The memory backend, without its identifier and size.
    pub(crate) backend: String,
    pub(crate) is_daemonized: bool,
    /// Whether the tracker is loaded.
    pub(crate) has_tracker: bool,
    /// The user it runs as; `None`: this one.
    pub(crate) user: Option<u32>,
    pub(crate) more: Vec<String>,
}

impl Default for Spec {
    fn default() -> Spec {
        Spec {
            backend: "memory-backend-memfd,share=on".to_owned(),
            is_daemonized: false,
            has_tracker: true,
            user: None,
            more: Vec::new(),
        }
    }
}

/// A running QEMU with its guest.
pub(crate) struct Bare {
    folder: tempfile::TempDir,
    pub(crate) pid: u32,
    child: Option<Child>,
}

impl Bare {
    pub(crate) fn start(spec: &Spec) -> Bare {
        // The path is short enough for sockets, and every user may enter the folder.
        let folder = tempfile::Builder::new().prefix("bare").tempdir_in("/tmp").unwrap();
        if let Some(user) = spec.user {
            std::os::unix::fs::chown(folder.path(), Some(user), Some(user)).unwrap();
        }
        let at = |name: &str| folder.path().join(name).display().to_string();
        fs::write(at("firmware"), firmware()).unwrap();
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(["-nodefaults", "-no-user-config", "-display", "none"])
            .args(["-accel", if is_kvm() { "kvm" } else { "tcg" }])
            .args(["-object", &format!("{},id=ram,size={MEMORY}", spec.backend)])
            .args(["-machine", "q35,memory-backend=ram"])
            .args(["-m", &format!("{}M", MEMORY >> 20), "-bios", &at("firmware")])
            .args(["-qmp", &format!("unix:{},server=on,wait=off", at("qmp"))])
            .args(["-pidfile", &at("pid")])
            .args(&spec.more)
            .stdin(Stdio::null());
        if spec.has_tracker {
            // Copied, because the user it runs as may not be able to read the build folder.
            let library = TRACK_LIBRARY.find().expect("scripts/build guest");
            fs::copy(library, at("library.so")).unwrap();
            command.env("LD_PRELOAD", at("library.so")).env(SOCKET_VARIABLE, at("track"));
        }
        if let Some(user) = spec.user {
            // The group is changed, too.
            command.uid(user).gid(user);
        }
        let child = if spec.is_daemonized {
            let ended = command.arg("-daemonize").status().unwrap();
            assert!(ended.success(), "{ended}");
            None
        } else {
            Some(command.spawn().unwrap())
        };
        let mut bare = Bare { folder, pid: 0, child };
        wait_until("the hypervisor's process", || {
            let ended = bare.child.as_mut().map(|child| child.try_wait().unwrap());
            assert!(!matches!(ended, Some(Some(_))), "it has ended: {ended:?}");
            let pid = fs::read_to_string(bare.at("pid")).unwrap_or_default();
            bare.pid = pid.trim().parse().unwrap_or(0);
            bare.pid != 0 && bare.at("qmp").exists()
        });
        // QEMU answers once everything is set up.
        let status = bare.execute("query-status", "");
        assert!(status.contains("return"), "{status}");
        bare
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn tracker(&self) -> TrackerAddress {
        TrackerAddress::new(self.at("track"))
    }

    /// Tracks it as root may, without passing it a userfaultfd, once its previous client is
    /// forgotten.
    pub(crate) fn track(&self) -> Result<TrackingSession, TrackerError> {
        let end = Instant::now() + PATIENCE;
        loop {
            match TrackingSession::begin(self.pid, &self.tracker(), &[], None) {
                // On a busy machine the tracker may not hear from this test for a second.
                Err(TrackerError::Refused(TrackerRefusal {
                    reason: RefusalReason::Busy | RefusalReason::Silent,
                    ..
                })) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
                tracking => return tracking,
            }
        }
    }

    /// The file of its memory, if that is a single memfd.
    pub(crate) fn memory(&self) -> File {
        let files = fs::read_dir(format!("/proc/{}/fd", self.pid)).unwrap().flatten();
        let is_memory = |path: &PathBuf| {
            let target = fs::read_link(path).unwrap_or_default();
            target.to_string_lossy().starts_with("/memfd:memory-backend-memfd")
        };
        let path = files.map(|file| file.path()).find(is_memory).expect("the file of its memory");
        File::open(path).unwrap()
    }

    /// Sends a command to QEMU and returns the answer.
    pub(crate) fn qmp(&self, command: &str) -> String {
        let mut socket = Err(std::io::ErrorKind::NotConnected.into());
        // The socket exists a moment before QEMU listens on it.
        wait_until("QEMU to listen", || {
            socket = UnixStream::connect(self.at("qmp"));
            socket.is_ok()
        });
        crate::qmp::ask(&socket.unwrap(), command)
    }

    pub(crate) fn execute(&self, name: &str, arguments: &str) -> String {
        self.qmp(&format!("{{\"execute\":\"{name}\",\"arguments\":{{{arguments}}}}}"))
    }

    /// Whether any of its memory is registered with a userfaultfd for minor faults.
    pub(crate) fn is_registered(&self) -> bool {
        has_flag(self.pid, "ui")
    }

    /// Waits until a tracker has seen every page that it touches, and nothing of the tracking is
    /// left.
    pub(crate) fn sees_all(&self) {
        wait_until("every page to be seen", || sees(&mut self.track().unwrap()));
        wait_until("permissions to be restored", || !self.is_registered());
    }

    /// Waits until it has gone through its memory several more times.
    pub(crate) fn goes_on(&self, memory: &File) {
        let before = passes(memory);
        wait_until("the guest to go on", || passes(memory).wrapping_sub(before) >= 3);
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        } else if let Ok(pid) = i32::try_from(self.pid)
            && let Some(pid) = rustix::process::Pid::from_raw(pid)
            && is_of(self.pid, self.folder.path())
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// Whether a process was started with `folder` on its command line: its process id may belong to
/// another process by now.
fn is_of(pid: u32, folder: &Path) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).contains(&folder.display().to_string())
}

/// Whether a mapping of a process has the flag `wanted`; `ui`: it is registered with a userfaultfd
/// for minor faults.
pub(crate) fn has_flag(pid: u32, wanted: &str) -> bool {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let mut flags = smaps.lines().filter_map(|line| line.strip_prefix("VmFlags:"));
    flags.any(|flags| flags.split_ascii_whitespace().any(|flag| flag == wanted))
}

fn firmware() -> Vec<u8> {
    let mut bytes = vec![0; FIRMWARE_LEN];
    bytes[..FIRMWARE.len()].copy_from_slice(&FIRMWARE);
    bytes[RESET..RESET + JUMP.len()].copy_from_slice(&JUMP);
    bytes
}

/// How often the guest has begun to go through its memory.
pub(crate) fn passes(memory: &File) -> u32 {
    let mut word = [0; 4];
    memory.read_exact_at(&mut word, FIRST).unwrap();
    u32::from_le_bytes(word)
}

pub(crate) fn every(granule: u32) -> WatchSettings {
    let mode = WatchMode { granule: Granule::new(granule).unwrap(), sample: GranuleSample::ALL };
    WatchSettings { mode, hot_granules: 0 }
}

pub(crate) fn interval(
    tracking: &mut TrackingSession,
    watching: WatchSettings,
    length: Duration,
) -> Result<IntervalObservation, TrackerError> {
    tracking.begin_interval(Some(watching))?;
    tracking.track_for(length)?;
    Ok(tracking.end_interval()?.expect("it was watched"))
}

/// Whether an interval saw every page that the guest touches, and hardly any other.
pub(crate) fn sees(tracking: &mut TrackingSession) -> bool {
    // On a busy machine the tracker may not hear from this test for a second.
    // In an outer machine a trap takes a third of a millisecond.
    let length = if is_kvm() { Duration::from_secs(3) } else { Duration::from_millis(300) };
    interval(tracking, every(1), length).is_ok_and(|observed| {
        let first = tracking.regions()[0].first_page + FIRST / 4096;
        let seen: std::collections::BTreeSet<u64> = observed.touches.iter().copied().collect();
        assert!(observed.lost == 0 && seen.len() as u64 <= TOUCHED + 64, "{}", seen.len());
        (first..first + TOUCHED).all(|page| seen.contains(&page))
    })
}

pub(crate) fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !reached() {
        assert!(Instant::now() < end, "did not come about: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
