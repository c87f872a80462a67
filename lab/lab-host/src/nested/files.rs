//! The files of an outer machine: QEMU with everything it loads, the lab's programs, and guests'
//! kernels.
//!
//! Idea: programs are copied as they are installed here, with the libraries that `ldd` lists, to
//! the paths where the lab looks for them. So the lab works in the machine as it does here, without
//! a network.
//! Limits: guests run only under KVM, because QEMU's emulator is not in the machine (doubly
//! emulated guests would be too slow to use). The firmware is only that of q35 machines that boot a
//! kernel directly, as the lab's guests do.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use ballast_lab_guest::workload::Program;

use crate::debian::Kernel;
use crate::initramfs::{AGENT, LAB_GUEST};
use crate::programs::{self, FileMap};
use crate::tool::{QEMU, QEMU_PACKAGE};
use crate::tracker::TRACK_LIBRARY;
use crate::{Cache, LabError, modules, postgresql, tool};

/// The cache's folder in the machine.
pub(super) const CACHE_FOLDER: &str = "cache";
/// The folder of build artifacts in the machine.
pub(super) const ARTIFACTS_FOLDER: &str = "usr/lib/ballast";
/// Further programs: the lab uses `ldd`, a bash script, to find a program's libraries.
const PROGRAMS: [&str; 2] = ["bash", "ldd"];
/// The files that QEMU loads to boot a kernel on a q35 machine.
const FIRMWARE: [&str; 5] =
    ["bios-256k.bin", "kvmvapic.bin", "linuxboot.bin", "linuxboot_dma.bin", "pvh.bin"];

/// The files of a host: QEMU, a shell, the build artifacts, `kernels` with the modules `more` in
/// addition to those of every guest, and the programs `with` for its guests.
///
/// # Errors
/// A file is missing.
pub(super) fn host(
    cache: &Cache,
    kernels: &[Kernel],
    more: &[&str],
    with: &BTreeSet<String>,
    say: &dyn Fn(&str),
) -> Result<FileMap, LabError> {
    let mut files = qemu(cache, say)?;
    files.insert("bin/busybox".into(), programs::busybox(cache, say)?);
    for program in PROGRAMS {
        files.extend(programs::files(program, cache, say)?);
    }
    for program in with {
        if *program == Program::Postgresql.packed() {
            add_cached(&mut files, cache, postgresql::image(cache, say)?);
        } else {
            files.extend(programs::files(program, cache, say)?);
        }
    }
    let lab_guest = LAB_GUEST.find().map_err(LabError::LabGuestMissing)?;
    // Guests that need an agent or tracker fail with a message if it is missing; other guests do
    // not need them.
    let others = [&AGENT, &TRACK_LIBRARY].into_iter().filter_map(|artifact| artifact.find().ok());
    for artifact in std::iter::once(lab_guest).chain(others) {
        let name = artifact.file_name().unwrap_or_default();
        files.insert(Path::new(ARTIFACTS_FOLDER).join(name), artifact.clone());
        files.extend(programs::libraries(&artifact, &[])?);
    }
    for kernel in kernels {
        add_kernel(&mut files, cache, kernel, more)?;
    }
    Ok(files)
}

/// QEMU, its libraries and its firmware.
fn qemu(cache: &Cache, say: &dyn Fn(&str)) -> Result<FileMap, LabError> {
    let program = tool::require(QEMU, QEMU_PACKAGE)?;
    let mut files = programs::files(QEMU, cache, say)?;
    // QEMU looks for its firmware relative to its own path.
    let itself = files.remove(&Path::new("bin").join(QEMU));
    files.insert(Path::new("usr/bin").join(QEMU), itself.unwrap_or_else(|| program.clone()));
    let listing = tool::run(
        Command::new(&program).args(["-L", "help"]),
        "its installation may be damaged: install it again",
    )?;
    let folders: Vec<&Path> = listing.lines().map(|line| Path::new(line.trim())).collect();
    for name in FIRMWARE {
        let found = folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file());
        let found = found.ok_or_else(|| LabError::ProgramUnavailable {
            program: QEMU.to_owned(),
            why: format!(
                "its firmware {name} is in none of {}",
                listing.trim().replace('\n', ", ")
            ),
        })?;
        files.insert(Path::new("usr/share/qemu").join(name), found);
    }
    Ok(files)
}

/// Adds the files of a kernel that booting a guest needs, at their paths in the machine's cache.
fn add_kernel(
    files: &mut FileMap,
    cache: &Cache,
    kernel: &Kernel,
    more: &[&str],
) -> Result<(), LabError> {
    add_cached(files, cache, kernel.image.clone());
    for name in ["modules.dep", "modules.builtin"] {
        add_cached(files, cache, kernel.modules.join(name));
    }
    for module in modules::load_order(kernel, more)? {
        add_cached(files, cache, kernel.modules.join(module));
    }
    Ok(())
}

/// Adds a file of this cache at the same path in the machine's cache.
fn add_cached(files: &mut FileMap, cache: &Cache, file: PathBuf) {
    let place = file.strip_prefix(cache.root()).unwrap_or(&file);
    files.insert(Path::new(CACHE_FOLDER).join(place), file);
}
