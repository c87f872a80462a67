//! Collects facts: cgroups, hypervisors, the daemon, and permissions.
//!
//! Idea: everything is tried as the daemon would, with the daemon's own code, and the results are
//! plain values; other files judge them. Nothing is changed.
//! Cost: some small files, one connection for each QMP socket that no daemon uses, some 10 ms a
//! hypervisor. Limits: at most [`ASKED_MAX`] sockets of one kind are asked.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_api::StatusReply;
use ballast_cloud_hypervisor::CLOUD_HYPERVISOR;
use ballast_config::{Config, RestSettings};
use ballast_daemon::track::TrackingDiagnosis;
use ballast_firecracker::FIRECRACKER;
use ballast_host::{
    CGROUPS, NODES, PROC, ProcessRights, read_bound_nodes, read_limits, read_node_rooms,
};
use ballast_libvirt::{LibvirtVersion, ask_version};
use ballast_model::{GuestSample, LinkDown, Timestamp};
use ballast_proxmox::VmFolder;
use ballast_qmp::client::{QmpClient, connect, peer_pid};
use ballast_qmp::fleet::{Notice, list_sockets};
use ballast_reclaim::{CgroupVersion, MemoryCgroup, parse_mountinfo};
use ballast_rest::{FoundSocket, HypervisorKind, RestGuest, probe_guest};
use ballast_xen::{XenProbe, probe_xen};
use rustix::fs::{Access, access};
use tokio::task::JoinSet;

use super::limits::LimitsSeen;

/// Most sockets of one kind that are asked; the others are only listed.
const ASKED_MAX: usize = 256;
/// Where xenstored listens.
const XEN_SOCKET: &str = "/run/xenstored/socket";
/// The sockets of a libvirt for the whole host: `libvirtd` or `virtqemud`.
const LIBVIRT_SOCKETS: [&str; 2] = ["/run/libvirt/libvirt-sock", "/run/libvirt/virtqemud-sock"];
/// Where Proxmox VE has the configurations of its machines, and the PID files of those that run.
const PROXMOX_FOLDER: &str = "/etc/pve/qemu-server";
const PROXMOX_RUN: &str = "/run/qemu-server";
/// Longest wait for a libvirt that is not configured.
const LIBVIRT_TIMEOUT: Duration = Duration::from_secs(2);

/// The hierarchy of cgroups that controls memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemoryCgroups {
    pub(super) version: CgroupVersion,
    pub(super) point: PathBuf,
    /// Whether cgroups in it can have the memory controller.
    pub(super) is_delegated: bool,
}

/// Finds the hierarchy below `root`, which is `/` except in tests. `None`: there is none.
pub(super) fn memory_cgroups(root: &Path) -> Result<Option<MemoryCgroups>, String> {
    let path = root.join("proc/self/mountinfo");
    let context = |why: String| format!("{}: {why}", path.display());
    let text = fs::read(&path).map_err(|error| context(error.to_string()))?;
    let mounts = parse_mountinfo(&text).map_err(context)?;
    let has_memory = |point: &Path, file: &str| {
        let below = root.join(point.strip_prefix("/").unwrap_or(point));
        let words = fs::read_to_string(below.join(file)).unwrap_or_default();
        words.split_whitespace().any(|word| word == "memory")
    };
    for mount in mounts {
        // A controller is in one hierarchy only.
        let is_delegated = match mount.version {
            CgroupVersion::One => true,
            CgroupVersion::Two if !has_memory(&mount.point, "cgroup.controllers") => continue,
            CgroupVersion::Two => has_memory(&mount.point, "cgroup.subtree_control"),
        };
        let (version, point) = (mount.version, mount.point);
        return Ok(Some(MemoryCgroups { version, point, is_delegated }));
    }
    Ok(None)
}

/// Looks up the limits on the processes of all hypervisors.
pub(super) fn limits(tracking: &TrackingDiagnosis) -> Vec<LimitsSeen> {
    let mut seen = Vec::new();
    for hypervisor in &tracking.guests {
        let (name, pid) = (hypervisor.guest.clone(), hypervisor.pid);
        let nodes = read_bound_nodes(Path::new(PROC), Path::new(NODES), pid).ok().flatten();
        seen.push(LimitsSeen {
            guest: name.unwrap_or_else(|| format!("process {pid}")),
            limits: read_limits(Path::new(PROC), Path::new(CGROUPS), pid),
            nodes: read_node_rooms(Path::new(NODES), &nodes).into_values().next(),
        });
    }
    seen
}

/// The state of a QMP socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SocketState {
    /// It answers, or the daemon uses it.
    Answers,
    /// There are too many to ask them all.
    NotAsked,
    /// This user may not write to it.
    NotWritable,
    /// It does not answer.
    Down(LinkDown),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QmpSocket {
    pub(super) path: PathBuf,
    pub(super) state: SocketState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QmpFolder {
    pub(super) path: PathBuf,
    pub(super) is_there: bool,
    pub(super) sockets: Vec<QmpSocket>,
    pub(super) notices: Vec<Notice>,
}

/// Asks the sockets in the configured folders, except those that the daemon uses.
pub(super) async fn qmp_folders(config: &Config, status: Option<&StatusReply>) -> Vec<QmpFolder> {
    let is_held = |guest: &str| {
        status.is_some_and(|status| status.guests.iter().any(|view| view.guest == guest))
    };
    let mut asked = 0;
    let mut folders = Vec::new();
    for folder in &config.qmp_folders {
        let (listed, notices) = list_sockets(folder);
        let mut sockets = Vec::new();
        let mut asking = JoinSet::new();
        for (guest, path) in listed {
            let state = if is_held(guest.as_str()) {
                SocketState::Answers
            } else if access(&path, Access::WRITE_OK).is_err() {
                SocketState::NotWritable
            } else {
                if asked < ASKED_MAX {
                    asked += 1;
                    let (at, path, timeout) = (sockets.len(), path.clone(), config.qmp_timeout);
                    asking.spawn(async move { (at, QmpClient::connect(&path, timeout).await) });
                }
                SocketState::NotAsked
            };
            sockets.push(QmpSocket { path, state });
        }
        while let Some(answer) = asking.join_next().await {
            let Ok((at, answer)) = answer else { continue };
            sockets[at].state = answer.map_or_else(SocketState::Down, |_| SocketState::Answers);
        }
        let (path, is_there) = (folder.clone(), folder.exists());
        folders.push(QmpFolder { path, is_there, sockets, notices });
    }
    folders
}

/// A socket of libvirt, and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LibvirtSeen {
    pub(super) socket: PathBuf,
    pub(super) is_configured: bool,
    /// Whether the socket exists, whether or not anybody listens.
    pub(super) is_there: bool,
    pub(super) answer: Result<LibvirtVersion, LinkDown>,
}

/// Asks the configured libvirt; if none is configured, those that this host has.
pub(super) async fn libvirts(config: &Config) -> Vec<LibvirtSeen> {
    if let Some(settings) = &config.libvirt {
        let answer = ask_version(&settings.socket, settings.timeout).await;
        let (socket, is_there) = (settings.socket.clone(), settings.socket.exists());
        return vec![LibvirtSeen { socket, is_configured: true, is_there, answer }];
    }
    let mut seen = Vec::new();
    for socket in LIBVIRT_SOCKETS.map(PathBuf::from) {
        if socket.exists() {
            let answer = ask_version(&socket, LIBVIRT_TIMEOUT).await;
            seen.push(LibvirtSeen { socket, is_configured: false, is_there: true, answer });
        }
    }
    seen
}

/// The Xen of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct XenSeen {
    pub(super) socket: PathBuf,
    pub(super) is_configured: bool,
    pub(super) found: XenProbe,
}

/// Asks the configured Xen; if none is configured, one that this host has. `None`: there is none.
pub(super) async fn xen(config: &Config) -> Option<XenSeen> {
    let (socket, xl, timeout) = match &config.xen {
        Some(settings) => (settings.socket.clone(), settings.xl.clone(), settings.timeout),
        None => (XEN_SOCKET.into(), "xl".into(), LIBVIRT_TIMEOUT),
    };
    let is_configured = config.xen.is_some();
    if !is_configured && !socket.exists() {
        return None;
    }
    let found = probe_xen(&socket, &xl, timeout).await;
    Some(XenSeen { socket, is_configured, found })
}

/// The virtual machines of Proxmox VE on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProxmoxSeen {
    pub(super) folder: PathBuf,
    pub(super) is_configured: bool,
    pub(super) machines: Result<VmFolder, String>,
    /// The VMIDs of those that run.
    pub(super) running: BTreeSet<u32>,
}

/// Reads the configured folder, or else the usual one. `None`: there is none.
pub(super) fn proxmox(config: &Config) -> Option<ProxmoxSeen> {
    let folder = config.proxmox_folder.clone().unwrap_or_else(|| PROXMOX_FOLDER.into());
    let read = VmFolder::read(&folder).map_err(|error| error.to_string());
    let machines = read.transpose()?;
    let vmids = machines.iter().flat_map(VmFolder::vms).map(|vm| vm.vmid);
    let pid_file = |vmid: &u32| Path::new(PROXMOX_RUN).join(format!("{vmid}.pid"));
    let running = vmids.filter(|vmid| pid_file(vmid).exists()).collect();
    Some(ProxmoxSeen { folder, is_configured: config.proxmox_folder.is_some(), machines, running })
}

/// A hypervisor with a REST API on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RestHypervisor {
    CloudHypervisor,
    Firecracker,
}

impl RestHypervisor {
    pub(super) const fn kind(self) -> HypervisorKind {
        match self {
            RestHypervisor::CloudHypervisor => CLOUD_HYPERVISOR,
            RestHypervisor::Firecracker => FIRECRACKER,
        }
    }
}

/// The configured sockets of one such hypervisor.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RestSeen {
    pub(super) hypervisor: RestHypervisor,
    /// Each pattern, and how many sockets it matches.
    pub(super) patterns: Vec<(String, usize)>,
    pub(super) sockets: Vec<RestSocket>,
}

/// The socket of one guest's API.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RestSocket {
    pub(super) path: PathBuf,
    /// The name of its guest.
    pub(super) guest: String,
    /// The answer; `None`: not asked, because there are too many.
    pub(super) answer: Option<Result<RestAnswer, LinkDown>>,
}

/// What the API reports about its guest.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RestAnswer {
    pub(super) version: Option<String>,
    pub(super) sample: GuestSample,
    /// Whether it has a balloon that does not report its size.
    pub(super) has_unmeasured_balloon: bool,
    /// The socket of its vsock device.
    pub(super) vsock: Option<PathBuf>,
}

/// Asks the configured sockets of Cloud Hypervisor and Firecracker. A daemon may use them at the
/// same time.
pub(super) async fn rest(config: &Config) -> Vec<RestSeen> {
    let mut seen = Vec::new();
    for (hypervisor, settings) in [
        (RestHypervisor::CloudHypervisor, &config.cloud_hypervisor),
        (RestHypervisor::Firecracker, &config.firecracker),
    ] {
        if let Some(settings) = settings {
            seen.push(rest_of(hypervisor, settings).await);
        }
    }
    seen
}

async fn rest_of(hypervisor: RestHypervisor, settings: &RestSettings) -> RestSeen {
    let (mut patterns, mut sockets) = (Vec::new(), Vec::new());
    let mut asking = JoinSet::new();
    for pattern in &settings.sockets {
        let found = pattern.sockets();
        patterns.push((pattern.to_string(), found.len()));
        for FoundSocket { path, name, .. } in found {
            if sockets.len() < ASKED_MAX {
                let (at, path, timeout) = (sockets.len(), path.clone(), settings.timeout);
                let guest = (hypervisor.kind().guest)();
                asking.spawn(async move { (at, probe_guest(guest, &path, timeout).await) });
            }
            sockets.push(RestSocket { path, guest: name, answer: None });
        }
    }
    while let Some(answer) = asking.join_next().await {
        let Ok((at, answer)) = answer else { continue };
        let answer = answer.and_then(|guest| answer_of(&*guest, &sockets[at].guest));
        sockets[at].answer = Some(answer);
    }
    RestSeen { hypervisor, patterns, sockets }
}

fn answer_of(guest: &dyn RestGuest, name: &str) -> Result<RestAnswer, LinkDown> {
    let id = name.parse().map_err(|error| LinkDown::Protocol(format!("{error}")))?;
    Ok(RestAnswer {
        version: guest.version().map(str::to_owned),
        sample: guest.sample(&id, Timestamp::ZERO),
        has_unmeasured_balloon: guest.has_unmeasured_balloon(),
        vsock: guest.vsock_socket().map(Path::to_owned),
    })
}

/// The cgroups that a pattern of `[containers]` matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PatternSeen {
    pub(super) pattern: String,
    pub(super) found: usize,
    /// A file in them that cannot be read.
    pub(super) unreadable: Option<PathBuf>,
    /// A file in them that cannot be written.
    pub(super) unwritable: Option<PathBuf>,
}

/// Checks the configured cgroups.
pub(super) fn patterns(config: &Config, cgroups: Option<&MemoryCgroups>) -> Vec<PatternSeen> {
    let cgroups = cgroups.filter(|it| it.version == CgroupVersion::Two);
    let mut seen = Vec::new();
    for pattern in config.containers.iter().flat_map(|it| &it.cgroups) {
        let folders = cgroups.map_or(Vec::new(), |cgroups| pattern.folders(&cgroups.point));
        let current = folders.iter().map(|folder| folder.join("memory.current"));
        let high = folders.iter().map(|folder| folder.join("memory.high"));
        seen.push(PatternSeen {
            pattern: pattern.to_string(),
            found: folders.len(),
            unreadable: current.into_iter().find(|path| File::open(path).is_err()),
            unwritable: high.into_iter().find(|path| access(path, Access::WRITE_OK).is_err()),
        });
    }
    seen
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DaemonSeen {
    /// Its process number and its rights; `None`: there is no daemon.
    pub(super) rights: Option<(u32, Result<ProcessRights, String>)>,
}

/// Finds the daemon that listens on `socket`. If this user may not open that, it is taken to be the
/// first of `daemons`, the numbers of all daemons that run.
pub(super) async fn daemon(socket: Option<&Path>, daemons: &[u32]) -> DaemonSeen {
    let pid = match socket {
        None => None,
        Some(socket) => match connect(socket).await {
            Ok(stream) => peer_pid(&stream),
            Err(LinkDown::PermissionDenied) => daemons.first().copied(),
            Err(_) => None,
        },
    };
    DaemonSeen { rights: pid.map(|pid| (pid, rights(&pid.to_string()))) }
}

fn rights(who: &str) -> Result<ProcessRights, String> {
    ProcessRights::read(Path::new(PROC), who).map_err(|error| error.to_string())
}

/// What this command may do to a hypervisor's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProcessSeen {
    pub(super) pid: u32,
    /// Whether its `smaps` can be opened.
    pub(super) smaps: Result<(), String>,
    /// Whether it has a cgroup of its own whose limit can be written.
    pub(super) cgroup: Result<(), String>,
}

/// The state of the daemon's journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JournalSeen {
    /// The journal is off.
    Off,
    /// A daemon runs, and records.
    Recording,
    /// A daemon runs, and does not record.
    Failing { why: String },
    /// The folder is missing.
    NoFolder { folder: PathBuf },
    /// No daemon runs, and this user may not write the journal.
    NotWritable { path: PathBuf },
    /// No daemon runs, and this user may write the journal.
    Writable { path: PathBuf },
}

/// Rights of the daemon and of this command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RightsSeen {
    pub(super) own: Result<ProcessRights, String>,
    pub(super) daemon: DaemonSeen,
    pub(super) hypervisors: Vec<ProcessSeen>,
    pub(super) journal: JournalSeen,
}

/// Checks what this user may do.
pub(super) fn permissions(
    config: &Config,
    daemon: DaemonSeen,
    status: Option<&StatusReply>,
    tracking: &TrackingDiagnosis,
) -> RightsSeen {
    let hypervisors = tracking.guests.iter().map(|guest| process(guest.pid)).collect();
    RightsSeen { own: rights("self"), daemon, hypervisors, journal: journal(config, status) }
}

fn process(pid: u32) -> ProcessSeen {
    let smaps = File::open(Path::new(PROC).join(format!("{pid}/smaps")));
    ProcessSeen {
        pid,
        smaps: smaps.map(drop).map_err(|error| error.to_string()),
        cgroup: cgroup(pid),
    }
}

fn cgroup(pid: u32) -> Result<(), String> {
    let cgroup = MemoryCgroup::find(Path::new("/"), pid).map_err(|error| error.to_string())?;
    let limit = cgroup.folder().join(cgroup.limit_name());
    access(&limit, Access::WRITE_OK).map_err(|error| format!("{}: {error}", limit.display()))
}

fn journal(config: &Config, status: Option<&StatusReply>) -> JournalSeen {
    let Some(settings) = &config.journal else { return JournalSeen::Off };
    if let Some(daemon) = status.and_then(|status| status.daemon.as_ref()) {
        return match &daemon.journal_error {
            Some(why) => JournalSeen::Failing { why: why.clone() },
            None => JournalSeen::Recording,
        };
    }
    let path = settings.path.clone();
    let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
    if !folder.is_dir() {
        return JournalSeen::NoFolder { folder };
    }
    let written = if path.exists() { &path } else { &folder };
    match access(written, Access::WRITE_OK) {
        Ok(()) => JournalSeen::Writable { path },
        Err(_) => JournalSeen::NotWritable { path },
    }
}
