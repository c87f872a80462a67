//! All virtual machines of a host, from the folder with their configurations.
//!
//! Idea: a guest that was found by its QMP socket is the virtual machine whose `args` name that
//! socket ([`VmFolder::guests`]). A mistake in a file is reported and does not affect the other
//! files. A socket that two machines name is reported, too: a copy of a machine names it until the
//! copy gets one of its own.
//! Cost: reads every file, on a file system that may wait for a cluster. So it is not for every
//! tick, nor for the thread that runs ticks.
//! Limits: [`VMS_MAX`] files, one MiB each.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ballast_model::GuestId;

use crate::vm_config::{TEXT_MAX, VmConfig, VmConfigError, read_vm, vmid};

/// Most virtual machines of one host; as many as the fleet of QMP has guests.
const VMS_MAX: usize = 10_000;

/// The virtual machines of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmFolder {
    /// The machines whose configurations can be read, by VMID.
    vms: BTreeMap<u32, VmConfig>,
    /// The VMID of the first machine that names a socket.
    owners: BTreeMap<PathBuf, u32>,
    /// The mistakes found.
    pub problems: Vec<VmConfigError>,
}

impl VmFolder {
    /// Reads all configurations in `folder`. `None` if there is no such folder.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn read(folder: &Path) -> io::Result<Option<VmFolder>> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            entries => entries?,
        };
        let mut paths = BTreeMap::new();
        let mut read = VmFolder::default();
        for entry in entries {
            let path = entry?.path();
            let Some(vmid) = vmid(&path) else { continue };
            if paths.len() == VMS_MAX {
                let what = format!("has more than {VMS_MAX} configurations: the rest is ignored");
                read.problems.push(VmConfigError::new(folder, None, &what));
                break;
            }
            paths.insert(vmid, path);
        }
        for path in paths.values() {
            match text(path).and_then(|text| text.map(|text| read_vm(&text, path)).transpose()) {
                Ok(Some(vm)) => read.add(vm, path),
                // The file was removed after the listing.
                Ok(None) => {}
                Err(problem) => read.problems.push(problem),
            }
        }
        Ok(Some(read))
    }

    /// All machines whose configurations can be read, by VMID.
    pub fn vms(&self) -> impl Iterator<Item = &VmConfig> {
        self.vms.values()
    }

    /// The machines that are guests, by name: those with a QMP socket in one of `socket_folders`. A
    /// socket that two machines name belongs to the first.
    pub fn guests(&self, socket_folders: &[PathBuf]) -> BTreeMap<GuestId, &VmConfig> {
        let mut guests = BTreeMap::new();
        for (socket, vmid) in &self.owners {
            let guest = guest_at(socket, socket_folders);
            if let (Some(guest), Some(vm)) = (guest, self.vms.get(vmid)) {
                guests.insert(guest, vm);
            }
        }
        guests
    }

    fn add(&mut self, vm: VmConfig, path: &Path) {
        for socket in &vm.monitors {
            let owner = *self.owners.entry(socket.clone()).or_insert(vm.vmid);
            if owner != vm.vmid {
                let what = format!(
                    "args names {}, the QMP socket of VM {owner}: give it one of its own",
                    socket.display()
                );
                self.problems.push(VmConfigError::new(path, None, &what));
            }
        }
        self.vms.insert(vm.vmid, vm);
    }
}

/// The guest with its QMP socket at that path.
fn guest_at(socket: &Path, folders: &[PathBuf]) -> Option<GuestId> {
    let is_listed = folders.iter().any(|folder| socket.parent() == Some(folder));
    let name = socket.file_name()?.to_str()?.strip_suffix(".sock")?;
    if is_listed { name.parse().ok() } else { None }
}

/// A file's text; `None` if the file is gone.
fn text(path: &Path) -> Result<Option<String>, VmConfigError> {
    let mut bytes = Vec::new();
    let file = File::open(path).map(|file| file.take(TEXT_MAX as u64 + 1));
    match file.and_then(|mut file| file.read_to_end(&mut bytes)) {
        // Only comments may be in another encoding: the values that matter here are ASCII, or
        // refused.
        Ok(_) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(VmConfigError::new(path, None, &format!("cannot be read: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_is_none() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(VmFolder::read(&folder.path().join("qemu-server")).unwrap(), None);
        assert_eq!(VmFolder::read(folder.path()).unwrap(), Some(VmFolder::default()));
    }

    #[test]
    fn a_mistake_in_one_file_leaves_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &[u8]| fs::write(folder.path().join(name), text).unwrap();
        write("100.conf", b"#caf\xe9\nname: web\nargs: -qmp unix:/q/web.sock,server=on,wait=off");
        write("101.conf", b"name: db\nmemory: much");
        // A copy of 100, and something else.
        write("102.conf", b"name: web\nargs: -qmp unix:/q/web.sock,server=on,wait=off");
        write("notes.txt", b"memory: much");
        fs::create_dir(folder.path().join("103.conf")).unwrap();
        let read = VmFolder::read(folder.path()).unwrap().unwrap();
        assert_eq!(read.vms().map(|vm| vm.vmid).collect::<Vec<_>>(), [100, 102]);
        let guests = read.guests(&["/q".into()]);
        let guests: Vec<(&str, u32)> =
            guests.iter().map(|(id, vm)| (id.as_str(), vm.vmid)).collect();
        assert_eq!(guests, [("web", 100)]);
        assert!(read.guests(&["/other".into()]).is_empty());
        let told: Vec<String> = read.problems.iter().map(ToString::to_string).collect();
        let expected =
            ["101.conf:2: memory", "102.conf: args names /q/web.sock", "103.conf: cannot"];
        assert_eq!(told.len(), expected.len(), "{told:?}");
        for (told, expected) in told.iter().zip(expected) {
            assert!(told.contains(expected), "{told}");
        }
    }
}
