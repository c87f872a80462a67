//! Xen in an outer machine: the hypervisor that boots it, and Xen's services in it.
//!
//! Idea: QEMU boots Xen, which boots the machine as dom0; everything else is as on a KVM host.
//! Hypervisor and tools come from Debian's packages, unpacked and not installed; the machine starts
//! the services that Debian's init script starts (`xen.sh`). Guests are paravirtualized (PV), so
//! they need no hardware virtualization, which would have to be emulated a second time.
//! Cost: 100 MB are fetched once, most of it dom0's kernel; a boot of 30 seconds.
//! Source: Xen 4.17's `tools/hotplug/Linux/init.d/xencommons.in`; `xl(1)`.
//! Limits: the version of Debian 12. There is no KVM, because Xen controls the processor.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};

use ballast_model::Bytes;
use flate2::read::GzDecoder;

use crate::debian::{missing_packages, unpack_packages};
use crate::programs::{self, FileMap};
use crate::xen_spec::XenSpec;
use crate::{Cache, LabError};

/// The packages of the hypervisor and of its tools, without their dependencies.
const HYPERVISOR_PACKAGE: &str = "xen-hypervisor-4.17-amd64";
const TOOL_PACKAGES: [&str; 2] = ["xen-utils-4.17", "xenstore-utils"];
/// The hypervisor in its package, compressed; and the path of the decompressed one beside it.
const COMPRESSED: &str = "boot/xen-4.17-amd64.gz";
const HYPERVISOR: &str = "boot/xen-4.17-amd64";
/// The folder of Xen's own tools in their package.
pub(super) const TOOLS_FOLDER: &str = "usr/lib/xen-4.17/bin";
/// The tools that run a domain, or that `xen.sh` starts.
const TOOLS: [&str; 6] =
    ["xl", "xenstored", "xenconsoled", "xenconsole", "xen-init-dom0", "libxl-save-helper"];
/// The names of xenstore's programs; they are one file.
const XENSTORE: [&str; 7] = [
    "xenstore-exists",
    "xenstore-list",
    "xenstore-ls",
    "xenstore-read",
    "xenstore-rm",
    "xenstore-watch",
    "xenstore-write",
];
/// Memory of dom0, which runs the lab, the daemon and Xen's services. Its guests get the rest of
/// the machine's memory except what Xen itself needs.
pub const DOM0_MEMORY: Bytes = Bytes::mib(768);
/// The modules of dom0: those that Xen's tools and guests' disks need, and those that ext4 needs
/// without declaring them.
pub(crate) const MODULES: [&str; 8] = [
    "xen_privcmd",
    "xen_evtchn",
    "xen_gntdev",
    "xen_gntalloc",
    "xenfs",
    "xen_blkback",
    "loop",
    "crc32c_generic",
];
/// The script that starts Xen's services; it runs once in the machine.
pub(super) const START: &str = include_str!("xen.sh");

/// The cache entry with Xen's packages, unpacked.
fn unpacked(cache: &Cache, say: &dyn Fn(&str)) -> Result<PathBuf, LabError> {
    cache.entry("xen", |folder| {
        say("fetching Xen");
        let mut packages = vec![HYPERVISOR_PACKAGE.to_owned()];
        for package in TOOL_PACKAGES {
            packages.extend(missing_packages(package)?);
        }
        // Xen's tools and their libraries, but nothing else that an installation would add.
        packages.retain(|name| name.starts_with("xen") || name.starts_with("lib"));
        packages.sort();
        packages.dedup();
        unpack_packages(&packages, folder)?;
        decompress(&folder.join(COMPRESSED), &folder.join(HYPERVISOR))
    })
}

/// Decompresses the hypervisor: QEMU cannot read a compressed multiboot kernel.
fn decompress(from: &Path, to: &Path) -> Result<(), LabError> {
    let source = File::open(from).map_err(LabError::io("open", from))?;
    let target = File::create(to).map_err(LabError::io("create", to))?;
    let mut source = GzDecoder::new(BufReader::new(source));
    let copied = std::io::copy(&mut source, &mut BufWriter::new(target));
    copied.map(drop).map_err(LabError::io("decompress", from))
}

/// The hypervisor for the machine.
///
/// # Errors
/// A package cannot be fetched.
pub(super) fn spec(cache: &Cache, say: &dyn Fn(&str)) -> Result<XenSpec, LabError> {
    let hypervisor = unpacked(cache, say)?.join(HYPERVISOR);
    Ok(XenSpec { hypervisor, dom0_memory: DOM0_MEMORY })
}

/// The files of Xen's tools.
///
/// # Errors
/// A package cannot be fetched.
pub(super) fn files(cache: &Cache, say: &dyn Fn(&str)) -> Result<FileMap, LabError> {
    let unpacked = unpacked(cache, say)?;
    let folders = programs::library_folders(&unpacked);
    let mut files = FileMap::new();
    let tools = TOOLS.iter().map(|name| Path::new(TOOLS_FOLDER).join(name));
    let xenstore = XENSTORE.iter().map(|name| Path::new("usr/bin").join(name));
    for place in tools.chain(xenstore) {
        let program = unpacked.join(&place);
        files.extend(programs::libraries(&program, &folders)?);
        files.insert(place, program);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::fs;
    use std::io::Write;

    #[test]
    fn the_hypervisor_is_decompressed() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("xen.gz"), folder.path().join("xen"));
        let mut encoder = GzEncoder::new(File::create(&from).unwrap(), Compression::fast());
        encoder.write_all(b"an ELF file").unwrap();
        encoder.finish().unwrap();
        decompress(&from, &to).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"an ELF file");
        fs::write(&from, "no gzip").unwrap();
        let error = decompress(&from, &to).unwrap_err().to_string();
        assert!(error.contains("xen.gz"), "{error}");
    }
}
