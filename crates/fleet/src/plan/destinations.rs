//! Which host has room for a guest, and has the guest's own host room for its copy?
//!
//! Idea: hosts that offer the same (hypervisor, version, processor model, storage, networks) form a
//! class; there are few classes. Storage or a network that only one host has, such as a local disk,
//! is left out of the class, because no guest of another host uses it. Each class keeps its hosts
//! ordered by room, so that a search finds a host without going through all of them. Room has two
//! sizes: what is left when the guests there have all they should have (`full`), and when they have
//! what floors and objectives need (`needed`). The first is preferred, as then no guest has to give
//! way.
//! Room only shrinks while a plan is made: a leaving guest still counts on its old host. A guest
//! may leave only if the memory that its copy fills is free. On a host where copies fill memory, an
//! arriving guest has to fit beside them into what is free.
//! Cost: O(classes × log hosts) a search, and one step for each host that is passed over because it
//! runs a guest of the same group or name, at most [`PASSED_OVER_MAX`] of them.
//! Limits: if a guest uses storage that its own host lacks and only one other host has, it is not
//! sent to that host.

use std::collections::{BTreeMap, BTreeSet};

use ballast_model::GuestId;

use super::candidate::Candidate;
use super::host_figures::{HostFigures, positive, signed};
use crate::{Compatibility, FleetSnapshot, GuestRecord, HypervisorVersion, Label};

/// Most hosts of a class that are looked at for one guest.
const PASSED_OVER_MAX: usize = 1024;

/// How a destination is chosen among those with room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// The most room where no guest has to give way.
    Spare,
    /// As `Spare`; if there is no such room, as `Tight`.
    Comfortable,
    /// The least room that is enough, which leaves large rooms for large guests.
    Tight,
}

/// Hosts that may receive guests, and the room they have left.
#[derive(Clone, Debug)]
pub(crate) struct Destinations<'a> {
    snapshot: &'a FleetSnapshot,
    classes: Vec<Class<'a>>,
    /// The index of each host's class.
    class_of: Vec<u32>,
    rooms: Vec<Room>,
    /// Each group with each host on which it runs, or is to run.
    groups: BTreeSet<(&'a Label, u32)>,
    /// Guests that this plan sends to a host, by host.
    arrivals: BTreeSet<(u32, &'a GuestId)>,
}

/// Bytes left on a host.
#[derive(Clone, Copy, Debug)]
struct Room {
    needed: i64,
    full: i64,
    /// Free now, and neither promised nor about to be filled by a copy.
    vacant: i64,
    /// What copies of leaving guests may fill.
    filling: i64,
    /// Whether it may receive guests at all.
    is_open: bool,
}

/// Hosts that offer the same; each set has pairs of room and host.
#[derive(Clone, Debug)]
struct Class<'a> {
    offers: ClassKey<'a>,
    by_needed: BTreeSet<(u64, u32)>,
    by_full: BTreeSet<(u64, u32)>,
}

/// What every host of a class offers, without what only one host has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClassKey<'a> {
    hypervisor: &'a Label,
    version: HypervisorVersion,
    cpu_model: &'a Label,
    storage: Vec<&'a Label>,
    networks: Vec<&'a Label>,
}

impl<'a> Destinations<'a> {
    pub(crate) fn new(snapshot: &'a FleetSnapshot, figures: &[HostFigures]) -> Destinations<'a> {
        let mut hosts_with: BTreeMap<&Label, u32> = BTreeMap::new();
        for host in snapshot.hosts() {
            let Compatibility { storage, networks, .. } = &host.compatibility;
            for label in storage.iter().chain(networks) {
                *hosts_with.entry(label).or_insert(0) += 1;
            }
        }
        let shared = |labels: &'a [Label]| -> Vec<&'a Label> {
            labels.iter().filter(|label| hosts_with[label] > 1).collect()
        };
        let mut index: BTreeMap<ClassKey<'a>, u32> = BTreeMap::new();
        let mut classes: Vec<Class<'a>> = Vec::new();
        let (mut class_of, mut rooms) = (Vec::new(), Vec::new());
        let mut groups = BTreeSet::new();
        for (place, (host, figures)) in (0..).zip(snapshot.hosts().iter().zip(figures)) {
            let Compatibility { hypervisor, version, cpu_model, .. } = &host.compatibility;
            let offers = ClassKey {
                hypervisor,
                version: *version,
                cpu_model,
                storage: shared(&host.compatibility.storage),
                networks: shared(&host.compatibility.networks),
            };
            let class = *index.entry(offers.clone()).or_insert_with(|| {
                let (by_needed, by_full) = (BTreeSet::new(), BTreeSet::new());
                classes.push(Class { offers, by_needed, by_full });
                classes.len() as u32 - 1
            });
            class_of.push(class);
            rooms.push(Room {
                needed: figures.capacity - figures.needed - figures.filling,
                full: figures.capacity - figures.full - figures.filling,
                vacant: figures.vacant - figures.filling,
                filling: figures.filling,
                is_open: figures.is_fresh && !host.is_draining,
            });
            let here = host.guests.iter().map(|guest| &guest.group);
            let coming = host.reservations.iter().map(|reservation| &reservation.group);
            groups.extend(here.chain(coming).flatten().map(|group| (group, place)));
        }
        let arrivals = BTreeSet::new();
        let mut destinations =
            Destinations { snapshot, classes, class_of, rooms, groups, arrivals };
        for at in 0..snapshot.hosts().len() {
            destinations.list(at as u32);
        }
        destinations
    }

    /// Reserves room for a guest; `None`: no host has such room for it.
    pub(crate) fn reserve(&mut self, candidate: &Candidate<'a>, fit: Fit) -> Option<u32> {
        let spare = if fit == Fit::Tight { None } else { self.most_spare(candidate) };
        let to = match fit {
            Fit::Spare => spare,
            Fit::Comfortable | Fit::Tight => spare.or_else(|| self.tightest(candidate)),
        }?;
        self.change(candidate, to, -1);
        Some(to)
    }

    pub(crate) fn give_back(&mut self, candidate: &Candidate<'a>, to: u32) {
        self.change(candidate, to, 1);
    }

    /// Whether the guest's host has free what its copy fills.
    pub(crate) fn has_free_for_copy(&self, candidate: &Candidate<'a>) -> bool {
        let vacant = self.rooms[candidate.host as usize].vacant;
        candidate.fills == 0 || signed(candidate.fills) <= vacant
    }

    /// Whether any host could receive the guest.
    pub(crate) fn has_room(&self, candidate: &Candidate<'a>) -> bool {
        self.tightest(candidate).is_some()
    }

    /// The host with the least room that is enough.
    fn tightest(&self, candidate: &Candidate<'a>) -> Option<u32> {
        let size = candidate.sizes.full;
        let found = self.compatible(candidate).filter_map(|class| {
            let mut near = class.by_needed.range((size, 0)..).take(PASSED_OVER_MAX);
            near.find(|(_, to)| self.accepts(candidate, *to))
        });
        found.min().map(|(_, to)| *to)
    }

    /// The host with the most room where no guest has to give way.
    fn most_spare(&self, candidate: &Candidate<'a>) -> Option<u32> {
        let size = candidate.sizes.full;
        let found = self.compatible(candidate).filter_map(|class| {
            let mut most = class.by_full.range((size, 0)..).rev().take(PASSED_OVER_MAX);
            most.find(|(_, to)| self.accepts(candidate, *to))
        });
        found.max().map(|(_, to)| *to)
    }

    fn compatible(&self, candidate: &Candidate<'a>) -> impl Iterator<Item = &Class<'a>> {
        let from = &self.snapshot.hosts()[candidate.host as usize].compatibility;
        let guest = candidate.guest;
        let classes = if self.has_free_for_copy(candidate) { &self.classes[..] } else { &[] };
        classes.iter().filter(move |class| offers(from, &class.offers, guest))
    }

    /// What no class decides: the host's room beside copies, its bandwidth, groups and names.
    fn accepts(&self, candidate: &Candidate<'a>, to: u32) -> bool {
        let host = &self.snapshot.hosts()[to as usize];
        let id = &candidate.guest.id;
        let room = &self.rooms[to as usize];
        to != candidate.host
            && (room.filling == 0 || signed(candidate.sizes.full) <= room.vacant)
            && candidate.guest.dirty_per_s < host.bandwidth_per_s
            && !candidate.guest.group.as_ref().is_some_and(|it| self.groups.contains(&(it, to)))
            && host.guests.binary_search_by(|it| it.id.cmp(id)).is_err()
            && host.reservations.binary_search_by(|it| it.guest.cmp(id)).is_err()
            && !self.arrivals.contains(&(to, id))
    }

    /// Reserves room for a guest if `sign` is -1, or gives it back if it is 1.
    fn change(&mut self, candidate: &Candidate<'a>, to: u32, sign: i64) {
        self.unlist(to);
        let size = sign * signed(candidate.sizes.full);
        let room = &mut self.rooms[to as usize];
        room.needed += size;
        room.full += size;
        room.vacant += size;
        self.list(to);
        // The host that the guest leaves loses what the copy fills.
        let fills = sign * signed(candidate.fills);
        let source = &mut self.rooms[candidate.host as usize];
        source.vacant += fills;
        source.filling -= fills;
        let arrival = (to, &candidate.guest.id);
        let group = candidate.guest.group.as_ref().map(|group| (group, to));
        if sign < 0 {
            self.arrivals.insert(arrival);
            self.groups.extend(group);
        } else {
            self.arrivals.remove(&arrival);
            if let Some(group) = group {
                self.groups.remove(&group);
            }
        }
    }

    /// Enters a host in its class, by its room.
    fn list(&mut self, host: u32) {
        let room = self.rooms[host as usize];
        let class = &mut self.classes[self.class_of[host as usize] as usize];
        if room.is_open && room.needed > 0 {
            class.by_needed.insert((positive(room.needed), host));
        }
        if room.is_open && room.full > 0 {
            class.by_full.insert((positive(room.full), host));
        }
    }

    /// Removes a host from its class, before its room changes.
    fn unlist(&mut self, host: u32) {
        let room = self.rooms[host as usize];
        let class = &mut self.classes[self.class_of[host as usize] as usize];
        class.by_needed.remove(&(positive(room.needed), host));
        class.by_full.remove(&(positive(room.full), host));
    }
}

/// Whether hosts of a class can run a guest that a host of `from` runs.
fn offers(from: &Compatibility, to: &ClassKey<'_>, guest: &GuestRecord) -> bool {
    from.hypervisor == *to.hypervisor
        && from.version <= to.version
        && from.cpu_model == *to.cpu_model
        && guest.storage.iter().all(|it| to.storage.binary_search(&it).is_ok())
        && guest.networks.iter().all(|it| to.networks.binary_search(&it).is_ok())
}
