//! Helpers for the tests of rivals, and properties of all rivals.

use ballast_model::{
    Bytes, Confidence, Demand, DemandSource, HostSample, PolicyName, Signals, Timestamp,
};
use ballast_policy::{Contender, Division, Policy, Problem};
use proptest::prelude::*;

use super::{ALL, build, find};

pub(super) fn mib(n: u64) -> Bytes {
    Bytes::mib(n)
}

/// A guest with these amounts of memory used, held and free, within floor and ceiling, in MiB.
pub(super) fn guest(name: &str, used: u64, held: u64, free: u64, bounds: (u64, u64)) -> Contender {
    Contender {
        allocation: mib(held),
        floor: mib(bounds.0),
        ceiling: mib(bounds.1),
        signals: Signals { free: Some(mib(free)), ..Signals::default() },
        ..Contender::new(name.parse().unwrap(), mib(used))
    }
}

pub(super) fn host_mib(available: u64, total: u64) -> HostSample {
    HostSample {
        memory_available: Some(mib(available)),
        memory_total: Some(mib(total)),
        ..HostSample::default()
    }
}

pub(super) fn targets(division: &Division) -> Vec<Bytes> {
    division.wanted.iter().map(|wanted| wanted.target).collect()
}

#[test]
fn every_name_builds_its_rival() {
    for name in ALL {
        assert_eq!(find(name.as_str()), Some(name));
        assert_eq!(find(&format!("rival:{name}")), Some(name));
        assert_eq!(build(name.as_str()).unwrap().name(), name);
        assert!(name.as_str().parse::<PolicyName>().is_err(), "{name} is also a built-in policy");
    }
    assert!(build("static").is_none() && find("nobody").is_none());
}

fn contender() -> impl Strategy<Value = Contender> {
    let bounds = (0..40_000u64, 0..60_000u64);
    let figures = (0..80_000u64, 0..80_000u64, prop::option::of(0..80_000u64));
    let demand = prop::option::of((0..80_000u64, any::<bool>()));
    let rest = (1..5_000u32, any::<u8>(), prop::option::of(0..80_000u64), demand);
    (bounds, figures, rest).prop_map(|((floor, room), (used, held, free), rest)| {
        let (shares, priority, committed, demand) = rest;
        Contender {
            floor: Bytes::pages(floor),
            ceiling: Bytes::pages(floor + room),
            allocation: Bytes::pages(held),
            shares,
            priority,
            demand: demand.map(|(pages, tracked)| Demand {
                size: Bytes::pages(pages),
                source: if tracked { DemandSource::WorkingSet } else { DemandSource::Used },
                age: std::time::Duration::ZERO,
                confidence: Confidence::USED,
            }),
            signals: Signals {
                free: free.map(Bytes::pages),
                committed: committed.map(Bytes::pages),
                ..Signals::default()
            },
            ..Contender::new("x".parse().unwrap(), Bytes::pages(used))
        }
    })
}

fn host() -> impl Strategy<Value = HostSample> {
    prop::option::of((0..1_000_000u64, 0..1_000_000u64)).prop_map(|host| match host {
        Some((available, total)) => HostSample {
            memory_available: Some(Bytes::pages(available)),
            memory_total: Some(Bytes::pages(total)),
            ..HostSample::default()
        },
        None => HostSample::default(),
    })
}

/// A sequence of problems, some seconds apart, with guests that start and stop.
fn problems() -> impl Strategy<Value = Vec<Problem>> {
    let guests = prop::collection::vec(contender(), 0..12);
    let one = (guests, 0..1_000_000u64, host(), 0..40u64);
    prop::collection::vec(one, 1..6).prop_map(|all| {
        let mut now = 0;
        all.into_iter()
            .map(|(mut guests, budget, host, seconds)| {
                for (i, guest) in guests.iter_mut().enumerate() {
                    guest.id = format!("g{i:02}").parse().unwrap();
                }
                now += seconds;
                Problem::new(Bytes::pages(budget), guests)
                    .on(host)
                    .at(Timestamp::from_millis(now * 1_000))
            })
            .collect()
    })
}

fn rival() -> impl Strategy<Value = Box<dyn Policy>> {
    prop::sample::select(ALL.to_vec()).prop_map(|name| build(name.as_str()).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_guest_gets_a_target_within_its_limits(problems in problems(), mut rival in rival()) {
        for problem in problems {
            let division = rival.divide(&problem);
            prop_assert_eq!(division.wanted.len(), problem.contenders().len());
            for (wanted, contender) in division.wanted.iter().zip(problem.contenders()) {
                let target = wanted.target;
                prop_assert!(contender.floor <= target && target <= contender.ceiling);
                prop_assert_eq!(target.page_floor(), target);
            }
            prop_assert_eq!(division.shortfall, problem.shortfall());
        }
    }

    /// `mom`, `proxmox` and `senpai` have no budget; `esx` leaves every guest 35 %
    /// of its maximum and `qmemman` its allocation while nothing is spare, whatever the budget.
    #[test]
    fn rivals_with_a_budget_do_not_exceed_it(
        problems in problems(),
        name in prop::sample::select(vec!["squeezed", "hyperv", "xenmm"]),
    ) {
        let mut rival = build(name).unwrap();
        for problem in problems {
            let sum: Bytes = targets(&rival.divide(&problem)).into_iter().sum();
            prop_assert!(problem.shortfall() > Bytes::ZERO || sum <= problem.budget());
        }
    }

    #[test]
    fn stateless_rivals_repeat_their_decisions(
        problems in problems(),
        name in prop::sample::select(vec!["squeezed", "hyperv", "qmemman", "proxmox"]),
    ) {
        for problem in problems {
            let decided = build(name).unwrap().divide(&problem);
            let mut twice = build(name).unwrap();
            twice.divide(&problem);
            prop_assert_eq!(twice.divide(&problem), decided);
        }
    }

    #[test]
    fn extreme_values_do_not_panic(
        sizes in prop::collection::vec(prop::sample::select(vec![0, 1, u64::MAX / 2, u64::MAX]), 8),
        mut rival in rival(),
        shares in prop::sample::select(vec![0, 1, u32::MAX]),
    ) {
        let at = |i: usize| Bytes::new(sizes[i]);
        let contender = |name: &str| Contender {
            floor: at(1),
            ceiling: at(2),
            allocation: at(3),
            shares,
            signals: Signals { free: Some(at(4)), committed: Some(at(5)), ..Signals::default() },
            ..Contender::new(name.parse().unwrap(), at(0))
        };
        let host = HostSample {
            memory_available: Some(at(6)),
            memory_total: Some(at(7)),
            ..HostSample::default()
        };
        let problem = Problem::new(at(2), vec![contender("a"), contender("b")]).on(host);
        for _ in 0..3 {
            prop_assert_eq!(rival.divide(&problem).wanted.len(), 2);
        }
    }
}
