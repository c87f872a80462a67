//! Whether a passed-through device or private guest memory pins a guest's memory on the host, as
//! shown by its hypervisor's open files.
//!
//! Idea: every hypervisor holds a file open for each passed-through device and for private guest
//! memory: `/dev/vfio/…`, `/dev/vhost-vdpa-…`, `/dev/sev`, a `guest_memfd`. The names are in the
//! links in `/proc/<pid>/fd`.
//! Cost: one link per open file, some 60 µs for QEMU. Source: Linux, virt/kvm/guest_memfd.c,
//! drivers/vfio/vfio_main.c. Limits: needs the right to inspect the process; TDX has no file of its
//! own and shows as `guest_memfd`.

use std::fs;
use std::io;
use std::path::Path;

use ballast_model::Pinned;

/// Most open files of a process that are examined.
const FILES_MAX: usize = 4096;

/// What pins the guest's memory, by the open files of process `pid` in `proc`; `None`: nothing.
///
/// # Errors
/// The files cannot be listed: the process has ended, or this process lacks the right.
pub fn read_pinned(proc: &Path, pid: u32) -> io::Result<Option<Pinned>> {
    let entries = fs::read_dir(proc.join(pid.to_string()).join("fd"))?;
    let (mut encrypts, mut is_private, mut passes_through) = (false, false, false);
    for entry in entries.take(FILES_MAX).filter_map(Result::ok) {
        // A file that was closed meanwhile has no link.
        let Ok(name) = fs::read_link(entry.path()) else { continue };
        match name.to_str().and_then(pinned_by) {
            Some(Pinned::Sev) => encrypts = true,
            Some(Pinned::GuestMemfd) => is_private = true,
            Some(_) => passes_through = true,
            None => {}
        }
    }
    // Encryption says most, then private memory, then a device.
    Ok(match (encrypts, is_private) {
        (true, true) => Some(Pinned::SevSnp),
        (true, false) => Some(Pinned::Sev),
        (false, true) => Some(Pinned::GuestMemfd),
        (false, false) => passes_through.then_some(Pinned::Passthrough),
    })
}

/// The kind of pinning that an open file of this name shows; `None`: none.
pub fn pinned_by(name: &str) -> Option<Pinned> {
    let begins = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
    if name == "/dev/sev" {
        Some(Pinned::Sev)
    } else if begins(&["anon_inode:[kvm-gmem]", "anon_inode:[guest_memfd]", "/kvm-gmem"]) {
        Some(Pinned::GuestMemfd)
    } else if begins(&["/dev/vfio/", "/dev/vhost-vdpa-", "anon_inode:[vfio-device]"]) {
        Some(Pinned::Passthrough)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn open_files_say_what_pins_memory() {
        let proc = tempfile::tempdir().unwrap();
        let files = proc.path().join("7/fd");
        fs::create_dir_all(&files).unwrap();
        let mut open = 0;
        let mut pinned_with = |name: &str| {
            open += 1;
            symlink(name, files.join(open.to_string())).unwrap();
            read_pinned(proc.path(), 7).unwrap()
        };
        assert_eq!(pinned_with("/dev/kvm"), None);
        assert_eq!(pinned_with("anon_inode:kvm-vm"), None);
        assert_eq!(pinned_with("/dev/vfio/vfio"), Some(Pinned::Passthrough));
        assert_eq!(pinned_with("anon_inode:[kvm-gmem]"), Some(Pinned::GuestMemfd));
        assert_eq!(pinned_with("/dev/sev"), Some(Pinned::SevSnp), "that says more");
        assert_eq!(pinned_by("/dev/sev"), Some(Pinned::Sev));
        assert!(read_pinned(proc.path(), 8).is_err(), "there is none");
        assert_eq!(read_pinned(Path::new(crate::PROC), std::process::id()).unwrap(), None);
    }
}
