//! A validated configuration.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ballast_containers::CgroupPattern;
use ballast_control::Settings;
use ballast_estimate::phase::IntermittentSettings;
use ballast_model::Bytes;
use ballast_reclaim::SwapBounds;
use ballast_rest::SocketPattern;
use ballast_working_set::WatchBudget;

use crate::external::ExternalSettings;
use crate::page::PageSettings;
use crate::paging::PagerSettings;

/// What the daemon does with the guests' targets when it stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnExit {
    /// It leaves them in force.
    #[default]
    Keep,
    /// It restores every guest to the allocation with which it was first seen, as far as the budget
    /// allows.
    Restore,
}

/// A validated configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it came from.
    pub path: PathBuf,
    /// Its text, for the journal.
    pub text: String,
    /// The controller's settings.
    pub settings: Settings,
    /// The program of the policy `external`; `None`: there is none.
    pub external: Option<ExternalSettings>,
    /// Folders with the guests' QMP sockets (`NAME.sock`).
    pub qmp_folders: Vec<PathBuf>,
    /// Longest wait for a guest's hypervisor to answer.
    pub qmp_timeout: Duration,
    /// Domains of libvirt as guests; `None`: off.
    pub libvirt: Option<LibvirtSettings>,
    /// Domains of Xen as guests; `None`: off.
    pub xen: Option<XenSettings>,
    /// Guests of Cloud Hypervisor; `None`: off.
    pub cloud_hypervisor: Option<RestSettings>,
    /// Guests of Firecracker; `None`: off.
    pub firecracker: Option<RestSettings>,
    /// Containers as guests; `None`: off.
    pub containers: Option<ContainerSettings>,
    /// Folder with the configurations of Proxmox VE's machines; `None`: not read.
    pub proxmox_folder: Option<PathBuf>,
    /// Working-set tracking; `None`: off.
    pub tracking: Option<TrackingSettings>,
    /// Agents inside guests; `None`: off.
    pub agents: Option<AgentSettings>,
    /// Paging of guests by the host; `None`: off.
    pub paging: Option<PagerSettings>,
    /// Whether Ballast tunes the kernel's merging of equal pages (KSM).
    pub tunes_merging: bool,
    /// The API's socket; `None`: the user's default.
    pub socket: Option<PathBuf>,
    /// The group that may read from the API.
    pub group: Option<String>,
    /// The page in the browser: its port and names.
    pub page: PageSettings,
    /// What happens to targets when the daemon stops.
    pub on_exit: OnExit,
    /// The journal; `None`: off.
    pub journal: Option<JournalSettings>,
    /// Where metrics are served over TCP, beside the API's socket; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
    /// The program that is run for events; `None`: none.
    pub events: Option<EventSettings>,
    /// Whether the daemon raises its own scheduling priority (Global §4.1).
    pub raise_priority: bool,
}

/// How the page touches of guests are watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceChoice {
    /// By the tracker in a guest's hypervisor if it has one, else by the kernel's DAMON, else by
    /// the generations of its cgroup's pages (MGLRU).
    #[default]
    Auto,
    /// By the tracker alone.
    Library,
    /// By DAMON alone.
    Damon,
    /// By the generations of its cgroup's pages (MGLRU) alone.
    Mglru,
}

/// Settings of working-set tracking.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackingSettings {
    /// How guests are watched.
    pub source: SourceChoice,
    /// Length of an interval.
    pub interval: Duration,
    /// Largest cost of tracking a guest, as a share of one core.
    pub budget: WatchBudget,
    /// Largest cost of tracking all guests together, as a share of the host's processors.
    pub budget_total: f64,
    /// When tracking rests; `None`: never.
    pub intermittent: Option<IntermittentSettings>,
    /// Whether to watch all memory whatever it costs, instead of a sample that fits the budget.
    pub every: bool,
    /// Whether a page is noticed again after enough others were touched, instead of once an
    /// interval.
    pub hot_set: bool,
    /// Whether to track guests without a tracker by the kernel's referenced bits.
    pub referenced: bool,
}

/// Settings of agents inside guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSettings {
    /// Folders with the sockets of the guests' agent ports (`NAME.sock`).
    pub folders: Vec<PathBuf>,
    /// Time between two reports of a guest.
    pub period: Duration,
    /// Shortest time between two emergencies of a guest.
    pub emergency_period: Duration,
    /// Whether programs in a guest are asked to release memory before its balloon inflates.
    pub shrink: bool,
    /// Whether agents may connect by vsock.
    pub vsock: bool,
}

/// Settings of the program that is run for events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSettings {
    /// The program, by its absolute path.
    pub run: PathBuf,
    /// How long the program may run; then it is killed.
    pub timeout: Duration,
    /// Shortest time between two starts for events of one kind.
    pub apart: Duration,
}

/// Settings of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSettings {
    /// The SQLite file.
    pub path: PathBuf,
    /// Records older than this are deleted.
    pub keep_age: Duration,
    /// The oldest records are deleted when the file is larger than this.
    pub keep_bytes: Bytes,
}

/// Which libvirt to ask for its domains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibvirtSettings {
    /// Its socket: of `libvirtd` or of `virtqemud`.
    pub socket: PathBuf,
    /// Longest wait for it to answer.
    pub timeout: Duration,
}

/// How a Xen host's domains are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XenSettings {
    /// The socket of xenstored.
    pub socket: PathBuf,
    /// The program `xl`: a path, or a name that is looked up in `PATH`.
    pub xl: PathBuf,
    /// The least memory that dom0 keeps.
    pub dom0_floor: Bytes,
    /// Longest wait for xenstored and for `xl`.
    pub timeout: Duration,
}

/// Which guests of a hypervisor with a REST API to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestSettings {
    /// The sockets of their APIs.
    pub sockets: Vec<SocketPattern>,
    /// Longest wait for one to answer.
    pub timeout: Duration,
}

/// Which containers are guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerSettings {
    /// Their cgroups.
    pub cgroups: Vec<CgroupPattern>,
    /// The ceiling of a container without a limit of its own; `None`: such a container is refused.
    pub memory: Option<Bytes>,
    /// Whether they are probed for idle memory.
    pub probe: bool,
}

impl Config {
    /// How much of the host's swap may be used: as `[mechanisms.paging]` says, or the default if
    /// paging is off.
    pub fn swap_bounds(&self) -> SwapBounds {
        self.paging.map_or_else(SwapBounds::default, |paging| paging.swap)
    }

    /// Where guests are looked for: folders, sockets, patterns of cgroups.
    pub fn guest_places(&self) -> Vec<String> {
        let folders = self.qmp_folders.iter().map(|folder| folder.display().to_string());
        let libvirt = self.libvirt.iter().map(|it| it.socket.display().to_string());
        let xen = self.xen.iter().map(|it| it.socket.display().to_string());
        let rest = self.cloud_hypervisor.iter().chain(&self.firecracker);
        let sockets = rest.flat_map(|it| &it.sockets).map(ToString::to_string);
        let cgroups = self.containers.iter().flat_map(|it| &it.cgroups);
        folders
            .chain(libvirt)
            .chain(xen)
            .chain(sockets)
            .chain(cgroups.map(|it| format!("cgroup {it}")))
            .collect()
    }

    /// The settings that differ in `new` and take effect only after a restart.
    pub fn needs_restart(&self, new: &Config) -> Vec<&'static str> {
        let path = |config: &Config| config.journal.as_ref().map(|journal| journal.path.clone());
        let differences = [
            ("[qmp]", self.qmp_folders != new.qmp_folders || self.qmp_timeout != new.qmp_timeout),
            ("[libvirt]", self.libvirt != new.libvirt),
            ("[xen]", self.xen != new.xen),
            ("[cloud_hypervisor]", self.cloud_hypervisor != new.cloud_hypervisor),
            ("[firecracker]", self.firecracker != new.firecracker),
            ("[containers]", self.containers != new.containers),
            ("[proxmox]", self.proxmox_folder != new.proxmox_folder),
            ("[tracking]", self.tracking != new.tracking),
            ("[agents]", self.agents != new.agents),
            ("daemon.socket", self.socket != new.socket),
            ("daemon.group", self.group != new.group),
            ("[page]", self.page != new.page),
            ("daemon.raise_priority", self.raise_priority != new.raise_priority),
            ("[events]", self.events != new.events),
            ("metrics.listen", self.metrics != new.metrics),
            ("journal.path or journal.enabled", path(self) != path(new)),
        ];
        differences.into_iter().filter(|(_, differs)| *differs).map(|(what, _)| what).collect()
    }
}
