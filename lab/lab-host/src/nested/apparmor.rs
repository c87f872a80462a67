//! AppArmor in an outer machine, set up as Debian's packages do it for libvirt.
//!
//! Idea: libvirt confines each domain with its own profile if libvirtd itself is confined. The
//! parser, the profiles and libvirt's helper come from Debian's packages, unpacked and not
//! installed; the machine loads the profiles that a host loads at boot (`apparmor.sh`).
//! Limits: libvirt does not know the lab's own files, so all domains may open them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::debian::unpack_packages;
use crate::programs::{self, FileMap};
use crate::{Cache, LabError};

/// The packages of the parser and of libvirt's profiles.
const PACKAGES: [&str; 2] = ["apparmor", "libvirt-daemon-system"];
/// The folders of these packages that the machine needs.
const FOLDERS: [&str; 2] = ["etc/apparmor.d", "usr/share/apparmor-features"];
const PARSER: &str = "sbin/apparmor_parser";
/// Creates and loads a domain's profile.
const HELPER: &str = "/usr/lib/libvirt/virt-aa-helper";
const LOAD: &str = include_str!("apparmor.sh");
/// The rules that a host adds so that domains can load the tracker from the path in the guides.
const TRACKER_RULES: &str = include_str!("../../../../docs/apparmor-libvirt-qemu");

/// The script that loads the profiles; it runs once in the machine.
pub(super) fn load() -> String {
    let rules = TRACKER_RULES.replace('\'', r"'\''");
    format!("tracker_rules='{rules}'\n{LOAD}")
}

/// The files that the script needs.
///
/// # Errors
/// libvirt is not installed here, or a package cannot be fetched.
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
    // libvirt looks for it here.
    files.insert(PARSER.into(), unpacked.join(PARSER));
    Ok(files)
}

/// Adds every file below `folder` at its path relative to `root`.
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
