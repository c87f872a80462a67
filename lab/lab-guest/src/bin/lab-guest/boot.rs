//! The set-up of a guest at boot.
//!
//! Idea: the steps of a distribution's init that a lab needs: file systems, kernel modules,
//! busybox's commands, swap, loopback. A failure that is not fatal becomes a complaint that is sent
//! to the host. The initramfs must contain this program as `/init`, `/bin/busybox`, and the modules
//! that `/lib/modules/load-order` lists.
//! Limits: only virtio disks, identified by their serial numbers, and Xen disks, identified by
//! their names.

use std::ffi::c_int;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ballast_lab_guest::procfs;
use ballast_lab_guest::protocol::{
    DATA_DISK_SERIAL, DATA_DISK_XEN, MODULE_LIST_PATH, Ready, SWAP_DISK_SERIAL, SWAP_DISK_XEN,
};
use rustix::io::Errno;
use rustix::mm::MlockAllFlags;
use rustix::mount::MountFlags;

use crate::child::{INIT_NICE, SEARCH_PATH};

/// Most complaints kept.
const COMPLAINTS_MAX: usize = 32;
/// Longest wait for Xen disks, and the time between two polls.
const XEN_DISKS_TIME_MAX: Duration = Duration::from_secs(20);
const XEN_DISKS_PAUSE: Duration = Duration::from_millis(50);
/// Makes the kernel decompress the module (`MODULE_INIT_COMPRESSED_FILE` of `linux/module.h`).
const MODULE_IS_COMPRESSED: c_int = 4;

/// The result of setting up a guest.
pub(crate) struct BootedGuest {
    /// What the host is sent.
    pub(crate) ready: Ready,
    /// The data disk's device.
    pub(crate) data_disk: Option<PathBuf>,
}

/// Sets the guest up.
pub(crate) fn boot() -> Result<BootedGuest, String> {
    let mut complaints = Complaints::default();
    mount_all(&mut complaints)?;
    load_modules(&mut complaints);
    busybox(&["--install", "-s", "/bin"], &mut complaints);
    busybox(&["ifconfig", "lo", "127.0.0.1"], &mut complaints);
    stay_responsive(&mut complaints);
    wait_for_xen_disks(&mut complaints);
    if let Some(disk) = disk(SWAP_DISK_SERIAL, SWAP_DISK_XEN) {
        let disk = disk.display().to_string();
        busybox(&["mkswap", &disk], &mut complaints);
        busybox(&["swapon", &disk], &mut complaints);
    }
    let data_disk = disk(DATA_DISK_SERIAL, DATA_DISK_XEN);
    let memory = procfs::meminfo(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
    let ready = Ready {
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        memory_total: memory.total,
        swap_total: memory.swap_total.filter(|total| total.get() > 0),
        data_disk: data_disk.is_some(),
        complaints: complaints.0,
    };
    Ok(BootedGuest { ready, data_disk })
}

/// Failures that did not stop the boot; each is also printed on the console.
#[derive(Default)]
struct Complaints(Vec<String>);

impl Complaints {
    fn add(&mut self, complaint: String) {
        eprintln!("lab-guest: {complaint}");
        if self.0.len() < COMPLAINTS_MAX {
            self.0.push(complaint);
        }
    }
}

fn mount_all(complaints: &mut Complaints) -> Result<(), String> {
    // Only the first three are essential.
    for (kind, place, needed) in [
        ("proc", "/proc", true),
        ("sysfs", "/sys", true),
        ("devtmpfs", "/dev", true),
        ("devpts", "/dev/pts", false),
        ("tmpfs", "/tmp", false),
        ("tmpfs", "/run", false),
    ] {
        let mounted = fs::create_dir_all(place).and_then(|()| {
            match rustix::mount::mount(kind, place, kind, MountFlags::empty(), None) {
                // The kernel may have mounted devtmpfs itself.
                Err(Errno::BUSY) => Ok(()),
                other => other.map_err(io::Error::from),
            }
        });
        match mounted {
            Err(error) if needed => return Err(format!("mount {kind} at {place}: {error}")),
            Err(error) => complaints.add(format!("mount {kind} at {place}: {error}")),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Loads the listed modules: each line has a path, then the module's parameters.
fn load_modules(complaints: &mut Complaints) {
    let list = match fs::read_to_string(MODULE_LIST_PATH) {
        Ok(list) => list,
        Err(error) => return complaints.add(format!("{MODULE_LIST_PATH}: {error}")),
    };
    for line in list.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (path, parameters) = line.split_once(' ').unwrap_or((line, ""));
        if let Err(error) = load_module(Path::new(path), parameters) {
            complaints.add(format!("module {path}: {error}"));
        }
    }
}

fn load_module(path: &Path, parameters: &str) -> io::Result<()> {
    let file = fs::File::open(Path::new("/").join(path))?;
    let parameters = std::ffi::CString::new(parameters)?;
    // Debian's newer kernels have compressed modules and can decompress them.
    let is_compressed = path.extension().is_some_and(|extension| extension != "ko");
    let flags = if is_compressed { MODULE_IS_COMPRESSED } else { 0 };
    match rustix::system::finit_module(&file, &parameters, flags) {
        Err(Errno::EXIST) => Ok(()),
        other => Ok(other?),
    }
}

fn busybox(arguments: &[&str], complaints: &mut Complaints) {
    let output = Command::new("/bin/busybox").args(arguments).env("PATH", SEARCH_PATH).output();
    let complaint = match output {
        Ok(output) if output.status.success() => return,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    complaints.add(format!("busybox {}: {complaint}", arguments.join(" ")));
}

/// Keeps process 1 responsive while the guest thrashes: it must not fault its own pages in or be
/// killed.
fn stay_responsive(complaints: &mut Complaints) {
    if let Err(error) = rustix::mm::mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE) {
        complaints.add(format!("mlockall: {error}"));
    }
    if let Err(error) = fs::write("/proc/self/oom_score_adj", "-1000") {
        complaints.add(format!("oom_score_adj: {error}"));
    }
    let faster = rustix::process::setpriority_process(None, INIT_NICE);
    if let Err(error) = faster {
        complaints.add(format!("setpriority: {error}"));
    }
}

/// Waits until the drivers of Xen disks are connected to the host: they connect only after they are
/// loaded.
fn wait_for_xen_disks(complaints: &mut Complaints) {
    let deadline = Instant::now() + XEN_DISKS_TIME_MAX;
    let wanted = || {
        let devices = fs::read_dir("/sys/bus/xen/devices").into_iter().flatten().flatten();
        devices.filter(|it| it.file_name().to_string_lossy().starts_with("vbd-")).count()
    };
    let found =
        || [SWAP_DISK_XEN, DATA_DISK_XEN].iter().filter(|name| xen_disk(name).is_some()).count();
    while found() < wanted() {
        if Instant::now() > deadline {
            return complaints.add(format!("{} of {} disks of Xen", found(), wanted()));
        }
        std::thread::sleep(XEN_DISKS_PAUSE);
    }
}

fn xen_disk(name: &str) -> Option<PathBuf> {
    Path::new("/sys/block").join(name).exists().then(|| Path::new("/dev").join(name))
}

/// The device of the virtio disk with the serial number `serial`, or of the Xen disk named `xen`.
fn disk(serial: &str, xen: &str) -> Option<PathBuf> {
    xen_disk(xen).or_else(|| disk_with_serial(serial))
}

/// The device of the virtio disk with a given serial number.
fn disk_with_serial(serial: &str) -> Option<PathBuf> {
    let mut disks: Vec<_> = fs::read_dir("/sys/block").ok()?.flatten().collect();
    disks.sort_by_key(fs::DirEntry::file_name);
    let disk = disks.iter().find(|disk| {
        let found = fs::read_to_string(disk.path().join("serial"));
        found.is_ok_and(|found| found.trim() == serial)
    })?;
    Some(Path::new("/dev").join(disk.file_name()))
}
