//! Working-set size without a tracker, from the kernel's referenced bits.
//!
//! Clears the referenced bit of every page-table entry of the hypervisor (`clear_refs`); later
//! `smaps` shows how much guest memory has it again. Needs nothing from the hypervisor, and hardly
//! disturbs the guest.
//!
//! Cost: 1.5 to 9 ms to clear and 8 to 25 ms to read for guests of some hundred MiB, more for
//! larger ones. The host's reclaim loses its referenced bits too.
//! Source: proc_pid_clear_refs(5), proc_pid_smaps(5).
//! Limits: not for guests under KVM, whose touches the process's own bits do not show; these are
//! refused ([`check_referenced_bits`]). A total only, so no miss curve. A touched huge page counts
//! whole. Shared memory only, as in [`memory_files`](crate::memory_files).

use std::fs;
use std::path::Path;

use ballast_tracker_proto::Mapping;

use crate::error::TrackerError;
use crate::kvm::check_referenced_bits;
use crate::proc_file::{SMAPS_BYTES_MAX, read_text};
use crate::regions::is_guest_memory;

/// Clears the referenced bits of a process.
///
/// # Errors
/// [`TrackerError::Kvm`]; the process is gone, or belongs to another user.
pub fn clear_referenced(pid: u32) -> Result<(), TrackerError> {
    check_referenced_bits(Path::new("/proc"), pid)?;
    let cleared = fs::write(format!("/proc/{pid}/clear_refs"), "1");
    cleared.map_err(TrackerError::io("clear the hypervisor's referenced bits"))
}

/// Bytes of guest memory referenced since the bits were cleared; `paths` are those of file-backed
/// memory.
///
/// # Errors
/// The process is gone, belongs to another user, or has mappings of too long a text (64 MiB).
pub fn referenced(pid: u32, paths: &[&str]) -> Result<u64, TrackerError> {
    let smaps = read_text(Path::new(&format!("/proc/{pid}/smaps")), SMAPS_BYTES_MAX);
    Ok(parse_referenced(&smaps.map_err(TrackerError::io("read the hypervisor's mappings"))?, paths))
}

/// Sums the referenced guest memory in the text of `smaps`, in bytes; `paths` are those of
/// file-backed memory.
pub fn parse_referenced(smaps: &str, paths: &[&str]) -> u64 {
    let mut is_guest = false;
    let mut sum = 0_u64;
    for line in smaps.lines() {
        if let Some(rest) = line.strip_prefix("Referenced:") {
            let kib = rest.trim().strip_suffix(" kB").and_then(|kib| kib.parse::<u64>().ok());
            if is_guest {
                sum = sum.saturating_add(kib.unwrap_or(0).saturating_mul(1024));
            }
        } else if let Some(mapping) = Mapping::parse(line) {
            is_guest = is_guest_memory(&mapping, paths);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn referenced_guest_memory_is_summed() {
        let smaps = "\
7f00-8f00 rw-s 00000000 00:01 5 /memfd:memory-backend-memfd (deleted)
Size:                  4 kB
Referenced:         2048 kB
Anonymous:             0 kB
8f00-9f00 rw-p 00000000 00:00 0 [heap]
Referenced:        99999 kB
9f00-af00 rw-s 00000000 00:01 6 /dev/shm/ram
Referenced:            4 kB
VmFlags: rd wr sh
";
        assert_eq!(parse_referenced(smaps, &[]), 2 << 20);
        assert_eq!(parse_referenced(smaps, &["/dev/shm/ram"]), (2 << 20) + 4096);
        assert_eq!(parse_referenced("", &[]), 0);
    }
}
