//! Which records of hosts the planner accepts.
//!
//! Idea: records come from other machines. Each is checked against bounds within which no sum
//! overflows and no work grows without limit. A record that breaks a bound is left out with the
//! reason, and planning goes on for the other hosts: one broken host must not stop a fleet.
//! Limits: what is within bounds is believed. If a host claims memory that it lacks, only it can
//! tell: it refuses the reservation when it is asked for one.

use ballast_model::Bytes;

use crate::{Compatibility, GuestRecord, HostId, HostRecord, Label};

/// Most hosts in a fleet.
const HOSTS_MAX: usize = 1 << 16;
/// Most guests, and most reservations, of one host.
const GUESTS_MAX: usize = 1 << 12;
/// Largest size of memory, so that no sum over a host overflows.
const SIZE_MAX: Bytes = Bytes::gib(1 << 20);
/// Most labels in one list.
const LABELS_MAX: usize = 256;
/// Most migrations of one guest in 24 hours: one every ten seconds, which no fleet reaches.
const MOVES_MAX: u32 = 8640;

/// Hosts whose records are within bounds, sorted by name; the guests of each are sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetSnapshot {
    hosts: Vec<HostRecord>,
}

/// A record that is left out, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("host {host} is left out: {fault}")]
pub struct RefusedRecord {
    /// The host.
    pub host: HostId,
    /// What is wrong.
    pub fault: String,
}

impl FleetSnapshot {
    /// Takes in the records that are within bounds, in any order, and says why the others are left
    /// out. If two hosts have one name, both are left out, as nobody knows whose guests are whose.
    pub fn admit(mut records: Vec<HostRecord>) -> (FleetSnapshot, Vec<RefusedRecord>) {
        records.sort_by(|a, b| a.id.cmp(&b.id));
        let mut refused = Vec::new();
        let mut hosts: Vec<HostRecord> = Vec::with_capacity(records.len());
        let mut records = records.into_iter().peekable();
        while let Some(mut record) = records.next() {
            let mut count = 1;
            while records.next_if(|next| next.id == record.id).is_some() {
                count += 1;
            }
            let fault = if count > 1 {
                Some(format!("{count} hosts have this name: expected one"))
            } else if hosts.len() == HOSTS_MAX {
                Some(format!("the fleet has more hosts: expected at most {HOSTS_MAX}"))
            } else {
                arrange(&mut record);
                fault_of(&record)
            };
            match fault {
                Some(fault) => refused.push(RefusedRecord { host: record.id, fault }),
                None => hosts.push(record),
            }
        }
        (FleetSnapshot { hosts }, refused)
    }

    /// The hosts, sorted by name.
    pub fn hosts(&self) -> &[HostRecord] {
        &self.hosts
    }

    /// The index of a host in [`hosts`](FleetSnapshot::hosts).
    pub fn place(&self, host: &HostId) -> Option<usize> {
        self.hosts.binary_search_by(|it| it.id.cmp(host)).ok()
    }
}

/// Sorts every list, so that the order in which hosts report does not matter.
fn arrange(host: &mut HostRecord) {
    host.guests.sort_by(|a, b| a.id.cmp(&b.id));
    host.reservations.sort_by(|a, b| a.guest.cmp(&b.guest));
    let Compatibility { storage, networks, .. } = &mut host.compatibility;
    let guests = host.guests.iter_mut();
    let of_guests = guests.flat_map(|guest| [&mut guest.storage, &mut guest.networks]);
    for labels in of_guests.chain([storage, networks]) {
        labels.sort();
        labels.dedup();
    }
}

/// What is wrong with a record; `None`: nothing.
fn fault_of(host: &HostRecord) -> Option<String> {
    let sizes = [
        ("budget", host.budget),
        ("reserve", host.reserve),
        ("committed", host.committed),
        ("free", host.free),
        ("bandwidth", host.bandwidth_per_s),
    ];
    if let Some(fault) = too_large(&sizes) {
        return Some(fault);
    }
    if host.bandwidth_per_s == Bytes::ZERO {
        return Some("bandwidth 0B a second: expected more".to_owned());
    }
    for (what, count) in [("guests", host.guests.len()), ("reservations", host.reservations.len())]
    {
        if count > GUESTS_MAX {
            return Some(format!("{count} {what}: expected at most {GUESTS_MAX}"));
        }
    }
    let Compatibility { storage, networks, .. } = &host.compatibility;
    if let Some(fault) = too_many(storage).or_else(|| too_many(networks)) {
        return Some(fault);
    }
    // The lists are sorted, so equal names are neighbours.
    if let Some(pair) = host.guests.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Some(format!("guest {} is listed twice", pair[0].id));
    }
    if let Some(pair) = host.reservations.windows(2).find(|pair| pair[0].guest == pair[1].guest) {
        return Some(format!("guest {} has two reservations: expected one", pair[0].guest));
    }
    for reservation in &host.reservations {
        let sizes = [("size", reservation.size), ("resident", reservation.resident)];
        if let Some(fault) = too_large(&sizes) {
            return Some(format!("reservation of {}: {fault}", reservation.guest));
        }
    }
    for guest in &host.guests {
        if let Some(fault) = guest_fault(host, guest) {
            return Some(format!("guest {}: {fault}", guest.id));
        }
    }
    let allocated: Bytes = host.guests.iter().map(|guest| guest.allocation).sum();
    let reserved: Bytes = host.reservations.iter().map(|it| it.size).sum();
    let least = allocated + reserved;
    (host.committed < least).then(|| {
        format!(
            "committed {}: expected at least {least}, what guests are allocated and what is \
             reserved",
            host.committed
        )
    })
}

fn guest_fault(host: &HostRecord, guest: &GuestRecord) -> Option<String> {
    let sizes = [
        ("floor", guest.floor),
        ("allocation", guest.allocation),
        ("demand", guest.demand),
        ("resident", guest.resident),
        ("resident while it is copied", guest.copied_resident),
        ("dirty rate", guest.dirty_per_s),
    ];
    if let Some(fault) = too_large(&sizes) {
        return Some(fault);
    }
    let largest = guest.curve.as_ref().and_then(|curve| curve.points().last());
    if largest.is_some_and(|(size, _)| *size > SIZE_MAX) {
        return Some(format!("miss curve beyond {SIZE_MAX}: expected less"));
    }
    let moves = guest.moves_in_24h;
    if moves > 0 && guest.last_move.is_none() {
        return Some(format!("moved {moves} times, and never last"));
    }
    if moves > MOVES_MAX {
        return Some(format!("moved {moves} times in 24 h: expected {MOVES_MAX}"));
    }
    if guest.moving_to.as_ref() == Some(&host.id) {
        return Some("on its way to the host it is on".to_owned());
    }
    too_many(&guest.storage).or_else(|| too_many(&guest.networks))
}

fn too_large(sizes: &[(&str, Bytes)]) -> Option<String> {
    let (what, size) = sizes.iter().find(|(_, size)| *size > SIZE_MAX)?;
    Some(format!("{what} {size}: expected at most {SIZE_MAX}"))
}

fn too_many(labels: &[Label]) -> Option<String> {
    let count = labels.len();
    (count > LABELS_MAX).then(|| format!("{count} storages or networks: at most {LABELS_MAX}"))
}
