//! The file system on the data disk.
//!
//! Idea: the first workload that needs it creates it, in that workload's own process: on a
//! throttled disk this takes long, and nothing else should wait for it. A lock prevents two
//! workloads from doing it at once. An existing file system is kept.
//! Limits: ext2, because it is created quickly and has no journal that causes writes of its own.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::FlockOperation;
use rustix::mount::MountFlags;

/// Where it is mounted.
const MOUNT_POINT: &str = "/data";
/// Locked while the file system is created.
const LOCK_PATH: &str = "/tmp/data-disk.lock";
/// Block size: one page, since smaller blocks would need several requests per page.
const BLOCK_BYTES: &str = "4096";
/// Bytes per inode: files are few and large, so fewer inodes mean shorter tables to write.
const BYTES_PER_INODE: &str = "4194304";
/// Offset and value of the magic number of ext2 and its successors (`s_magic` in the kernel's
/// `fs/ext4/ext4.h`).
const MAGIC: (u64, [u8; 2]) = (1024 + 56, [0x53, 0xEF]);

/// Mounts the disk unless it is mounted, and returns its mount point.
pub(crate) fn mounted(device: &Path) -> Result<&'static Path, String> {
    let lock = File::create(LOCK_PATH).map_err(|error| format!("{LOCK_PATH}: {error}"))?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive)
        .map_err(|error| format!("{LOCK_PATH}: {error}"))?;
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    if !mounts.lines().any(|line| line.split(' ').nth(1) == Some(MOUNT_POINT)) {
        if !has_file_system(device)? {
            make(device)?;
        }
        mount(device)?;
    }
    Ok(Path::new(MOUNT_POINT))
}

fn has_file_system(device: &Path) -> Result<bool, String> {
    let (at, magic) = MAGIC;
    let mut found = [0; 2];
    File::open(device)
        .and_then(|disk| disk.read_exact_at(&mut found, at))
        .map_err(|error| format!("{}: {error}", device.display()))?;
    Ok(found == magic)
}

fn make(device: &Path) -> Result<(), String> {
    let output = Command::new("/bin/busybox")
        .args(["mke2fs", "-m", "0", "-b", BLOCK_BYTES, "-i", BYTES_PER_INODE])
        .arg(device)
        .output()
        .map_err(|error| format!("busybox mke2fs: {error}"))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(format!("busybox mke2fs {}: {}", device.display(), error.trim()));
    }
    Ok(())
}

fn mount(device: &Path) -> Result<(), String> {
    fs::create_dir_all(MOUNT_POINT).map_err(|error| format!("{MOUNT_POINT}: {error}"))?;
    // Depending on its configuration, the kernel has ext2 only under the name of ext4.
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let kind =
        ["ext2", "ext4"].into_iter().find(|kind| known.lines().any(|line| line.trim() == *kind));
    let Some(kind) = kind else {
        return Err("the kernel knows neither ext2 nor ext4: is the ext4 module loaded?".to_owned());
    };
    rustix::mount::mount(device, MOUNT_POINT, kind, MountFlags::NOATIME, None)
        .map_err(|error| format!("mount {} as {kind} at {MOUNT_POINT}: {error}", device.display()))
}
