//! QEMU's command line for a guest.
//!
//! Idea: a pure function from a guest's specification to QEMU's arguments, so that tests can check
//! every argument.
//! Source: QEMU 7.2's manual, `qemu-system-x86_64(1)`.
//! Limits: x86-64, one virtual processor; memory in whole MiB.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use ballast_agent_proto::wire::PORT_NAME as AGENT_PORT_NAME;
use ballast_lab_guest::protocol::{DATA_DISK_SERIAL, PORT_NAME, SWAP_DISK_SERIAL};
use ballast_model::{Bytes, GuestId};
use serde::{Deserialize, Serialize};

use crate::accel::Accel;
use crate::disk::DiskFile;
use crate::nested::{DISK_SERIAL, PORTS};
use crate::postgresql::{self, IMAGE_SIZE};
use crate::xen_spec::XenSpec;
use crate::{DiskSpec, Hotplug, LabError, Truth};

/// Host memory for QEMU's translated guest code, in MiB: enough for the kernel and a workload; the
/// default is a quarter of the guest's memory or more.
const TRANSLATION_CACHE_MIB: u32 = 32;
/// The emulator and processor of a guest that is a KVM host itself. One thread: with several the
/// kernel panics now and then. The translation cache is larger, because the guests in it add code
/// to translate. For `cmpxchg16b` see [`Accel::processor`].
const HOST_ACCEL: &str = "tcg,thread=single,tb-size=512";
const HOST_PROCESSOR: &str = "max,vendor=AuthenticAMD,-cx16";
/// Processor features that are hidden from Xen's dom0, because Linux crashes there with them.
/// Without hiding `xsave` (and AVX with it), processes of dom0 got corrupted heaps once guests ran
/// beside them, as if registers had been mixed up.
const NOT_FOR_XEN: &str = "-smap,-smep,-pku,-pks,-la57,-umip,-xsave";
/// Xen's arguments in addition to dom0's memory: its console, and how much it logs there.
/// `eager-fpu`: registers are switched with each domain and not at their first use.
const XEN_ARGUMENTS: &str =
    "console=com1 com1=115200,8n1 loglvl=warning guest_loglvl=warning spec-ctrl=eager-fpu";
/// Smallest memory with which a guest boots: the kernel, the initramfs, and room to unpack it.
const MEMORY_MIN: Bytes = Bytes::mib(128);
/// `no_timer_check`: guests that boot together on few cores would fail that check and panic.
/// `panic=-1`: a panic ends QEMU (with `-no-reboot`) at once.
/// `cryptomgr.notests`: a kernel that tests its ciphers takes the emulator a sixth longer to boot.
pub(crate) const KERNEL_ARGUMENTS: &str = "quiet panic=-1 no_timer_check cryptomgr.notests";
/// The kernel's console: a serial line, or under Xen the hypervisor's console.
const CONSOLES: [&str; 2] = ["console=ttyS0", "console=hvc0"];
/// The first slot on the PCI bus that libvirt leaves free; it fills the bus from the lowest slot.
const PCI_SLOT_FIRST: u8 = 0x10;
/// Plugged memory is onlined in a way that allows unplugging, or is not onlined.
const ONLINE: [&str; 2] = ["memhp_default_state=online_movable", "memhp_default_state=offline"];

/// The specification of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestSpec {
    /// Its name, unique in its run.
    pub id: GuestId,
    /// Memory it boots with, in whole MiB; a balloon cannot exceed it.
    pub memory: Bytes,
    /// Its swap disk.
    pub swap: Option<DiskSpec>,
    /// Its disk for files.
    pub data: Option<DiskSpec>,
    /// Its balloon device.
    #[serde(default = "Balloon::some")]
    pub balloon: Option<Balloon>,
    /// Its memory hotplug.
    pub hotplug: Option<Hotplug>,
    /// Programs packed into it; PostgreSQL is on its data disk.
    #[serde(default)]
    pub with: BTreeSet<String>,
    /// How its memory accesses are recorded.
    pub truth: Option<Truth>,
    /// Whether its memory is private to QEMU, which is QEMU's default; else it is a file that a
    /// tracker can watch.
    #[serde(default)]
    pub private_memory: bool,
    /// Whether QEMU preloads the page tracker.
    #[serde(default)]
    pub tracked: bool,
    /// Where the page tracker listens; by default in the run's folder.
    pub tracker_socket: Option<PathBuf>,
    /// Whether it runs `ballast-agent`, whose port has a socket of its own.
    #[serde(default)]
    pub agent: bool,
    /// Number (CID) of its vsock device, which the host's kernel serves, 3 or more; `None`: it has
    /// none.
    pub vsock_cid: Option<u32>,
    /// Image of the disk that makes it a host itself; see [`crate::Nested`].
    pub host_disk: Option<PathBuf>,
    /// The hypervisor that boots before it and makes it Xen's dom0.
    pub xen: Option<XenSpec>,
    /// How much memory its kernel keeps free; `None`: as its kernel chooses.
    pub min_free: Option<Bytes>,
    /// Further arguments for QEMU.
    #[serde(default)]
    pub extra_args: Vec<String>,
}

/// A guest's balloon device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Balloon {
    /// Whether the guest reports free pages to the host.
    pub free_page_reporting: bool,
    /// Whether the balloon deflates when the guest runs out of memory.
    pub deflate_on_oom: bool,
}

impl Balloon {
    fn some() -> Option<Balloon> {
        Some(Balloon::default())
    }
}

impl GuestSpec {
    /// A guest with a balloon and without disks.
    pub fn new(id: GuestId, memory: Bytes) -> Self {
        GuestSpec {
            id,
            memory,
            swap: None,
            data: None,
            balloon: Balloon::some(),
            hotplug: None,
            with: BTreeSet::new(),
            truth: None,
            private_memory: false,
            tracked: false,
            tracker_socket: None,
            agent: false,
            vsock_cid: None,
            host_disk: None,
            xen: None,
            min_free: None,
            extra_args: Vec::new(),
        }
    }

    /// Checks the specification.
    ///
    /// # Errors
    /// A message with the guest and the invalid value.
    pub fn validate(&self) -> Result<(), LabError> {
        let invalid = |why: String| LabError::Invalid(format!("guest {}: {why}", self.id));
        if self.memory < MEMORY_MIN || !self.memory.get().is_multiple_of(Bytes::mib(1).get()) {
            return Err(invalid(format!(
                "memory {:#} must be whole MiB and at least {MEMORY_MIN}",
                self.memory
            )));
        }
        if postgresql::is_in(&self.with) && self.data.is_none_or(|disk| disk.size < IMAGE_SIZE) {
            return Err(invalid(format!(
                "postgresql is on the data disk: give the guest a data disk of at least {IMAGE_SIZE}"
            )));
        }
        for disk in [self.swap, self.data].iter().flatten() {
            disk.validate().map_err(|error| invalid(error.to_string()))?;
        }
        if let Some(hotplug) = &self.hotplug {
            hotplug.validate().map_err(|why| invalid(format!("hotplug: {why}")))?;
        }
        if let Some(truth) = &self.truth {
            truth.validate().map_err(invalid)?;
        }
        Ok(())
    }

    /// The largest size of its disks on the host.
    pub(crate) fn disk_total(&self) -> Bytes {
        [self.swap, self.data].iter().flatten().map(|disk| disk.size).sum()
    }
}

/// The paths of a guest's sockets and logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GuestPaths {
    /// QMP for the daemon.
    pub(crate) qmp: PathBuf,
    /// QMP for the lab itself: a socket serves one client at a time.
    pub(crate) lab_qmp: PathBuf,
    /// The virtio-serial port.
    pub(crate) channel: PathBuf,
    /// The console log of the guest's kernel.
    pub(crate) console: PathBuf,
    /// The rows of [`Truth`].
    pub(crate) truth: PathBuf,
    /// The page tracker's socket.
    pub(crate) tracker: PathBuf,
    /// The socket of the agent's port.
    pub(crate) agent: PathBuf,
    /// The ports of a command's outputs, in a guest that is a host itself.
    pub(crate) outputs: [PathBuf; 2],
    /// The console of a shell in such a guest.
    pub(crate) terminal: PathBuf,
}

impl GuestPaths {
    /// The file of QEMU's messages.
    pub(crate) fn messages(&self) -> PathBuf {
        self.console.with_extension("qemu")
    }
}

/// The file of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QemuDisk {
    /// The path by which QEMU opens it.
    pub(crate) file: PathBuf,
    /// Whether to bypass the host's page cache.
    pub(crate) direct: bool,
}

impl QemuDisk {
    pub(crate) fn of(disk: &DiskFile) -> QemuDisk {
        // A file without a name is inherited.
        let inherited = || format!("/proc/self/fd/{}", disk.file.as_raw_fd()).into();
        let file = disk.name.as_ref().map_or_else(inherited, |name| name.to_path_buf());
        QemuDisk { file, direct: disk.direct }
    }
}

/// The inputs of a command line.
pub(crate) struct CommandLine<'a> {
    pub(crate) spec: &'a GuestSpec,
    pub(crate) accel: Accel,
    pub(crate) kernel: &'a Path,
    pub(crate) initramfs: &'a Path,
    pub(crate) paths: &'a GuestPaths,
    pub(crate) swap: Option<QemuDisk>,
    pub(crate) data: Option<QemuDisk>,
    /// Value of the option of the truth plugin.
    pub(crate) truth: Option<OsString>,
}

impl CommandLine<'_> {
    /// QEMU's arguments, without the program's name.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mib = self.spec.memory.get() >> 20;
        let mut args = Arguments::default();
        args.words("-nodefaults -no-user-config -display none -no-reboot -smp 1");
        let is_host = self.spec.host_disk.is_some();
        args.pair("-cpu", self.processor());
        args.pair("-name", format!("guest={},debug-threads=on", self.spec.id));
        let accel = if is_host { HOST_ACCEL.to_owned() } else { self.accel.argument() };
        args.pair("-accel", accel);
        let hotplug = self.spec.hotplug;
        let plugged = hotplug.map_or(String::new(), |hotplug| hotplug.memory_argument(mib));
        args.pair("-m", format!("{mib}M{plugged}"));
        let (kind, share) = if self.spec.private_memory { ("ram", "off") } else { ("memfd", "on") };
        args.pair("-object", format!("memory-backend-{kind},id=ram,size={mib}M,share={share}"));
        args.pair("-machine", "q35,memory-backend=ram");
        args.kernel(self);
        args.path("-qmp", "unix:", &self.paths.qmp, ",server=on,wait=off");
        args.lab(self.spec, self.paths);
        if let Some(balloon) = self.spec.balloon {
            args.pair("-device", balloon_argument(balloon));
        }
        if let Some((object, device)) = hotplug.and_then(|hotplug| hotplug.device()) {
            args.pair("-object", object);
            args.pair("-device", device);
        }
        args.disks(self);
        if let Some(image) = &self.spec.host_disk {
            args.host(image, self.paths);
        }
        if let Some(truth) = &self.truth {
            args.pair("-plugin", truth);
        }
        args.list.extend(self.spec.extra_args.iter().map(OsString::from));
        args.list
    }

    /// The kernel's command line.
    pub(crate) fn kernel_arguments(&self) -> String {
        let is_offline = self.spec.hotplug.is_some_and(|hotplug| !hotplug.online);
        let console = CONSOLES[usize::from(self.spec.xen.is_some())];
        let min_free = self.spec.min_free.map_or(String::new(), |min_free| {
            format!(" sysctl.vm.min_free_kbytes={}", min_free.get() / 1024)
        });
        format!("{console} {KERNEL_ARGUMENTS} {}{min_free}", ONLINE[usize::from(is_offline)])
    }

    fn processor(&self) -> String {
        match (&self.spec.host_disk, &self.spec.xen) {
            (Some(_), Some(_)) => format!("{HOST_PROCESSOR},{NOT_FOR_XEN}"),
            (Some(_), None) => HOST_PROCESSOR.to_owned(),
            (None, _) => self.accel.processor().to_owned(),
        }
    }

    /// The lab's own arguments for a QEMU that another program starts.
    pub(crate) fn lab_arguments(&self) -> Vec<OsString> {
        let mut args = Arguments { pci_slot: Some(PCI_SLOT_FIRST), ..Arguments::default() };
        args.lab(self.spec, self.paths);
        args.disks(self);
        args.list.extend(self.spec.extra_args.iter().map(OsString::from));
        args.list
    }
}

fn balloon_argument(balloon: Balloon) -> String {
    let mut text = "virtio-balloon-pci,id=balloon0".to_owned();
    if balloon.free_page_reporting {
        text.push_str(",free-page-reporting=on");
    }
    if balloon.deflate_on_oom {
        text.push_str(",deflate-on-oom=on");
    }
    text
}

impl Accel {
    /// The processor model. Under emulation it lacks `cmpxchg16b`, because QEMU 7.2 may leave
    /// arbitrary flags after that instruction: a guest interrupted there continues with them, for
    /// example single-stepping, and panics, as Linux 6.12 did at boot. Kernels work without the
    /// instruction.
    fn processor(self) -> &'static str {
        match self {
            Accel::Kvm | Accel::Xen => "max",
            Accel::Tcg => "max,-cx16",
        }
    }

    fn argument(self) -> String {
        match self {
            Accel::Kvm => "kvm".to_owned(),
            Accel::Xen => "xen".to_owned(),
            Accel::Tcg => format!("tcg,tb-size={TRANSLATION_CACHE_MIB}"),
        }
    }
}

#[derive(Default)]
struct Arguments {
    list: Vec<OsString>,
    /// The next device's slot on the PCI bus; `None`: QEMU chooses.
    pci_slot: Option<u8>,
}

impl Arguments {
    fn words(&mut self, words: &str) {
        self.list.extend(words.split(' ').map(OsString::from));
    }

    fn pair(&mut self, option: &str, value: impl Into<OsString>) {
        self.list.push(option.into());
        self.list.push(value.into());
    }

    /// An option whose value contains a path; QEMU requires its commas to be doubled.
    fn path(&mut self, option: &str, before: &str, path: &Path, after: &str) {
        let path = path.to_string_lossy().replace(',', ",,");
        self.pair(option, format!("{before}{path}{after}"));
    }

    /// The arguments that boot the guest. Xen is a multiboot kernel, with dom0's kernel and
    /// initramfs as its modules.
    fn kernel(&mut self, line: &CommandLine<'_>) {
        let arguments = line.kernel_arguments();
        let Some(xen) = &line.spec.xen else {
            self.pair("-kernel", line.kernel);
            self.pair("-initrd", line.initramfs);
            return self.pair("-append", arguments);
        };
        let [kernel, initramfs] =
            [line.kernel, line.initramfs].map(|path| path.to_string_lossy().replace(',', ",,"));
        let memory = xen.dom0_memory.get() >> 20;
        self.pair("-kernel", &xen.hypervisor);
        self.pair("-initrd", format!("{kernel} {arguments},{initramfs}"));
        self.pair("-append", format!("{XEN_ARGUMENTS} dom0_mem={memory}M,max:{memory}M"));
    }

    /// The console, the lab's monitor and channel, and the agent's channel.
    fn lab(&mut self, spec: &GuestSpec, paths: &GuestPaths) {
        let listening = ",server=on,wait=off";
        self.path("-serial", "file:", &paths.console, "");
        self.path("-qmp", "unix:", &paths.lab_qmp, listening);
        self.pci("virtio-serial-pci");
        self.path("-chardev", "socket,id=lab,path=", &paths.channel, listening);
        self.pair("-device", format!("virtserialport,chardev=lab,name={PORT_NAME}"));
        if spec.agent {
            self.path("-chardev", "socket,id=agent,path=", &paths.agent, listening);
            self.pair("-device", format!("virtserialport,chardev=agent,name={AGENT_PORT_NAME}"));
        }
        if let Some(cid) = spec.vsock_cid {
            self.pair("-device", format!("vhost-vsock-pci,guest-cid={cid}"));
        }
    }

    fn disks(&mut self, line: &CommandLine<'_>) {
        self.disk(SWAP_DISK_SERIAL, line.swap.as_ref(), line.spec.swap);
        self.disk(DATA_DISK_SERIAL, line.data.as_ref(), line.spec.data);
    }

    /// The disk and the ports of a guest that is a KVM host itself.
    fn host(&mut self, image: &Path, paths: &GuestPaths) {
        // Writes go to an unnamed overlay and are lost at the end.
        let options = format!(",if=none,id={DISK_SERIAL},format=raw,snapshot=on");
        self.path("-drive", "file=", image, &options);
        self.pair("-device", format!("virtio-blk-pci,drive={DISK_SERIAL},serial={DISK_SERIAL}"));
        let listening = ",server=on,wait=off";
        for (socket, port) in paths.outputs.iter().zip(PORTS) {
            self.path("-chardev", &format!("socket,id={port},path="), socket, listening);
            self.pair("-device", format!("virtserialport,chardev={port},name={port}"));
        }
        self.path("-chardev", "socket,id=terminal,path=", &paths.terminal, listening);
        self.pair("-device", "virtconsole,chardev=terminal");
    }

    /// A disk; an inherited file is opened again through `/proc`.
    fn disk(&mut self, id: &str, disk: Option<&QemuDisk>, spec: Option<DiskSpec>) {
        let (Some(disk), Some(spec)) = (disk, spec) else { return };
        let cache = if disk.direct { "none" } else { "writeback" };
        let mut options = format!(",if=none,id={id},format=raw,cache={cache},discard=unmap");
        if let Some(limits) = spec.speed.limits() {
            options.push_str(&format!(
                ",throttling.iops-total={},throttling.bps-total={}",
                limits.iops, limits.bytes_per_second
            ));
        }
        self.path("-drive", "file=", &disk.file, &options);
        self.pci(&format!("virtio-blk-pci,drive={id},serial={id}"));
    }

    /// A device on the PCI bus.
    fn pci(&mut self, device: &str) {
        let Some(slot) = self.pci_slot else { return self.pair("-device", device) };
        self.pair("-device", format!("{device},addr={slot:#x}"));
        self.pci_slot = Some(slot + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Speed};
    use expect_test::{Expect, expect};

    fn check(spec: &GuestSpec, accel: Accel, expected: Expect) {
        expected.assert_eq(line_of(spec, accel).trim_start());
    }

    fn line_of(spec: &GuestSpec, accel: Accel) -> String {
        let paths = GuestPaths {
            qmp: "/run/qmp/a.sock".into(),
            lab_qmp: "/run/lab/a.qmp".into(),
            channel: "/run/lab/a.channel".into(),
            console: "/run/console/a.log".into(),
            truth: "/run/console/a.truth.csv".into(),
            tracker: "/run/lab/a.track".into(),
            agent: "/run/lab/a.agent".into(),
            outputs: ["/run/lab/a.out".into(), "/run/lab/a.err".into()],
            terminal: "/run/lab/a.tty".into(),
        };
        let line = CommandLine {
            spec,
            accel,
            kernel: Path::new("/cache/vmlinuz"),
            initramfs: Path::new("/cache/initramfs.cpio"),
            paths: &paths,
            swap: spec.swap.map(|_| QemuDisk { file: "/proc/self/fd/10".into(), direct: true }),
            data: spec.data.map(|_| QemuDisk { file: "/proc/self/fd/11".into(), direct: false }),
            truth: spec.truth.is_some().then(|| "plugin.so,rows=a".into()),
        };
        let mut text = String::new();
        for argument in line.arguments() {
            let argument = argument.to_string_lossy().into_owned();
            text.push_str(if argument.starts_with('-') { "\n" } else { " " });
            text.push_str(&argument);
        }
        text
    }

    #[test]
    fn plain_guest_has_these_arguments() {
        let spec = GuestSpec::new("a".parse().unwrap(), Bytes::gib(1));
        check(
            &spec,
            Accel::Tcg,
            expect![[r#"
            -nodefaults
            -no-user-config
            -display none
            -no-reboot
            -smp 1
            -cpu max,-cx16
            -name guest=a,debug-threads=on
            -accel tcg,tb-size=32
            -m 1024M
            -object memory-backend-memfd,id=ram,size=1024M,share=on
            -machine q35,memory-backend=ram
            -kernel /cache/vmlinuz
            -initrd /cache/initramfs.cpio
            -append console=ttyS0 quiet panic=-1 no_timer_check cryptomgr.notests memhp_default_state=online_movable
            -qmp unix:/run/qmp/a.sock,server=on,wait=off
            -serial file:/run/console/a.log
            -qmp unix:/run/lab/a.qmp,server=on,wait=off
            -device virtio-serial-pci
            -chardev socket,id=lab,path=/run/lab/a.channel,server=on,wait=off
            -device virtserialport,chardev=lab,name=ballast.lab
            -device virtio-balloon-pci,id=balloon0"#]],
        );
    }

    #[test]
    fn guest_with_every_device_has_these_arguments() {
        let limits = Limits { iops: 300, bytes_per_second: 1_000_000 };
        let spec = GuestSpec {
            swap: Some(DiskSpec { size: Bytes::gib(1), speed: Speed::Ssd }),
            data: Some(DiskSpec { size: Bytes::mib(64), speed: Speed::Limits(limits) }),
            balloon: Some(Balloon { free_page_reporting: true, deflate_on_oom: true }),
            truth: Some(Truth::default()),
            agent: true,
            min_free: Some(Bytes::mib(4)),
            extra_args: vec!["-s".to_owned()],
            ..GuestSpec::new("b".parse().unwrap(), Bytes::mib(256))
        };
        check(
            &spec,
            Accel::Kvm,
            expect![[r#"
                -nodefaults
                -no-user-config
                -display none
                -no-reboot
                -smp 1
                -cpu max
                -name guest=b,debug-threads=on
                -accel kvm
                -m 256M
                -object memory-backend-memfd,id=ram,size=256M,share=on
                -machine q35,memory-backend=ram
                -kernel /cache/vmlinuz
                -initrd /cache/initramfs.cpio
                -append console=ttyS0 quiet panic=-1 no_timer_check cryptomgr.notests memhp_default_state=online_movable sysctl.vm.min_free_kbytes=4096
                -qmp unix:/run/qmp/a.sock,server=on,wait=off
                -serial file:/run/console/a.log
                -qmp unix:/run/lab/a.qmp,server=on,wait=off
                -device virtio-serial-pci
                -chardev socket,id=lab,path=/run/lab/a.channel,server=on,wait=off
                -device virtserialport,chardev=lab,name=ballast.lab
                -chardev socket,id=agent,path=/run/lab/a.agent,server=on,wait=off
                -device virtserialport,chardev=agent,name=org.ballast.agent
                -device virtio-balloon-pci,id=balloon0,free-page-reporting=on,deflate-on-oom=on
                -drive file=/proc/self/fd/10,if=none,id=swap,format=raw,cache=none,discard=unmap,throttling.iops-total=10000,throttling.bps-total=500000000
                -device virtio-blk-pci,drive=swap,serial=swap
                -drive file=/proc/self/fd/11,if=none,id=data,format=raw,cache=writeback,discard=unmap,throttling.iops-total=300,throttling.bps-total=1000000
                -device virtio-blk-pci,drive=data,serial=data
                -plugin plugin.so,rows=a
                -s"#]],
        );
    }

    #[test]
    fn guest_without_balloon_has_no_balloon_device() {
        let plain = GuestSpec::new("a".parse().unwrap(), Bytes::mib(256));
        let line = line_of(&plain, Accel::Tcg);
        let without = line_of(&GuestSpec { balloon: None, ..plain }, Accel::Tcg);
        assert_eq!(line.replace("\n-device virtio-balloon-pci,id=balloon0", ""), without);
        assert_ne!(line, without);
    }

    /// The differences from a plain guest.
    #[test]
    fn hotplug_adds_a_device_or_slots() {
        let arguments = |hotplug| {
            let mut spec = GuestSpec::new("a".parse().unwrap(), Bytes::mib(512));
            spec.hotplug = Some(hotplug);
            spec.validate().unwrap();
            line_of(&spec, Accel::Tcg)
        };
        let device = arguments(Hotplug::virtio_mem(Bytes::gib(1)));
        assert!(device.contains("\n-m 512M,maxmem=1536M,slots=1\n"), "{device}");
        assert!(device.contains("memhp_default_state=online_movable"), "{device}");
        let backend = "\n-object memory-backend-memfd,id=plug,size=1024M,share=on";
        let plug = "\n-device virtio-mem-pci,id=plug0,memdev=plug,requested-size=0,block-size=2M";
        assert!(device.contains(&format!("{backend}{plug}")), "{device}");
        let kind = crate::HotplugKind::Dimm;
        let slots = arguments(Hotplug { max: Bytes::gib(1), kind, online: false });
        assert!(slots.contains("\n-m 512M,maxmem=1536M,slots=8\n"), "{slots}");
        assert!(slots.contains("memhp_default_state=offline") && !slots.contains("id=plug"));
    }

    /// The differences from a plain guest.
    #[test]
    fn machines_that_are_hosts_emulate_virtualization_on_one_thread() {
        let mut spec = GuestSpec::new("a".parse().unwrap(), Bytes::mib(1536));
        spec.host_disk = Some("/cache/host.ext4".into());
        let line = line_of(&spec, Accel::Tcg);
        for expected in [
            "-cpu max,vendor=AuthenticAMD,-cx16",
            "-accel tcg,thread=single,tb-size=512",
            "-drive file=/cache/host.ext4,if=none,id=host,format=raw,snapshot=on",
            "-chardev socket,id=ballast.err,path=/run/lab/a.err,server=on,wait=off",
            "-device virtserialport,chardev=ballast.err,name=ballast.err",
            "-device virtconsole,chardev=terminal",
        ] {
            assert!(line.lines().any(|it| it == expected), "{expected}: {line}");
        }
    }

    #[test]
    fn xen_gets_its_first_domain_as_modules() {
        let mut spec = GuestSpec::new("a".parse().unwrap(), Bytes::gib(3));
        spec.host_disk = Some("/cache/host.ext4".into());
        let hypervisor = "/cache/xen".into();
        spec.xen = Some(XenSpec { hypervisor, dom0_memory: Bytes::mib(768) });
        let line = line_of(&spec, Accel::Tcg);
        for expected in [
            "-cpu max,vendor=AuthenticAMD,-cx16,-smap,-smep,-pku,-pks,-la57,-umip,-xsave",
            "-kernel /cache/xen",
            "-initrd /cache/vmlinuz console=hvc0 quiet panic=-1 no_timer_check cryptomgr.notests \
             memhp_default_state=online_movable,/cache/initramfs.cpio",
            "-append console=com1 com1=115200,8n1 loglvl=warning guest_loglvl=warning \
             spec-ctrl=eager-fpu dom0_mem=768M,max:768M",
        ] {
            assert!(line.lines().any(|it| it == expected), "{expected}: {line}");
        }
    }

    #[test]
    fn commas_in_paths_are_doubled() {
        let mut args = Arguments::default();
        args.path("-serial", "file:", Path::new("/a,b"), "");
        assert_eq!(args.list, ["-serial", "file:/a,,b"]);
    }

    #[test]
    fn invalid_guests_are_refused_by_name() {
        for memory in [Bytes::mib(64), Bytes::mib(256) + Bytes::new(4096)] {
            let spec = GuestSpec::new("tiny".parse().unwrap(), memory);
            let error = spec.validate().unwrap_err().to_string();
            assert!(error.contains("guest tiny") && error.contains("MiB"), "{error}");
        }
    }
}
