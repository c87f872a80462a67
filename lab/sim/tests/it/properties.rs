//! Properties of every host under every policy.

use std::time::Duration;

use ballast_control::Settings;
use ballast_model::{Bytes, GuestLimits, PolicyName};
use ballast_sim::{
    Disk, GuestSpec, HostReclaim, HostSpec, Pattern, PolicyReport, Scenario, Simulation, Swap,
    named,
};
use proptest::prelude::*;

const fn s(s: u64) -> Duration {
    Duration::from_secs(s)
}

fn pattern() -> impl Strategy<Value = Pattern> {
    let sizes = (1..500u64, 0..500u64);
    (sizes, 1..20u64, 0..7u8, 0.0..2.0f64).prop_map(|((low, more), time, kind, exponent)| {
        let (low, high) = (Bytes::mib(low), Bytes::mib(low + more));
        match kind {
            0 => Pattern::Mono { low, high, ramp: s(time).into(), hold: s(time), cycles: None },
            1 => Pattern::Flux { low, high, period: s(time) },
            2 => Pattern::RandomDrawn { low, high, period: s(time) },
            3 => Pattern::Sequential { size: high, passes: None },
            4 => Pattern::FileRandom { size: high },
            5 => Pattern::Zipf { size: high, exponent, file: exponent > 1.0 },
            _ => Pattern::Cold { size: high, share_per_s: exponent / 2.0 },
        }
    })
}

fn guest() -> impl Strategy<Value = GuestSpec> {
    let patterns = prop::collection::vec((0..20u64, pattern()), 0..3);
    (patterns, 300..1200u64, any::<bool>(), any::<bool>(), 1..5u32).prop_map(
        |(patterns, memory, swaps, plugs, shares)| {
            let memory = Bytes::mib(memory);
            let id = "g".parse().unwrap();
            let mut guest = GuestSpec::new(id, memory);
            guest.swap = swaps.then_some(Swap::new(Bytes::mib(300), Disk::NVME));
            guest.memory_max = plugs.then_some(memory + Bytes::gib(1));
            guest.start = Some(memory.fraction(2, 3).page_floor());
            guest.limits = GuestLimits { shares, ..GuestLimits::default() };
            patterns.into_iter().fold(guest, |guest, (at, pattern)| guest.with(s(at), pattern))
        },
    )
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let switches = (any::<bool>(), any::<bool>());
    let guests = prop::collection::vec(guest(), 1..5);
    (guests, switches, 0..800u64, any::<u64>()).prop_map(
        |(mut guests, (shared, reclaims), spare, seed)| {
            for (number, guest) in guests.iter_mut().enumerate() {
                guest.id = format!("g{number}").parse().unwrap();
            }
            let start: Bytes = guests.iter().map(GuestSpec::start).sum();
            let mut control = Settings::new(PolicyName::Static);
            control.guard.budget = Some(start + Bytes::mib(spare));
            let mut host = HostSpec::new(start + Bytes::mib(spare) + Bytes::gib(1));
            host.swap_shared = shared;
            host.reclaim = reclaims.then_some(HostReclaim { grace: s(3), disk: Disk::NVME });
            Scenario {
                name: "any".to_owned(),
                duration: s(60),
                seed,
                block: Bytes::mib(4),
                host,
                control,
                guests,
            }
        },
    )
}

fn run(scenario: &Scenario, policy: PolicyName) -> PolicyReport {
    let mut simulation = Simulation::new(scenario, named(scenario, policy)).unwrap();
    while simulation.step() {}
    simulation.report()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Allocations always fit the budget and the host, no plan is refused, and no guest that
    /// started above its floor falls below it.
    #[test]
    fn budget_and_floors_are_kept(scenario in scenario()) {
        for policy in PolicyName::ALL {
            let report = run(&scenario, policy);
            prop_assert_eq!(report.violations, 0, "{}", policy);
            prop_assert_eq!(report.plans_refused, 0, "{}", policy);
            for (guest, spec) in report.guests.iter().zip(&scenario.guests) {
                let floor = spec.limits.floor_for(spec.memory).min(spec.start());
                prop_assert!(guest.allocation_min >= floor, "{policy}: {}", guest.id);
                let most = spec.memory_max.unwrap_or(spec.memory);
                prop_assert!(guest.allocation_max <= most, "{policy}: {}", guest.id);
            }
        }
    }

    /// The same scenario gives the same report, whatever the order of guests.
    #[test]
    fn equal_seeds_give_equal_reports(scenario in scenario()) {
        let mut turned = scenario.clone();
        turned.guests.reverse();
        for policy in [PolicyName::Static, PolicyName::Global] {
            let text = |scenario: &Scenario| format!("{:?}", run(scenario, policy));
            prop_assert_eq!(text(&scenario), text(&scenario));
            prop_assert_eq!(text(&scenario), text(&turned));
        }
    }
}
