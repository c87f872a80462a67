//! Fleets for tests, made by hand or from a seed, and fleets after a plan was carried out.

use std::time::Duration;

use ballast_model::{Bytes, GuestId, Timestamp};

use crate::{
    CompactCurve, Compatibility, FleetSettings, FleetSnapshot, GuestRecord, HostId, HostRecord,
    HypervisorVersion, Label, LastMove, Migration, MigrationPlan, PinnedBy, ReservationRecord,
};

/// The moment at which all plans of these tests are made, a day after the clock's origin.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(86_400_000);

pub(crate) fn label(text: &str) -> Label {
    text.parse().unwrap()
}

pub(crate) fn host_id(text: &str) -> HostId {
    text.parse().unwrap()
}

pub(crate) fn guest_id(text: &str) -> GuestId {
    text.parse().unwrap()
}

/// A guest that holds its floor of `mib`, all of it occupied, and needs no more.
pub(crate) fn guest(name: &str, mib: u64) -> GuestRecord {
    GuestRecord {
        id: guest_id(name),
        floor: Bytes::mib(mib),
        allocation: Bytes::mib(mib),
        demand: Bytes::mib(mib),
        curve: None,
        misses_per_s_max: None,
        resident: Bytes::mib(mib),
        copied_resident: Bytes::ZERO,
        dirty_per_s: Bytes::ZERO,
        can_shrink: true,
        pinned_by: None,
        moving_to: None,
        group: None,
        storage: vec![label("san")],
        networks: vec![label("lan")],
        moves_in_24h: 0,
        last_move: None,
    }
}

/// A host with a budget of `mib` and twice the memory, a reserve of 1 GiB, and 1,000 MiB a second.
pub(crate) fn host(name: &str, mib: u64, guests: Vec<GuestRecord>) -> HostRecord {
    let resident: Bytes = guests.iter().map(|it| it.resident).sum();
    let memory = Bytes::mib(2 * mib) + Bytes::gib(1);
    HostRecord {
        id: host_id(name),
        seen_at: NOW,
        budget: Bytes::mib(mib),
        reserve: Bytes::gib(1),
        committed: guests.iter().map(|it| it.allocation).sum(),
        free: memory.saturating_sub(resident),
        bandwidth_per_s: Bytes::mib(1000),
        compatibility: Compatibility {
            hypervisor: label("qemu"),
            version: HypervisorVersion([7, 2, 0]),
            cpu_model: label("x86-64-v3"),
            storage: vec![label("san")],
            networks: vec![label("lan")],
        },
        executes_moves: true,
        is_draining: false,
        reservations: Vec::new(),
        guests,
    }
}

pub(crate) fn fleet(hosts: Vec<HostRecord>) -> FleetSnapshot {
    let (snapshot, refused) = FleetSnapshot::admit(hosts);
    assert_eq!(refused, []);
    snapshot
}

/// Settings without a limit on migrations at once.
pub(crate) fn all_at_once() -> FleetSettings {
    FleetSettings { migrations_max: usize::MAX, ..FleetSettings::default() }
}

/// What a random fleet is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) hosts: (usize, usize),
    pub(crate) guests: (usize, usize),
    /// Floors of a host, in per cent of its budget.
    pub(crate) fill: (u64, u64),
    /// Whether some guests stay, some are in groups, hosts differ, some are drained, and so on.
    pub(crate) is_varied: bool,
}

pub(crate) const MIDDLE: Shape =
    Shape { hosts: (2, 12), guests: (0, 12), fill: (20, 130), is_varied: true };

/// The fleet of a seed.
pub(crate) fn random(seed: u64, shape: Shape) -> FleetSnapshot {
    let mut rng = fastrand::Rng::with_seed(seed);
    let count = rng.usize(shape.hosts.0..=shape.hosts.1);
    let mut hosts = Vec::new();
    for at in 0..count {
        hosts.push(random_host(&mut rng, at, shape));
    }
    if shape.is_varied && rng.u8(0..4) == 0 {
        put_on_its_way(&mut rng, &mut hosts);
    }
    fleet(hosts)
}

fn random_host(rng: &mut fastrand::Rng, at: usize, shape: Shape) -> HostRecord {
    let budget = rng.u64(4..=16) * 1024;
    let count = rng.usize(shape.guests.0..=shape.guests.1);
    let floors = budget * rng.u64(shape.fill.0..=shape.fill.1) / 100;
    let mut weights: Vec<u64> = (0..count).map(|_| rng.u64(1..=8)).collect();
    let all: u64 = weights.iter().sum::<u64>().max(1);
    let mut guests = Vec::new();
    for (index, weight) in weights.drain(..).enumerate() {
        // Some names are on several hosts.
        let scope = if rng.u8(0..20) == 0 { 0 } else { at };
        let name = format!("g{scope}-{index}");
        guests.push(random_guest(rng, &name, floors * weight / all, shape.is_varied));
    }
    let mut host = host(&format!("h{at}"), budget, guests);
    host.bandwidth_per_s = Bytes::mib(rng.u64(500..=2000));
    if shape.is_varied {
        let compatibility = &mut host.compatibility;
        compatibility.version = HypervisorVersion([7, rng.u32(2..=3), 0]);
        if rng.u8(0..8) == 0 {
            compatibility.cpu_model = label("x86-64-v4");
        }
        if rng.u8(0..8) == 0 {
            compatibility.networks.clear();
        }
        host.is_draining = rng.u8(0..12) == 0;
        if rng.u8(0..12) == 0 {
            host.seen_at = Timestamp::from_millis(NOW.as_millis() - 60_000);
        }
        if rng.u8(0..6) == 0 {
            // Less is free than the budget says, and a guest is about to start.
            host.free = Bytes::mib(rng.u64(0..budget));
            let size = Bytes::mib(512);
            let guest = guest_id("starting");
            let group = Some(label("group1"));
            let resident = Bytes::ZERO;
            host.reservations.push(ReservationRecord { guest, size, resident, group });
            host.committed += size;
        }
    }
    host
}

fn random_guest(rng: &mut fastrand::Rng, name: &str, mib: u64, is_varied: bool) -> GuestRecord {
    let mut guest = guest(name, mib);
    guest.allocation = Bytes::mib(mib + rng.u64(0..=mib / 2 + 1));
    guest.demand = Bytes::mib(mib * rng.u64(50..=130) / 100);
    guest.resident = Bytes::mib(guest.allocation.get() / (1 << 20) * rng.u64(20..=100) / 100);
    guest.dirty_per_s = Bytes::mib(rng.u64(0..=400));
    if !is_varied {
        return guest;
    }
    if rng.bool() {
        let steps = rng.u64(1..=6);
        let busy = rng.u64(0..=20_000);
        let points = (0..=steps).map(|step| {
            let size = Bytes::mib(16 + (mib + mib / 2) * step / steps + step);
            (size, busy * (steps - step) / steps)
        });
        guest.curve = Some(CompactCurve::new(points.collect()).unwrap());
        guest.misses_per_s_max = (rng.u8(0..3) == 0).then(|| rng.u64(0..=20_000));
    }
    guest.can_shrink = rng.u8(0..8) != 0;
    if rng.u8(0..3) == 0 {
        // Its memory is shared, so a copy fills all that it may hold.
        guest.copied_resident = guest.allocation + Bytes::mib(rng.u64(0..=mib / 2 + 32));
    }
    guest.pinned_by = (rng.u8(0..10) == 0).then_some(PinnedBy::Operator);
    guest.group = (rng.u8(0..4) == 0).then(|| label(&format!("group{}", rng.u8(0..3))));
    if rng.u8(0..6) == 0 {
        guest.moves_in_24h = rng.u32(1..=4);
        let at = Timestamp::from_millis(NOW.as_millis() - rng.u64(0..7_200_000));
        guest.last_move = Some(LastMove { at, took: Duration::from_secs(rng.u64(1..=2000)) });
    }
    guest
}

/// Makes a migration that is under way already.
fn put_on_its_way(rng: &mut fastrand::Rng, hosts: &mut [HostRecord]) {
    let from = rng.usize(0..hosts.len());
    let to = (from + 1) % hosts.len();
    let host_to = hosts[to].id.clone();
    let Some(guest) = hosts[from].guests.first_mut() else { return };
    guest.moving_to = Some(host_to);
    let (id, size, group) = (guest.id.clone(), guest.allocation, guest.group.clone());
    let resident = Bytes::ZERO;
    hosts[to].reservations.push(ReservationRecord { guest: id, size, resident, group });
    hosts[to].committed += size;
}

/// The fleet after the migrations of a plan, at `now`. The guests hold what was reserved for them.
pub(crate) fn applied(
    snapshot: &FleetSnapshot,
    migrations: &[Migration],
    now: Timestamp,
) -> FleetSnapshot {
    let mut hosts = snapshot.hosts().to_vec();
    for migration in migrations {
        let from = snapshot.place(&migration.from).unwrap();
        let to = snapshot.place(&migration.to).unwrap();
        let at = hosts[from].guests.iter().position(|it| it.id == migration.guest).unwrap();
        let mut guest = hosts[from].guests.remove(at);
        hosts[from].free += guest.resident;
        hosts[from].committed -= guest.allocation;
        guest.allocation = migration.reserve;
        guest.resident = migration.bytes;
        guest.copied_resident = guest.copied_resident.max(guest.resident);
        guest.moves_in_24h += 1;
        guest.last_move = Some(LastMove { at: now, took: migration.copy_time });
        hosts[to].free = hosts[to].free.saturating_sub(guest.resident);
        hosts[to].committed += guest.allocation;
        hosts[to].guests.push(guest);
    }
    for host in &mut hosts {
        host.seen_at = host.seen_at.max(now);
    }
    fleet(hosts)
}

/// The bytes that a plan copies.
pub(crate) fn traffic(plan: &MigrationPlan) -> u64 {
    plan.migrations.iter().map(|it| it.traffic.get()).sum()
}
