//! AppArmor in an outer machine, as Debian's packages set it up for libvirt.
//!
//! Idea: libvirt confines each domain by a profile of its own where its daemon is confined itself.
//! The parser, the profiles and libvirt's helper come from Debian's packages, unpacked and not
//! installed; the machine loads what a host loads at boot (`apparmor.sh`).
//! Limits: the lab's own files, which libvirt knows nothing of, are opened to all domains.

use std::fs;
use std::path::{Path, PathBuf};

use crate::debian::unpack_packages;
use crate::programs::{self, FileMap};
use crate::{Cache, LabError};

/// What has the parser, and what has libvirt's profiles.
const PACKAGES: [&str; 2] = ["apparmor", "libvirt-daemon-system"];
/// Folders of them that the machine needs.
const FOLDERS: [&str; 2] = ["etc/apparmor.d", "usr/share/apparmor-features"];
const PARSER: &str = "sbin/apparmor_parser";
/// Makes and loads a domain's profile.
const HELPER: &str = "/usr/lib/libvirt/virt-aa-helper";
const LOAD: &str = include_str!("apparmor.sh");
/// What a host adds so that domains can have the tracker, at the place where the guides put it.
const TRACKER_RULES: &str = include_str!("../../../../docs/apparmor-libvirt-qemu");

/// The script that loads the profiles, run once in the machine.
pub(super) fn load() -> String {
    let rules = TRACKER_RULES.replace('\'', r"'\''");
    format!("tracker_rules='{rules}'\n{LOAD}")
}

/// The files that it needs.
///
/// # Errors
/// When libvirt is not installed here, or a package cannot be fetched.
pub(super) fn files(cache: &Cache, say: &dyn Fn(&str)) -> Result<FileMap, LabError> {
    let helper = PathBuf::from(HELPER);
    if !helper.exists() {
        let (program, package) = (HELPER.to_owned(), "libvirt-daemon".to_owned());
        return Err(LabError::ToolMissing { program, package });
    }
    let unpacked = cache.entry("apparmor", |folder| {
        say("fetching AppArmor's parser and libvirt's profiles");
        unpack_packages(&PACKAGES.map(str::to_owned), folder)
    })?;
    let mut files = FileMap::new();
    for folder in FOLDERS {
        add_folder(&mut files, &unpacked, &unpacked.join(folder))?;
    }
    files.extend(programs::libraries(&helper, &[])?);
    files.insert(HELPER.trim_start_matches('/').into(), helper);
    // Where libvirt looks for it.
    files.insert(PARSER.into(), unpacked.join(PARSER));
    Ok(files)
}

/// Every file below `folder`, at its place below `root`.
fn add_folder(files: &mut FileMap, root: &Path, folder: &Path) -> Result<(), LabError> {
    for entry in fs::read_dir(folder).map_err(LabError::io("read", folder))?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            add_folder(files, root, &path)?;
        } else if let Ok(place) = path.strip_prefix(root) {
            files.insert(place.to_owned(), path.clone());
        }
    }
    Ok(())
}
