//! Plans that were made wrong in one way: the checker refuses each.

use std::time::Duration;

use ballast_model::{Bytes, Timestamp};
use proptest::prelude::*;

use super::fleets::*;
use crate::*;

/// Makes the first migration of a plan, or its records, wrong.
type Sabotage<R> = fn(&mut MigrationPlan, &mut Vec<HostRecord>) -> R;

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

const ALWAYS: [(&str, Sabotage<()>); 25] = [
    ("unknown guest", |plan, _| plan.migrations[0].guest = guest_id("nobody")),
    ("unknown source", |plan, _| plan.migrations[0].from = host_id("nowhere")),
    ("unknown destination", |plan, _| plan.migrations[0].to = host_id("nowhere")),
    ("to itself", |plan, _| plan.migrations[0].to = plan.migrations[0].from.clone()),
    ("twice", |plan, _| plan.migrations.push(plan.migrations[0].clone())),
    ("stale source", |plan, hosts| from(plan, hosts).seen_at = Timestamp::ZERO),
    ("destination from the future", |plan, hosts| {
        to(plan, hosts).seen_at = NOW + Duration::from_secs(1);
    }),
    ("to a drained host", |plan, hosts| to(plan, hosts).is_draining = true),
    ("pinned", |plan, hosts| guest_of(plan, hosts).pinned_by = Some(PinnedBy::Device)),
    ("on its way", |plan, hosts| guest_of(plan, hosts).moving_to = Some(host_id("elsewhere"))),
    ("writes too fast", |plan, hosts| {
        let bandwidth = to(plan, hosts).bandwidth_per_s;
        guest_of(plan, hosts).dirty_per_s = bandwidth;
    }),
    ("another hypervisor", |plan, hosts| {
        to(plan, hosts).compatibility.hypervisor = label("xen");
    }),
    ("an older hypervisor", |plan, hosts| {
        to(plan, hosts).compatibility.version = HypervisorVersion([6, 9, 9]);
    }),
    ("another processor", |plan, hosts| to(plan, hosts).compatibility.cpu_model = label("486")),
    ("storage out of reach", |plan, hosts| to(plan, hosts).compatibility.storage.clear()),
    ("network missing", |plan, hosts| guest_of(plan, hosts).networks = vec![label("dmz")]),
    ("group at the destination", |plan, hosts| {
        guest_of(plan, hosts).group = Some(label("db"));
        let other = GuestRecord { group: Some(label("db")), ..guest("other", 0) };
        to(plan, hosts).guests.push(other);
    }),
    ("group on its way to the destination", |plan, hosts| {
        guest_of(plan, hosts).group = Some(label("db"));
        let (guest, group) = (guest_id("other"), Some(label("db")));
        let (size, resident) = (Bytes::ZERO, Bytes::ZERO);
        let coming = ReservationRecord { guest, size, resident, group };
        to(plan, hosts).reservations.push(coming);
    }),
    ("name at the destination", |plan, hosts| {
        let twin = guest(plan.migrations[0].guest.as_str(), 0);
        to(plan, hosts).guests.push(twin);
    }),
    ("too little reserved", |plan, _| {
        let reserve = &mut plan.migrations[0].reserve;
        *reserve = reserve.saturating_sub(Bytes::pages(1));
    }),
    ("more reserved than there is", |plan, _| plan.migrations[0].reserve = Bytes::gib(1 << 20)),
    ("other bytes that the copy fills", |plan, _| plan.migrations[0].fills += Bytes::pages(1)),
    ("the copy fills more than its host has free", |plan, hosts| {
        plan.migrations[0].fills = from(plan, hosts).free + Bytes::pages(1);
        let fills = plan.migrations[0].fills;
        let guest = guest_of(plan, hosts);
        guest.copied_resident = guest.resident + fills;
    }),
    ("a reason that is not so", |plan, _| {
        plan.migrations[0].reason = match plan.migrations[0].reason {
            MigrationReason::Floors(short) => MigrationReason::Floors(short + Bytes::pages(1)),
            MigrationReason::Drain => MigrationReason::Floors(Bytes::pages(1)),
            MigrationReason::Objectives(_) | MigrationReason::Benefit { .. } => {
                MigrationReason::Drain
            }
        };
    }),
    ("the destination filled meanwhile", |plan, hosts| {
        let host = to(plan, hosts);
        host.committed += host.budget;
    }),
];

/// These return whether they apply to the plan.
const SOMETIMES: [(&str, Sabotage<bool>); 6] = [
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
    ("shrunk too far", |plan, _| {
        let Some(size) = &mut plan.migrations[0].shrink_to else { return false };
        *size = size.saturating_sub(Bytes::pages(1));
        *size > Bytes::ZERO
    }),
    ("shrunk though it gives nothing", |plan, hosts| {
        guest_of(plan, hosts).can_shrink = false;
        plan.migrations[0].shrink_to.is_some()
    }),
    ("fewer bytes than it has", |plan, _| {
        plan.migrations[0].traffic = Bytes::ZERO;
        plan.migrations[0].bytes > Bytes::ZERO
    }),
    ("all that is free is promised while a copy fills some", |plan, hosts| {
        let fills = plan.migrations[0].fills;
        let host = from(plan, hosts);
        host.committed += host.free;
        host.budget += host.free;
        fills > Bytes::ZERO
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
        let is_found = |plan: &MigrationPlan, hosts: Vec<HostRecord>| {
            let (changed, _) = FleetSnapshot::admit(hosts);
            check(&changed, &settings, plan, NOW).is_err()
        };
        for (what, sabotage) in ALWAYS {
            let (mut plan, mut hosts) = (plan.clone(), snapshot.hosts().to_vec());
            sabotage(&mut plan, &mut hosts);
            prop_assert!(is_found(&plan, hosts), "{}", what);
        }
        for (what, sabotage) in SOMETIMES {
            let (mut plan, mut hosts) = (plan.clone(), snapshot.hosts().to_vec());
            let applies = sabotage(&mut plan, &mut hosts);
            prop_assert!(!applies || is_found(&plan, hosts), "{}", what);
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
