//! Named cases: what is moved, what is not, and how it is said.

use std::time::Duration;

use ballast_model::Bytes;

use super::fleets::*;
use crate::*;

/// The migrations of a plan, each as `guest>host`.
fn moves(hosts: Vec<HostRecord>) -> Vec<String> {
    let plan = plan_of(hosts);
    plan.migrations.iter().map(|it| format!("{}>{}", it.guest, it.to)).collect()
}

fn plan_of(hosts: Vec<HostRecord>) -> MigrationPlan {
    let snapshot = fleet(hosts);
    let settings = FleetSettings::default();
    let plan = plan(&snapshot, &settings, NOW);
    assert_eq!(check(&snapshot, &settings, &plan, NOW), Ok(()));
    plan
}

/// Host `a` is 1,024 MiB short; moving `dear` or `cheap` alone would be enough.
fn short(change: impl Fn(&mut HostRecord, &mut HostRecord)) -> Vec<HostRecord> {
    let dear = guest("dear", 3072);
    let cheap = GuestRecord { resident: Bytes::mib(512), ..guest("cheap", 1536) };
    let mut a = host("a", 4096, vec![dear, cheap, guest("small", 512)]);
    let mut b = host("b", 8192, vec![]);
    change(&mut a, &mut b);
    vec![a, b]
}

fn cheap(host: &mut HostRecord) -> &mut GuestRecord {
    &mut host.guests[1]
}

#[test]
fn fleet_that_needs_nothing_is_left_alone() {
    let hosts = vec![host("a", 4096, vec![guest("g", 4096)]), host("b", 4096, vec![])];
    assert_eq!(plan_of(hosts), MigrationPlan::default());
    assert_eq!(plan_of(vec![]), MigrationPlan::default());
}

#[test]
fn guest_with_least_to_copy_is_moved() {
    assert_eq!(moves(short(|_, _| ())), ["cheap>b"]);
}

#[test]
fn move_is_explained_in_words() {
    let plan = plan_of(short(|a, _| cheap(a).dirty_per_s = Bytes::mib(100)));
    assert_eq!(
        plan.migrations[0].to_string(),
        "cheap from a to b: its host is 1GiB short of its guests' floors; copies 512MiB, 563.2MiB \
         with what it writes meanwhile, in about 1 s, shrunk to 1.5GiB first"
    );
}

#[test]
fn guests_that_must_not_move_stay() {
    let lately = LastMove { at: NOW, took: Duration::from_secs(9) };
    type Change = fn(&mut HostRecord, &mut HostRecord);
    let cases: [(&str, Change); 8] = [
        ("operator", |a, _| cheap(a).pinned_by = Some(PinnedBy::Operator)),
        ("device", |a, _| cheap(a).pinned_by = Some(PinnedBy::Device)),
        ("writes", |a, _| cheap(a).dirty_per_s = Bytes::mib(1000)),
        ("writes faster than the destination copies", |a, b| {
            cheap(a).dirty_per_s = Bytes::mib(600);
            b.bandwidth_per_s = Bytes::mib(600);
        }),
        ("storage", |a, _| cheap(a).storage.push(label("nvme of a"))),
        ("network", |a, _| cheap(a).networks = vec![label("dmz")]),
        ("group", |a, b| {
            cheap(a).group = Some(label("db"));
            let other = GuestRecord { group: Some(label("db")), ..guest("other", 64) };
            b.guests.push(other);
            b.committed += Bytes::mib(64);
        }),
        ("name", |a, b| {
            let twin = guest(cheap(a).id.as_str(), 64);
            b.guests.push(twin);
            b.committed += Bytes::mib(64);
        }),
    ];
    for (why, change) in cases {
        assert_eq!(moves(short(change)), ["dear>b"], "{why}");
    }
    let resting = short(|a, _| {
        cheap(a).last_move = Some(lately);
        cheap(a).moves_in_24h = 1;
    });
    assert_eq!(moves(resting), ["dear>b"]);
}

#[test]
fn guests_go_only_to_hosts_that_can_run_them() {
    type Change = fn(&mut HostRecord, &mut HostRecord);
    let cases: [(&str, Change); 7] = [
        ("hypervisor", |_, b| b.compatibility.hypervisor = label("xen")),
        ("version", |_, b| b.compatibility.version = HypervisorVersion([7, 1, 9])),
        ("processor", |_, b| b.compatibility.cpu_model = label("x86-64-v2")),
        ("drained", |_, b| b.is_draining = true),
        ("stale", |_, b| b.seen_at = ballast_model::Timestamp::ZERO),
        ("future", |_, b| b.seen_at = NOW + Duration::from_millis(1)),
        ("full", |_, b| b.free = Bytes::gib(1)),
    ];
    for (why, change) in cases {
        assert_eq!(moves(short(change)), [""; 0], "{why}");
    }
}

#[test]
fn need_that_nothing_meets_says_why() {
    let plan = plan_of(short(|a, b| {
        cheap(a).pinned_by = Some(PinnedBy::Device);
        a.guests[2].last_move = Some(LastMove { at: NOW, took: Duration::ZERO });
        a.guests[2].moves_in_24h = 1;
        b.budget = Bytes::mib(512);
    }));
    assert_eq!(plan.migrations, []);
    let said: Vec<String> = plan.unmet.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "a stays 1GiB short of floors: 1 guest must stay: a device or encryption keeps it on its \
          host, 1 guest without a compatible host that has room, 1 guest moved lately: at rest \
          until 87300.000s"
        ]
    );
}

#[test]
fn guest_whose_copy_fills_too_much_stays_for_another() {
    // `a` has 5 GiB free, and keeps 1 GiB.
    let fills = |mib: u64| {
        short(move |a, _| cheap(a).copied_resident = cheap(a).resident + Bytes::mib(mib))
    };
    assert_eq!(moves(fills(4096)), ["cheap>b"]);
    assert_eq!(moves(fills(4097)), ["dear>b"]);
    let text = plan_of(fills(100)).migrations[0].to_string();
    assert!(text.ends_with("; a has 100MiB less meanwhile, which the copy fills"), "{text}");
    let mut hosts = fills(100);
    hosts[0].guests.retain(|it| it.id.as_str() == "cheap");
    hosts[0].is_draining = true;
    hosts[0].free = hosts[0].reserve;
    let plan = plan_of(hosts);
    assert_eq!(
        plan.unmet[0].to_string(),
        "a keeps 1 guest to be drained: 1 guest whose copy fills more memory here than is free"
    );
}

#[test]
fn copies_at_once_find_room_for_all_that_they_fill() {
    let filling = |name: &str| {
        let guest = guest(name, 1024);
        GuestRecord { copied_resident: guest.resident + Bytes::mib(600), ..guest }
    };
    let mut a = host("a", 4096, vec![filling("x"), filling("y")]);
    a.is_draining = true;
    a.free = a.reserve + Bytes::mib(1199);
    let drained = |a: &HostRecord| moves(vec![a.clone(), host("b", 4096, vec![])]);
    assert_eq!(drained(&a), ["x>b"]);
    a.free += Bytes::mib(1);
    assert_eq!(drained(&a), ["x>b", "y>b"]);
    a.guests[0].moving_to = Some(host_id("b"));
    a.free = a.reserve + Bytes::mib(1199);
    assert_eq!(drained(&a), [""; 0], "the copy of x is under way");
}

#[test]
fn guest_is_shrunk_to_working_set_before_the_copy() {
    let large =
        GuestRecord { floor: Bytes::mib(256), demand: Bytes::mib(700), ..guest("large", 3000) };
    let rigid = GuestRecord { pinned_by: Some(PinnedBy::Device), ..guest("rigid", 1900) };
    let a = host("a", 2048, vec![large.clone(), rigid]);
    let plan = plan_of(vec![a, host("b", 2048, vec![])]);
    assert_eq!(plan.migrations[0].shrink_to, Some(Bytes::mib(700)));
    assert_eq!(plan.migrations[0].bytes, Bytes::mib(700));
    assert_eq!(plan.migrations[0].reserve, Bytes::mib(700));

    let stuck = GuestRecord { can_shrink: false, ..large };
    let a = host("a", 2048, vec![stuck]);
    let plan = plan_of(vec![a, host("b", 4096, vec![])]);
    assert_eq!(plan.migrations[0].shrink_to, None);
    assert_eq!(plan.migrations[0].bytes, Bytes::mib(3000));
}

#[test]
fn destination_does_not_count_on_what_leaves_it() {
    // Each host could take the other's guest, but only after its own is gone.
    let full = |name: &str, guest_name: &str| {
        let mut host = host(name, 1024, vec![guest(guest_name, 1024)]);
        host.is_draining = name == "a";
        host
    };
    let plan = plan_of(vec![full("a", "x"), full("b", "y")]);
    assert_eq!(plan.migrations, []);
    assert_eq!(plan.unmet[0].kind, UnmetKind::Drain(1));
}

#[test]
fn drain_moves_everybody_who_can_go_even_at_rest() {
    let mut a = host("a", 4096, vec![guest("x", 512), guest("y", 512), guest("z", 512)]);
    a.is_draining = true;
    a.guests[0].last_move = Some(LastMove { at: NOW, took: Duration::ZERO });
    a.guests[0].moves_in_24h = 9;
    a.guests[1].pinned_by = Some(PinnedBy::Operator);
    let plan = plan_of(vec![a, host("b", 4096, vec![])]);
    let moved: Vec<&str> = plan.migrations.iter().map(|it| it.guest.as_str()).collect();
    assert_eq!(moved, ["x", "z"]);
    assert_eq!(
        plan.unmet[0].to_string(),
        "a keeps 1 guest to be drained: 1 guest must stay: its operator says so"
    );
}

#[test]
fn migrations_under_way_count_against_the_limit() {
    let guests = (0..8).map(|at| guest(&format!("g{at}"), 512)).collect();
    let mut a = host("a", 8192, guests);
    a.is_draining = true;
    a.guests[0].moving_to = Some(host_id("b"));
    let mut b = host("b", 8192, vec![]);
    let size = Bytes::mib(512);
    let (guest, resident, group) = (guest_id("g0"), size, None);
    b.reservations.push(ReservationRecord { guest, size, resident, group });
    b.committed = size;
    let plan = plan_of(vec![a, b]);
    assert_eq!((plan.migrations.len(), plan.waiting.len()), (3, 4));
}

#[test]
fn objective_is_a_reason_to_move() {
    let points = [(128, 900), (1024, 100), (2048, 0)];
    let curve = CompactCurve::new(points.map(|(mib, it)| (Bytes::mib(mib), it)).to_vec()).unwrap();
    let served =
        GuestRecord { curve: Some(curve), misses_per_s_max: Some(50), ..guest("served", 1024) };
    let a = host("a", 2560, vec![served, guest("other", 1024)]);
    let plan = plan_of(vec![a, host("b", 1536, vec![])]);
    assert_eq!(plan.migrations[0].guest.as_str(), "other");
    assert_eq!(plan.migrations[0].reason, MigrationReason::Objectives(Bytes::mib(512)));
}

/// A guest with `misses` misses a second at its floor of 512 MiB, and none at 1,024 MiB.
fn squeezed(name: &str, misses: u64) -> GuestRecord {
    let points = vec![(Bytes::mib(512), misses), (Bytes::mib(1024), 0)];
    let curve = Some(CompactCurve::new(points).unwrap());
    GuestRecord { curve, demand: Bytes::mib(1024), ..guest(name, 512) }
}

#[test]
fn move_for_misses_has_to_save_more_than_it_costs() {
    // 512 MiB are 131,072 pages. At four misses for each within an hour, a move has to save 146
    // misses a second. With the move the guest that stays misses nothing either.
    for (misses, moved) in [(72, 0), (73, 1)] {
        let a = host("a", 1024, vec![squeezed("x", misses), squeezed("y", misses)]);
        let plan = plan_of(vec![a, host("b", 1024, vec![])]);
        assert_eq!(plan.migrations.len(), moved, "{misses} misses a second");
        if let [migration] = &plan.migrations[..] {
            let asked =
                MigrationReason::Benefit { misses_saved: 2 * misses * 3600, misses_asked: 524_288 };
            assert_eq!(migration.reason, asked);
        }
    }
}

#[test]
fn nobody_gives_way_for_a_benefit() {
    let a = host("a", 1024, vec![squeezed("x", 9000), squeezed("y", 9000)]);
    let wants = GuestRecord { demand: Bytes::mib(1024), ..guest("wants", 512) };
    let b = host("b", 1600, vec![wants]);
    assert_eq!(moves(vec![a, b]), [""; 0]);
}
