//! The event loop of flexmemd with each of its combinations: general properties, and behaviour that
//! the paper describes.

use std::sync::LazyLock;
use std::time::Duration;

use ballast_model::{Bytes, GuestId, Timestamp};
use ballast_policy::flexmemd::{
    Algorithm, Combination, CombinationChoice, DemandInput, Driver, FlexmemdSettings, Lease,
    LeaseLimit, PriceRule, Pricing, RentRequest, Tariff, TariffStep, Tenant, TenantStatistics,
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

fn driver_with(it: Combination, settings: FlexmemdSettings) -> Driver {
    let choice = CombinationChoice {
        frequency: Some(it.frequency),
        price: Some(rule(it.pricing)),
        demand: Some(it.demand),
    };
    Driver::new(it.algorithm, FlexmemdSettings { choice, ..settings }).unwrap()
}

fn driver(it: Combination) -> Driver {
    driver_with(it, FlexmemdSettings::default())
}

fn evaluated(algorithm: Algorithm) -> Driver {
    driver(Combination::evaluated(algorithm))
}

fn name(i: usize) -> &'static GuestId {
    static NAMES: LazyLock<Vec<GuestId>> =
        LazyLock::new(|| (0..100).map(|i| format!("g{i:02}").parse().unwrap()).collect());
    &NAMES[i]
}

/// A guest with a floor of 1 GiB and a ceiling of 64 GiB that wants no more than it has.
fn tenant(i: usize, allocation: u64) -> Tenant<'static> {
    Tenant {
        id: name(i),
        floor: GIB,
        ceiling: 64 * GIB,
        shares: 1000,
        allocation,
        held: allocation,
        balloon_rate: None,
        statistics: TenantStatistics { free: Some(Bytes::mib(200)), swaps_per_second: Some(0) },
        request: None,
        emergency: false,
    }
}

fn asking(i: usize, pages: i64, number: u64) -> Tenant<'static> {
    Tenant { request: Some(RentRequest { bytes: pages * 4096, number }), ..tenant(i, GIB) }
}

/// A guest that thrashes, whatever it has.
fn greedy(i: usize, allocation: u64) -> Tenant<'static> {
    let statistics = TenantStatistics { free: Some(Bytes::mib(50)), swaps_per_second: Some(5000) };
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
    // Demand has no effect; the departure of a guest has.
    guests[0].emergency = true;
    assert_eq!(driver.decide(at(5000), 8 * GIB, &guests), leases);
    assert_eq!(rented(&driver.decide(at(6000), 9 * GIB, &guests[1..])), [3 * GIB, 6 * GIB]);
}

#[test]
fn fcfs_serves_requests_in_order_of_arrival() {
    let mut driver = evaluated(Algorithm::Fcfs);
    let idle = [tenant(0, GIB), tenant(1, GIB)];
    driver.decide(at(0), 4 * GIB, &idle);
    // The second requests 3 GiB, then the first 2 GiB: 1 GiB is left for it.
    let second = [tenant(0, GIB), asking(1, 3 * GIB as i64, 10)];
    assert_eq!(rented(&driver.decide(at(50), 4 * GIB, &second)), [0, 3 * GIB]);
    let both = [asking(0, 2 * GIB as i64, 20), asking(1, 3 * GIB as i64, 10)];
    let leases = driver.decide(at(100), 4 * GIB, &both);
    assert_eq!(rented(&leases), [GIB, 3 * GIB]);
    assert_eq!((leases[0].limit, leases[1].limit), (LeaseLimit::Supply, LeaseLimit::Want));
    // The same requests are not answered again. Memory given back is granted to the next request.
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
    assert_eq!([driver.accounts().balance(0), driver.accounts().balance(1)], [start, start]);
    // Requests exceed supply by 2 GiB: from the next period on the first pays 75 a KiB for its 3 of
    // 4 GiB, more than a fifth of its credits.
    guests[1] = asking(1, 3 * GIB as i64, 1500);
    let leases = driver.decide(at(1500), 4 * GIB, &guests);
    assert_eq!(rented(&leases), [3 * GIB, GIB]);
    driver.decide(at(2000), 4 * GIB, &guests);
    assert_eq!(driver.accounts().escrow(0), 3 * (1 << 20) * 75);
    assert_eq!(driver.accounts().escrow(1), (1 << 20) * 25);
    assert_eq!(driver.accounts().total(), 2 * start);
}

#[test]
fn a_guest_keeps_only_what_it_can_pay_for() {
    // At 900 a KiB, 1,000 credits for each KiB of a floor of 1 GiB pay for 1.11 GiB.
    let choice =
        CombinationChoice { price: Some(PriceRule::Fixed(900)), ..CombinationChoice::default() };
    let mut driver =
        Driver::new(Algorithm::Fcfs, FlexmemdSettings { choice, ..FlexmemdSettings::default() })
            .unwrap();
    let guests = [tenant(0, 4 * GIB), asking(1, 2 * GIB as i64, 0)];
    let leases = driver.decide(at(0), 3 * GIB, &guests);
    let payable = 1000 * (1 << 20) / 900 / 4;
    // The rest is granted to the other as far as it can pay; what is left of it stays.
    assert_eq!((leases[1].rented, leases[1].limit), (payable, LeaseLimit::Credits));
    assert_eq!((leases[0].rented, leases[0].limit), (3 * GIB - payable, LeaseLimit::Credits));
    assert_eq!(driver.accounts().escrow(0), payable * 4 * 900);
    // It goes at once to a third guest that can pay.
    let guests = [tenant(0, 4 * GIB), tenant(1, 2 * GIB), asking(2, GIB as i64 / 2, 0)];
    let leases = driver.decide(at(1000), 3 * GIB, &guests);
    assert_eq!((leases[2].rented, leases[2].limit), (GIB / 2, LeaseLimit::Want));
    assert_eq!(rented(&leases).iter().sum::<u64>(), 3 * GIB);
}

#[test]
fn demand_proportional_takes_from_the_highest_until_they_tie() {
    let mut driver = evaluated(Algorithm::DemandProportional);
    // 12 GiB to rent; the first guest has it all.
    driver.decide(at(0), 12 * GIB, &[tenant(0, 13 * GIB), tenant(1, GIB), tenant(2, GIB)]);
    let mut guests = [tenant(0, GIB), asking(1, 3 * GIB as i64, 1), tenant(2, GIB)];
    assert_eq!(rented(&driver.decide(at(1), 12 * GIB, &guests)), [9 * GIB, 3 * GIB, 0]);
    // It requests 10 GiB more: they tie at 6.
    guests[1] = asking(1, 10 * GIB as i64, 2);
    assert_eq!(rented(&driver.decide(at(2), 12 * GIB, &guests)), [6 * GIB, 6 * GIB, 0]);
    guests[2] = asking(2, 10 * GIB as i64, 3);
    assert_eq!(rented(&driver.decide(at(3), 12 * GIB, &guests)), [4 * GIB; 3]);
    // A request above the fair part gets nothing while the others have no more than theirs.
    guests[0] = asking(0, GIB as i64, 4);
    let leases = driver.decide(at(4), 12 * GIB, &guests);
    assert_eq!((rented(&leases), leases[0].limit), (vec![4 * GIB; 3], LeaseLimit::Supply));
}

/// flexmemd §4.6: 4 GiB to rent, all rented by the first of some guests with equal credits that
/// each want all of it. Returns what each rents, second by second, with balloons that move `rate`
/// bytes a second.
fn contest(algorithm: Algorithm, guests: usize, rate: Bytes) -> Vec<Vec<u64>> {
    let mut driver = evaluated(algorithm);
    // Each wants 5 GiB, 4 above its floor; at first only one does.
    let wanting = |wants: usize| -> Vec<Tenant<'static>> {
        let allocation = |i: usize| if i < wants { 5 * GIB } else { GIB };
        (0..guests)
            .map(|i| Tenant { balloon_rate: Some(rate), ..tenant(i, allocation(i)) })
            .collect()
    };
    let alone = rented(&driver.decide(at(0), 4 * GIB, &wanting(1)));
    assert_eq!(alone[0], 4 * GIB);
    let tenants = wanting(guests);
    (1..=600).map(|second| rented(&driver.decide(at(1000 * second), 4 * GIB, &tenants))).collect()
}

/// The same with guests that have equal parts at first and always thrash, so that they want more
/// than they have by equation 4. They hold the decided memory a second later.
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

/// Memory moved between guests after the first ten seconds, in MiB a second.
fn moved(rounds: &[Vec<u64>]) -> u64 {
    let pairs = rounds[10..].windows(2);
    let seconds = pairs.len() as u64;
    let pages: u64 = pairs
        .map(|pair| pair[0].iter().zip(&pair[1]).map(|(a, b)| a.abs_diff(*b)).sum::<u64>() / 2)
        .sum();
    pages / MIB / seconds
}

#[test]
fn the_auction_takes_turns_as_slowly_as_balloons_move() {
    for guests in [2, 3] {
        // With balloons that move all memory in a second it moves every second, and each guest gets
        // everything in turn.
        let auction = contest(Algorithm::Auction, guests, Bytes::gib(4));
        assert_eq!(moved(&auction), 4096, "{guests}");
        for seconds in auction[10..].windows(guests) {
            for i in 0..guests {
                let all: u64 = seconds.iter().map(|rented| rented[i]).sum();
                assert_eq!(all, 4 * GIB, "{guests}");
            }
        }
        // With balloons that need a minute each turn lasts a minute, and each guest has its turns.
        let auction = contest(Algorithm::Auction, guests, Bytes::gib(4).fraction(1, 60));
        let changes = auction.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!((5..=10).contains(&changes), "{guests}: {changes}");
        for i in 0..guests {
            assert!(auction.iter().any(|rented| rented[i] == 4 * GIB), "{guests}: {i}");
        }
        // Under round-robin each always has its part.
        for rented in contest(Algorithm::RoundRobin, guests, Bytes::gib(4)) {
            assert!(rented.iter().all(|&it| it.abs_diff(4 * GIB / guests as u64) <= 1));
        }
    }
}

/// In flexmemd §4.6 the auction shifts memory between such guests forever.
#[test]
fn guests_with_equal_parts_and_bids_keep_them() {
    for guests in [2, 3] {
        for algorithm in [Algorithm::Auction, Algorithm::RoundRobin] {
            assert_eq!(moved(&contest_step_by_step(algorithm, guests)), 0, "{algorithm} {guests}");
        }
    }
}

#[test]
fn memory_given_up_during_a_hold_passes_on_at_once() {
    let mut driver = evaluated(Algorithm::Auction);
    let wants = |pages: [u64; 2]| [tenant(0, GIB + pages[0]), tenant(1, GIB + pages[1])];
    let sale = rented(&driver.decide(at(0), 4 * GIB, &wants([4 * GIB, 3 * GIB])));
    assert_eq!(sale.iter().sum::<u64>(), 4 * GIB);
    let escrow = [driver.accounts().escrow(0), driver.accounts().escrow(1)];
    assert!(escrow[0] > 0 && escrow[1] > 0);
    // Within the 51 s in which 4 GiB move at the default rate the second wants less, and the first
    // gets it for nothing; when the second wants it back, it waits.
    let leases = driver.decide(at(2000), 4 * GIB, &wants([4 * GIB, GIB]));
    assert_eq!(rented(&leases), [3 * GIB, GIB]);
    assert_eq!((leases[0].limit, leases[1].limit), (LeaseLimit::Supply, LeaseLimit::Want));
    assert_eq!([driver.accounts().escrow(0), driver.accounts().escrow(1)], escrow);
    let again = driver.decide(at(3000), 4 * GIB, &wants([4 * GIB, 3 * GIB]));
    assert_eq!(rented(&again), [3 * GIB, GIB]);
}

#[test]
fn an_emergency_runs_a_periodic_policy_once_a_period() {
    let settings =
        FlexmemdSettings { period: Duration::from_secs(10), ..FlexmemdSettings::default() };
    let it = Combination::evaluated(Algorithm::RoundRobin);
    let mut driver = driver_with(it, settings);
    let content = [tenant(0, GIB), tenant(1, GIB)];
    driver.decide(at(0), 4 * GIB, &content);
    // Thrashing alone has no effect before the period ends.
    let mut guests = [greedy(0, GIB), tenant(1, GIB)];
    assert_eq!(driver.decide(at(2000), 4 * GIB, &guests)[0].rented, 0);
    // An emergency is answered at once.
    guests[0].emergency = true;
    let granted = driver.decide(at(3000), 4 * GIB, &guests)[0].rented;
    assert!(granted > 0);
    // Another one is not answered within ten seconds, but after that.
    guests[0].allocation = GIB + granted;
    guests[0].held = GIB + granted;
    assert_eq!(driver.decide(at(9000), 4 * GIB, &guests)[0].rented, granted);
    assert!(driver.decide(at(13_000), 4 * GIB, &guests)[0].rented > granted);
}

#[test]
fn an_emergency_refunds_rent_for_the_rest_of_the_period() {
    let settings = FlexmemdSettings {
        period: Duration::from_secs(10),
        tax_basis_points: 0,
        ..FlexmemdSettings::default()
    };
    let mut driver = driver_with(Combination::evaluated(Algorithm::Auction), settings);
    let start = 1000 * (1 << 20);
    // Balloons move everything within the period. The first wants more than there is, and pays for
    // it.
    let quick = |guest: Tenant<'static>| Tenant { balloon_rate: Some(Bytes::gib(1)), ..guest };
    let calm = [quick(greedy(0, 20 * GIB)), quick(tenant(1, GIB))];
    assert_eq!(rented(&driver.decide(at(0), 4 * GIB, &calm)), [4 * GIB, 0]);
    let escrow = driver.accounts().escrow(0);
    assert!(escrow > 0);
    // At 2.5 of 10 s three quarters are refunded and the rest is halved. The second bids more now,
    // but not by the margin.
    let emergency = Tenant { emergency: true, ..quick(greedy(1, 20 * GIB)) };
    let guests = [calm[0], emergency];
    assert_eq!(rented(&driver.decide(at(2500), 4 * GIB, &guests)), [4 * GIB, 0]);
    let back = escrow * 3 / 4;
    let first = start - escrow + back + (escrow - back).div_ceil(2);
    let accounts = driver.accounts();
    assert!((accounts.balance(0) + accounts.escrow(0)).abs_diff(first) <= 1);
    assert_eq!(driver.accounts().total(), 2 * start);
}

/// As printed, line 7 of Algorithm 1 would run before the period ends, not when it ends.
#[test]
fn periodic_work_is_due_when_the_period_ends() {
    let settings =
        FlexmemdSettings { period: Duration::from_secs(10), ..FlexmemdSettings::default() };
    let mut driver = driver_with(Combination::evaluated(Algorithm::RoundRobin), settings);
    driver.decide(at(0), 4 * GIB, &[tenant(0, GIB), tenant(1, GIB)]);
    let guests = [greedy(0, GIB), tenant(1, GIB)];
    for ms in [1, 5000, 9999] {
        assert_eq!(driver.decide(at(ms), 4 * GIB, &guests)[0].rented, 0, "{ms}");
    }
    assert!(driver.decide(at(10_000), 4 * GIB, &guests)[0].rented > 0);
}

#[test]
fn memory_above_a_ceiling_goes_to_the_others() {
    for algorithm in [Algorithm::DirectAssign, Algorithm::Auction, Algorithm::RoundRobin] {
        let mut guests = [greedy(0, 20 * GIB), greedy(1, 20 * GIB)];
        guests[0].ceiling = 2 * GIB;
        let leases = evaluated(algorithm).decide(at(0), 4 * GIB, &guests);
        assert_eq!((leases[0].rented, leases[0].limit), (GIB, LeaseLimit::Ceiling), "{algorithm}");
        assert_eq!(leases[1].rented, 3 * GIB, "{algorithm}");
    }
}

#[test]
fn of_two_equal_guests_more_shares_never_rent_less() {
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
                    request: Some(RentRequest { bytes: 1 << 32, number: second }),
                    ..greedy(i, if it.demand == DemandInput::Implicit { 20 * GIB } else { held[i] })
                })
                .collect();
            for (i, lease) in driver.decide(now, 4 * GIB, &guests).into_iter().enumerate() {
                held[i] = GIB + lease.rented;
                sums[i] += lease.rented;
            }
        }
        // Without a rising price, fcfs ignores weight: of simultaneous requests of guests that rent
        // equally much for their weight it grants the first by name, and guests keep what they
        // have.
        let ignores_weight = it.algorithm == Algorithm::Fcfs;
        assert!(sums[1] >= sums[0] || ignores_weight, "{it}: {sums:?}");
    }
}

fn any_tenant() -> impl Strategy<Value = Tenant<'static>> {
    let figures = (0..50_000u64, 0..80_000u64, 1..4000u32, 0..150_000u64);
    let balloon = (0..150_000u64, prop::option::of(0..1000u64));
    let seen = (prop::option::of(0..60_000u64), prop::option::of(0..300u64));
    let wish = (prop::option::of((-60_000i64..60_000, 0..3000u64)), prop::bool::weighted(0.1));
    (figures, balloon, seen, wish).prop_map(
        |((floor, room, shares, allocation), (held, rate), (free, swaps), (ask, emergency))| {
            Tenant {
                id: name(0),
                floor,
                ceiling: floor + room,
                shares,
                allocation,
                held,
                balloon_rate: rate.map(Bytes::mib),
                statistics: TenantStatistics {
                    free: free.map(Bytes::pages),
                    swaps_per_second: swaps,
                },
                request: ask.map(|(pages, ms)| RentRequest { bytes: pages * 4096, number: ms }),
                emergency,
            }
        },
    )
}

/// Time passed, rentable memory, and some of eight guests.
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

    /// Constant demand: what a sale moves has arrived before the next one. So a guest is turned
    /// round at most once in the longest time that its balloon, or another one, needs for
    /// everything that it rents.
    #[test]
    fn the_auction_turns_no_guest_before_balloons_are_done(
        guests in prop::collection::vec((1..40u64, 1..40u64, 1..200u64, 1..4000u32), 2..6),
        quarters in 1..40u64,
    ) {
        let mut driver = evaluated(Algorithm::Auction);
        let rentable = quarters * GIB / 4;
        let tenants = |first: bool| -> Vec<Tenant<'static>> {
            let one = |(i, &(begins, wants, rate, shares)): (usize, &(u64, u64, u64, u32))| Tenant {
                shares,
                balloon_rate: Some(Bytes::mib(rate)),
                ..tenant(i, GIB + if first { begins } else { wants } * GIB / 4)
            };
            guests.iter().enumerate().map(one).collect()
        };
        let mut before = rented(&driver.decide(at(0), rentable, &tenants(true)));
        let tenants = tenants(false);
        let seconds = |pages: u64, rate: u64| pages / MIB / rate;
        // The hold of the first sale is over by then, whatever it sold.
        let (mut since, mut held_for) = (0, 0);
        let mut turned = vec![(0u64, None); guests.len()];
        let mut shortest = u64::MAX;
        for now in 1000..2800 {
            let leases = driver.decide(at(1000 * now), rentable, &tenants);
            let after = rented(&leases);
            if after != before {
                prop_assert!(now - since >= held_for, "{now}: {since} {held_for}");
                let longest = before.iter().zip(&after).zip(&guests);
                held_for = longest
                    .map(|((before, after), guest)| seconds(*before.max(after), guest.2).min(300))
                    .max()
                    .unwrap_or(0);
                // Free memory binds no guest.
                if leases[0].price.is_free() {
                    held_for = 0;
                }
                shortest = shortest.min(held_for.max(1));
                since = now;
                for (index, (turns, grew)) in turned.iter_mut().enumerate() {
                    if before[index] != after[index] {
                        let grows = after[index] > before[index];
                        *turns += u64::from(grew.is_some_and(|grew| grew != grows));
                        *grew = Some(grows);
                    }
                }
            }
            before = after;
        }
        for (turns, _) in turned {
            prop_assert!(turns <= 1 + 1800 / shortest, "{turns} {shortest}");
        }
    }

    /// Guests that request the same amount more each second, whatever they have, or nothing.
    #[test]
    fn the_same_requests_each_second_come_to_rest(
        asks in prop::collection::vec(prop_oneof![Just(0), 20..200u64], 2..6),
        starts in prop::collection::vec(0..1000u64, 6),
        rentable in 100..4000u64,
    ) {
        let mut driver = evaluated(Algorithm::Fcfs);
        let decide = |driver: &mut Driver, second: u64| {
            let one = |(i, &more): (usize, &u64)| match more {
                0 => tenant(i, GIB + starts[i] * MIB),
                _ => Tenant {
                    allocation: GIB + starts[i] * MIB,
                    ..asking(i, (more * MIB) as i64, second)
                },
            };
            let tenants: Vec<Tenant<'static>> = asks.iter().enumerate().map(one).collect();
            rented(&driver.decide(at(1000 * second), rentable * MIB, &tenants))
        };
        let mut settled = Vec::new();
        for second in 0..900 {
            let rents = decide(&mut driver, second);
            if second == 600 {
                settled = rents.clone();
            }
            prop_assert!(second < 600 || rents == settled, "{}: {:?} {:?}", second, rents, settled);
        }
    }

    /// Because prices are whole, all guests can pay for somewhat more than there is.
    #[test]
    fn equal_wants_come_to_rest_at_whole_prices(
        wants in 500..2000u64,
        starts in prop::collection::vec(0..500u64, 2..5),
        rentable in 200..1000u64,
    ) {
        let mut driver = evaluated(Algorithm::DirectAssign);
        let mut has = starts;
        let mut late = 0;
        for second in 0..900 {
            // The first decision rents what guests hold.
            let want = |has: u64| if second == 0 { has } else { wants };
            let tenants: Vec<Tenant<'static>> =
                has.iter().enumerate().map(|(i, &has)| tenant(i, GIB + want(has) * MIB)).collect();
            let rents = rented(&driver.decide(at(1000 * second), rentable * MIB, &tenants));
            let now: Vec<u64> = rents.iter().map(|rented| rented / MIB).collect();
            late += if second > 600 { has.iter().zip(&now).map(|(a, b)| a.abs_diff(*b)).sum() } else { 0 };
            has = now;
        }
        prop_assert!(late <= rentable / 10, "{} of {}", late, rentable);
    }

    /// Leases fit supply and ceilings, credits only grow by those of new guests, and deciding again
    /// at the same time changes nothing.
    #[test]
    fn supply_ceilings_and_credits_are_respected(
        it in any_combination(), moments in prop::collection::vec(any_moment(), 1..12)
    ) {
        let mut driver = driver(it);
        let mut now = 0;
        for (passed, rentable, guests) in moments {
            now += passed;
            let before = driver.accounts().total();
            let known = now > passed;
            let leases = driver.decide(at(now), rentable, &guests);
            prop_assert_eq!(leases.len(), guests.len());
            prop_assert!(leases.iter().map(|lease| lease.rented).sum::<u64>() <= rentable);
            for (lease, guest) in leases.iter().zip(&guests) {
                prop_assert!(guest.floor + lease.rented <= guest.ceiling);
                let has_wants = it.algorithm != Algorithm::Proportional;
                prop_assert!(lease.rented <= lease.wanted || !has_wants);
                let is_satisfied = has_wants && lease.rented >= lease.wanted;
                prop_assert_eq!(lease.limit == LeaseLimit::Want, is_satisfied);
            }
            let starts: u64 = guests.iter().map(|g| g.floor * 4 * u64::from(g.shares)).sum();
            prop_assert!(driver.accounts().total() <= before + starts || !known);
            let mut again = driver.clone();
            prop_assert_eq!(again.decide(at(now), rentable, &guests), leases);
            prop_assert_eq!(again.accounts().total(), driver.accounts().total());
            for index in 0..guests.len() {
                prop_assert_eq!(again.accounts().balance(index), driver.accounts().balance(index));
            }
        }
    }

    #[test]
    fn credits_are_conserved_while_guests_stay(
        it in any_combination(),
        guests in prop::collection::vec(any_tenant(), 1..8),
        moments in prop::collection::vec((0..2500u64, 0..400_000u64, any::<u8>()), 1..20),
    ) {
        let mut driver = driver(it);
        let mut guests: Vec<Tenant<'static>> =
            guests.into_iter().enumerate().map(|(i, t)| Tenant { id: name(i), ..t }).collect();
        driver.decide(at(0), 1000, &guests);
        let total = driver.accounts().total();
        let mut now = 0;
        for (passed, rentable, seed) in moments {
            now += passed;
            for (i, guest) in guests.iter_mut().enumerate() {
                let bits = usize::from(seed) >> (i % 8);
                guest.emergency = bits & 1 == 1;
                if bits & 2 == 2 {
                    guest.request = Some(RentRequest { bytes: i64::from(seed) << 20, number: now });
                }
            }
            driver.decide(at(now), rentable, &guests);
            prop_assert_eq!(driver.accounts().total(), total);
        }
    }

    /// The same guests with their names in reverse order rent the same, to a page each.
    #[test]
    fn names_do_not_affect_rents_from_statistics(
        guests in prop::collection::vec(any_tenant(), 1..8), rentable in 0..400_000u64
    ) {
        for it in Combination::all().filter(|it| it.demand == DemandInput::Implicit) {
            // Distinct credits, so that only rounding leaves ties.
            let named: Vec<Tenant<'static>> = guests.iter().cloned().enumerate()
                .map(|(i, t)| Tenant {
                    id: name(i),
                    floor: t.floor * 8 + i as u64,
                    ceiling: t.ceiling * 9 + 8,
                    ..t
                })
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
                let is_max_min = it.algorithm == Algorithm::DemandProportional;
                prop_assert!(a.rented.abs_diff(b.rented) <= 1 || !is_max_min);
            }
            let total = |leases: &[Lease]| leases.iter().map(|lease| lease.rented).sum::<u64>();
            prop_assert_eq!(total(&leases), total(&other));
        }
    }
}
