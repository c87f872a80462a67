//! Paging: named cases, and a host whose guests are paged for a while.

use std::time::Duration;

use ballast_mechanism::reclaim::{
    NoPaging, Paged, PagingGuest, PagingInput, PagingPlan, PagingSettings, plan_paging,
};
use ballast_model::{
    Bytes, Compliance, Generation, GuestSample, HostSample, LinkState, Measured, Mechanism, Rung,
    Timestamp, Why,
};
use proptest::prelude::*;

/// A guest; sizes are MiB.
#[derive(Clone, Debug)]
struct Guest {
    sample: GuestSample,
    paged: Paged,
    compliance: Compliance,
    asked: u64,
    desired: u64,
    floor: u64,
    grows: bool,
    managed: bool,
}

const SLOW: Compliance = Compliance::Slow { left: Bytes::mib(500), asked: Duration::from_secs(20) };

fn guest(name: &str, holds: u64, resident: u64, asked: u64, compliance: Compliance) -> Guest {
    let sample = GuestSample {
        allocation: Some(Measured::fresh(Bytes::mib(holds))),
        resident: Some(Measured::fresh(Bytes::mib(resident))),
        ..GuestSample::unknown(name.parse().unwrap(), LinkState::Up)
    };
    let mut guest = Guest {
        sample,
        paged: Paged::default(),
        compliance,
        asked,
        desired: asked,
        floor: 128,
        grows: false,
        managed: true,
    };
    guest.paged.observe(&guest.sample, &PagingSettings::default());
    guest
}

fn host(available: u64, swap_free: u64, swap_total: u64) -> HostSample {
    HostSample {
        memory_available: Some(Bytes::mib(available)),
        swap_free: Some(Bytes::mib(swap_free)),
        swap_total: Some(Bytes::mib(swap_total)),
        ..HostSample::default()
    }
}

fn plan_at(now: u64, guests: &[Guest], host: &HostSample, rung: Rung) -> PagingPlan {
    let all: Vec<PagingGuest<'_>> = guests
        .iter()
        .map(|guest| PagingGuest {
            sample: &guest.sample,
            paged: &guest.paged,
            compliance: guest.compliance,
            asked: Some(Bytes::mib(guest.asked)),
            desired: Some(Bytes::mib(guest.desired)),
            floor: Some(Bytes::mib(guest.floor)),
            grows: guest.grows,
            managed: guest.managed,
        })
        .collect();
    let mut richest: Vec<usize> = (0..guests.len()).collect();
    richest.sort_by_key(|&place| {
        let guest = &guests[place];
        std::cmp::Reverse(holds(guest).saturating_sub(guest.desired))
    });
    plan_paging(&PagingInput {
        now: Timestamp::from_millis(now),
        generation: Generation(3),
        deadline: Timestamp::from_millis(now + 2_000),
        host,
        rung,
        guests: &all,
        richest: &richest,
        settings: &PagingSettings::default(),
    })
}

fn holds(guest: &Guest) -> u64 {
    guest.sample.allocation.map_or(0, |allocation| allocation.value.get() >> 20)
}

fn resident(guest: &Guest) -> u64 {
    guest.sample.resident.map_or(0, |resident| resident.value.get() >> 20)
}

/// Orders in short: name, mechanism, resident MiB from and to.
fn told(plan: &PagingPlan) -> Vec<(String, Mechanism, u64, u64)> {
    let short = |bytes: Bytes| bytes.get() >> 20;
    plan.orders
        .iter()
        .map(|(paging, it)| {
            assert_eq!((paging.mechanism, paging.resident), (it.mechanism, it.to));
            (paging.guest.to_string(), it.mechanism, short(it.from), short(it.to))
        })
        .collect()
}

#[test]
fn who_is_paged_out_at_which_rung() {
    let releasing = Compliance::Releasing { left: Bytes::mib(500), idle: Duration::ZERO };
    let early = Compliance::Slow { left: Bytes::mib(500), asked: Duration::from_secs(9) };
    let stuck = Compliance::Stuck { idle: Duration::from_secs(15) };
    // Compliance; the lowest rung at which the guest is paged out.
    for (compliance, lowest) in [
        (SLOW, Rung::Normal),
        (stuck, Rung::Normal),
        (early, Rung::ReclaimOwed),
        (releasing, Rung::ReclaimOwed),
        (Compliance::Compliant, Rung::ReclaimRichest),
    ] {
        for rung in Rung::ALL {
            let guests = [guest("a", 1000, 1000, 700, compliance)];
            let plan = plan_at(60_000, &guests, &host(4096, 4096, 4096), rung);
            let out = told(&plan) == [("a".to_owned(), Mechanism::PageOut, 1000, 732)];
            assert_eq!(out, rung >= lowest, "{compliance:?} {rung:?}: {plan:?}");
        }
    }
    let guests = [guest("a", 1000, 1000, 700, Compliance::Inhibited)];
    let plan = plan_at(60_000, &guests, &host(4096, 4096, 4096), Rung::Freeze);
    assert_eq!(plan, PagingPlan::default(), "locked pages stay");
}

#[test]
fn never_below_the_floor_and_never_the_hypervisors_own_memory() {
    // Holds, resident, asked, floor; resident after.
    for (holds, resident, asked, floor, after) in [
        (400, 400, 100, 128, Some(160)),
        (400, 460, 300, 128, Some(360)),
        (400, 900, 300, 128, Some(428)),
        (400, 330, 300, 128, None),
        (400, 339, 300, 128, None),
        (400, 340, 300, 128, Some(332)),
    ] {
        let mut one = guest("a", holds, resident, asked, SLOW);
        one.floor = floor;
        let plan = plan_at(60_000, &[one], &host(4096, 4096, 4096), Rung::Normal);
        let found = told(&plan).first().map(|order| order.3);
        let after = after.map(|after: u64| after.max(resident.saturating_sub(512)));
        assert_eq!(found, after, "holds {holds}, resident {resident}, asked {asked}");
    }
}

#[test]
fn without_swap_it_says_so() {
    let guests = [guest("a", 1000, 1000, 500, SLOW)];
    let full = NoPaging::SwapFull { free: Bytes::mib(256), total: Bytes::gib(1) };
    for (host, refused) in [
        (HostSample::default(), Some(NoPaging::SwapUnknown)),
        (host(4096, 0, 0), Some(NoPaging::NoSwap)),
        (host(4096, 256, 1024), Some(full)),
        (host(4096, 270, 1024), None),
    ] {
        let plan = plan_at(60_000, &guests, &host, Rung::Normal);
        assert_eq!((plan.orders.is_empty(), plan.refused), (refused.is_some(), refused));
        assert!(plan.orders.iter().all(|(_, it)| it.from - it.to == Bytes::mib(14)));
        let compliant = [guest("a", 1000, 1000, 500, Compliance::Compliant)];
        assert_eq!(plan_at(60_000, &compliant, &host, Rung::Normal).refused, None);
    }
}

#[test]
fn those_who_owe_most_come_first_then_the_richest() {
    let mut rich = guest("r", 900, 900, 900, Compliance::Compliant);
    rich.desired = 300;
    let mut richer = guest("s", 900, 900, 900, Compliance::Compliant);
    richer.desired = 200;
    let guests = [guest("a", 500, 500, 400, SLOW), guest("b", 500, 500, 300, SLOW), rich, richer];
    let plan = plan_at(60_000, &guests, &host(100, 4096, 4096), Rung::ReclaimRichest);
    let out = |name: &str, from, to| (name.to_owned(), Mechanism::PageOut, from, to);
    assert_eq!(told(&plan), [out("b", 500, 332), out("a", 500, 432), out("s", 900, 624)]);
    assert_eq!(plan.orders[2].1.why, Why::HostShort { rung: Rung::ReclaimRichest });
}

#[test]
fn a_guest_that_grows_gets_back_what_was_taken() {
    let mut one = guest("a", 1000, 1000, 500, SLOW);
    let out = plan_at(60_000, &[one.clone()], &host(4096, 4096, 4096), Rung::Normal);
    one.paged.ordered(&out.orders[0].0, out.orders[0].1.from, Timestamp::from_millis(60_000));
    one.sample.resident = Some(Measured::fresh(Bytes::mib(532)));
    one.paged.observe(&one.sample, &PagingSettings::default());
    assert_eq!(one.paged.out(Bytes::mib(532)), Bytes::mib(468));
    one.compliance = Compliance::Compliant;
    let at = |one: &Guest, now, available, rung| {
        told(&plan_at(now, std::slice::from_ref(one), &host(available, 4096, 4096), rung))
    };
    assert_eq!(at(&one, 61_000, 4096, Rung::Normal), [], "only one that grows");
    (one.grows, one.asked) = (true, 800);
    let back = |to| vec![("a".to_owned(), Mechanism::PageIn, 532, to)];
    assert_eq!(at(&one, 61_000, 4096, Rung::Normal), back(832));
    assert_eq!(
        at(&one, 61_000, 612, Rung::BalloonOnly),
        back(632),
        "free memory is not waited for"
    );
    assert_eq!(at(&one, 61_000, 512, Rung::Normal), []);
    assert_eq!(at(&one, 61_000, 4096, Rung::ReclaimRichest), []);
    one.asked = 2000;
    assert_eq!(at(&one, 61_000, 4096, Rung::Normal), back(1000), "no more than was taken");
    let plan = plan_at(61_000, &[one.clone()], &host(4096, 4096, 4096), Rung::Normal);
    one.paged.ordered(&plan.orders[0].0, plan.orders[0].1.from, Timestamp::from_millis(61_000));
    one.sample.resident = Some(Measured::fresh(Bytes::mib(1000)));
    (one.grows, one.asked, one.compliance) = (false, 500, SLOW);
    assert_eq!(at(&one, 62_000, 4096, Rung::Normal), [], "not out again so soon");
    assert_eq!(at(&one, 92_000, 4096, Rung::Normal).len(), 1);
    assert_eq!(at(&one, 62_000, 4096, Rung::ReclaimOwed).len(), 1);
}

fn any_guest() -> impl Strategy<Value = Guest> {
    (
        (64..2000u64, 64..2300u64, 64..2000u64, 64..2000u64, 64..500u64),
        0..6u8,
        any::<[bool; 2]>(),
        0..60u64,
    )
        .prop_map(|((holds, resident, asked, desired, floor), how, [grows, managed], secs)| {
            let time = Duration::from_secs(secs);
            let left = Bytes::mib(holds.saturating_sub(asked));
            let compliance = match how {
                0 => Compliance::Compliant,
                1 => Compliance::Releasing { left, idle: time },
                2 => Compliance::Inhibited,
                3 => Compliance::Stuck { idle: time },
                _ => Compliance::Slow { left, asked: time },
            };
            let mut guest = guest("g", holds, resident, asked, compliance);
            (guest.desired, guest.floor, guest.grows, guest.managed) =
                (desired, floor, grows, managed || secs % 4 > 0);
            guest
        })
}

proptest! {
    /// Over a while on one host: bounds of amounts and swap, floors, each guest once, nobody out and in.
    #[test]
    fn plans_keep_their_bounds(
        mut guests in prop::collection::vec(any_guest(), 0..8),
        swap_total in 0..4096u64,
        used in 0..100u64,
        ticks in prop::collection::vec((0..5usize, 0..2048u64, 0..100u64, any::<u8>()), 1..30),
    ) {
        for (place, guest) in guests.iter_mut().enumerate() {
            guest.sample.id = format!("g{place}").parse().unwrap();
        }
        let mut used = swap_total * used / 100;
        for (tick, (rung, available, share, flip)) in ticks.into_iter().enumerate() {
            let (now, rung) = (60_000 + tick as u64 * 1000, Rung::ALL[rung]);
            let before = used;
            let host = host(available, swap_total - used, swap_total);
            let plan = plan_at(now, &guests, &host, rung);
            let (mut out, mut back) = (Bytes::ZERO, Bytes::ZERO);
            let mut seen = Vec::new();
            for ((paging, it), (name, mechanism, from, to)) in plan.orders.iter().zip(told(&plan)) {
                let guest = guests.iter_mut().find(|guest| guest.sample.id == paging.guest).unwrap();
                prop_assert!(!seen.contains(&name) && guest.managed);
                seen.push(name);
                prop_assert_eq!(from, resident(guest));
                if mechanism == Mechanism::PageOut {
                    prop_assert!(!guest.grows && guest.compliance != Compliance::Inhibited);
                    prop_assert!(to >= guest.floor + 32, "{to}");
                    let least = if rung >= Rung::ReclaimRichest { guest.desired.min(guest.asked) } else { guest.asked };
                    prop_assert!(to >= least + 32);
                    out += it.from - it.to;
                    used += (from - to) * share / 100;
                } else {
                    prop_assert!(guest.grows && rung < Rung::ReclaimRichest);
                    prop_assert!(to <= guest.asked + 128);
                    prop_assert!(it.to - it.from <= guest.paged.out(it.from));
                    back += it.to - it.from;
                    used = used.saturating_sub((to - from) * share / 100);
                }
                // The mechanism gets as far as it gets.
                let reached = from + to * share / 100 - from * share / 100;
                guest.paged.ordered(paging, it.from, Timestamp::from_millis(now));
                guest.sample.resident = Some(Measured::fresh(Bytes::mib(reached)));
                guest.paged.observe(&guest.sample, &PagingSettings::default());
            }
            let in_max = Bytes::mib(512.min(available.saturating_sub(512)));
            prop_assert!(out <= Bytes::mib(512) && back <= in_max);
            let swap_max = Bytes::mib(swap_total).fraction(3, 4);
            prop_assert!(out == Bytes::ZERO || Bytes::mib(before) + out <= swap_max);
            prop_assert!(plan.refused.is_none() || out == Bytes::ZERO);
            if let Some(guest) = guests.get_mut(usize::from(flip) % 8) {
                guest.grows = flip % 3 == 0;
            }
        }
    }

    /// Nothing changes: after a while there is nothing left to do.
    #[test]
    fn a_constant_wish_is_fulfilled_once(guests in prop::collection::vec(any_guest(), 1..8), rung in 0..5usize) {
        let mut guests = guests;
        for (place, guest) in guests.iter_mut().enumerate() {
            guest.sample.id = format!("g{place}").parse().unwrap();
        }
        let host = host(1 << 20, 1 << 20, 1 << 20);
        for tick in 0..200 {
            let now = 60_000 + tick * 1000;
            let plan = plan_at(now, &guests, &host, Rung::ALL[rung]);
            prop_assert!(tick < 100 || plan.orders.is_empty(), "{plan:?}");
            for (paging, it) in &plan.orders {
                let guest = guests.iter_mut().find(|guest| guest.sample.id == paging.guest).unwrap();
                guest.paged.ordered(paging, it.from, Timestamp::from_millis(now));
                guest.sample.resident = Some(Measured::fresh(paging.resident));
                guest.paged.observe(&guest.sample, &PagingSettings::default());
            }
        }
    }
}
