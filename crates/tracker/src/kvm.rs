//! Whether a hypervisor runs its guest under KVM.
//!
//! Idea: a process with a KVM virtual machine has an open file for it, which `/proc` shows as
//! `anon_inode:kvm-vm`. The guest's touches set accessed bits in KVM's own page tables, which the
//! files of the process do not show: on Linux 6.1 and 6.12, of a guest that read 8,000 kB only 4 kB
//! counted as referenced. By those bits a busy guest would seem idle.
//! Cost: one `readlink` for each open file of the process.
//! Source: Linux, `virt/kvm/kvm_main.c` (`kvm_dev_ioctl_create_vm`).

use std::fs;
use std::path::Path;

use crate::error::TrackerError;

/// The name that `/proc` shows for the file of a virtual machine.
const VIRTUAL_MACHINE: &str = "anon_inode:kvm-vm";

/// Checks that the referenced bits of process `pid` show what its guest touches; `proc` is `/proc`.
///
/// # Errors
/// [`TrackerError::Kvm`] if they do not; or the process is gone, or belongs to another user.
pub fn check_referenced_bits(proc: &Path, pid: u32) -> Result<(), TrackerError> {
    if is_under_kvm(proc, pid)? { Err(TrackerError::Kvm) } else { Ok(()) }
}

/// Whether process `pid` has a virtual machine of KVM; `proc` is `/proc`.
///
/// # Errors
/// The process is gone, or belongs to another user.
pub(crate) fn is_under_kvm(proc: &Path, pid: u32) -> Result<bool, TrackerError> {
    let files = fs::read_dir(proc.join(format!("{pid}/fd")));
    let files = files.map_err(TrackerError::io("list the hypervisor's open files"))?;
    // A file that was closed meanwhile has no name.
    let mut names = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
    Ok(names.any(|name| name == Path::new(VIRTUAL_MACHINE)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_process_with_a_virtual_machine_is_refused() {
        let proc = tempfile::tempdir().unwrap();
        let files = proc.path().join("7/fd");
        fs::create_dir_all(&files).unwrap();
        symlink("/dev/kvm", files.join("3")).unwrap();
        symlink("anon_inode:kvm-vcpu-stats:0", files.join("4")).unwrap();
        assert!(check_referenced_bits(proc.path(), 7).is_ok(), "/dev/kvm alone is no guest");
        symlink(VIRTUAL_MACHINE, files.join("5")).unwrap();
        let error = check_referenced_bits(proc.path(), 7).unwrap_err();
        assert!(error.is_lasting() && error.to_string().contains("libballast_track.so"), "{error}");
        let gone = check_referenced_bits(proc.path(), 8).unwrap_err().to_string();
        assert!(gone.contains("open files"), "{gone}");
    }

    #[test]
    fn a_process_without_a_guest_passes() {
        assert!(check_referenced_bits(Path::new("/proc"), std::process::id()).is_ok());
    }
}
