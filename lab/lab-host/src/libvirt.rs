//! Guests that libvirt starts and manages.
//!
//! Idea: a run has its own libvirtd for one user (`qemu:///session`), and everything that it writes
//! is in the run's folder. Libvirt manages each guest's monitor, balloon and memory. What only the
//! lab needs (its channel, console and disks) is passed to QEMU unchanged. If the lab runs as root,
//! libvirtd runs in a user namespace as another user, because root's libvirt is the host's single
//! system libvirt. An outer machine has no system libvirt of its own, so there the run's libvirtd
//! is the system's (`qemu:///system`), with libvirt's own user and sandbox for each QEMU.
//! Source: libvirt's domain format, and its `drvqemu` page for `qemu:commandline`.
//! Limits: no memory modules, no record of accesses. The lab keeps its own monitor to see what a
//! balloon holds without asking libvirt.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::accel::Accel;
use crate::libvirt_place::{SYSTEM_FOLDER, is_system};
use crate::process::ProcessId;
use crate::qemu::CommandLine;
use crate::run_folder::RunFolder;
use crate::spawn::Spawner;
use crate::{GuestSpec, HotplugKind, LabError, tool, tracker};

const LIBVIRTD: (&str, &str) = ("libvirtd", "libvirt-daemon");
const VIRSH: (&str, &str) = ("virsh", "libvirt-clients");
/// Libvirt's driver for QEMU, and the package that has it.
const QEMU_DRIVER: (&str, &str) = (
    "/usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so",
    "libvirt-daemon-driver-qemu",
);
/// The configuration of the system's libvirtd.
const SYSTEM_CONFIGURATION: &str = "/etc/libvirt/qemu.conf";
/// libvirtd makes no private device folder for each QEMU, because that needs udev, and starts no
/// second daemon for QEMU's output.
const SYSTEM_SETTINGS: &str = "namespaces = []\nstdio_handler = \"file\"\n";
/// The user that root becomes in the user namespace.
const AS_USER: [&str; 3] = ["--user", "--map-user=1000", "--map-group=1000"];
/// The longest wait until libvirtd listens.
const START_PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// Who starts the guests of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Manager {
    /// The lab itself: plain QEMUs.
    #[default]
    Qemu,
    /// The run's own libvirt.
    Libvirt,
    /// Xen, in dom0 of an outer machine.
    Xen,
}

/// The libvirtd of a run. Dropping it ends libvirtd, but no guest.
#[derive(Debug)]
pub(crate) struct Libvirtd {
    child: Child,
    folder: PathBuf,
}

impl Libvirtd {
    /// Starts libvirtd and waits until it listens.
    pub(crate) fn start(run: &RunFolder, spawner: &Spawner) -> Result<Libvirtd, LabError> {
        let program = tool::require(LIBVIRTD.0, LIBVIRTD.1)?;
        tool::require(VIRSH.0, VIRSH.1)?;
        if !Path::new(QEMU_DRIVER.0).exists() {
            let (program, package) = (QEMU_DRIVER.0.to_owned(), QEMU_DRIVER.1.to_owned());
            return Err(LabError::ToolMissing { program, package });
        }
        let folder = run.libvirt_folder();
        fs::create_dir_all(&folder).map_err(LabError::io("create", &folder))?;
        // A libvirtd that was killed has left its socket.
        let socket = run.libvirt_socket();
        let _ = fs::remove_file(&socket);
        let log = folder.join("log");
        if is_system() {
            let path = Path::new(SYSTEM_CONFIGURATION);
            fs::create_dir_all("/etc/libvirt")
                .and_then(|()| fs::write(path, SYSTEM_SETTINGS))
                .map_err(LabError::io("write", path))?;
        }
        let mut command = as_user(&program, &folder);
        tool::write_output_to(&mut command, &log)?;
        let child = spawner.spawn(command, Vec::new()).map_err(LabError::io("start", &program))?;
        if let Some(process) = ProcessId::of(child.id()) {
            run.record_libvirtd(process)?;
        }
        let mut libvirtd = Libvirtd { child, folder };
        libvirtd.wait_for(&socket, &log)?;
        Ok(libvirtd)
    }

    fn wait_for(&mut self, socket: &Path, log: &Path) -> Result<(), LabError> {
        let began = Instant::now();
        while !socket.exists() {
            let has_ended = matches!(self.child.try_wait(), Ok(Some(_)) | Err(_));
            if has_ended || began.elapsed() > START_PATIENCE {
                let text = fs::read_to_string(log).unwrap_or_default();
                return Err(LabError::Invalid(format!("libvirtd does not start: {}", text.trim())));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Starts a guest and returns the process of its QEMU; the lab's files are in `folders`.
    pub(crate) fn create(
        &self,
        line: &CommandLine<'_>,
        folders: [&Path; 2],
    ) -> Result<ProcessId, LabError> {
        let id = &line.spec.id;
        if is_system() {
            open_to_all(folders)?;
        }
        let file = self.folder.join(format!("{id}.xml"));
        fs::write(&file, domain_xml(line)?).map_err(LabError::io("write", &file))?;
        self.virsh(&["create", &file.to_string_lossy()])?;
        let pid_file = if is_system() {
            Path::new(SYSTEM_FOLDER).join(format!("qemu/{id}.pid"))
        } else {
            self.folder.join(format!("libvirt/qemu/run/{id}.pid"))
        };
        let pid = fs::read_to_string(&pid_file).map_err(LabError::io("read", &pid_file))?;
        pid.trim().parse().ok().and_then(ProcessId::of).ok_or_else(|| LabError::GuestGone {
            guest: id.clone(),
            how: "exited at once".to_owned(),
            console: String::new(),
        })
    }

    /// The output of a command of `virsh`.
    pub(crate) fn virsh(&self, arguments: &[&str]) -> Result<String, LabError> {
        let virsh = tool::require(VIRSH.0, VIRSH.1)?;
        let mut command = as_user(&virsh, &self.folder);
        let uri = if is_system() { "qemu:///system" } else { "qemu:///session" };
        command.args(["-c", uri]).args(arguments);
        tool::run(&mut command, "the log of libvirtd is in the run's folder")
    }
}

impl Drop for Libvirtd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes the lab's files accessible to libvirt's own user, as which each QEMU runs.
fn open_to_all(folders: [&Path; 2]) -> Result<(), LabError> {
    let change = |mode: &[&str], paths: &mut dyn Iterator<Item = &Path>| {
        let mut command = Command::new("chmod");
        command.args(mode).args(paths);
        tool::run(&mut command, "libvirt's user needs the lab's files").map(drop)
    };
    change(&["-R", "a+rwX"], &mut folders.into_iter())?;
    change(&["a+x"], &mut folders.iter().flat_map(|folder| folder.ancestors().skip(1)))
}

/// A command with all its files in `folder`, which does not run as root in its own view.
fn as_user(program: &Path, folder: &Path) -> Command {
    if is_system() {
        return Command::new(program);
    }
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("unshare");
        command.args(AS_USER).arg("--").arg(program);
        command
    } else {
        Command::new(program)
    };
    for variable in
        ["HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"]
    {
        command.env(variable, folder);
    }
    command.current_dir(folder);
    command
}

/// The domain's definition of a guest.
fn domain_xml(line: &CommandLine<'_>) -> Result<String, LabError> {
    let (spec, mib) = (line.spec, line.spec.memory.get() >> 20);
    let (kind, mode, feature) = match line.accel {
        Accel::Kvm => ("kvm", "host-passthrough", ""),
        Accel::Tcg | Accel::Xen => ("qemu", "maximum", "<feature policy='disable' name='cx16'/>"),
    };
    let HotplugParts { most, node, device } = hotplug_parts(spec);
    let on = |is_on: bool| if is_on { "on" } else { "off" };
    let balloon = spec.balloon.map_or("<memballoon model='none'/>".to_owned(), |balloon| {
        format!(
            "<memballoon model='virtio' autodeflate='{}' freePageReporting='{}'/>",
            on(balloon.deflate_on_oom),
            on(balloon.free_page_reporting)
        )
    });
    let arguments: String = line
        .lab_arguments()
        .iter()
        .map(|it| format!("<qemu:arg value='{}'/>", escaped(&it.to_string_lossy())))
        .collect();
    let environment: String = if line.spec.tracked {
        let variables = tracker::environment(&line.paths.tracker)?;
        let element = |(name, value): (&str, OsString)| {
            format!("<qemu:env name='{name}' value='{}'/>", escaped(&value.to_string_lossy()))
        };
        variables.map(element).concat()
    } else {
        String::new()
    };
    Ok(format!(
        "<domain type='{kind}' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>\
         <name>{}</name>{most}<memory unit='MiB'>{mib}</memory>\
         <memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>\
         <vcpu>1</vcpu><cpu mode='{mode}'>{feature}{node}</cpu><os><type arch='x86_64' machine='q35'>hvm</type>\
         <kernel>{}</kernel><initrd>{}</initrd><cmdline>{}</cmdline></os>\
         <features><acpi/></features><on_reboot>destroy</on_reboot><on_crash>destroy</on_crash>\
         <devices><emulator>{}</emulator>{balloon}{device}</devices>\
         <qemu:commandline>{arguments}{environment}</qemu:commandline></domain>\n",
        spec.id,
        escaped(&line.kernel.to_string_lossy()),
        escaped(&line.initramfs.to_string_lossy()),
        escaped(&line.kernel_arguments()),
        escaped(&tool::find(tool::QEMU).unwrap_or_default().to_string_lossy()),
    ))
}

/// What pluggable memory needs in the definition: its maximum, a NUMA node, and a device.
#[derive(Default)]
struct HotplugParts {
    most: String,
    node: String,
    device: String,
}

fn hotplug_parts(spec: &GuestSpec) -> HotplugParts {
    let Some(hotplug) = spec.hotplug else { return HotplugParts::default() };
    let [boot, more] = [spec.memory, hotplug.max].map(|it| it.get() >> 20);
    HotplugParts {
        most: format!("<maxMemory slots='1' unit='MiB'>{}</maxMemory>", boot + more),
        node: format!("<numa><cell id='0' cpus='0' memory='{boot}' unit='MiB'/></numa>"),
        device: format!(
            "<memory model='virtio-mem'><target><size unit='MiB'>{more}</size><node>0</node>\
             <block unit='MiB'>2</block><requested>0</requested></target></memory>"
        ),
    }
}

/// `text` escaped for XML.
fn escaped(text: &str) -> String {
    // Ampersands first, because the others become text with ampersands.
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('\'', "&apos;")
        .replace('"', "&quot;")
}

/// Checks that libvirt supports the guest's devices.
pub(crate) fn validate(guest: &GuestSpec) -> Result<(), LabError> {
    let no = |what: &str| {
        let id = &guest.id;
        Err(LabError::Invalid(format!("guest {id}: {what} cannot be had under libvirt here")))
    };
    match guest {
        _ if guest.hotplug.is_some_and(|it| it.kind == HotplugKind::Dimm) => no("memory modules"),
        _ if guest.truth.is_some() => no("a record of accesses"),
        _ if guest.vsock_cid.is_some() => no("a vsock device"),
        _ if guest.host_disk.is_some() => no("a host"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escaped("a<b>&'c'\"d\""), "a&lt;b&gt;&amp;&apos;c&apos;&quot;d&quot;");
    }
}
