//! Finding out what can be done with a guest.
//!
//! Idea: the folders in which QEMU keeps devices and objects are listed; the type of each entry says
//! what it is. Then the balloon device is asked for its properties.
//!
//! What QMP of QEMU 7.2 tells, and what it does not:
//! - a passthrough device (`vfio-*`) or a confidential guest (`sev-guest` and the like) inhibits
//!   discarding. A `vfio-pci` device backed by a mediated device does not, but looks the same here:
//!   counted as inhibiting, since the error in that direction costs memory, not data.
//! - `vhost-vdpa` network backends inhibit too and appear in no listing; nor does
//!   `-overcommit mem-lock=on`: look for locked memory (`VmLck`) in the process's `/proc` status.
//! - `free-page-reporting` and `deflate-on-oom` say what the device offers; a guest without the
//!   feature in its driver does not use it, and no stable command says so.
//! - a balloon on huge pages gives memory back only where whole huge pages become free.

use std::collections::BTreeSet;

use ballast_model::Capabilities;
use serde::Deserialize;

use super::plugging::Room;
use crate::command::ModuleNumber;

/// Folders of devices and objects created by the operator; the rest of the tree is QEMU's own.
pub(super) const FOLDERS: [&str; 3] =
    ["/machine/peripheral", "/machine/peripheral-anon", "/objects"];

/// Longest path of a device accepted, in bytes; identifiers are chosen by whoever started QEMU.
pub(super) const PATH_BYTES_MAX: usize = 256;

/// The beginning of the type of every balloon device: `virtio-balloon-pci`, `-ccw`, `-device`,
/// `-pci-transitional`, `-pci-non-transitional`.
const BALLOON: &str = "virtio-balloon";

/// The same of virtio-mem devices.
const VIRTIO_MEM: &str = "virtio-mem";

/// Types, by their beginning, that keep memory from being discarded.
const INHIBITING: [&str; 5] = ["vfio-pci", "vfio-platform", "vhost-vdpa", "sev-", "tdx-guest"];

/// One entry of a listing.
#[derive(Debug, Deserialize)]
pub(super) struct Entry<'a> {
    #[serde(borrow)]
    name: std::borrow::Cow<'a, str>,
    #[serde(borrow, rename = "type")]
    kind: std::borrow::Cow<'a, str>,
}

/// What was found so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Path of the balloon device.
    pub(super) balloon_path: Option<String>,
    /// What it can do. Members stay `None` where the question failed.
    pub(super) capabilities: Capabilities,
    /// Nobody has told the device yet to ask the guest for statistics.
    pub(super) start_polling: bool,
    /// Memory that can be plugged in; `None` where QEMU does not tell.
    pub(super) room: Option<Room>,
    /// Paths of virtio-mem devices without an id.
    pub(super) anonymous_virtio_mem: Vec<String>,
    /// Memory made for modules of our own.
    pub(super) own_memory: BTreeSet<ModuleNumber>,
    pub(super) folders_listed: usize,
}

impl Found {
    /// The entries of one folder.
    pub(super) fn listing(&mut self, folder: &str, entries: &[Entry<'_>]) {
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
            if kind.starts_with(VIRTIO_MEM) && folder == FOLDERS[1] && path_bytes <= PATH_BYTES_MAX
            {
                self.anonymous_virtio_mem.push(format!("{folder}/{}", entry.name));
            }
            if folder == FOLDERS[2] {
                self.own_memory.extend(ModuleNumber::of_memory(&entry.name));
            }
            if INHIBITING.iter().any(|inhibiting| kind.starts_with(inhibiting)) {
                self.capabilities.discard_inhibited = Some(true);
            }
        }
    }

    /// All folders were asked: draws what conclusions can be drawn.
    pub(super) fn folders_done(&mut self) {
        if self.folders_listed == FOLDERS.len() && self.capabilities.discard_inhibited.is_none() {
            self.capabilities.discard_inhibited = Some(false);
        }
        if self.balloon_path.is_none() && self.folders_listed == FOLDERS.len() {
            self.capabilities.statistics = Some(false);
            self.capabilities.free_page_reporting = Some(false);
            self.capabilities.deflate_on_oom = Some(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(listings: [&str; 3]) -> Found {
        let mut found = Found::default();
        for (folder, json) in FOLDERS.iter().zip(listings) {
            let entries: Vec<Entry<'_>> = serde_json::from_str(json).unwrap();
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
    fn what_inhibits_discarding_is_found_in_any_folder() {
        for (at, kind) in
            [(0, "vfio-pci"), (1, "vfio-pci-nohotplug"), (2, "sev-guest"), (2, "tdx-guest")]
        {
            let json = format!(r#"[{{"name":"x","type":"child<{kind}>"}}]"#);
            let mut listings = ["[]"; 3];
            listings[at] = &json;
            assert_eq!(found(listings).capabilities.discard_inhibited, Some(true), "{kind}");
        }
    }

    #[test]
    fn without_a_balloon_there_is_nothing_it_could_do() {
        let found = found([r#"[{"name":"type","type":"string"}]"#, "[]", "[]"]);
        assert_eq!(found.balloon_path, None);
        assert_eq!(found.capabilities.statistics, Some(false));
        assert_eq!(found.capabilities.deflate_on_oom, Some(false));
    }

    #[test]
    fn a_folder_that_was_not_listed_proves_nothing() {
        let mut found = Found::default();
        found.listing(FOLDERS[0], &[]);
        found.folders_done();
        assert_eq!(found.capabilities, Capabilities::default());
    }
}
