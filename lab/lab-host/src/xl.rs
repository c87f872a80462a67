//! Guests that are Xen domains.
//!
//! Idea: in dom0 of an outer machine the lab starts guests with `xl`, paravirtualized, with the
//! same kernel and initramfs as under QEMU. A guest's console is the lab's channel: `xenconsole`
//! connects it to a socket and ends with the domain. The console log is the one that `xenconsoled`
//! keeps.
//! Source: `xl(1)`, `xl.cfg(5)`; Xen 4.17's `tools/console/client/main.c`.
//! Limits: no hotplug, no tracking and no record of accesses; disks have the speed of the host's
//! disk. Output of a guest's kernel within a message would spoil the message, so its command line
//! allows it to print only how it ends.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ballast_lab_guest::protocol::{DATA_DISK_XEN, PORT_ARGUMENT, SWAP_DISK_XEN};
use ballast_model::{Bytes, GuestId};

use crate::disk::DiskFile;
use crate::qemu::CommandLine;
use crate::spawn::Spawner;
use crate::{GuestSpec, LabError, Speed, tool};

const XL: &str = "xl";
const XENCONSOLE: &str = "xenconsole";
const PACKAGE: &str = "xen-utils-4.17";
const REMEDY: &str = "`xl list` and `xl dmesg` say more";
/// The module with the driver for the guests' disks.
pub(crate) const MODULES: [&str; 1] = ["xen_blkfront"];
/// The folder in which `xenconsoled` keeps guests' console logs.
const CONSOLES: &str = "/var/log/xen/console";
/// The guest's console, and the log level at which its kernel prints only how it ends.
const KERNEL_ARGUMENTS: &str = "console=hvc0 loglevel=1";
const CONSOLE: &str = "hvc0";

/// A running domain. Its disks are loop devices.
#[derive(Debug)]
pub(crate) struct Domain {
    id: GuestId,
    /// The process that connects the domain's console to a socket; it ends with the domain.
    pub(crate) console: Child,
    /// The lab's end of that socket, until it is taken.
    pub(crate) stream: Option<UnixStream>,
    loops: Vec<PathBuf>,
}

impl Domain {
    /// Starts the domain of a guest with `disks`, swap first, each with its name in the guest.
    ///
    /// # Errors
    /// Xen refuses, for example for lack of memory.
    pub(crate) fn create(
        line: &CommandLine<'_>,
        disks: &[(&str, &DiskFile)],
        spawner: &Spawner,
    ) -> Result<Domain, LabError> {
        let id = &line.spec.id;
        let kept = Path::new(CONSOLES).join(format!("guest-{id}.log"));
        let _ = fs::remove_file(&kept);
        symlink(&kept, &line.paths.console).map_err(LabError::io("create", &line.paths.console))?;
        let mut named = Vec::new();
        for (name, disk) in disks {
            named.push((*name, attach(disk)?));
        }
        let file = line.paths.console.with_extension("cfg");
        fs::write(&file, configuration(line, &named)).map_err(LabError::io("write", &file))?;
        xl(&["create", &file.to_string_lossy()])?;
        let number = xl(&["domid", id.as_str()])?;
        let (ours, theirs) = UnixStream::pair().map_err(LabError::io("connect to", XENCONSOLE))?;
        let input = theirs.try_clone().map_err(LabError::io("connect to", XENCONSOLE))?;
        let mut command = Command::new(tool::require(XENCONSOLE, PACKAGE)?);
        command
            .args([number.trim(), "--interactive"])
            .stdin(Stdio::from(OwnedFd::from(input)))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .stderr(Stdio::null());
        let console = spawner.spawn(command, Vec::new());
        let console = console.map_err(LabError::io("start", XENCONSOLE)).inspect_err(|_| {
            destroy(id);
        })?;
        let loops = named.into_iter().map(|(_, device)| device).collect();
        Ok(Domain { id: id.clone(), console, stream: Some(ours), loops })
    }

    /// Detaches the disks, which the domain's drivers have open by now: they go away when the
    /// domain ends.
    pub(crate) fn release_disks(&mut self) {
        for device in self.loops.drain(..) {
            let _ = tool::run(Command::new("losetup").arg("-d").arg(&device), REMEDY);
        }
    }

    /// Ends the domain like a power failure.
    pub(crate) fn destroy(&mut self) {
        destroy(&self.id);
        self.release_disks();
        let _ = self.console.kill();
        let _ = self.console.wait();
    }
}

/// Ends the domain of a guest, if there is one.
pub(crate) fn destroy(id: &GuestId) {
    let _ = xl(&["destroy", id.as_str()]);
}

/// The output of `xl`.
///
/// # Errors
/// `xl` is missing or fails; the error has its output.
pub fn xl(arguments: &[&str]) -> Result<String, LabError> {
    tool::run(Command::new(tool::require(XL, PACKAGE)?).args(arguments), REMEDY)
}

/// The memory of a guest as the hypervisor shows it, in whole MiB, by `xl list`.
///
/// # Errors
/// There is no such domain.
pub fn domain_memory(id: &GuestId) -> Result<Bytes, LabError> {
    let listing = xl(&["list", id.as_str()])?;
    memory_of(id.as_str(), &listing).ok_or_else(|| {
        LabError::Invalid(format!("`xl list` has no memory of {id}: {}", listing.trim()))
    })
}

/// The column `Mem` of the domain `name` in the listing.
fn memory_of(name: &str, listing: &str) -> Option<Bytes> {
    let fields = listing.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mib =
        fields.filter(|it| it.first() == Some(&name)).find_map(|it| it.get(2)?.parse().ok())?;
    Some(Bytes::mib(mib))
}

/// Creates a loop device for a disk's file.
fn attach(disk: &DiskFile) -> Result<PathBuf, LabError> {
    let losetup = || Command::new("losetup");
    let free = tool::run(losetup().arg("-f"), REMEDY)?;
    let device = PathBuf::from(free.trim());
    let Some(file) = &disk.name else {
        return Err(LabError::Invalid("a domain's disk needs a name".to_owned()));
    };
    tool::run(losetup().arg(&device).arg(file), REMEDY)?;
    Ok(device)
}

/// The domain's configuration.
fn configuration(line: &CommandLine<'_>, disks: &[(&str, PathBuf)]) -> String {
    let mib = line.spec.memory.get() >> 20;
    let disks: Vec<String> = disks
        .iter()
        .map(|(name, device)| format!("\"phy:{},{name},w\"", device.display()))
        .collect();
    format!(
        "name = \"{}\"\ntype = \"pv\"\nkernel = \"{}\"\nramdisk = \"{}\"\n\
         extra = \"{} {KERNEL_ARGUMENTS} {PORT_ARGUMENT}{CONSOLE}\"\n\
         memory = {mib}\nmaxmem = {mib}\nvcpus = 1\ndisk = [{}]\n\
         on_poweroff = \"destroy\"\non_reboot = \"destroy\"\non_crash = \"destroy\"\n",
        line.spec.id,
        line.kernel.display(),
        line.initramfs.display(),
        crate::qemu::KERNEL_ARGUMENTS,
        disks.join(", "),
    )
}

/// The device names of a guest's disks in the guest, each with its disk.
pub(crate) fn disk_names<'a>(
    swap: Option<&'a DiskFile>,
    data: Option<&'a DiskFile>,
) -> Vec<(&'static str, &'a DiskFile)> {
    let named = [(SWAP_DISK_XEN, swap), (DATA_DISK_XEN, data)];
    named.into_iter().filter_map(|(name, disk)| Some((name, disk?))).collect()
}

/// Checks that Xen supports the guest's devices.
pub(crate) fn validate(guest: &GuestSpec) -> Result<(), LabError> {
    let no = |what: &str| {
        let id = &guest.id;
        Err(LabError::Invalid(format!("guest {id}: {what} cannot be had under Xen here")))
    };
    let disks = [guest.swap, guest.data];
    match guest {
        _ if guest.hotplug.is_some() => no("memory hotplug"),
        _ if guest.truth.is_some() => no("a record of accesses"),
        _ if guest.tracked => no("a page tracker"),
        _ if guest.vsock_cid.is_some() => no("a vsock device"),
        _ if guest.host_disk.is_some() => no("a host"),
        _ if guest.balloon.is_none() => no("a guest without a balloon"),
        _ if guest.balloon.is_some_and(|it| it.free_page_reporting) => no("free page reporting"),
        _ if guest.balloon.is_some_and(|it| it.deflate_on_oom) => no("a balloon that deflates"),
        _ if disks.iter().flatten().any(|disk| disk.speed != Speed::Host) => {
            no("a disk whose speed is limited")
        }
        _ if !guest.extra_args.is_empty() => no("arguments for QEMU"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DiskSpec, Hotplug, HotplugKind};

    #[test]
    fn memory_is_read_from_the_line_of_its_domain() {
        let listing = "Name                                        ID   Mem VCPUs\tState\tTime(s)\n\
                       Domain-0                                     0   768     1     r-----      12.1\n\
                       a                                            1   192     1     -b----       2.4\n";
        assert_eq!(memory_of("a", listing), Some(Bytes::mib(192)));
        assert_eq!(memory_of("Domain-0", listing), Some(Bytes::mib(768)));
        assert_eq!(memory_of("b", listing), None);
        assert_eq!(memory_of("Name", listing), None);
    }

    #[test]
    fn what_xen_cannot_give_here_is_refused_by_name() {
        let plain = || GuestSpec::new("a".parse().unwrap(), Bytes::mib(256));
        assert!(validate(&plain()).is_ok());
        let mut plugged = plain();
        plugged.hotplug =
            Some(Hotplug { kind: HotplugKind::Dimm, max: Bytes::mib(256), online: true });
        let mut slow = plain();
        slow.swap = Some(DiskSpec { size: Bytes::mib(64), speed: Speed::Hdd });
        for (spec, what) in [(plugged, "hotplug"), (slow, "speed")] {
            let error = validate(&spec).unwrap_err().to_string();
            assert!(error.contains("guest a") && error.contains(what), "{error}");
        }
    }
}
