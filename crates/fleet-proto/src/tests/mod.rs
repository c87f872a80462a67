//! Tests across files: records and deltas, views and plans, and the coordinator in memory.

mod memory;
mod moves;
mod records;
mod views;

use ballast_fleet::{
    CompactCurve, Compatibility, GuestRecord, HostRecord, HypervisorVersion, ReservationRecord,
};
use ballast_model::{Bytes, Timestamp};

/// A host with room for two more of its guests, which hold `allocations` MiB.
pub(crate) fn host(name: &str, budget_mib: u64, allocations: &[u64]) -> HostRecord {
    let guests: Vec<GuestRecord> = (0..)
        .zip(allocations)
        .map(|(at, mib)| GuestRecord {
            id: format!("{name}-{at}").parse().unwrap(),
            floor: Bytes::mib(*mib / 2),
            allocation: Bytes::mib(*mib),
            demand: Bytes::mib(*mib),
            curve: Some(
                CompactCurve::new(vec![(Bytes::ZERO, 100), (Bytes::mib(mib + 1), 0)]).unwrap(),
            ),
            misses_per_s_max: None,
            resident: Bytes::mib(*mib),
            copied_resident: Bytes::ZERO,
            dirty_per_s: Bytes::ZERO,
            can_shrink: true,
            pinned_by: None,
            moving_to: None,
            group: None,
            storage: vec!["ceph".parse().unwrap()],
            networks: vec!["br0".parse().unwrap()],
            moves_in_24h: 0,
            last_move: None,
        })
        .collect();
    let committed = guests.iter().map(|guest| guest.allocation).sum();
    HostRecord {
        id: name.parse().unwrap(),
        seen_at: Timestamp::ZERO,
        budget: Bytes::mib(budget_mib),
        reserve: Bytes::mib(512),
        committed,
        free: Bytes::mib(budget_mib),
        bandwidth_per_s: Bytes::gib(1),
        compatibility: Compatibility {
            hypervisor: "qemu".parse().unwrap(),
            version: HypervisorVersion([7, 2, 19]),
            cpu_model: "EPYC".parse().unwrap(),
            storage: vec!["ceph".parse().unwrap()],
            networks: vec!["br0".parse().unwrap()],
        },
        executes_moves: true,
        is_draining: false,
        reservations: Vec::<ReservationRecord>::new(),
        guests,
    }
}
