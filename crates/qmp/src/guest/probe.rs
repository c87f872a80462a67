//! Probes a guest's capabilities.
//!
//! Idea: QEMU's folders of devices and objects are listed; the type of each entry tells what it is.
//! Then the balloon device's properties are read.
//!
//! What QMP of QEMU 7.2 shows, and what it does not:
//! - A passthrough device (`vfio-*`) or a confidential guest (`sev-guest` and the like) inhibits
//!   discarding. A `vfio-pci` device backed by a mediated device does not, but looks the same: it
//!   counts as inhibiting, because that error costs memory, not data.
//! - `vhost-vdpa` network backends and `-overcommit mem-lock=on` inhibit too and appear in no
//!   listing: look for locked memory (`VmLck`) in the process's `/proc` status.
//! - `free-page-reporting` and `deflate-on-oom` say what the device offers. A guest whose driver
//!   lacks the feature does not use it, and no stable command shows that.
//! - A balloon on huge pages frees host memory only when whole huge pages become free.

use std::collections::BTreeSet;

use ballast_model::{Capabilities, Pinned};
use serde::Deserialize;

use crate::command::ModuleNumber;

/// Folders of devices and objects that the operator created; the rest of the tree is QEMU's own.
pub(super) const FOLDERS: [&str; 3] =
    ["/machine/peripheral", "/machine/peripheral-anon", "/objects"];

/// Longest device path accepted, in bytes; whoever starts QEMU chooses the ids in it.
pub(super) const PATH_BYTES_MAX: usize = 256;

/// Most paths kept of virtio-mem devices without an id: one is used, two are ambiguous.
const ANONYMOUS_MAX: usize = 2;

/// Most modules of our own: QEMU's machines have as many slots.
pub(super) const MODULES_MAX: usize = 256;

/// Type prefix of balloon devices: `virtio-balloon-pci`, `-ccw`, `-device`, `-pci-transitional`,
/// `-pci-non-transitional`.
const BALLOON: &str = "virtio-balloon";

/// Type prefix of virtio-mem devices.
const VIRTIO_MEM: &str = "virtio-mem";

/// Type prefixes of devices and objects that inhibit discarding memory. The first match counts, so
/// a longer prefix precedes a shorter one.
const INHIBITING: [(&str, Pinned); 7] = [
    ("vfio-pci", Pinned::Passthrough),
    ("vfio-platform", Pinned::Passthrough),
    ("vfio-user", Pinned::Passthrough),
    ("vhost-vdpa", Pinned::Passthrough),
    ("sev-snp-guest", Pinned::SevSnp),
    ("sev-", Pinned::Sev),
    ("tdx-guest", Pinned::Tdx),
];

/// Type prefix of vsock devices that the host's kernel serves: `vhost-vsock-pci`, `-ccw`,
/// `-device`.
const VSOCK: &str = "vhost-vsock";

/// The reply to `qom-get /machine memory` (QEMU 7.1 and later).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct MachineMemory {
    /// Boot memory.
    pub(super) size: u64,
    /// Boot memory and the address space for memory devices; `size`, or missing, without such
    /// space.
    #[serde(default)]
    pub(super) max_size: u64,
    #[serde(default)]
    pub(super) slots: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct QomEntry<'a> {
    #[serde(borrow)]
    name: std::borrow::Cow<'a, str>,
    #[serde(borrow, rename = "type")]
    kind: std::borrow::Cow<'a, str>,
}

/// The findings of a probe so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProbeResult {
    /// Path of the balloon device.
    pub(super) balloon_path: Option<String>,
    /// Members stay `None` where the query failed.
    pub(super) capabilities: Capabilities,
    /// What inhibits discarding.
    pub(super) pinned: Option<Pinned>,
    /// Path of the vsock device, until its CID is queried.
    pub(super) vsock_path: Option<String>,
    /// CID of the vsock device.
    pub(super) vsock_cid: Option<u32>,
    /// The device does not poll the guest for statistics yet.
    pub(super) start_polling: bool,
    /// `None` if QEMU does not say.
    pub(super) machine_memory: Option<MachineMemory>,
    /// Paths of virtio-mem devices without an id, [`ANONYMOUS_MAX`] at most.
    pub(super) anonymous_virtio_mem: Vec<String>,
    /// Memory objects of our own modules, [`MODULES_MAX`] at most.
    pub(super) own_memory: BTreeSet<ModuleNumber>,
    pub(super) folders_listed: usize,
}

impl ProbeResult {
    /// Takes in the entries of one folder.
    pub(super) fn listing(&mut self, folder: &str, entries: &[QomEntry<'_>]) {
        self.folders_listed += 1;
        for entry in entries {
            let kind = entry.kind.strip_prefix("child<").unwrap_or_default();
            let path_bytes = folder.len() + 1 + entry.name.len();
            if kind.starts_with(BALLOON)
                && self.balloon_path.is_none()
                && path_bytes <= PATH_BYTES_MAX
            {
                self.balloon_path = Some(format!("{folder}/{}", entry.name));
            }
            if kind.starts_with(VSOCK) && path_bytes <= PATH_BYTES_MAX {
                self.vsock_path = Some(format!("{folder}/{}", entry.name));
            }
            if kind.starts_with(VIRTIO_MEM)
                && folder == FOLDERS[1]
                && path_bytes <= PATH_BYTES_MAX
                && self.anonymous_virtio_mem.len() < ANONYMOUS_MAX
            {
                self.anonymous_virtio_mem.push(format!("{folder}/{}", entry.name));
            }
            if folder == FOLDERS[2] && self.own_memory.len() < MODULES_MAX {
                self.own_memory.extend(ModuleNumber::of_memory(&entry.name));
            }
            let inhibiting = INHIBITING.iter().find(|(start, _)| kind.starts_with(start));
            if let Some((_, by)) = inhibiting {
                self.capabilities.discard_inhibited = Some(true);
                // A confidential guest takes precedence over a passthrough device: unplugging does
                // not release its memory either.
                self.pinned = self.pinned.filter(|it| !it.leaves_by_plugging()).or(Some(*by));
            }
        }
    }

    /// If all folders were listed, records that the guest lacks what no folder has.
    pub(super) fn folders_done(&mut self) {
        if self.folders_listed < FOLDERS.len() {
            return;
        }
        self.capabilities.discard_inhibited.get_or_insert(false);
        if self.balloon_path.is_none() {
            self.capabilities.statistics = Some(false);
            self.capabilities.free_page_reporting = Some(false);
            self.capabilities.deflate_on_oom = Some(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(listings: [&str; 3]) -> ProbeResult {
        let mut found = ProbeResult::default();
        for (folder, json) in FOLDERS.iter().zip(listings) {
            let entries: Vec<QomEntry<'_>> = serde_json::from_str(json).unwrap();
            found.listing(folder, &entries);
        }
        found.folders_done();
        found
    }

    #[test]
    fn every_kind_of_balloon_device_is_found() {
        for kind in ["virtio-balloon-pci", "virtio-balloon-ccw", "virtio-balloon-pci-transitional"]
        {
            let json = format!(r#"[{{"name":"device[0]","type":"child<{kind}>"}}]"#);
            let found = found(["[]", &json, "[]"]);
            assert_eq!(
                found.balloon_path.as_deref(),
                Some("/machine/peripheral-anon/device[0]"),
                "{kind}"
            );
            assert_eq!(found.capabilities.discard_inhibited, Some(false));
        }
    }

    #[test]
    fn devices_that_inhibit_discarding_are_found_in_any_folder() {
        for (at, kind) in [
            (0, "vfio-pci"),
            (1, "vfio-pci-nohotplug"),
            (0, "vfio-user-pci"),
            (2, "sev-guest"),
            (2, "tdx-guest"),
        ] {
            let json = format!(r#"[{{"name":"x","type":"child<{kind}>"}}]"#);
            let mut listings = ["[]"; 3];
            listings[at] = &json;
            assert_eq!(found(listings).capabilities.discard_inhibited, Some(true), "{kind}");
        }
        let entry = |kind: &str| format!(r#"[{{"name":"x","type":"child<{kind}>"}}]"#);
        let pinned =
            |device: &str, object: &str| found([&entry(device), "[]", &entry(object)]).pinned;
        assert_eq!(pinned("vfio-pci", "iothread"), Some(Pinned::Passthrough));
        assert_eq!(pinned("vfio-pci", "sev-snp-guest"), Some(Pinned::SevSnp), "that says more");
        assert_eq!(pinned("virtio-net-pci", "sev-guest"), Some(Pinned::Sev));
    }

    #[test]
    fn without_a_balloon_its_capabilities_are_false() {
        let found = found([r#"[{"name":"type","type":"string"}]"#, "[]", "[]"]);
        assert_eq!(found.balloon_path, None);
        assert_eq!(found.capabilities.statistics, Some(false));
        assert_eq!(found.capabilities.deflate_on_oom, Some(false));
    }

    #[test]
    fn an_endless_listing_leaves_few_entries() {
        let list = |kind: &str, name: &str| {
            let entry = |n| format!(r#"{{"name":"{name}{n}","type":"child<{kind}>"}}"#);
            format!("[{}]", (0..1000).map(entry).collect::<Vec<_>>().join(","))
        };
        let devices = list("virtio-mem-pci", "device");
        let objects = list("memory-backend-memfd", "ballast-mem-");
        let found = found(["[]", &devices, &objects]);
        assert_eq!(found.anonymous_virtio_mem.len(), ANONYMOUS_MAX);
        assert_eq!(found.own_memory.len(), MODULES_MAX);
    }

    #[test]
    fn without_all_folders_nothing_is_concluded() {
        let mut found = ProbeResult::default();
        found.listing(FOLDERS[0], &[]);
        found.folders_done();
        assert_eq!(found.capabilities, Capabilities::default());
    }
}
