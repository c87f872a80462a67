//! The configuration of a host in a fleet, by default `/etc/ballast/fleet.toml`.
//!
//! Idea: it has only what no program on the host can find out: where the fleet's etcd is, what
//! decides whether guests can run here, and which guests must stay. Commands read the same file.
//! Limits: it is read once. A change needs a restart, which moves nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use ballast_etcd::{EndpointError, EtcdClient, EtcdTls, EtcdUser, TlsIdentity};
use ballast_fleet::{Compatibility, FleetSettings, HostId, HypervisorVersion, Label};
use ballast_fleet_proto::{Keyspace, MODE_ADVISE, MODE_MOVE};
use ballast_model::{Bytes, GuestId};
use ballast_toml_strict::{Error, duration};
use serde::Deserialize;

use crate::carry::{AnyHypervisor, Libvirt, LibvirtConfig, Qemu, QemuConfig};
use crate::config_moves::{LibvirtTable, QemuTable};
use crate::other_managers::OtherManager;

/// Its path, unless another one is given.
pub const CONFIG_FILE: &str = "/etc/ballast/fleet.toml";
/// Folder of the notes about moves, unless set.
const STATE_FOLDER: &str = "/var/lib/ballast/fleet";
/// How long a need has to last, unless set.
const PATIENCE: Duration = Duration::from_secs(60);
/// The file with the machine's own name.
const HOST_NAME_FILE: &str = "/proc/sys/kernel/hostname";
/// The file with the machine's own identity.
const MACHINE_ID_FILE: &str = "/etc/machine-id";
/// Longest identity and password, in bytes.
const SHORT_FILE_BYTES_MAX: usize = 4096;

/// The configuration of a host's part in a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetConfig {
    /// The keys of its fleet.
    pub keys: Keyspace,
    /// The fleet's name.
    pub cluster: String,
    /// The host's name.
    pub host: HostId,
    /// The URLs of etcd's members.
    pub endpoints: Vec<String>,
    /// The user of etcd, and the file with its password.
    pub user: Option<(String, PathBuf)>,
    /// How etcd and this host prove their identities; `None` without TLS.
    pub tls: Option<EtcdTls>,
    /// Time limit of a call to etcd.
    pub timeout: Duration,
    /// How long the host counts as registered after its last renewal.
    pub lease: Duration,
    /// Time between looks at the daemon, and between plans.
    pub tick: Duration,
    /// Whether this host may lead.
    pub leads: bool,
    /// Whether guests are moved.
    pub mode: FleetMode,
    /// Folder of this host's notes about moves.
    pub state: PathBuf,
    /// How guests of QEMU are moved; in mode `advise`, how moves that have begun are finished.
    pub qemu: Option<QemuConfig>,
    /// How domains of libvirt are moved; never set together with `qemu` in mode `move`.
    pub libvirt: Option<LibvirtConfig>,
    /// The daemon's socket.
    pub socket: Option<PathBuf>,
    /// The most bytes a second that a migration may copy; assumed as its bandwidth until one is
    /// measured.
    pub bandwidth_per_s: Bytes,
    /// What runs here, and which storage and networks the host reaches.
    pub compatibility: Compatibility,
    /// Address at which metrics are served over TCP, if any.
    pub metrics: Option<SocketAddr>,
    /// Other managers that the operator knows of and allows beside this program.
    pub beside: Vec<OtherManager>,
    /// Settings of the planner.
    pub planner: FleetSettings,
    /// How long a host has to need relief before a guest is moved.
    pub patience: Duration,
    /// Settings of single guests.
    pub guests: BTreeMap<GuestId, GuestConfig>,
}

/// Settings of one guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestConfig {
    /// Whether it must not be moved.
    pub stays: bool,
    /// Guests with the same group never run on one host.
    pub group: Option<Label>,
    /// The storage it uses; `None`: all that its host reaches.
    pub storage: Option<Vec<Label>>,
    /// The networks it is on; `None`: all that its host reaches.
    pub networks: Option<Vec<Label>>,
    /// Its dirty rate in bytes a second; `None`: as measured.
    pub writes_per_s: Option<Bytes>,
}

/// Whether plans are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FleetMode {
    /// Moves are only named.
    #[default]
    Advise,
    /// This host orders moves if it leads, and carries out those that name it.
    Move,
}

impl FleetMode {
    /// Its name in the configuration.
    pub const fn code(self) -> &'static str {
        match self {
            FleetMode::Advise => MODE_ADVISE,
            FleetMode::Move => MODE_MOVE,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    cluster: String,
    host: Option<String>,
    endpoints: Vec<String>,
    user: Option<String>,
    password_file: Option<PathBuf>,
    #[serde(default = "timeout_default", with = "duration")]
    timeout: Duration,
    #[serde(default = "ten_seconds", with = "duration")]
    lease: Duration,
    #[serde(default = "ten_seconds", with = "duration")]
    tick: Duration,
    #[serde(default = "yes")]
    leads: bool,
    #[serde(default)]
    mode: FleetMode,
    #[serde(default = "state_default")]
    state: PathBuf,
    qemu: Option<QemuTable>,
    libvirt: Option<LibvirtTable>,
    #[serde(default)]
    beside: Vec<OtherManager>,
    socket: Option<PathBuf>,
    bandwidth: Bytes,
    tls: Option<TlsTable>,
    metrics: Option<MetricsTable>,
    compatibility: CompatibilityTable,
    #[serde(default)]
    planner: PlannerTable,
    #[serde(default)]
    guests: BTreeMap<GuestId, GuestTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsTable {
    ca: PathBuf,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricsTable {
    listen: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CompatibilityTable {
    hypervisor: String,
    version: String,
    cpu_model: String,
    #[serde(default)]
    storage: Vec<String>,
    #[serde(default)]
    networks: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlannerTable {
    migrations_max: Option<usize>,
    misses_per_page: Option<u64>,
    #[serde(default, with = "duration::option")]
    cooldown_min: Option<Duration>,
    #[serde(default, with = "duration::option")]
    cooldown_max: Option<Duration>,
    #[serde(default, with = "duration::option")]
    horizon: Option<Duration>,
    #[serde(default, with = "duration::option")]
    patience: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GuestTable {
    #[serde(default)]
    stays: bool,
    group: Option<String>,
    storage: Option<Vec<String>>,
    networks: Option<Vec<String>>,
    writes: Option<Bytes>,
}

fn timeout_default() -> Duration {
    Duration::from_secs(2)
}

fn ten_seconds() -> Duration {
    Duration::from_secs(10)
}

fn state_default() -> PathBuf {
    PathBuf::from(STATE_FOLDER)
}

const fn yes() -> bool {
    true
}

/// Reads and parses the file at `path`.
///
/// # Errors
/// It cannot be read, or has a mistake; the error has its place and what was expected.
pub fn load(path: &Path) -> anyhow::Result<FleetConfig> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the fleet's configuration {}", path.display()))?;
    let machine = std::fs::read_to_string(HOST_NAME_FILE).unwrap_or_default();
    Ok(parse(&text, path, machine.trim())?)
}

/// Parses `text`, the contents of `file`, on a machine named `machine`.
///
/// # Errors
/// The first mistake, with its place and what was expected.
pub fn parse(text: &str, file: &Path, machine: &str) -> Result<FleetConfig, Error> {
    let wrong = |key: &[&str], why: String| Error::at(text, file, key, why);
    let read: File = ballast_toml_strict::parse(text, file)?;
    let keys = read.cluster.parse().map_err(|error| wrong(&["cluster"], format!("{error}")))?;
    let host = read.host.as_deref().unwrap_or(machine);
    let host = host.parse().map_err(|error| wrong(&["host"], format!("{error}")))?;
    let tls = match read.tls {
        None if read.endpoints.iter().any(|it| it.starts_with("https://")) => {
            let why = "https:// takes a table [tls] with at least `ca`".to_owned();
            return Err(wrong(&["endpoints"], why));
        }
        table => table.map(|table| table.tls(wrong)).transpose()?,
    };
    client(&read.endpoints, tls.clone(), None, read.timeout)
        .map_err(|error| wrong(&["endpoints"], error.to_string()))?;
    let user = match (read.user, read.password_file) {
        (Some(user), Some(file)) => Some((user, file)),
        (None, None) => None,
        (Some(_), None) => {
            return Err(wrong(&["user"], "expected `password_file`, too".to_owned()));
        }
        (None, Some(_)) => {
            return Err(wrong(&["password_file"], "expected `user`, too".to_owned()));
        }
    };
    for (key, value, least, most) in
        [("timeout", read.timeout, 1, 60), ("lease", read.lease, 2, 60), ("tick", read.tick, 1, 60)]
    {
        let (least, most) = (Duration::from_secs(least), Duration::from_secs(most));
        if !(least..=most).contains(&value) || value.subsec_nanos() != 0 && key == "lease" {
            let (least, most) = (least.as_secs(), most.as_secs());
            return Err(wrong(&[key], format!("expected whole seconds, {least}s to {most}s")));
        }
    }
    if read.bandwidth < Bytes::mib(1) {
        return Err(wrong(&["bandwidth"], "expected at least 1MiB a second".to_owned()));
    }
    let metrics = read.metrics.map(|MetricsTable { listen }| {
        listen.parse().map_err(|_| {
            let why = format!("`{listen}`: expected address and port, such as 127.0.0.1:9633");
            wrong(&["metrics", "listen"], why)
        })
    });
    let metrics = metrics.transpose()?;
    let label = |at: &[&str], word: &str| {
        word.parse::<Label>().map_err(|error| wrong(at, error.to_string()))
    };
    let labels = |at: &[&str], words: &[String]| -> Result<Vec<Label>, Error> {
        words.iter().map(|word| label(at, word)).collect()
    };
    let table = read.compatibility;
    let of = |key: &'static str| ["compatibility", key];
    let version = version(&table.version).ok_or_else(|| {
        wrong(&of("version"), format!("`{}`: expected numbers, such as 7.2.19", table.version))
    })?;
    let compatibility = Compatibility {
        hypervisor: label(&of("hypervisor"), &table.hypervisor)?,
        version,
        cpu_model: label(&of("cpu_model"), &table.cpu_model)?,
        storage: labels(&of("storage"), &table.storage)?,
        networks: labels(&of("networks"), &table.networks)?,
    };
    let mut guests = BTreeMap::new();
    for (id, table) in read.guests {
        let at = |key: &'static str| ["guests", id.as_str(), key].map(str::to_owned);
        let list = |key: &'static str, words: Option<&Vec<String>>| {
            let at = at(key);
            let at = [&*at[0], &at[1], &at[2]];
            words.map(|words| labels(&at, words)).transpose()
        };
        let group = table.group.as_deref();
        let guest = GuestConfig {
            stays: table.stays,
            group: group.map(|it| label(&["guests", id.as_str(), "group"], it)).transpose()?,
            storage: list("storage", table.storage.as_ref())?,
            networks: list("networks", table.networks.as_ref())?,
            writes_per_s: table.writes,
        };
        guests.insert(id, guest);
    }
    let qemu = read.qemu.map(|table| table.config(read.bandwidth)).transpose();
    let qemu = qemu.map_err(|(key, why)| wrong(&["qemu", key], why))?;
    let libvirt = read.libvirt.map(|table| table.config(read.bandwidth)).transpose();
    let libvirt = libvirt.map_err(|(key, why)| wrong(&["libvirt", key], why))?;
    if read.mode == FleetMode::Move && qemu.is_some() == libvirt.is_some() {
        let why = "mode `move` needs a table [qemu] or [libvirt], not both: how guests are moved";
        return Err(wrong(&["mode"], why.to_owned()));
    }
    Ok(FleetConfig {
        mode: read.mode,
        state: read.state,
        qemu,
        libvirt,
        keys,
        cluster: read.cluster,
        host,
        endpoints: read.endpoints,
        user,
        tls,
        timeout: read.timeout,
        lease: read.lease,
        tick: read.tick,
        leads: read.leads,
        socket: read.socket,
        bandwidth_per_s: read.bandwidth,
        compatibility,
        patience: read.planner.patience.unwrap_or(PATIENCE),
        metrics,
        beside: read.beside,
        planner: read.planner.settings(),
        guests,
    })
}

impl TlsTable {
    fn tls(self, wrong: impl Fn(&[&str], String) -> Error) -> Result<EtcdTls, Error> {
        let identity = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some(TlsIdentity { certificate, key }),
            (None, None) => None,
            (Some(_), None) => {
                return Err(wrong(&["tls", "certificate"], "expected `tls.key`, too".to_owned()));
            }
            (None, Some(_)) => {
                return Err(wrong(&["tls", "key"], "expected `tls.certificate`, too".to_owned()));
            }
        };
        Ok(EtcdTls { authorities: self.ca, identity })
    }
}

fn client(
    endpoints: &[String],
    tls: Option<EtcdTls>,
    user: Option<EtcdUser>,
    timeout: Duration,
) -> Result<EtcdClient, EndpointError> {
    match tls {
        Some(tls) => EtcdClient::with_tls(endpoints, tls, user, timeout),
        None => EtcdClient::new(endpoints, user, timeout),
    }
}

impl PlannerTable {
    fn settings(self) -> FleetSettings {
        let default = FleetSettings::default();
        FleetSettings {
            migrations_max: self.migrations_max.unwrap_or(default.migrations_max),
            cooldown_min: self.cooldown_min.unwrap_or(default.cooldown_min),
            cooldown_max: self.cooldown_max.unwrap_or(default.cooldown_max),
            horizon: self.horizon.unwrap_or(default.horizon),
            misses_per_page: self.misses_per_page.unwrap_or(default.misses_per_page),
            stale_after: default.stale_after,
        }
    }
}

/// Parses one to three numbers with points between them.
fn version(text: &str) -> Option<HypervisorVersion> {
    let mut version = [0; 3];
    let numbers: Vec<&str> = text.split('.').collect();
    if numbers.len() > version.len() {
        return None;
    }
    for (place, number) in version.iter_mut().zip(numbers) {
        *place = number.parse().ok()?;
    }
    Some(HypervisorVersion(version))
}

impl FleetConfig {
    /// The hypervisor that guests are moved with here; `None` if none is configured.
    pub(crate) fn hypervisor(&self) -> Option<AnyHypervisor> {
        match (&self.qemu, &self.libvirt) {
            (Some(qemu), _) => Some(AnyHypervisor::Qemu(Qemu::new(qemu.clone()))),
            (None, Some(it)) => Some(AnyHypervisor::Libvirt(Libvirt::new(it.clone()))),
            (None, None) => None,
        }
    }

    /// A client of the fleet's etcd.
    ///
    /// # Errors
    /// The password or a file of TLS cannot be read or used.
    pub fn etcd(&self) -> anyhow::Result<EtcdClient> {
        let user = match &self.user {
            Some((name, file)) => {
                let password = first_line(file)?;
                Some(EtcdUser { name: name.clone(), password })
            }
            None => None,
        };
        if let Some(tls) = &self.tls {
            tls.check()?;
        }
        Ok(client(&self.endpoints, self.tls.clone(), user, self.timeout)?)
    }
}

/// The identity of this machine, which no other machine has.
///
/// # Errors
/// The machine has none.
pub fn machine_id() -> anyhow::Result<String> {
    first_line(Path::new(MACHINE_ID_FILE))
}

fn first_line(file: &Path) -> anyhow::Result<String> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let line = text.lines().next().unwrap_or_default().trim().to_owned();
    if line.is_empty() || line.len() > SHORT_FILE_BYTES_MAX {
        bail!("{}: expected a short first line", file.display());
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "cluster = \"prod\"\nendpoints = [\"http://127.0.0.1:2379\"]\nbandwidth = \
                         \"1GiB\"\n[compatibility]\nhypervisor = \"qemu\"\nversion = \
                         \"7.2.19\"\ncpu_model = \"EPYC\"\n";

    fn parsed(text: &str) -> Result<FleetConfig, String> {
        parse(text, Path::new("fleet.toml"), "node-1").map_err(|error| error.to_string())
    }

    #[test]
    fn the_least_configuration_has_the_promised_times() {
        let config = parsed(LEAST).unwrap();
        assert_eq!(config.host.as_str(), "node-1");
        assert_eq!((config.lease.as_secs(), config.tick.as_secs(), config.leads), (10, 10, true));
        assert_eq!(config.compatibility.version, HypervisorVersion([7, 2, 19]));
        assert_eq!(config.planner, FleetSettings::default());
    }

    #[test]
    fn the_example_is_read() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fleet.example.toml");
        let text = std::fs::read_to_string(file).unwrap();
        let config = parsed(&text).unwrap();
        assert_eq!(config.guests.len(), 2);
    }

    #[test]
    fn tls_has_its_files() {
        let files = "[tls]\nca = \"/ca.pem\"\ncertificate = \"/c.pem\"\nkey = \"/k.pem\"\n[comp";
        let text = LEAST.replacen("http://", "https://", 1).replacen("[comp", files, 1);
        let config = parsed(&text).unwrap();
        let identity = TlsIdentity { certificate: "/c.pem".into(), key: "/k.pem".into() };
        let tls = EtcdTls { authorities: "/ca.pem".into(), identity: Some(identity) };
        assert_eq!(config.tls, Some(tls));
        let error = config.etcd().err().unwrap().to_string();
        assert!(error.starts_with("/ca.pem: cannot be read"), "{error}");
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        for (from, to, needle) in [
            ("\"prod\"", "\"a/b\"", "fleet.toml:1:11: cluster: `a/b` is no name of a cluster"),
            ("http://127", "127", "expected http://HOST:PORT"),
            ("\"http://127.0.0.1:2379\"", "", "endpoints: the list of endpoints is empty"),
            ("http://127", "https://127", "endpoints: https:// takes a table [tls] with at least"),
            ("[comp", "[tls]\nca = \"/ca\"\n[comp", "expected https://HOST:PORT"),
            ("[comp", "[tls]\nca = \"/ca\"\nkey = \"k\"\n[comp", "`tls.certificate`, too"),
            ("[comp", "[tls]\nkey = \"k\"\n[comp", "missing key `ca` in [tls]"),
            ("\"1GiB\"", "\"1KiB\"", "bandwidth: expected at least 1MiB"),
            ("7.2.19", "seven", "compatibility.version: `seven`: expected numbers"),
            ("cluster", "mode = \"act\"\ncluster", "unknown value \"act\""),
            (
                "cluster",
                "mode = \"move\"\ncluster",
                "mode `move` needs a table [qemu] or [libvirt]",
            ),
            (
                "cluster",
                "beside = [\"vmware\"]\ncluster",
                "unknown value \"vmware\": the known values are",
            ),
            ("cluster", "tick = \"0s\"\ncluster", "tick: expected whole seconds, 1s to 60s"),
            ("cluster", "user = \"x\"\ncluster", "expected `password_file`, too"),
            ("cluster", "host = \"-\"\ncluster", "is no host name"),
            ("[comp", "[metrics]\nlisten = \"9633\"\n[comp", "metrics.listen: `9633`: expected"),
            ("version", "verzion", "did you mean `version`"),
        ] {
            let error = parsed(&LEAST.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(needle), "{error}");
        }
        let qemu = "[qemu]\nqmp = \"/run/{guest}\"\nstart = [\"/bin/x\", \"{guest}\"]\n\
                    listen = \"10.0.0.1\"\n";
        let advises = parsed(&format!("{LEAST}{qemu}")).unwrap();
        assert!(advises.qemu.is_some(), "what it began before is finished with that");
        let moves = format!("mode = \"move\"\n{LEAST}{qemu}");
        assert!(parsed(&moves).unwrap().qemu.is_some());
        for (from, to, needle) in [
            ("/run/{guest}", "/run/x", "qemu.qmp: expected an absolute path with {guest}"),
            ("\"/bin/x\", ", "", "qemu.start: expected a program's absolute path"),
            ("10.0.0.1", "0.0.0.0", "qemu.listen: 0.0.0.0: expected the address"),
        ] {
            let error = parsed(&moves.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(needle), "{error}");
        }
        let libvirt = "[libvirt]\nlisten = \"10.0.0.1:16514\"\n";
        let moves = format!("mode = \"move\"\n{LEAST}{libvirt}");
        let peer = parsed(&moves).unwrap().libvirt.unwrap().peer;
        assert_eq!(peer, "qemu+tls://{address}/system");
        assert!(parsed(&format!("{moves}{qemu}")).unwrap_err().contains("not both"));
        for (from, to, needle) in [
            ("10.0.0.1:16514", "10.0.0.1:0", "libvirt.listen: 10.0.0.1:0: expected address"),
            ("listen", "uri = \"x\"\nlisten", "libvirt.uri: `x`: expected a URI"),
            ("listen", "peer = \"qemu+ssh://a/system\"\nlisten", "with {address} in it"),
        ] {
            let error = parsed(&moves.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(needle), "{error}");
        }
        let error = parsed(&format!("{LEAST}[guests.web]\ngroup = \"\"\n")).unwrap_err();
        assert!(error.contains("guests.web.group"), "{error}");
    }
}
