//! The kernel modules that a guest loads, in load order.
//!
//! Idea: `modules.dep` (created by depmod) lists each module's dependencies; a depth-first
//! traversal gives an order in which every module follows its dependencies. A module that is built
//! into the kernel is skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use crate::LabError;
use crate::debian::Kernel;

/// The modules every guest needs: for the lab's buses and devices, and for the file system of its
/// data disk.
const WANTED: [&str; 6] =
    ["virtio_pci", "virtio_console", "virtio_blk", "virtio_balloon", "virtio_mem", "ext4"];

/// The additional modules of a guest with a vsock device.
pub(crate) const VSOCK_MODULES: [&str; 1] = ["vmw_vsock_virtio_transport"];

/// The modules of a guest, and `more`, as paths below the kernel's module folder, in load order.
///
/// # Errors
/// When the kernel has one of them neither as a module nor built in.
pub(crate) fn load_order(kernel: &Kernel, more: &[&str]) -> Result<Vec<PathBuf>, LabError> {
    let read = |name: &str| {
        let path = kernel.modules.join(name);
        fs::read_to_string(&path).map_err(LabError::io("read", path))
    };
    let wanted = [&WANTED, more].concat();
    order(&wanted, &read("modules.dep")?, &read("modules.builtin")?).map_err(|module| {
        LabError::KernelIncomplete {
            folder: kernel.modules.clone(),
            what: format!("module {module}"),
        }
    })
}

/// The load order of `wanted`, or the name of the module that is missing.
fn order(wanted: &[&str], modules_dep: &str, builtin: &str) -> Result<Vec<PathBuf>, String> {
    let mut needs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut paths: BTreeMap<String, &str> = BTreeMap::new();
    for (path, list) in modules_dep.lines().filter_map(|line| line.split_once(':')) {
        needs.insert(path, list.split_whitespace().collect());
        paths.insert(module_name(path), path);
    }
    let builtin: BTreeSet<String> = builtin.lines().map(module_name).collect();
    let mut walk = ModuleWalk { needs: &needs, seen: BTreeSet::new(), order: Vec::new() };
    for name in wanted {
        match paths.get(*name) {
            Some(path) => walk.visit(path),
            None if builtin.contains(*name) => {}
            None => return Err((*name).to_owned()),
        }
    }
    Ok(walk.order)
}

struct ModuleWalk<'a> {
    needs: &'a BTreeMap<&'a str, Vec<&'a str>>,
    seen: BTreeSet<&'a str>,
    order: Vec<PathBuf>,
}

impl<'a> ModuleWalk<'a> {
    fn visit(&mut self, path: &'a str) {
        if !self.seen.insert(path) {
            return;
        }
        for needed in self.needs.get(path).into_iter().flatten() {
            self.visit(needed);
        }
        self.order.push(PathBuf::from(path));
    }
}

/// The kernel's name of the module at `path`: dashes become underscores.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "a/virtio.ko: a/virtio_ring.ko\na/virtio_ring.ko:\n\
                       b/virtio-pci.ko: a/virtio.ko a/virtio_ring.ko\nc/blk.ko.xz: a/virtio.ko\n";

    #[test]
    fn modules_come_once_and_after_their_dependencies() {
        let order = order(&["virtio_pci", "blk"], DEP, "").unwrap();
        let order: Vec<_> = order.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(order, ["a/virtio_ring.ko", "a/virtio.ko", "b/virtio-pci.ko", "c/blk.ko.xz"]);
    }

    #[test]
    fn built_in_modules_are_skipped_and_missing_ones_named() {
        assert_eq!(order(&["ext4"], DEP, "kernel/fs/ext4/ext4.ko\n"), Ok(vec![]));
        assert_eq!(order(&["ext4"], DEP, ""), Err("ext4".to_owned()));
    }

    #[test]
    fn dependency_cycle_terminates() {
        let order = order(&["a"], "a.ko: b.ko\nb.ko: a.ko\n", "").unwrap();
        assert_eq!(order.len(), 2);
    }
}
