//! Plans that were made wrong in one way: the checker refuses each.

use std::time::Duration;

use ballast_model::{Bytes, Timestamp};
use proptest::prelude::*;

use super::fleets::*;
use crate::*;

/// Makes the first migration of a plan, or its records, wrong; `false` if it does not apply here.
type Sabotage = fn(&mut MigrationPlan, &mut Vec<HostRecord>) -> bool;

fn place(hosts: &[HostRecord], id: &HostId) -> usize {
    hosts.iter().position(|it| it.id == *id).unwrap()
}

fn guest_of<'a>(plan: &MigrationPlan, hosts: &'a mut [HostRecord]) -> &'a mut GuestRecord {
    let first = &plan.migrations[0];
    let from = place(hosts, &first.from);
    hosts[from].guests.iter_mut().find(|it| it.id == first.guest).unwrap()
}

fn from<'a>(plan: &MigrationPlan, hosts: &'a mut [HostRecord]) -> &'a mut HostRecord {
    let at = place(hosts, &plan.migrations[0].from);
    &mut hosts[at]
}

fn to<'a>(plan: &MigrationPlan, hosts: &'a mut [HostRecord]) -> &'a mut HostRecord {
    let at = place(hosts, &plan.migrations[0].to);
    &mut hosts[at]
}

const SABOTAGES: [(&str, Sabotage); 31] = [
    ("unknown guest", |plan, _| {
        plan.migrations[0].guest = guest_id("nobody");
        true
    }),
    ("unknown source", |plan, _| {
        plan.migrations[0].from = host_id("nowhere");
        true
    }),
    ("unknown destination", |plan, _| {
        plan.migrations[0].to = host_id("nowhere");
        true
    }),
    ("to itself", |plan, _| {
        plan.migrations[0].to = plan.migrations[0].from.clone();
        true
    }),
    ("twice", |plan, _| {
        plan.migrations.push(plan.migrations[0].clone());
        true
    }),
    ("stale source", |plan, hosts| {
        from(plan, hosts).seen_at = Timestamp::ZERO;
        true
    }),
    ("destination from the future", |plan, hosts| {
        to(plan, hosts).seen_at = NOW + Duration::from_secs(1);
        true
    }),
    ("to a drained host", |plan, hosts| {
        to(plan, hosts).is_draining = true;
        true
    }),
    ("pinned", |plan, hosts| {
        guest_of(plan, hosts).pinned_by = Some(PinnedBy::Device);
        true
    }),
    ("on its way", |plan, hosts| {
        guest_of(plan, hosts).moving_to = Some(host_id("elsewhere"));
        true
    }),
    ("at rest", |plan, hosts| {
        let guest = guest_of(plan, hosts);
        guest.moves_in_24h = 1;
        guest.last_move = Some(LastMove { at: NOW, took: Duration::ZERO });
        !from(plan, hosts).is_draining
    }),
    ("at rest for twice as long", |plan, hosts| {
        let guest = guest_of(plan, hosts);
        guest.moves_in_24h = 2;
        let at = Timestamp::from_millis(NOW.as_millis() - 29 * 60_000);
        guest.last_move = Some(LastMove { at, took: Duration::ZERO });
        !from(plan, hosts).is_draining
    }),
    ("writes too fast", |plan, hosts| {
        let bandwidth = to(plan, hosts).bandwidth_per_s;
        guest_of(plan, hosts).dirty_per_s = bandwidth;
        true
    }),
    ("another hypervisor", |plan, hosts| {
        to(plan, hosts).compatibility.hypervisor = label("xen");
        true
    }),
    ("an older hypervisor", |plan, hosts| {
        to(plan, hosts).compatibility.version = HypervisorVersion([6, 9, 9]);
        true
    }),
    ("another processor", |plan, hosts| {
        to(plan, hosts).compatibility.cpu_model = label("486");
        true
    }),
    ("storage out of reach", |plan, hosts| {
        to(plan, hosts).compatibility.storage.clear();
        true
    }),
    ("network missing", |plan, hosts| {
        guest_of(plan, hosts).networks = vec![label("dmz")];
        true
    }),
    ("group at the destination", |plan, hosts| {
        guest_of(plan, hosts).group = Some(label("db"));
        let other = GuestRecord { group: Some(label("db")), ..guest("other", 0) };
        to(plan, hosts).guests.push(other);
        true
    }),
    ("group on its way to the destination", |plan, hosts| {
        guest_of(plan, hosts).group = Some(label("db"));
        let (guest, group) = (guest_id("other"), Some(label("db")));
        let (size, resident) = (Bytes::ZERO, Bytes::ZERO);
        let coming = ReservationRecord { guest, size, resident, group };
        to(plan, hosts).reservations.push(coming);
        true
    }),
    ("name at the destination", |plan, hosts| {
        let twin = guest(plan.migrations[0].guest.as_str(), 0);
        to(plan, hosts).guests.push(twin);
        true
    }),
    ("shrunk too far", |plan, _| {
        let Some(size) = &mut plan.migrations[0].shrink_to else { return false };
        *size = size.saturating_sub(Bytes::pages(1));
        *size > Bytes::ZERO
    }),
    ("shrunk though it gives nothing", |plan, hosts| {
        guest_of(plan, hosts).can_shrink = false;
        plan.migrations[0].shrink_to.is_some()
    }),
    ("too little reserved", |plan, _| {
        let reserve = &mut plan.migrations[0].reserve;
        *reserve = reserve.saturating_sub(Bytes::pages(1));
        true
    }),
    ("more reserved than there is", |plan, _| {
        plan.migrations[0].reserve = Bytes::gib(1 << 20);
        true
    }),
    ("fewer bytes than it has", |plan, _| {
        plan.migrations[0].traffic = Bytes::ZERO;
        plan.migrations[0].bytes > Bytes::ZERO
    }),
    ("other bytes that the copy fills", |plan, _| {
        plan.migrations[0].fills += Bytes::pages(1);
        true
    }),
    ("the copy fills more than its host has free", |plan, hosts| {
        plan.migrations[0].fills = from(plan, hosts).free + Bytes::pages(1);
        let fills = plan.migrations[0].fills;
        let guest = guest_of(plan, hosts);
        guest.copied_resident = guest.resident + fills;
        true
    }),
    ("all that is free is promised while a copy fills some", |plan, hosts| {
        let fills = plan.migrations[0].fills;
        let host = from(plan, hosts);
        host.committed += host.free;
        host.budget += host.free;
        fills > Bytes::ZERO
    }),
    ("a reason that is not so", |plan, _| {
        plan.migrations[0].reason = match plan.migrations[0].reason {
            MigrationReason::Floors { short } => {
                MigrationReason::Floors { short: short + Bytes::pages(1) }
            }
            MigrationReason::Drain => MigrationReason::Floors { short: Bytes::pages(1) },
            MigrationReason::Objectives { .. } | MigrationReason::Benefit { .. } => {
                MigrationReason::Drain
            }
        };
        true
    }),
    ("the destination filled meanwhile", |plan, hosts| {
        let host = to(plan, hosts);
        host.committed += host.budget;
        true
    }),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn each_sabotage_is_found(seed: u64) {
        let snapshot = random(seed, MIDDLE);
        let settings = all_at_once();
        let plan = plan(&snapshot, &settings, NOW);
        prop_assume!(!plan.migrations.is_empty());
        for (what, sabotage) in SABOTAGES {
            let (mut plan, mut hosts) = (plan.clone(), snapshot.hosts().to_vec());
            if sabotage(&mut plan, &mut hosts) {
                let (changed, _) = FleetSnapshot::admit(hosts);
                prop_assert!(check(&changed, &settings, &plan, NOW).is_err(), "{}", what);
            }
        }
        let few = FleetSettings { migrations_max: plan.migrations.len() - 1, ..settings };
        prop_assert!(check(&snapshot, &few, &plan, NOW).is_err());
    }
}

/// A host that is 512 MiB short moves one guest; a second one is not needed.
#[test]
fn needless_migration_is_found() {
    let a = host("a", 1024, vec![guest("x", 512), guest("y", 512), guest("z", 512)]);
    let snapshot = fleet(vec![a, host("b", 4096, vec![])]);
    let settings = all_at_once();
    let mut plan = plan(&snapshot, &settings, NOW);
    let more = Migration { guest: guest_id("z"), ..plan.migrations[0].clone() };
    assert_ne!(plan.migrations[0].guest, more.guest);
    plan.migrations.push(more);
    let found = check(&snapshot, &settings, &plan, NOW).unwrap_err();
    let needless = |it: &Violation| matches!(it, Violation::Needless(_));
    assert!(found.iter().all(needless) && found.len() == 2, "{found:?}");
}
