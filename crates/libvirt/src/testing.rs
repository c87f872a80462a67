//! A libvirt without I/O, for benchmarks: bytes of a client in, bytes of libvirt out.
//!
//! Idea: it reads calls and writes replies with the session's own codec, the other way round; a
//! property test compares the two. Its domains carry out each order at once and report their memory
//! every second. A record has all figures that libvirt 9.0 sends, also those that Ballast does not
//! read.
//! Cost: that of writing the replies, about 600 bytes per domain and per disk. Limits: one disk for
//! each domain; only the calls of [`Call`]; no events, no metadata; it refuses only unknown calls
//! and unknown domains.

use std::collections::BTreeMap;
use std::time::Duration;

use ballast_model::{Bytes, DiskReads};

use crate::call::{BLOCK, BalloonStats, Call, DomainStats, Reply};
use crate::domain::Domain;
use crate::event::EventKind;
use crate::message::{self, MessageBuffer, MessageKind};
use crate::xdr::{XdrError, XdrReader, XdrWriter};

/// `virTypedParameterType` of the values that are sent: `int`, `unsigned int`, `unsigned long long`
/// and a text.
const INT: i32 = 1;
const UINT: i32 = 2;
const ULLONG: i32 = 4;
const TEXT: i32 = 7;
/// `VIR_ERR_NO_SUPPORT` and `VIR_FROM_REMOTE`: the call is unknown.
const NO_SUPPORT: i32 = 3;
const FROM_REMOTE: i32 = 7;
/// The version that it reports: 9.0.0.
const VERSION: u64 = 9_000_000;
/// `virDomainState` of a running domain.
const RUNNING: i32 = 1;
/// Memory that a guest's kernel keeps to itself, KiB.
const KERNEL_KIB: u64 = 40 << 10;
/// Page cache of a guest, KiB.
const CACHES_KIB: u64 = 60 << 10;
/// What a guest read from its disk as it booted.
const DISK_READS: DiskReads =
    DiskReads { read: Bytes::mib(300), requests: 9000, took: Duration::ZERO };

/// A domain of a [`LibvirtPeer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerDomain {
    /// Its name, UUID and ID.
    pub domain: Domain,
    /// Boot memory, in KiB.
    pub maximum: u64,
    /// Current memory, in KiB.
    pub current: u64,
    /// Memory in use, without the kernel's own, in KiB.
    pub used: u64,
    /// Its XML.
    pub xml: String,
}

impl PeerDomain {
    /// Its figures at this second of the wall clock.
    fn stats(&self, wall: u64) -> DomainStats {
        let total = self.current.saturating_sub(KERNEL_KIB);
        let usable = total.saturating_sub(self.used);
        DomainStats {
            domain: self.domain.clone(),
            state: Some(RUNNING),
            current: Some(self.current),
            maximum: Some(self.maximum),
            balloon: BalloonStats {
                swap_in: Some(0),
                swap_out: Some(0),
                major_faults: Some(94),
                minor_faults: Some(68_012),
                unused: Some(usable.saturating_sub(CACHES_KIB)),
                available: Some(total),
                usable: Some(usable),
                disk_caches: Some(CACHES_KIB.min(usable)),
                last_update: Some(wall),
            },
            disk_reads: None,
        }
    }

    /// What it has read from its disk.
    fn disk_stats(&self) -> DomainStats {
        DomainStats {
            domain: self.domain.clone(),
            state: None,
            current: None,
            maximum: None,
            balloon: BalloonStats::default(),
            disk_reads: Some(DISK_READS),
        }
    }
}

/// A libvirt with domains and one client at a time.
#[derive(Debug, Default)]
pub struct LibvirtPeer {
    domains: Vec<PeerDomain>,
    /// Index in `domains` of each name.
    places: BTreeMap<String, usize>,
    received: MessageBuffer,
}

impl LibvirtPeer {
    /// A libvirt with these domains, each of another name.
    pub fn new(domains: Vec<PeerDomain>) -> LibvirtPeer {
        let places = domains.iter().zip(0..).map(|(it, at)| (it.domain.name.clone(), at)).collect();
        LibvirtPeer { domains, places, received: MessageBuffer::default() }
    }

    /// Accepts a new client: an incomplete message of the last one is dropped.
    pub fn connect(&mut self) {
        self.received = MessageBuffer::default();
    }

    /// Takes in bytes of the client at second `wall` of the wall clock; returns the bytes to send.
    ///
    /// # Errors
    /// The bytes are not a client's message; the text says why.
    pub fn receive(&mut self, bytes: &[u8], wall: u64) -> Result<Vec<u8>, String> {
        self.received.push(bytes);
        let mut calls = Vec::new();
        while let Some(message) = self.received.next().map_err(|error| error.to_string())? {
            let MessageKind::Call { serial } = message.kind else {
                return Err("a message that is no call".to_owned());
            };
            let call = Call::read(message.procedure, message.body);
            let call = call.map_err(|error| format!("call {}: {error}", message.procedure))?;
            calls.push((message.procedure, serial, call));
        }
        let mut sent = Vec::new();
        for (procedure, serial, call) in calls {
            let reply = call.and_then(|call| self.carry_out(call, wall));
            let body = reply.as_ref().map_or_else(refusal, Reply::written);
            sent.extend(message::reply(procedure, serial, reply.is_some(), &body));
        }
        Ok(sent)
    }

    /// Carries out a call and returns the reply; `None` if there is no such domain.
    fn carry_out(&mut self, call: Call, wall: u64) -> Option<Reply> {
        Some(match call {
            Call::AuthList => Reply::AuthList(vec![0]),
            Call::LibVersion => Reply::LibVersion(VERSION),
            Call::AllDomainStats => {
                Reply::AllDomainStats(self.domains.iter().map(|it| it.stats(wall)).collect())
            }
            Call::AllDiskReads => {
                Reply::AllDomainStats(self.domains.iter().map(PeerDomain::disk_stats).collect())
            }
            Call::MemoryStats(domain) => Reply::CurrentMemory(Some(self.find(&domain)?.current)),
            Call::Xml(domain) => Reply::Xml(self.find(&domain)?.xml.clone()),
            Call::SetMemory { domain, kib } => {
                let domain = self.find(&domain)?;
                domain.current = kib.min(domain.maximum);
                Reply::Done
            }
            Call::IsPersistent(_) => Reply::IsPersistent(false),
            Call::Open { .. }
            | Call::UpdateDevice { .. }
            | Call::SetMetadata { .. }
            | Call::Watch(_)
            | Call::SetStatsPeriod { .. } => Reply::Done,
        })
    }

    fn find(&mut self, domain: &Domain) -> Option<&mut PeerDomain> {
        let found = &mut self.domains[*self.places.get(&domain.name)?];
        (found.domain == *domain).then_some(found)
    }
}

/// An error without a text.
fn refusal() -> Vec<u8> {
    XdrWriter::default().i32(NO_SUPPORT).i32(FROM_REMOTE).u32(0).done()
}

impl Call {
    /// Reads a call; `None` if it is unknown.
    fn read(procedure: i32, arguments: &[u8]) -> Result<Option<Call>, XdrError> {
        let mut from = XdrReader::new(arguments);
        let text = |from: &mut XdrReader<'_>| -> Result<String, XdrError> {
            Ok(from.optional_text("a text")?.unwrap_or_default().to_owned())
        };
        Ok(Some(match procedure {
            1 => Call::Open { uri: text(&mut from)? },
            14 => Call::Xml(Domain::read(&mut from)?),
            66 => Call::AuthList,
            151 => Call::IsPersistent(Domain::read(&mut from)?),
            157 => Call::LibVersion,
            159 => Call::MemoryStats(Domain::read(&mut from)?),
            174 => Call::UpdateDevice {
                domain: Domain::read(&mut from)?,
                element: from.text("an element")?.to_owned(),
            },
            204 => Call::SetMemory { domain: Domain::read(&mut from)?, kib: from.u64("a size")? },
            264 => {
                let domain = Domain::read(&mut from)?;
                let _kind = from.i32("the kind of metadata")?;
                let element = text(&mut from)?;
                let (_prefix, _namespace) = (text(&mut from)?, text(&mut from)?);
                Call::SetMetadata { domain, element, stored: from.u32("flags")? & 2 != 0 }
            }
            308 => {
                let domain = Domain::read(&mut from)?;
                Call::SetStatsPeriod { domain, seconds: from.i32("a period")? }
            }
            316 => {
                let id = from.i32("a kind of events")?;
                let kind = EventKind::ALL.into_iter().find(|kind| kind.id() == id);
                return Ok(kind.map(Call::Watch));
            }
            344 => {
                let _domains = from.u32("the number of domains")?;
                match from.u32("the groups")? {
                    BLOCK => Call::AllDiskReads,
                    _ => Call::AllDomainStats,
                }
            }
            _ => return Ok(None),
        }))
    }
}

impl Reply {
    /// The reply as XDR.
    fn written(&self) -> Vec<u8> {
        let start = XdrWriter::default();
        let count = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let written = match self {
            Reply::AuthList(ways) => {
                ways.iter().fold(start.u32(count(ways.len())), |to, way| to.i32(*way))
            }
            Reply::AllDomainStats(all) => {
                let begin = start.u32(count(all.len()));
                all.iter().fold(begin, |to, stats| to.fixed(&stats.written()))
            }
            // Two figures: 0 KiB swapped in, and the current memory.
            Reply::CurrentMemory(kib) => {
                let figures = [Some((0, 0)), kib.map(|kib| (6, kib))];
                let begin = start.u32(count(figures.iter().flatten().count()));
                figures.into_iter().flatten().fold(begin, |to, (tag, it)| to.i32(tag).u64(it))
            }
            Reply::LibVersion(version) => start.u64(*version),
            Reply::Xml(xml) => start.text(xml),
            Reply::IsPersistent(is_persistent) => start.i32((*is_persistent).into()),
            Reply::Done => start,
        };
        written.done()
    }
}

impl DomainStats {
    /// The record as XDR, without figures that are `None`.
    fn written(&self) -> Vec<u8> {
        let balloon = &self.balloon;
        // Figures of the balloon that are 0 for every domain.
        let zero = self.current.map(|_| 0);
        let sizes = [
            ("balloon.current", self.current),
            ("balloon.maximum", self.maximum),
            ("balloon.swap_in", balloon.swap_in),
            ("balloon.swap_out", balloon.swap_out),
            ("balloon.major_fault", balloon.major_faults),
            ("balloon.minor_fault", balloon.minor_faults),
            ("balloon.unused", balloon.unused),
            ("balloon.available", balloon.available),
            ("balloon.usable", balloon.usable),
            ("balloon.last-update", balloon.last_update),
            ("balloon.disk_caches", balloon.disk_caches),
            ("balloon.hugetlb_pgalloc", zero),
            ("balloon.hugetlb_pgfail", zero),
            ("balloon.rss", self.current),
        ];
        // Libvirt sends the reason of a state with the state.
        let states = [("state.state", self.state), ("state.reason", self.state)];
        let disk = self.disk_reads.map(|reads| {
            [
                ("block.0.rd.reqs", reads.requests),
                ("block.0.rd.bytes", reads.read.get()),
                ("block.0.rd.times", 0),
                ("block.0.wr.reqs", 0),
                ("block.0.wr.bytes", 0),
                ("block.0.wr.times", 0),
                ("block.0.fl.reqs", 0),
                ("block.0.fl.times", 0),
                ("block.0.allocation", 0),
                ("block.0.capacity", 0),
                ("block.0.physical", 0),
            ]
        });
        // A disk has its name, its path, and with all disks their number.
        let count = sizes.iter().filter(|it| it.1.is_some()).count()
            + states.iter().filter(|it| it.1.is_some()).count()
            + disk.map_or(0, |figures| figures.len() + 3);
        let mut to = self.domain.written().u32(u32::try_from(count).unwrap_or(u32::MAX));
        for (name, state) in states {
            to = state.into_iter().fold(to, |to, state| to.text(name).i32(INT).i32(state));
        }
        for (name, size) in sizes {
            to = size.into_iter().fold(to, |to, size| to.text(name).i32(ULLONG).u64(size));
        }
        if let Some(figures) = disk {
            to = to.text("block.count").i32(UINT).u32(1);
            to = to.text("block.0.name").i32(TEXT).text("vda");
            to = to.text("block.0.path").i32(TEXT).text("/var/lib/libvirt/images/guest.qcow2");
            for (name, figure) in figures {
                to = to.text(name).i32(ULLONG).u64(figure);
            }
        }
        to.done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::LibvirtSession;

    fn domain(name: &str) -> Domain {
        Domain { name: name.to_owned(), uuid: [7; 16], id: 3 }
    }

    fn peer() -> LibvirtPeer {
        let domain = |name: &str| PeerDomain {
            domain: domain(name),
            maximum: 1 << 20,
            current: 1 << 20,
            used: 200 << 10,
            xml: "<domain/>".to_owned(),
        };
        LibvirtPeer::new(vec![domain("a"), domain("b")])
    }

    #[test]
    fn calls_are_read_as_they_were_made() {
        let element = "<guest/>".to_owned();
        for call in [
            Call::AuthList,
            Call::Open { uri: "qemu:///system".to_owned() },
            Call::LibVersion,
            Call::AllDomainStats,
            Call::AllDiskReads,
            Call::MemoryStats(domain("a")),
            Call::Xml(domain("a")),
            Call::SetMemory { domain: domain("a"), kib: 77 },
            Call::UpdateDevice { domain: domain("a"), element: "<memory/>".to_owned() },
            Call::IsPersistent(domain("web")),
            Call::SetMetadata { domain: domain("a"), element: element.clone(), stored: true },
            Call::SetMetadata { domain: domain("a"), element, stored: false },
            Call::Watch(EventKind::MetadataChange),
            Call::SetStatsPeriod { domain: domain("a"), seconds: 1 },
        ] {
            assert_eq!(Call::read(call.procedure(), &call.arguments()), Ok(Some(call)));
        }
        assert_eq!(Call::read(2, &[]), Ok(None));
    }

    #[test]
    fn replies_are_read_as_they_were_sent() {
        let all = peer().domains.iter().map(|it| it.stats(50)).collect();
        let disks = peer().domains.iter().map(PeerDomain::disk_stats).collect();
        for (call, reply) in [
            (Call::AuthList, Reply::AuthList(vec![0, 1])),
            (Call::AllDomainStats, Reply::AllDomainStats(all)),
            (Call::AllDiskReads, Reply::AllDomainStats(disks)),
            (Call::LibVersion, Reply::LibVersion(9_000_000)),
            (Call::MemoryStats(domain("a")), Reply::CurrentMemory(Some(77))),
            (Call::MemoryStats(domain("a")), Reply::CurrentMemory(None)),
            (Call::Xml(domain("a")), Reply::Xml("<domain>".to_owned())),
            (Call::IsPersistent(domain("a")), Reply::IsPersistent(true)),
            (Call::SetMemory { domain: domain("a"), kib: 1 }, Reply::Done),
        ] {
            assert_eq!(call.reply(&reply.written()), Ok(reply));
        }
    }

    /// Makes a call on an open session, and returns its answer.
    fn ask(session: &mut LibvirtSession, peer: &mut LibvirtPeer, call: Call) -> crate::Answer {
        session.call(call).unwrap();
        let sent = peer.receive(session.outgoing(), 50).unwrap();
        session.mark_written(usize::MAX);
        session.receive(&sent).unwrap();
        session.next_answer().unwrap().1
    }

    #[test]
    fn a_session_opens_and_its_orders_are_carried_out() {
        let (mut session, mut peer) = (LibvirtSession::new("qemu:///session"), peer());
        peer.connect();
        while !session.is_open() {
            let sent = peer.receive(session.outgoing(), 50).unwrap();
            assert!(!sent.is_empty());
            session.mark_written(usize::MAX);
            session.receive(&sent).unwrap();
        }
        let order = Call::SetMemory { domain: domain("b"), kib: 512 << 10 };
        assert_eq!(ask(&mut session, &mut peer, order), Ok(Reply::Done));
        let all = ask(&mut session, &mut peer, Call::AllDomainStats);
        let Ok(Reply::AllDomainStats(all)) = all else { panic!("{all:?}") };
        let held: Vec<_> = all.iter().map(|it| it.current).collect();
        assert_eq!(held, [Some(1 << 20), Some(512 << 10)]);
        let unknown = ask(&mut session, &mut peer, Call::Xml(domain("c")));
        assert_eq!(unknown.map_err(|error| error.code), Err(NO_SUPPORT));
    }
}
