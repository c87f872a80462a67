//! The calls that Ballast makes, and their replies. Nothing else is ever sent.
//!
//! Source: libvirt's `remote_protocol.x`, which defines the numbers; `virDomainGetXMLDesc` and
//! `virConnectGetAllDomainStats` in libvirt's reference. Limits: [`DOMAINS_MAX`], [`PARAMS_MAX`].

use std::fmt;

use ballast_model::{Bytes, DiskReads};

use crate::domain::Domain;
use crate::event::EventKind;
use crate::metadata::{NAMESPACE, PREFIX};
use crate::xdr::{XdrError, XdrReader, XdrWriter};

/// Most domains in one reply; libvirt's own bound is 16,384 for a list.
const DOMAINS_MAX: u32 = 16_384;
/// Most figures of one domain: libvirt's own bound. State and balloon have 16, a disk has some 20.
/// Few figures are kept of them, so the length of the message bounds what a reply costs.
const PARAMS_MAX: u32 = 262_144;

/// Most figures of a domain's memory that are asked for and read: libvirt's own bound, which it
/// refuses to exceed (`REMOTE_DOMAIN_MEMORY_STATS_MAX`). It defines 13.
const MEMORY_STATS_MAX: u32 = 1024;
/// `VIR_DOMAIN_MEMORY_STAT_ACTUAL_BALLOON`: the figure with the domain's current memory.
const ACTUAL_BALLOON: i32 = 6;

/// The groups of figures that are requested every tick: state and balloon.
const STATS: u32 = 1 | 1 << 2;
/// `VIR_DOMAIN_STATS_BLOCK`: the group of disks, which is requested by a call of its own.
pub(crate) const BLOCK: u32 = 1 << 5;
/// Active domains only, and no waiting for one whose hypervisor is busy.
const STATS_FLAGS: u32 = 1 | 1 << 29;
/// `VIR_DOMAIN_AFFECT_LIVE`: changes the running domain. Only metadata is changed in the stored
/// configuration, too.
const LIVE: u32 = 1;
/// `VIR_DOMAIN_AFFECT_CONFIG`: changes the stored configuration.
const CONFIG: u32 = 2;
/// `VIR_DOMAIN_METADATA_ELEMENT`: metadata in an element of the client's own.
const METADATA_ELEMENT: i32 = 2;

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Lists the ways to authenticate.
    AuthList,
    /// Opens a hypervisor.
    Open {
        /// Its URI, `qemu:///system` or `qemu:///session`.
        uri: String,
    },
    /// Reads libvirt's version.
    LibVersion,
    /// Reads state and balloon of all active domains.
    AllDomainStats,
    /// Reads what all active domains have read from their disks.
    AllDiskReads,
    /// Reads a domain's memory statistics, which libvirt queries from the hypervisor.
    MemoryStats(Domain),
    /// Reads a domain's XML.
    Xml(Domain),
    /// Sets a domain's balloon.
    SetMemory {
        /// The domain.
        domain: Domain,
        /// Memory that the balloon leaves to it, without its virtio-mem devices, in KiB.
        kib: u64,
    },
    /// Changes a device of a domain.
    UpdateDevice {
        /// The domain.
        domain: Domain,
        /// The device's new element.
        element: String,
    },
    /// Reads whether a domain's configuration is stored.
    IsPersistent(Domain),
    /// Replaces our own element of a domain's metadata.
    SetMetadata {
        /// The domain.
        domain: Domain,
        /// The element, without its namespace.
        element: String,
        /// Whether to change the stored configuration, too.
        stored: bool,
    },
    /// Subscribes to events of one kind, of all domains.
    Watch(EventKind),
    /// Sets how often a domain's balloon reports statistics.
    SetStatsPeriod {
        /// The domain.
        domain: Domain,
        /// Seconds; 0: never.
        seconds: i32,
    },
}

impl Call {
    /// Number of the procedure.
    pub(crate) fn procedure(&self) -> i32 {
        match self {
            Call::Open { .. } => 1,
            Call::Xml(_) => 14,
            Call::AuthList => 66,
            Call::IsPersistent(_) => 151,
            Call::LibVersion => 157,
            Call::MemoryStats(_) => 159,
            Call::UpdateDevice { .. } => 174,
            Call::SetMemory { .. } => 204,
            Call::SetMetadata { .. } => 264,
            Call::SetStatsPeriod { .. } => 308,
            Call::Watch(_) => 316,
            Call::AllDomainStats | Call::AllDiskReads => 344,
        }
    }

    /// The arguments as XDR.
    pub(crate) fn arguments(&self) -> Vec<u8> {
        let arguments = match self {
            Call::AuthList | Call::LibVersion => XdrWriter::default(),
            // The 1 says that the optional text is present; the flags are 0.
            Call::Open { uri } => XdrWriter::default().u32(1).text(uri).u32(0),
            // An empty list of domains selects all.
            Call::AllDomainStats => XdrWriter::default().u32(0).u32(STATS).u32(STATS_FLAGS),
            Call::AllDiskReads => XdrWriter::default().u32(0).u32(BLOCK).u32(STATS_FLAGS),
            Call::MemoryStats(domain) => domain.written().u32(MEMORY_STATS_MAX).u32(0),
            Call::Xml(domain) => domain.written().u32(0),
            Call::IsPersistent(domain) => domain.written(),
            Call::SetMetadata { domain, element, stored } => {
                let flags = if *stored { LIVE | CONFIG } else { LIVE };
                // Each 1 says that an optional text is present.
                let typed = domain.written().i32(METADATA_ELEMENT).u32(1).text(element);
                typed.u32(1).text(PREFIX).u32(1).text(NAMESPACE).u32(flags)
            }
            // The 0 means no particular domain: events of all.
            Call::Watch(kind) => XdrWriter::default().i32(kind.id()).u32(0),
            Call::SetMemory { domain, kib } => domain.written().u64(*kib).u32(LIVE),
            Call::UpdateDevice { domain, element } => domain.written().text(element).u32(LIVE),
            Call::SetStatsPeriod { domain, seconds } => domain.written().i32(*seconds).u32(LIVE),
        };
        arguments.done()
    }

    /// Parses the reply to this call.
    pub(crate) fn reply(&self, body: &[u8]) -> Result<Reply, XdrError> {
        let mut from = XdrReader::new(body);
        Ok(match self {
            Call::AuthList => {
                let count = from.count("the ways to authenticate", 20)?;
                let ways: Result<_, _> = (0..count).map(|_| from.i32("a way")).collect();
                Reply::AuthList(ways?)
            }
            Call::AllDomainStats | Call::AllDiskReads => {
                let count = from.count("the domains", DOMAINS_MAX)?;
                let all: Result<_, _> = (0..count).map(|_| DomainStats::read(&mut from)).collect();
                Reply::AllDomainStats(all?)
            }
            Call::LibVersion => Reply::LibVersion(from.u64("a version")?),
            Call::MemoryStats(_) => Reply::CurrentMemory(read_current_memory(&mut from)?),
            Call::Xml(_) => Reply::Xml(from.text("the domain's XML")?.to_owned()),
            Call::IsPersistent(_) => Reply::IsPersistent(from.i32("an answer")? != 0),
            Call::Open { .. }
            | Call::SetMemory { .. }
            | Call::UpdateDevice { .. }
            | Call::SetMetadata { .. }
            | Call::Watch(_)
            | Call::SetStatsPeriod { .. } => Reply::Done,
        })
    }
}

/// A reply to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The ways to authenticate; 0 means without.
    AuthList(Vec<i32>),
    /// The version, as `1_000_000 * major + 1_000 * minor + release`.
    LibVersion(u64),
    /// State and balloon of all active domains, or what they have read from their disks.
    AllDomainStats(Vec<DomainStats>),
    /// A domain's current memory without its virtio-mem devices, in KiB; `None` if its hypervisor
    /// does not report it.
    CurrentMemory(Option<u64>),
    /// A domain's configuration.
    Xml(String),
    /// Whether a domain is stored.
    IsPersistent(bool),
    /// The call succeeded and returns nothing.
    Done,
}

/// A domain's figures, as libvirt reports them; sizes in KiB. A missing figure is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainStats {
    /// The domain.
    pub domain: Domain,
    /// Its state, `virDomainState`.
    pub state: Option<i32>,
    /// Its current memory, including its virtio-mem devices.
    pub current: Option<u64>,
    /// Its maximum memory, including all that can be plugged in.
    pub maximum: Option<u64>,
    /// What the balloon's driver reports.
    pub balloon: BalloonStats,
    /// What it has read from all disks that libvirt counts. `None`: it has no such disk, its
    /// hypervisor was busy, or this was not requested.
    pub disk_reads: Option<DiskReads>,
}

/// What a domain's balloon driver reports; sizes in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BalloonStats {
    /// Read from swap since boot.
    pub swap_in: Option<u64>,
    /// Written to swap since boot.
    pub swap_out: Option<u64>,
    /// Faults that waited for a disk, since boot.
    pub major_faults: Option<u64>,
    /// Faults that did not wait for a disk, since boot.
    pub minor_faults: Option<u64>,
    /// Memory that is not used at all.
    pub unused: Option<u64>,
    /// All the memory that its kernel manages.
    pub available: Option<u64>,
    /// Memory available without swapping.
    pub usable: Option<u64>,
    /// The page cache.
    pub disk_caches: Option<u64>,
    /// The time of the report, in seconds of the wall clock.
    pub last_update: Option<u64>,
}

impl DomainStats {
    fn read(from: &mut XdrReader<'_>) -> Result<DomainStats, XdrError> {
        let domain = Domain::read(from)?;
        let mut stats = DomainStats {
            domain,
            state: None,
            current: None,
            maximum: None,
            balloon: BalloonStats::default(),
            disk_reads: None,
        };
        for _ in 0..from.count("a domain's figures", PARAMS_MAX)? {
            let name = from.text("a figure's name")?;
            let value = read_value(from)?;
            if let Some(figure) = name.strip_prefix("block.") {
                stats.add_disk_figure(figure, value);
                continue;
            }
            let balloon = &mut stats.balloon;
            let place = match name {
                "state.state" => {
                    stats.state = value.and_then(|value| i32::try_from(value).ok());
                    continue;
                }
                "balloon.current" => &mut stats.current,
                "balloon.maximum" => &mut stats.maximum,
                "balloon.swap_in" => &mut balloon.swap_in,
                "balloon.swap_out" => &mut balloon.swap_out,
                "balloon.major_fault" => &mut balloon.major_faults,
                "balloon.minor_fault" => &mut balloon.minor_faults,
                "balloon.unused" => &mut balloon.unused,
                "balloon.available" => &mut balloon.available,
                "balloon.usable" => &mut balloon.usable,
                "balloon.disk_caches" => &mut balloon.disk_caches,
                "balloon.last-update" => &mut balloon.last_update,
                _ => continue,
            };
            *place = value;
        }
        Ok(stats)
    }

    /// Adds a figure of a disk, named `N.rd.reqs` and so on for the disk of number N. Other figures
    /// of disks do not count.
    fn add_disk_figure(&mut self, name: &str, value: Option<u64>) {
        let (Some((_, name)), Some(value)) = (name.split_once('.'), value) else { return };
        match name {
            "rd.bytes" => {
                let sum = self.disk_reads.get_or_insert_default();
                sum.read = sum.read.saturating_add(Bytes::new(value));
            }
            "rd.reqs" => {
                let sum = self.disk_reads.get_or_insert_default();
                sum.requests = sum.requests.saturating_add(value);
            }
            _ => {}
        }
    }
}

/// Reads a domain's current memory from its memory statistics, in KiB.
fn read_current_memory(from: &mut XdrReader<'_>) -> Result<Option<u64>, XdrError> {
    let mut current = None;
    for _ in 0..from.count("a domain's figures", MEMORY_STATS_MAX)? {
        let tag = from.i32("a figure's tag")?;
        let value = from.u64("a figure")?;
        if tag == ACTUAL_BALLOON {
            current = Some(value);
        }
    }
    Ok(current)
}

/// Reads a value of any type; `None` unless it is a whole number that is not negative.
fn read_value(from: &mut XdrReader<'_>) -> Result<Option<u64>, XdrError> {
    let what = "a figure";
    Ok(match from.i32(what)? {
        1 | 6 => u64::try_from(from.i32(what)?).ok(),
        2 => Some(u64::from(from.u32(what)?)),
        3 => i64::try_from(from.u64(what)?).ok().and_then(|value| u64::try_from(value).ok()),
        4 => Some(from.u64(what)?),
        5 => {
            from.u64(what)?;
            None
        }
        7 => {
            from.text(what)?;
            None
        }
        other => return Err(XdrError::UnknownType(other)),
    })
}

/// An error that libvirt returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteError {
    /// Its number, `virErrorNumber`.
    pub code: i32,
    /// Its text.
    pub message: Option<String>,
}

impl RemoteError {
    pub(crate) fn read(body: &[u8]) -> Result<RemoteError, XdrError> {
        let mut from = XdrReader::new(body);
        let code = from.i32("an error's number")?;
        let _domain = from.i32("an error's source")?;
        let message = from.optional_text("an error's text")?.map(str::to_owned);
        Ok(RemoteError { code, message })
    }
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            Some(message) => write!(f, "libvirt says: {}", message.escape_debug()),
            None => write!(f, "libvirt says: error {}", self.code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reply with `count` figures; the last is the domain's current memory.
    fn figures(count: u32) -> Vec<u8> {
        let other = |reply: XdrWriter, tag: u32| reply.u32(tag + 1000).u64(5);
        let others = (1..count).fold(XdrWriter::default().u32(count), other);
        others.i32(ACTUAL_BALLOON).u64(77).done()
    }

    #[test]
    fn all_figures_that_libvirt_can_send_are_read() {
        let call = Call::MemoryStats(Domain { name: "a".to_owned(), uuid: [7; 16], id: 3 });
        for count in [1, 13, 65, 1024] {
            assert_eq!(call.reply(&figures(count)), Ok(Reply::CurrentMemory(Some(77))), "{count}");
        }
        assert_eq!(call.reply(&figures(1025)), Err(XdrError::TooMany(1025, 1024)));
        // Libvirt refuses a call that asks for more: the count is the last but one word.
        let asked = call.arguments();
        assert_eq!(asked[asked.len() - 8..], [0, 0, 4, 0, 0, 0, 0, 0]);
    }

    /// What the only domain of a reply with these figures has read from its disks. A figure without
    /// a number is a text.
    fn disk_reads(figures: &[(String, Option<u64>)]) -> Option<DiskReads> {
        let domain = Domain { name: "a".to_owned(), uuid: [7; 16], id: 3 };
        let count = u32::try_from(figures.len()).unwrap();
        let mut reply = XdrWriter::default().u32(1).fixed(&domain.written().done()).u32(count);
        for (name, value) in figures {
            reply = match value {
                Some(value) => reply.text(name).i32(4).u64(*value),
                None => reply.text(name).i32(7).text("vda"),
            };
        }
        match Call::AllDiskReads.reply(&reply.done()).unwrap() {
            Reply::AllDomainStats(all) => all[0].disk_reads,
            other => panic!("{other:?}"),
        }
    }

    /// The figures of disk `n` that libvirt sends, as far as they may be mixed up.
    fn disk(n: u64, requests: u64, bytes: u64) -> Vec<(String, Option<u64>)> {
        let figures = [
            ("name", None),
            ("rd.reqs", Some(requests)),
            ("rd.bytes", Some(bytes)),
            ("rd.times", Some(1 << 40)),
            ("wr.reqs", Some(1 << 40)),
            ("wr.bytes", Some(1 << 40)),
            ("physical", Some(1 << 40)),
        ];
        figures.map(|(name, value)| (format!("block.{n}.{name}"), value)).to_vec()
    }

    #[test]
    fn reads_of_all_disks_are_added_up() {
        let count = |count: u64| vec![("block.count".to_owned(), Some(count))];
        let sum = |read: u64, requests: u64| {
            Some(DiskReads { read: Bytes::new(read), requests, ..DiskReads::default() })
        };
        let two = [count(2), disk(0, 3, 12_288), disk(1, 4, 65_536)].concat();
        assert_eq!(disk_reads(&two), sum(77_824, 7));
        // A hypervisor that is busy has a name for each disk, and no figures.
        let busy = [count(1), disk(0, 0, 0)[..1].to_vec()].concat();
        assert_eq!(disk_reads(&busy), None);
        assert_eq!(disk_reads(&count(0)), None, "no disk");
        assert_eq!(disk_reads(&disk(0, 0, 0)), sum(0, 0), "a disk that nobody has read");
        let many: Vec<_> = (0..1000).flat_map(|n| disk(n, 1, 1 << 61)).collect();
        assert_eq!(disk_reads(&many), sum(u64::MAX, 1000));
        // The number of domains, the group, and the flags.
        let asked = Call::AllDiskReads.arguments();
        assert_eq!(asked, [0, 0, 0, 0, 0, 0, 0, 32, 0x20, 0, 0, 1]);
    }
}
