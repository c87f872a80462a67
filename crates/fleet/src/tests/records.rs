//! Records from other hosts: a record out of bounds is left out with a reason, and nothing panics.

use ballast_model::Bytes;

use super::fleets::*;
use crate::*;

#[test]
fn each_bound_is_enforced_and_named() {
    type Change = fn(&mut HostRecord);
    let cases: [(&str, Change); 14] = [
        ("budget 2048TiB: expected at most 1024TiB", |it| it.budget = Bytes::gib(2 << 20)),
        ("free 2048TiB", |it| it.free = Bytes::gib(2 << 20)),
        ("bandwidth 0B a second", |it| it.bandwidth_per_s = Bytes::ZERO),
        ("committed 1KiB: expected at least 1.5GiB", |it| it.committed = Bytes::kib(1)),
        ("guest g is listed twice", |it| it.guests.push(guest("g", 1))),
        ("4099 guests: expected at most 4096", |it| {
            it.guests.extend((0..4097).map(|at| guest(&format!("n{at}"), 0)));
        }),
        ("guest g has two reservations", |it| {
            let size = Bytes::ZERO;
            let guest = guest_id("g");
            let one = ReservationRecord { guest, size, resident: size, group: None };
            it.reservations = vec![one.clone(), one];
        }),
        ("reservation of g: size 2048TiB", |it| {
            let (size, resident) = (Bytes::gib(2 << 20), Bytes::ZERO);
            let guest = guest_id("g");
            it.reservations = vec![ReservationRecord { guest, size, resident, group: None }];
        }),
        ("guest g: floor 16777216TiB", |it| it.guests[0].floor = Bytes::MAX),
        ("guest g: moved 3 times, and never last", |it| it.guests[0].moves_in_24h = 3),
        ("guest g: on its way to the host it is on", |it| {
            it.guests[0].moving_to = Some(host_id("a"));
        }),
        ("guest g: 300 storages or networks", |it| {
            it.guests[0].storage = (0..300).map(|at| label(&format!("s{at}"))).collect();
        }),
        ("guest g: miss curve beyond 1024TiB", |it| {
            it.guests[0].curve = Some(CompactCurve::new(vec![(Bytes::MAX, 0)]).unwrap());
        }),
        ("300 storages or networks", |it| {
            it.compatibility.networks = (0..300).map(|at| label(&format!("n{at}"))).collect();
        }),
    ];
    for (fault, change) in cases {
        let mut bad = host("a", 4096, vec![guest("g", 1024), guest("h", 512)]);
        change(&mut bad);
        let (snapshot, refused) = FleetSnapshot::admit(vec![bad, host("b", 64, vec![])]);
        assert_eq!(snapshot.hosts().len(), 1, "{fault}");
        let said = refused[0].to_string();
        assert!(said.starts_with("host a is left out: "), "{said}");
        assert!(said.contains(fault), "{said}: {fault}");
    }
}

#[test]
fn hosts_with_the_same_name_are_left_out() {
    let hosts = vec![host("a", 1, vec![]), host("b", 1, vec![]), host("a", 2, vec![])];
    let (snapshot, refused) = FleetSnapshot::admit(hosts);
    assert_eq!(snapshot.hosts().iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(refused[0].to_string(), "host a is left out: 2 hosts have this name: expected one");
}

#[test]
fn names_and_labels_are_held_to_their_form() {
    for text in ["a", "node-1.example.org", "7", "_x"] {
        assert_eq!(text.parse::<HostId>().unwrap().as_str(), text);
    }
    for text in ["", "-a", ".a", "a b", "ü", &"x".repeat(254)] {
        assert!(text.parse::<HostId>().is_err(), "{text:?}");
    }
    assert_eq!("Intel Xeon (v4)".parse::<Label>().unwrap().as_str(), "Intel Xeon (v4)");
    for text in ["", "a\n", "ü", &"x".repeat(254)] {
        assert!(text.parse::<Label>().is_err(), "{text:?}");
    }
}

#[test]
fn figures_at_their_bounds_overflow_nothing() {
    let most = Bytes::gib(1 << 20);
    let guests: Vec<GuestRecord> = (0..4096)
        .map(|at| GuestRecord {
            floor: most,
            allocation: Bytes::ZERO,
            demand: most,
            resident: most,
            copied_resident: most,
            dirty_per_s: most - Bytes::new(1),
            curve: Some(CompactCurve::new(vec![(Bytes::ZERO, 1 << 32), (most, 0)]).unwrap()),
            misses_per_s_max: Some(u64::MAX),
            moves_in_24h: 8640,
            last_move: Some(LastMove { at: NOW, took: std::time::Duration::MAX }),
            ..guest(&format!("g{at}"), 0)
        })
        .collect();
    let full = |name: &str| HostRecord {
        budget: most,
        reserve: most,
        free: most,
        committed: most,
        bandwidth_per_s: most,
        ..host(name, 1, guests.clone())
    };
    let drained = HostRecord { is_draining: true, ..full("b") };
    let snapshot = fleet(vec![full("a"), drained, host("c", 1, vec![])]);
    let settings = FleetSettings { misses_per_page: u64::MAX, ..all_at_once() };
    let plan = plan(&snapshot, &settings, NOW);
    assert_eq!(check(&snapshot, &settings, &plan, NOW), Ok(()));
    assert_eq!(plan.unmet.len(), 2);
}
