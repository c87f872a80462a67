//! What the kinds of a hypervisor's pages say about its guest's memory.
//!
//! Idea: the kernel counts a process's pages by kind: shared, locked, in huge pages, in files on
//! disks. So they show what the hypervisor needs for itself, whether the guest's memory stays on
//! the host, and whether the resident size is all that the guest takes. Nothing here depends on
//! what a balloon driver claims: a guest that looks pinned owes no memory.
//! Cost: O(1) per guest. Limits: a hypervisor may have other huge pages than its guest's memory,
//! such as memory shared between guests; its guest then looks pinned too.

use std::time::Duration;

use ballast_host::ProcessMemory;
use ballast_model::{Bytes, GuestSample, Pinned, overhead_assumed};

use super::pager::RAM_MIN;

/// Age given to a resident size that may be incomplete: too old for any decision to use it as more
/// than a lower bound. Twice the most that `guard.stale_after` may be.
pub(super) const INCOMPLETE_AGE: Duration = Duration::from_secs(7200);

/// No hypervisor's program and libraries have more than this in files on disks; QEMU's have less
/// than 100 MiB.
const PROGRAM_MAX: Bytes = Bytes::mib(256);

/// The hypervisor's own need, if its guest's memory is shared. `None`: most of its memory is
/// private, which may include its guest's.
pub(super) fn overhead(memory: &ProcessMemory) -> Option<Bytes> {
    let shared = memory.resident_shared?;
    let private = memory.resident.saturating_sub(shared);
    let shared = shared.saturating_add(memory.huge.unwrap_or_default());
    (shared >= RAM_MIN && shared > private).then_some(private)
}

/// Judges by the kinds of a hypervisor's pages whether its guest's memory stays on the host, and
/// whether the resident size is all that the guest takes.
pub(super) fn judge_pages(sample: &mut GuestSample, memory: &ProcessMemory) {
    let present = sample.present_memory().unwrap_or_default();
    // QMP does not report `-overcommit mem-lock=on`, nor some passthrough devices. Libraries of
    // hypervisors lock some KiB of their own.
    if memory.locked >= Some(present.fraction(1, 2).max(RAM_MIN)) {
        sample.pin(Pinned::Locked);
    }
    // From the first page on: at first little of the guest's memory is filled.
    if memory.huge > Some(Bytes::ZERO) {
        sample.pin(Pinned::HugePages);
    }
    let takes_more = match sample.pinned {
        // Private memory is in no page table.
        Some(Pinned::SevSnp | Pinned::Tdx | Pinned::GuestMemfd) => true,
        // Huge pages are reserved before they are touched. But a guest that is moved by plugging
        // gets no more than it was seen to fill.
        Some(Pinned::HugePages) => sample.hotplug.is_none(),
        _ => false,
    };
    let Some(resident) = &mut sample.resident else { return };
    // The kernel writes guest memory in files on disks back when it needs the room, so that is
    // available memory of the host. A guest whose memory is elsewhere can fill such files too (an
    // initial ramdisk, persistent memory, the snapshot that it began from), but can hide no more
    // memory in this way than its hypervisor may need.
    let in_files = memory.resident_file.unwrap_or_default();
    let rest = memory.occupied(None).saturating_sub(in_files);
    let is_on_disk = in_files > rest.max(PROGRAM_MAX) && rest <= overhead_assumed(present);
    if is_on_disk {
        resident.value = rest;
    }
    if is_on_disk || takes_more {
        resident.age = INCOMPLETE_AGE;
    }
}

#[cfg(test)]
mod tests {
    use ballast_model::{Hotplug, HotplugKind, LinkState, Measured};

    use super::*;

    /// A guest with 4 GiB whose driver claims that the balloon has all of it.
    fn judged(memory: &ProcessMemory, by: Option<Pinned>, plugs: bool) -> GuestSample {
        let mut sample = GuestSample::unknown("web".parse().unwrap(), LinkState::Up);
        sample.boot_memory = Some(Bytes::gib(4));
        sample.hotplug = plugs.then_some(Hotplug {
            kind: HotplugKind::VirtioMem,
            plugged: Bytes::ZERO,
            requested: Bytes::ZERO,
            max: Bytes::gib(4),
            block: Bytes::mib(2),
        });
        sample.allocation = Some(Measured::fresh(Bytes::ZERO));
        sample.resident = Some(Measured::fresh(memory.occupied(None)));
        if let Some(by) = by {
            sample.pin(by);
        }
        judge_pages(&mut sample, memory);
        sample
    }

    #[test]
    fn kinds_of_pages_show_what_stays_on_the_host() {
        let plain = ProcessMemory { resident: Bytes::mib(300), ..ProcessMemory::default() };
        let locked = |kib| ProcessMemory { locked: Some(Bytes::kib(kib)), ..plain };
        let huge = |mib| ProcessMemory { huge: Some(Bytes::mib(mib)), ..plain };
        for (memory, expected) in [
            (plain, None),
            (locked(0), None),
            (locked(32), None),
            (locked(1 << 20), None),
            (locked(2 << 20), Some(Pinned::Locked)),
            (huge(0), None),
            (huge(2), Some(Pinned::HugePages)),
        ] {
            let found = judged(&memory, None, false);
            assert_eq!(found.pinned, expected, "{memory:?}");
            assert_eq!(found.capabilities.discard_inhibited == Some(true), expected.is_some());
        }
    }

    #[test]
    fn a_size_that_lacks_guest_memory_is_no_present_size() {
        let plain = ProcessMemory { resident: Bytes::mib(600), ..ProcessMemory::default() };
        for (by, plugs, is_whole) in [
            (None, false, true),
            (Some(Pinned::Passthrough), false, true),
            (Some(Pinned::Tdx), false, false),
            (Some(Pinned::Tdx), true, false),
            (Some(Pinned::HugePages), false, false),
            (Some(Pinned::HugePages), true, true),
        ] {
            let found = judged(&plain, by, plugs).resident.unwrap();
            assert_eq!(found.age < Duration::from_secs(60), is_whole, "{by:?} {plugs}");
        }
    }

    #[test]
    fn guest_memory_on_disk_is_available_memory() {
        // All that is resident, the part in files, and what counts as occupied.
        for (resident, in_files, occupied) in [
            (150, 90, 150),  // the hypervisor's program
            (600, 290, 600), // an initial ramdisk
            (2100, 2000, 100),
            (600, 500, 100),    // little of it is filled
            (3000, 2000, 3000), // persistent memory beside memory of another kind
        ] {
            let memory = ProcessMemory {
                resident: Bytes::mib(resident),
                resident_file: Some(Bytes::mib(in_files)),
                ..ProcessMemory::default()
            };
            let found = judged(&memory, None, false).resident.unwrap();
            assert_eq!(found.value, Bytes::mib(occupied), "{in_files} of {resident}");
            assert_eq!(found.age == INCOMPLETE_AGE, occupied < resident);
        }
    }
}
