//! Rates and the choice of a mechanism.

use std::time::Duration;

use ballast_actuation::rates::{OrdersInForce, Rates, Reduction, choose};
use ballast_model::{
    Bytes, Capabilities, Compliance, GuestSample, Hotplug, HotplugKind, LinkState, Measured,
    Mechanism, MechanismReason, PressureLevel, Timestamp,
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

/// A guest whose process occupies what it holds, and whose sizes are `age_ms` old.
fn aged(holds: u64, age_ms: u64) -> GuestSample {
    let size = Measured { value: Bytes::mib(holds), age: Duration::from_millis(age_ms) };
    GuestSample { allocation: Some(size), resident: Some(size), ..guest(holds, 0, holds) }
}

/// An order to hold `target` MiB.
fn hold(target: u64) -> OrdersInForce {
    OrdersInForce { target: Some(Bytes::mib(target)), cap: None }
}

#[test]
fn a_rate_is_what_was_taken_while_it_should_be() {
    let mut rates = Rates::default();
    let measured =
        |rates: &Rates, mechanism| rates.measured(mechanism).map(|rate| rate.get() >> 20);
    for (ms, holds, in_force, rate) in [
        (0, 1000, hold(200), None),
        (1000, 900, hold(200), Some(100)),
        // Too close.
        (1020, 900, hold(200), Some(100)),
        (2000, 700, hold(200), Some(125)),
        (2500, 600, hold(200), Some(143)),
        (3500, 600, hold(200), Some(107)),
        (4500, 800, hold(200), Some(80)),
        (5500, 200, hold(200), Some(210)),
        // Finished: standing still then is not slowness.
        (6500, 200, hold(200), Some(210)),
        (7500, 900, OrdersInForce::default(), Some(210)),
        (8500, 900, hold(200), Some(210)),
        // Too far apart.
        (19_500, 300, hold(200), Some(210)),
        // It finished with time to spare.
        (20_500, 199, hold(200), Some(210)),
        // Growing is not taking.
        (21_500, 300, hold(800), Some(210)),
        (22_500, 800, hold(800), Some(210)),
    ] {
        rates.observe(Timestamp::from_millis(ms), &guest(holds, 0, 0), in_force);
        assert_eq!(measured(&rates, Mechanism::Balloon), rate, "at {ms} ms");
    }
    let capped = OrdersInForce { target: None, cap: Some(Bytes::mib(300)) };
    rates.observe(Timestamp::from_millis(30_000), &guest(1000, 0, 900), capped);
    rates.observe(Timestamp::from_millis(31_000), &guest(1000, 0, 700), capped);
    assert_eq!(measured(&rates, Mechanism::PageOut), Some(200));
    assert_eq!(measured(&rates, Mechanism::PageIn), None);
}

#[test]
fn a_size_that_is_repeated_or_old_measures_nothing() {
    let in_force = OrdersInForce { target: Some(Bytes::mib(200)), cap: Some(Bytes::mib(200)) };
    let mut rates = Rates::default();
    for (ms, holds, age_ms, rate) in [
        (1000, 1000, 0, None),
        // The same size again.
        (1500, 1000, 500, None),
        (2000, 900, 0, Some(100)),
        // From before the last one.
        (2500, 1000, 1500, Some(100)),
        // 200 MiB within half a second, which is known half a second later.
        (3000, 700, 500, Some(175)),
        // Too old.
        (4000, 300, 7_200_000, Some(175)),
        (5000, 200, 7_200_000, Some(175)),
        (6000, 600, 0, Some(175)),
        (7000, 500, 0, Some(156)),
    ] {
        rates.observe(Timestamp::from_millis(ms), &aged(holds, age_ms), in_force);
        for mechanism in [Mechanism::Balloon, Mechanism::PageOut] {
            let measured = rates.measured(mechanism).map(|rate| rate.get() >> 20);
            assert_eq!(measured, rate, "{mechanism:?} at {ms} ms");
        }
    }
}

#[test]
fn a_small_amount_taken_in_a_moment_is_no_slowness() {
    let mut rates = Rates::default();
    let mut now = 0;
    for (holds, target) in [(1000, 996), (996, 992), (992, 988), (988, 500)] {
        rates.observe(Timestamp::from_millis(now), &guest(holds, 0, 0), hold(target));
        rates.observe(Timestamp::from_millis(now + 1000), &guest(target, 0, 0), hold(target));
        now += 2000;
        let seen = rates.measured(Mechanism::Balloon);
        assert_eq!(seen, (target == 500).then_some(Bytes::mib(488)), "towards {target} MiB");
    }
}

#[test]
fn time_follows_from_rates() {
    let mut rates = Rates::default();
    let time = |rates: &Rates| rates.time_for(Mechanism::Balloon, Bytes::mib(800));
    assert_eq!(time(&rates), Duration::from_secs(10), "assumed");
    rates.observe(Timestamp::from_millis(0), &guest(1000, 0, 0), hold(0));
    rates.observe(Timestamp::from_millis(1000), &guest(800, 0, 0), hold(0));
    assert_eq!(time(&rates), Duration::from_secs(4));
    let mut still = Rates::default();
    still.observe(Timestamp::from_millis(0), &guest(1000, 0, 0), hold(0));
    still.observe(Timestamp::from_millis(1000), &guest(1000, 0, 0), hold(0));
    assert_eq!(time(&still), Duration::MAX);
    assert_eq!(still.time_for(Mechanism::Balloon, Bytes::ZERO), Duration::ZERO);
}

#[test]
fn each_guest_has_its_mechanism() {
    let slow = Compliance::Slow { left: Bytes::mib(300), asked: Duration::from_secs(40) };
    let stuck = Compliance::Stuck { idle: Duration::from_secs(15) };
    let releasing = Compliance::Releasing { left: Bytes::mib(300), idle: Duration::ZERO };
    let none = Capabilities { balloon: Some(false), ..Capabilities::default() };
    let locked = Capabilities { discard_inhibited: Some(true), ..Capabilities::default() };
    let any = Capabilities { balloon: Some(true), ..Capabilities::default() };
    let not_given = |asked| MechanismReason::NotGiven {
        left: Bytes::mib(300),
        asked: Duration::from_secs(asked),
    };
    let short = MechanismReason::HostShort { level: PressureLevel::ReclaimOwed };
    let takes = Some((Mechanism::Balloon, MechanismReason::BalloonTakesIt));
    let (out, plug) = (Mechanism::PageOut, Mechanism::VirtioMem);
    let fast = {
        let mut rates = Rates::default();
        rates.observe(Timestamp::from_millis(0), &guest(2000, 0, 0), hold(0));
        rates.observe(Timestamp::from_millis(1000), &guest(1000, 0, 0), hold(0));
        rates
    };
    let any_rate = Rates::default();
    use Compliance::{Compliant, Inhibited};
    // Capabilities, plugged, compliance, level, rates.
    for (n, (can, plugged, compliance, level, rates, expected)) in [
        (any, 0, Compliant, 0, any_rate, takes.clone()),
        (any, 512, Compliant, 0, any_rate, takes.clone()),
        (any, 0, slow, 0, fast, Some((out, not_given(40)))),
        (any, 0, stuck, 0, fast, Some((out, not_given(15)))),
        (any, 0, releasing, 1, any_rate, takes.clone()),
        // At the assumed rate the balloon needs four seconds, which a short host does not have.
        (any, 0, releasing, 2, any_rate, Some((out, short))),
        (any, 0, releasing, 2, fast, takes),
        (none, 512, Compliant, 0, any_rate, Some((plug, MechanismReason::NoBalloon))),
        (none, 0, Compliant, 0, any_rate, None),
        (locked, 512, Compliant, 0, any_rate, Some((plug, MechanismReason::BallooningInhibited))),
        (locked, 0, stuck, 4, any_rate, None),
        (any, 0, Inhibited, 4, any_rate, None),
    ]
    .into_iter()
    .enumerate()
    {
        let mut sample = guest(1000, plugged, 1000);
        sample.capabilities = can;
        if plugged == 0 {
            sample.hotplug = None;
        }
        let reduction = Reduction {
            sample: &sample,
            compliance,
            amount: Bytes::mib(300),
            level: PressureLevel::ALL[level],
        };
        assert_eq!(choose(&reduction, &rates), expected, "case {n}");
    }
}

proptest! {
    #[test]
    fn a_size_that_is_seen_twice_changes_no_rate(
        steps in prop::collection::vec((100..3_000u64, 0..1_000u64, 50..100u64), 1..60),
    ) {
        let (mut once, mut twice, mut now) = (Rates::default(), Rates::default(), 0);
        for (ms, holds, later) in steps {
            now += ms;
            for rates in [&mut once, &mut twice] {
                rates.observe(Timestamp::from_millis(now), &aged(holds, 0), hold(300));
            }
            let again = Timestamp::from_millis(now + later);
            twice.observe(again, &aged(holds, later), hold(300));
            let of = |rates: &Rates| rates.measured(Mechanism::Balloon);
            prop_assert_eq!(of(&twice), of(&once));
        }
    }

    /// The oracle is an average kept in floating point, for a guest that never finishes.
    #[test]
    fn the_average_is_that_of_floating_point(steps in prop::collection::vec((50..3_000u64, 0..200u64), 1..60)) {
        let mut rates = Rates::default();
        let (mut now, mut holds) = (0, 100_000u64);
        let mut oracle: Option<f64> = None;
        rates.observe(Timestamp::from_millis(now), &guest(holds, 0, 0), hold(0));
        for (ms, moved) in steps {
            (now, holds) = (now + ms, holds - moved);
            rates.observe(Timestamp::from_millis(now), &guest(holds, 0, 0), hold(0));
            let rate = (moved << 20) as f64 * 1000.0 / ms as f64;
            oracle = Some(oracle.map_or(rate, |average| average * 0.75 + rate * 0.25));
            let found = rates.measured(Mechanism::Balloon).unwrap().get() as f64;
            prop_assert!((found - oracle.unwrap()).abs() <= 16.0, "{found} {oracle:?}");
        }
    }
}
