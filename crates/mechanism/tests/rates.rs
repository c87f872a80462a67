//! Rates and the choice of a mechanism.

use std::time::Duration;

use ballast_mechanism::rates::{Rates, Reduction, choose};
use ballast_model::{
    Bytes, Capabilities, Compliance, GuestSample, Hotplug, HotplugKind, LinkState, Measured,
    Mechanism, Move, Rung, Timestamp, Why,
};
use proptest::prelude::*;

fn guest(holds: u64, plugged: u64, resident: u64) -> GuestSample {
    GuestSample {
        allocation: Some(Measured::fresh(Bytes::mib(holds))),
        resident: Some(Measured::fresh(Bytes::mib(resident))),
        hotplug: Some(Hotplug {
            kind: HotplugKind::VirtioMem,
            plugged: Bytes::mib(plugged),
            requested: Bytes::mib(plugged),
            max: Bytes::gib(8),
            block: Bytes::mib(2),
        }),
        ..GuestSample::unknown("g".parse().unwrap(), LinkState::Up)
    }
}

fn order(mechanism: Mechanism, from: u64, to: u64) -> Move {
    Move { mechanism, from: Bytes::mib(from), to: Bytes::mib(to), why: Why::BalloonTakesIt }
}

#[test]
fn a_rate_is_what_was_moved_while_it_should_move() {
    let mut rates = Rates::default();
    let balloon = [order(Mechanism::Balloon, 1000, 200)];
    let measured =
        |rates: &Rates, mechanism| rates.measured(mechanism).map(|rate| rate.get() >> 20);
    for (ms, holds, orders, rate) in [
        (0, 1000, &balloon[..], None),
        (1000, 900, &balloon, Some(100)),
        (2000, 700, &balloon, Some(125)),
        (2500, 600, &balloon, Some(143)),
        (3500, 600, &balloon, Some(107)),
        (4500, 800, &balloon, Some(80)),
        (5500, 200, &balloon, Some(210)),
        // Done: that it moves no further is no slowness.
        (6500, 200, &balloon, Some(210)),
        (7500, 900, &[], Some(210)),
        (8500, 900, &balloon, Some(210)),
        // Too far apart.
        (19_500, 300, &balloon, Some(210)),
        // It got there, with time to spare.
        (20_500, 199, &balloon, Some(210)),
    ] {
        rates.observe(Timestamp::from_millis(ms), &guest(holds, 0, 0), orders);
        assert_eq!(measured(&rates, Mechanism::Balloon), rate, "at {ms} ms");
    }
    let orders = [order(Mechanism::VirtioMem, 0, 512), order(Mechanism::PageOut, 900, 300)];
    rates.observe(Timestamp::from_millis(30_000), &guest(1000, 0, 900), &orders);
    rates.observe(Timestamp::from_millis(31_000), &guest(1256, 256, 700), &orders);
    assert_eq!(measured(&rates, Mechanism::VirtioMem), Some(256));
    assert_eq!(measured(&rates, Mechanism::PageOut), Some(200));
    assert_eq!(measured(&rates, Mechanism::PageIn), None);
}

#[test]
fn time_follows_from_rates() {
    let mut rates = Rates::default();
    let time = |rates: &Rates| rates.time_for(Mechanism::Balloon, Bytes::mib(800));
    assert_eq!(time(&rates), Duration::from_secs(10), "assumed");
    let orders = [order(Mechanism::Balloon, 1000, 0)];
    rates.observe(Timestamp::from_millis(0), &guest(1000, 0, 0), &orders);
    rates.observe(Timestamp::from_millis(1000), &guest(800, 0, 0), &orders);
    assert_eq!(time(&rates), Duration::from_secs(4));
    let mut still = Rates::default();
    still.observe(Timestamp::from_millis(0), &guest(1000, 0, 0), &orders);
    still.observe(Timestamp::from_millis(1000), &guest(1000, 0, 0), &orders);
    assert_eq!(time(&still), Duration::MAX);
    assert_eq!(still.time_for(Mechanism::Balloon, Bytes::ZERO), Duration::ZERO);
}

#[test]
fn each_guest_has_its_mechanism() {
    let slow = Compliance::Slow { left: Bytes::mib(300), asked: Duration::from_secs(40) };
    let stuck = Compliance::Stuck { idle: Duration::from_secs(15) };
    let none = Capabilities { balloon: Some(false), ..Capabilities::default() };
    let locked = Capabilities { discard_inhibited: Some(true), ..Capabilities::default() };
    let any = Capabilities { balloon: Some(true), ..Capabilities::default() };
    let soon = Some(Duration::from_secs(2));
    let not_given =
        |asked| Why::NotGiven { left: Bytes::mib(300), asked: Duration::from_secs(asked) };
    let short = Why::HostShort { rung: Rung::ReclaimOwed };
    let (balloon, out) = (Mechanism::Balloon, Mechanism::PageOut);
    use Compliance::{Compliant, Inhibited};
    // Capabilities, plugged, compliance, rung, within, may page.
    for (can, plugged, compliance, rung, within, may_page, expected) in [
        (any, 0, Compliant, 0, None, true, Some((balloon, Why::BalloonTakesIt))),
        (any, 512, Compliant, 0, None, true, Some((balloon, Why::BalloonTakesIt))),
        (any, 0, slow, 0, None, true, Some((out, not_given(40)))),
        (any, 0, stuck, 0, None, true, Some((out, not_given(15)))),
        (any, 0, stuck, 0, None, false, Some((balloon, Why::BalloonTakesIt))),
        (any, 0, Compliant, 0, soon, true, Some((balloon, Why::BalloonTakesIt))),
        (any, 0, Compliant, 2, soon, true, Some((out, short))),
        (
            any,
            0,
            Compliant,
            2,
            Some(Duration::from_secs(4)),
            true,
            Some((balloon, Why::BalloonTakesIt)),
        ),
        (none, 512, Compliant, 0, None, true, Some((Mechanism::VirtioMem, Why::NoBalloon))),
        (none, 0, Compliant, 0, None, true, Some((out, Why::NoBalloon))),
        (none, 0, Compliant, 0, None, false, None),
        (
            locked,
            512,
            Compliant,
            0,
            None,
            true,
            Some((Mechanism::VirtioMem, Why::BallooningInhibited)),
        ),
        (locked, 0, stuck, 4, soon, true, None),
        (any, 0, Inhibited, 4, soon, true, None),
    ] {
        let mut sample = guest(1000, plugged, 1000);
        sample.capabilities = can;
        let reduction = Reduction {
            sample: &sample,
            compliance,
            amount: Bytes::mib(300),
            rung: Rung::ALL[rung],
            within,
            may_page,
        };
        let chosen = choose(&reduction, &Rates::default());
        assert_eq!(
            chosen, expected,
            "{can:?} {plugged} {compliance:?} {rung} {within:?} {may_page}"
        );
    }
}

proptest! {
    /// Against an average kept in floating point, over a guest that never gets there.
    #[test]
    fn the_average_is_that_of_floating_point(steps in prop::collection::vec((1..3_000u64, 0..200u64), 1..60)) {
        let mut rates = Rates::default();
        let orders = [order(Mechanism::Balloon, 100_000, 0)];
        let (mut now, mut holds) = (0, 100_000u64);
        let mut oracle: Option<f64> = None;
        rates.observe(Timestamp::from_millis(now), &guest(holds, 0, 0), &orders);
        for (ms, moved) in steps {
            (now, holds) = (now + ms, holds - moved);
            rates.observe(Timestamp::from_millis(now), &guest(holds, 0, 0), &orders);
            let rate = (moved << 20) as f64 * 1000.0 / ms as f64;
            oracle = Some(oracle.map_or(rate, |average| average * 0.75 + rate * 0.25));
            let found = rates.measured(Mechanism::Balloon).unwrap().get() as f64;
            prop_assert!((found - oracle.unwrap()).abs() <= 16.0, "{found} {oracle:?}");
        }
    }
}
