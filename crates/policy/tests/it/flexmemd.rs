//! The event loop of flexmemd with each of its combinations: what must hold whatever happens, and
//! what the paper tells of them.

use std::sync::LazyLock;
use std::time::Duration;

use ballast_model::{Bytes, GuestId, Timestamp};
use ballast_policy::flexmemd::{
    Algorithm, Choice, Combination, Demand, Driver, Lease, Limit, PriceRule, Pricing, Request,
    Settings, Statistics, Tariff, TariffStep, Tenant,
};
use proptest::prelude::*;

const GIB: u64 = Bytes::gib(1).to_pages();
const MIB: u64 = Bytes::mib(1).to_pages();

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn rule(pricing: Pricing) -> PriceRule {
    let step = |from_basis_points, per_kib| TariffStep { from_basis_points, per_kib };
    match pricing {
        Pricing::None => PriceRule::None,
        Pricing::Fixed => PriceRule::Fixed(PriceRule::FIXED_DEFAULT),
        Pricing::Proportional => PriceRule::Proportional(PriceRule::PROPORTIONAL_DEFAULT),
        Pricing::Custom => {
            PriceRule::Custom(Tariff::new(&[step(0, 1), step(2500, 40), step(5000, 90)]).unwrap())
        }
        Pricing::Market => PriceRule::Market,
    }
}

fn driver_with(it: Combination, settings: Settings) -> Driver {
    let choice = Choice {
        frequency: Some(it.frequency),
        price: Some(rule(it.pricing)),
        demand: Some(it.demand),
    };
    Driver::new(it.algorithm, Settings { choice, ..settings }).unwrap()
}

fn driver(it: Combination) -> Driver {
    driver_with(it, Settings::default())
}

fn evaluated(algorithm: Algorithm) -> Driver {
    driver(Combination::evaluated(algorithm))
}

fn name(i: usize) -> &'static GuestId {
    static NAMES: LazyLock<Vec<GuestId>> =
        LazyLock::new(|| (0..100).map(|i| format!("g{i:02}").parse().unwrap()).collect());
    &NAMES[i]
}

/// A guest with 1 GiB guaranteed, of 64 GiB boot memory, that is content with what it has.
fn tenant(i: usize, allocation: u64) -> Tenant<'static> {
    Tenant {
        id: name(i),
        floor: GIB,
        ceiling: 64 * GIB,
        shares: 1000,
        allocation,
        held: allocation,
        statistics: Statistics { free: Some(Bytes::mib(200)), swaps_per_second: Some(0) },
        request: None,
        emergency: false,
    }
}

fn asking(i: usize, pages: i64, number: u64) -> Tenant<'static> {
    Tenant { request: Some(Request { bytes: pages * 4096, number }), ..tenant(i, GIB) }
}

/// A guest that thrashes, whatever it has.
fn greedy(i: usize, allocation: u64) -> Tenant<'static> {
    let statistics = Statistics { free: Some(Bytes::mib(50)), swaps_per_second: Some(5000) };
    Tenant { statistics, ..tenant(i, allocation) }
}

fn rented(leases: &[Lease]) -> Vec<u64> {
    leases.iter().map(|lease| lease.rented).collect()
}

#[test]
fn proportional_divides_once_by_weight() {
    let mut driver = evaluated(Algorithm::Proportional);
    let mut guests = vec![tenant(0, GIB), greedy(1, GIB), tenant(2, GIB)];
    guests[2].floor = 2 * GIB;
    let leases = driver.decide(at(0), 8 * GIB, &guests);
    assert_eq!(rented(&leases), [2 * GIB, 2 * GIB, 4 * GIB]);
    // Demand changes nothing; a guest that goes does.
    guests[0].emergency = true;
    assert_eq!(driver.decide(at(5000), 8 * GIB, &guests), leases);
    assert_eq!(rented(&driver.decide(at(6000), 9 * GIB, &guests[1..])), [3 * GIB, 6 * GIB]);
}

#[test]
fn first_come_first_served() {
    let mut driver = evaluated(Algorithm::Fcfs);
    let idle = [tenant(0, GIB), tenant(1, GIB)];
    driver.decide(at(0), 4 * GIB, &idle);
    // The second asks first, for 3 GiB; the first for 2 GiB a moment later: 1 GiB is left.
    let second = [tenant(0, GIB), asking(1, 3 * GIB as i64, 10)];
    assert_eq!(rented(&driver.decide(at(50), 4 * GIB, &second)), [0, 3 * GIB]);
    let both = [asking(0, 2 * GIB as i64, 20), asking(1, 3 * GIB as i64, 10)];
    let leases = driver.decide(at(100), 4 * GIB, &both);
    assert_eq!(rented(&leases), [GIB, 3 * GIB]);
    assert_eq!((leases[0].limit, leases[1].limit), (Limit::Supply, Limit::Want));
    // The same requests are not answered again; giving back makes room for the next.
    assert_eq!(driver.decide(at(200), 4 * GIB, &both), leases);
    let back = [both[0], asking(1, -(2 * GIB as i64), 300)];
    assert_eq!(rented(&driver.decide(at(300), 4 * GIB, &back)), [GIB, GIB]);
    let again = [asking(0, GIB as i64, 400), back[1]];
    assert_eq!(rented(&driver.decide(at(400), 4 * GIB, &again)), [2 * GIB, GIB]);
}

#[test]
fn fcfs_charges_only_while_demand_exceeds_supply() {
    let mut driver = evaluated(Algorithm::Fcfs);
    let mut guests = [asking(0, 3 * GIB as i64, 1), tenant(1, GIB)];
    driver.decide(at(0), 4 * GIB, &[tenant(0, GIB), tenant(1, GIB)]);
    driver.decide(at(1), 4 * GIB, &guests);
    driver.decide(at(1000), 4 * GIB, &guests);
    let start = 1000 * (1 << 20);
    assert_eq!([driver.ledger().balance(0), driver.ledger().balance(1)], [start, start]);
    // 2 GiB more than there are: from the next period on the first pays for its 3 of 4 GiB,
    // 75 a KiB, more than a quarter of all it has.
    guests[1] = asking(1, 3 * GIB as i64, 1500);
    let leases = driver.decide(at(1500), 4 * GIB, &guests);
    assert_eq!(rented(&leases), [3 * GIB, GIB]);
    driver.decide(at(2000), 4 * GIB, &guests);
    assert_eq!(driver.ledger().escrow(0), 3 * (1 << 20) * 75);
    assert_eq!(driver.ledger().escrow(1), (1 << 20) * 25);
    assert_eq!(driver.ledger().total(), 2 * start);
}

#[test]
fn a_guest_that_cannot_pay_keeps_what_it_can() {
    // At 900 a KiB, 1,000 credits for each KiB of a floor of 1 GiB are 1.11 GiB.
    let choice = Choice { price: Some(PriceRule::Fixed(900)), ..Choice::default() };
    let mut driver =
        Driver::new(Algorithm::Fcfs, Settings { choice, ..Settings::default() }).unwrap();
    let guests = [tenant(0, 4 * GIB), asking(1, 2 * GIB as i64, 0)];
    let leases = driver.decide(at(0), 3 * GIB, &guests);
    let payable = 1000 * (1 << 20) / 900 / 4;
    assert_eq!((leases[0].rented, leases[0].limit), (payable, Limit::Credits));
    // What it gave up was granted, as far as the other can pay for it.
    assert_eq!((leases[1].rented, leases[1].limit), (payable, Limit::Credits));
}

#[test]
fn demand_proportional_takes_from_the_greedy_to_the_tie() {
    let mut driver = evaluated(Algorithm::DemandProportional);
    // 12 GiB to rent; the first came first and has it all.
    driver.decide(at(0), 12 * GIB, &[tenant(0, 13 * GIB), tenant(1, GIB), tenant(2, GIB)]);
    let mut guests = [tenant(0, GIB), asking(1, 3 * GIB as i64, 1), tenant(2, GIB)];
    assert_eq!(rented(&driver.decide(at(1), 12 * GIB, &guests)), [9 * GIB, 3 * GIB, 0]);
    // It asks for 10 GiB more: they tie at 6.
    guests[1] = asking(1, 10 * GIB as i64, 2);
    assert_eq!(rented(&driver.decide(at(2), 12 * GIB, &guests)), [6 * GIB, 6 * GIB, 0]);
    guests[2] = asking(2, 10 * GIB as i64, 3);
    assert_eq!(rented(&driver.decide(at(3), 12 * GIB, &guests)), [4 * GIB; 3]);
    // And one that asks above its part while others have no more than theirs gets nothing.
    guests[0] = asking(0, GIB as i64, 4);
    let leases = driver.decide(at(4), 12 * GIB, &guests);
    assert_eq!((rented(&leases), leases[0].limit), (vec![4 * GIB; 3], Limit::Supply));
}

/// flexmemd §4.6: 4 GiB to rent, guests that would have all of it, credits the same. What each has,
/// second by second.
fn contest(algorithm: Algorithm, guests: usize) -> Vec<Vec<u64>> {
    let mut driver = evaluated(algorithm);
    // With 5 GiB, 4 above its floor, each would be content.
    let tenants: Vec<Tenant<'static>> = (0..guests).map(|i| tenant(i, 5 * GIB)).collect();
    (0..60).map(|second| rented(&driver.decide(at(1000 * second), 4 * GIB, &tenants))).collect()
}

/// The same with guests that thrash with whatever they have and want some more than that, as
/// equation 4 has it, beginning at 3 GiB: what is decided is what they have a second later.
fn contest_step_by_step(algorithm: Algorithm, guests: usize) -> Vec<Vec<u64>> {
    let mut driver = evaluated(algorithm);
    let mut rounds = vec![vec![2 * GIB; guests]];
    for second in 0..60 {
        let has = |i: usize| GIB + rounds[rounds.len() - 1][i];
        let tenants: Vec<Tenant<'static>> = (0..guests).map(|i| greedy(i, has(i))).collect();
        rounds.push(rented(&driver.decide(at(1000 * second), 4 * GIB, &tenants)));
    }
    rounds
}

/// Memory that changed hands from second to second once the first ten are over, in MiB a second.
fn moved(rounds: &[Vec<u64>]) -> u64 {
    let pairs = rounds[10..].windows(2);
    let seconds = pairs.len() as u64;
    let pages: u64 = pairs
        .map(|pair| pair[0].iter().zip(&pair[1]).map(|(a, b)| a.abs_diff(*b)).sum::<u64>() / 2)
        .sum();
    pages / MIB / seconds
}

#[test]
fn the_auction_oscillates_and_round_robin_does_not() {
    for guests in [2, 3] {
        let auction = contest(Algorithm::Auction, guests);
        // Everything changes hands every second, and each is given everything in turn.
        assert_eq!(moved(&auction), 4096, "{guests}");
        for seconds in auction.windows(guests) {
            for i in 0..guests {
                let all: u64 = seconds.iter().map(|rented| rented[i]).sum();
                assert_eq!(all, 4 * GIB, "{guests}");
            }
        }
        // Under round-robin each has its part all the time.
        for rented in contest(Algorithm::RoundRobin, guests) {
            assert!(rented.iter().all(|&it| it.abs_diff(4 * GIB / guests as u64) <= 1));
        }
        // Step by step the auction moves hundreds of MiB every second for ever; round-robin nothing.
        let auction = contest_step_by_step(Algorithm::Auction, guests);
        assert!(moved(&auction) > 500, "{guests}: {}", moved(&auction));
        assert_eq!(moved(&contest_step_by_step(Algorithm::RoundRobin, guests)), 0, "{guests}");
    }
}

#[test]
fn an_emergency_runs_a_periodic_policy_at_once_and_once_a_period() {
    let settings = Settings { period: Duration::from_secs(10), ..Settings::default() };
    let it = Combination::evaluated(Algorithm::RoundRobin);
    let mut driver = driver_with(it, settings);
    let content = [tenant(0, GIB), tenant(1, GIB)];
    driver.decide(at(0), 4 * GIB, &content);
    // It thrashes: nothing happens before the period is over,
    let mut guests = [greedy(0, GIB), tenant(1, GIB)];
    assert_eq!(driver.decide(at(2000), 4 * GIB, &guests)[0].rented, 0);
    // unless it says that it is an emergency.
    guests[0].emergency = true;
    let granted = driver.decide(at(3000), 4 * GIB, &guests)[0].rented;
    assert!(granted > 0);
    // Another one within ten seconds is not heard; after that it is.
    guests[0].allocation = GIB + granted;
    guests[0].held = GIB + granted;
    assert_eq!(driver.decide(at(9000), 4 * GIB, &guests)[0].rented, granted);
    assert!(driver.decide(at(13_000), 4 * GIB, &guests)[0].rented > granted);
}

#[test]
fn an_emergency_gives_back_what_was_paid_for_the_rest() {
    let settings =
        Settings { period: Duration::from_secs(10), tax_basis_points: 0, ..Settings::default() };
    let mut driver = driver_with(Combination::evaluated(Algorithm::Auction), settings);
    let start = 1000 * (1 << 20);
    // Both want more than there is; the first of equal bids has it all, for all it has.
    let mut guests = [greedy(0, 20 * GIB), greedy(1, 20 * GIB)];
    assert_eq!(rented(&driver.decide(at(0), 4 * GIB, &guests)), [4 * GIB, 0]);
    let escrow = driver.ledger().escrow(0);
    assert!(escrow > 0);
    // At 2.5 of 10 s three quarters come back and the rest is halved: now the second bids more.
    guests[1].emergency = true;
    assert_eq!(rented(&driver.decide(at(2500), 4 * GIB, &guests)), [0, 4 * GIB]);
    let back = escrow * 3 / 4;
    let first = start - escrow + back + (escrow - back).div_ceil(2);
    assert!(driver.ledger().balance(0).abs_diff(first) <= 1);
    assert_eq!(driver.ledger().total(), 2 * start);
}

/// Line 7 of Algorithm 1 frozen: as printed, work would be done until the period ends, not then.
#[test]
fn periodic_work_is_due_when_the_period_is_over() {
    let settings = Settings { period: Duration::from_secs(10), ..Settings::default() };
    let mut driver = driver_with(Combination::evaluated(Algorithm::RoundRobin), settings);
    driver.decide(at(0), 4 * GIB, &[tenant(0, GIB), tenant(1, GIB)]);
    let guests = [greedy(0, GIB), tenant(1, GIB)];
    for ms in [1, 5000, 9999] {
        assert_eq!(driver.decide(at(ms), 4 * GIB, &guests)[0].rented, 0, "{ms}");
    }
    assert!(driver.decide(at(10_000), 4 * GIB, &guests)[0].rented > 0);
}

#[test]
fn what_a_ceiling_cuts_off_goes_to_the_others() {
    for algorithm in [Algorithm::DirectAssign, Algorithm::Auction, Algorithm::RoundRobin] {
        let mut guests = [greedy(0, 20 * GIB), greedy(1, 20 * GIB)];
        guests[0].ceiling = 2 * GIB;
        let leases = evaluated(algorithm).decide(at(0), 4 * GIB, &guests);
        assert_eq!((leases[0].rented, leases[0].limit), (GIB, Limit::Ceiling), "{algorithm}");
        assert_eq!(leases[1].rented, 3 * GIB, "{algorithm}");
    }
}

#[test]
fn of_two_guests_alike_the_one_with_more_shares_has_no_less() {
    for it in Combination::all() {
        let mut driver = driver(it);
        let mut sums = [0u64; 2];
        let mut held = [GIB; 2];
        for second in 0..200u64 {
            let now = at(1000 * second);
            let guests: Vec<Tenant<'static>> = [1000, 3000]
                .into_iter()
                .enumerate()
                .map(|(i, shares)| Tenant {
                    shares,
                    request: Some(Request { bytes: 1 << 32, number: second }),
                    ..greedy(i, if it.demand == Demand::Implicit { 20 * GIB } else { held[i] })
                })
                .collect();
            for (i, lease) in driver.decide(now, 4 * GIB, &guests).into_iter().enumerate() {
                held[i] = GIB + lease.rented;
                sums[i] += lease.rented;
            }
        }
        // First come, first served without a price that rises does not look at weight: of requests
        // of the same moment whose guests rent equally much for their weight, the first by name is
        // granted, and who has memory keeps it.
        let blind = it.algorithm == Algorithm::Fcfs;
        assert!(sums[1] >= sums[0] || blind, "{it}: {sums:?}");
    }
}

fn any_tenant() -> impl Strategy<Value = Tenant<'static>> {
    let figures = (0..50_000u64, 0..80_000u64, 1..4000u32, 0..150_000u64);
    let seen = (prop::option::of(0..60_000u64), prop::option::of(0..300u64));
    let wish = (prop::option::of((-60_000i64..60_000, 0..3000u64)), prop::bool::weighted(0.1));
    (figures, seen, wish).prop_map(
        |((floor, room, shares, allocation), (free, swaps), (ask, emergency))| Tenant {
            id: name(0),
            floor,
            ceiling: floor + room,
            shares,
            allocation,
            held: allocation,
            statistics: Statistics { free: free.map(Bytes::pages), swaps_per_second: swaps },
            request: ask.map(|(pages, ms)| Request { bytes: pages * 4096, number: ms }),
            emergency,
        },
    )
}

/// Some of eight guests, and how much there is to rent.
fn any_moment() -> impl Strategy<Value = (u64, u64, Vec<Tenant<'static>>)> {
    let guests = prop::collection::vec((0..8usize, any_tenant()), 0..8);
    (0..2500u64, 0..400_000u64, guests).prop_map(|(passed, rentable, mut guests)| {
        guests.sort_by_key(|(i, _)| *i);
        guests.dedup_by_key(|(i, _)| *i);
        let named = |(i, tenant): (usize, Tenant<'static>)| Tenant { id: name(i), ..tenant };
        (passed, rentable, guests.into_iter().map(named).collect())
    })
}

fn any_combination() -> impl Strategy<Value = Combination> {
    prop::sample::select(Combination::all().collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Never more than there is, never above a ceiling; credits in sum as they were but for starts;
    /// the same moment decided again decides the same and moves no credits.
    #[test]
    fn whatever_happens(
        it in any_combination(), moments in prop::collection::vec(any_moment(), 1..12)
    ) {
        let mut driver = driver(it);
        let mut now = 0;
        for (passed, rentable, guests) in moments {
            now += passed;
            let before = driver.ledger().total();
            let known = now > passed;
            let leases = driver.decide(at(now), rentable, &guests);
            prop_assert_eq!(leases.len(), guests.len());
            prop_assert!(leases.iter().map(|lease| lease.rented).sum::<u64>() <= rentable);
            for (lease, guest) in leases.iter().zip(&guests) {
                prop_assert!(guest.floor + lease.rented <= guest.ceiling);
                prop_assert!(lease.rented <= lease.wanted || it.algorithm == Algorithm::Proportional);
                prop_assert_eq!(lease.limit == Limit::Want, lease.rented >= lease.wanted
                    && it.algorithm != Algorithm::Proportional);
            }
            let starts: u64 = guests.iter().map(|g| g.floor * 4 * u64::from(g.shares)).sum();
            prop_assert!(driver.ledger().total() <= before + starts || !known);
            let mut again = driver.clone();
            prop_assert_eq!(again.decide(at(now), rentable, &guests), leases);
            prop_assert_eq!(again.ledger().total(), driver.ledger().total());
            for place in 0..guests.len() {
                prop_assert_eq!(again.ledger().balance(place), driver.ledger().balance(place));
            }
        }
    }

    /// Once all are known and none comes or goes, the sum of credits never changes.
    #[test]
    fn credits_are_conserved(
        it in any_combination(),
        guests in prop::collection::vec(any_tenant(), 1..8),
        moments in prop::collection::vec((0..2500u64, 0..400_000u64, any::<u8>()), 1..20),
    ) {
        let mut driver = driver(it);
        let mut guests: Vec<Tenant<'static>> =
            guests.into_iter().enumerate().map(|(i, t)| Tenant { id: name(i), ..t }).collect();
        driver.decide(at(0), 1000, &guests);
        let total = driver.ledger().total();
        let mut now = 0;
        for (passed, rentable, seed) in moments {
            now += passed;
            for (i, guest) in guests.iter_mut().enumerate() {
                let bits = usize::from(seed) >> (i % 8);
                guest.emergency = bits & 1 == 1;
                if bits & 2 == 2 {
                    guest.request = Some(Request { bytes: i64::from(seed) << 20, number: now });
                }
            }
            driver.decide(at(now), rentable, &guests);
            prop_assert_eq!(driver.ledger().total(), total);
        }
    }

    /// Statistics call for the same whatever the order of requests; without a queue, names decide
    /// nothing but ties: the same guests in the mirrored order of names get the same, to a page each.
    #[test]
    fn implicit_demand_is_met_whatever_the_names(
        guests in prop::collection::vec(any_tenant(), 1..8), rentable in 0..400_000u64
    ) {
        for it in Combination::all().filter(|it| it.demand == Demand::Implicit) {
            // Distinct credits, so that there are no ties but of rounding.
            let named: Vec<Tenant<'static>> = guests.iter().cloned().enumerate()
                .map(|(i, t)| Tenant { id: name(i), floor: t.floor * 8 + i as u64, ceiling: t.ceiling * 9 + 8, ..t })
                .collect();
            let n = named.len();
            let mut mirrored: Vec<Tenant<'static>> = named.iter().cloned().enumerate()
                .map(|(i, t)| Tenant { id: name(n - 1 - i), ..t })
                .collect();
            mirrored.reverse();
            let leases = driver(it).decide(at(0), rentable, &named);
            let mut other = driver(it).decide(at(0), rentable, &mirrored);
            other.reverse();
            for (a, b) in leases.iter().zip(&other) {
                prop_assert_eq!(a.price, b.price);
                prop_assert!(a.rented.abs_diff(b.rented) <= 1 || it.algorithm != Algorithm::DemandProportional);
            }
            prop_assert_eq!(
                leases.iter().map(|l| l.rented).sum::<u64>(), other.iter().map(|l| l.rented).sum::<u64>()
            );
        }
    }
}
