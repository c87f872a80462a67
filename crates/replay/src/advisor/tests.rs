//! Observed hosts with a few guests, and the advice about them.

use std::collections::BTreeMap;

use ballast_control::{Controller, Settings};
use ballast_model::{
    AgentReport, Capabilities, GuestLimits, GuestSample, GuestStats, HostSample, LinkState,
    Measured, Mode, RunState, Timestamp,
};
use ballast_policy::build;
use proptest::prelude::*;

use super::*;
use crate::{GuestFinding, NeedAdvice};

const RESERVE: Bytes = Bytes::mib(100);

/// A guest, sizes in MiB. It holds all of its memory.
#[derive(Clone, Copy, Debug)]
struct Seen {
    memory: u64,
    used: u64,
    swap_in: u64,
    balloon: bool,
    statistics: bool,
    /// What its agent reports to be in its swap; `None`: it has no agent.
    reported: Option<u64>,
}

const fn seen(memory: u64, used: u64) -> Seen {
    Seen { memory, used, swap_in: 0, balloon: true, statistics: true, reported: None }
}

fn sample(name: String, guest: Seen) -> GuestSample {
    let stats = GuestStats {
        total: Some(Bytes::mib(guest.memory)),
        free: Some(Bytes::mib(guest.memory - guest.used)),
        available: Some(Bytes::mib(guest.memory - guest.used)),
        swap_in: Some(Bytes::mib(guest.swap_in)),
        swap_out: Some(Bytes::mib(guest.swap_in)),
        ..GuestStats::default()
    };
    GuestSample {
        run_state: Some(RunState::Running),
        allocation: Some(Measured::fresh(Bytes::mib(guest.memory))),
        boot_memory: Some(Bytes::mib(guest.memory)),
        // The guest has touched all of its memory.
        resident: Some(Measured::fresh(Bytes::mib(guest.memory))),
        stats: guest.statistics.then(|| Measured::fresh(stats)),
        agent: guest.reported.map(|reported| {
            let swap_used = Some(Bytes::mib(reported));
            Box::new(Measured::fresh(AgentReport { swap_used, ..AgentReport::default() }))
        }),
        capabilities: Capabilities {
            balloon: Some(guest.balloon),
            statistics: Some(guest.statistics),
            ..Capabilities::default()
        },
        ..GuestSample::unknown(name.parse().unwrap(), LinkState::Up)
    }
}

/// The advice about a host of 16 GiB that was observed with these guests every `every` seconds.
fn observed(policy: PolicyName, every: u64, ticks: &[Vec<Seen>]) -> Option<Advice> {
    let mut settings = Settings::new(PolicyName::Global);
    settings.mode = Mode::Observe;
    let mut recorder = Controller::new(settings.clone(), Timestamp::ZERO);
    let replayed = build(policy, settings.policy_settings.clone());
    let mut replay = Replay::new(settings, replayed);
    let mut advisor = Advisor::new().unwrap();
    let limits: BTreeMap<GuestId, GuestLimits> = BTreeMap::new();
    for (number, guests) in ticks.iter().enumerate() {
        let ms = (number as u64 + 1) * every * 1000;
        let held: u64 = guests.iter().map(|guest| guest.memory).sum();
        let host = HostSample {
            memory_total: Some(Bytes::gib(16)),
            memory_available: Some(Bytes::gib(16).saturating_sub(Bytes::mib(held))),
            ..HostSample::default()
        };
        let guests = guests.iter().enumerate();
        let guests = guests.map(|(place, guest)| sample(format!("g{place}"), *guest)).collect();
        let snapshot = Snapshot::new(Timestamp::from_millis(ms), host, guests);
        let plan = recorder.handle_sample(&snapshot);
        replay.tick(&snapshot, &plan, &limits);
        advisor.tick(ms as i64, &snapshot, &plan, &replay, RESERVE);
    }
    advisor.advice(policy, replay.report().plans_refused)
}

#[test]
fn idle_memory_can_be_given_back_under_any_policy() {
    let ticks = vec![vec![seen(4096, 400), seen(4096, 1000), seen(2048, 1900)]; 300];
    // What each holds beyond its need and the reserve; floors are half a GiB and less.
    let idle = 4096 - 512 + 4096 - 1100 + 2048 - 2000;
    for policy in [PolicyName::Global, PolicyName::SelfScheduling, PolicyName::Static] {
        let advice = observed(policy, 1, &ticks).unwrap();
        let found = advice.returnable.p50.get() >> 20;
        assert!(found.abs_diff(idle) <= 10, "{policy}: {found} of {idle}: {advice:?}");
        assert!(advice.returnable.worst_hour <= advice.returnable.p50 + Bytes::mib(10));
        assert_eq!(advice.plans_refused, 0);
    }
    // 5.5 GiB were free for guests anyway: the reserve of the host is half a GiB.
    let advice = observed(PolicyName::Global, 1, &ticks).unwrap();
    let room = advice.room.p95.get() >> 20;
    assert!(room.abs_diff(idle + 5632) <= 10, "{room}");
    assert_eq!(advice.more.size, Bytes::gib(4));
    assert_eq!(advice.more.full, Some(room / 4096));
    assert!(advice.more.alike > advice.more.full, "{:?}", advice.more);
}

#[test]
fn guests_are_judged_by_what_they_needed() {
    let guests = vec![
        seen(4096, 300),
        seen(512, 508),
        Seen { balloon: false, ..seen(1024, 200) },
        Seen { statistics: false, ..seen(1024, 200) },
        seen(1024, 700),
    ];
    let advice = observed(PolicyName::Global, 20, &vec![guests; 200]).unwrap();
    let codes = |place: usize| -> Vec<&str> {
        advice.guests[place].findings.iter().map(|finding| finding.code()).collect()
    };
    assert_eq!(codes(0), ["too-big"], "{:?}", advice.guests[0]);
    assert_eq!(codes(1), ["too-small"]);
    assert_eq!(codes(2), ["no-balloon"]);
    assert_eq!(codes(3), ["no-statistics"]);
    assert!(codes(4).is_empty());
    let GuestFinding::TooSmall { ceiling, percent, has_memory, .. } = advice.guests[1].findings[0]
    else {
        panic!("{:?}", advice.guests[1])
    };
    assert_eq!((ceiling, percent, has_memory), (Bytes::mib(512), 100, false));
    assert_eq!(advice.guests[2].need, None);
    // Of five guests three can be moved; the estimates of four count with 60 % each.
    let AdviceConfidence { freshness, source, .. } = advice.confidence;
    assert_eq!((freshness, source), (60, 60), "{:?}", advice.confidence);
}

#[test]
fn a_short_record_judges_no_sizes() {
    let advice = observed(PolicyName::Global, 1, &vec![vec![seen(4096, 300)]; 100]).unwrap();
    assert!(advice.guests[0].findings.is_empty());
    assert!(advice.confidence.percent() < 5, "{:?}", advice.confidence);
}

#[test]
fn a_swapping_guest_hides_its_need() {
    let tick = |second: u64| vec![Seen { swap_in: second * 20, ..seen(512, 500) }, seen(4096, 300)];
    let ticks: Vec<Vec<Seen>> = (0..300).map(tick).collect();
    let advice = observed(PolicyName::Global, 1, &ticks).unwrap();
    assert_eq!(advice.swap_in, Bytes::mib(299 * 20));
    assert_eq!(advice.confidence.visibility, 50);
    let hidden: Vec<bool> = advice.guests.iter().map(|guest| guest.need_is_least).collect();
    assert_eq!((hidden, advice.guests_hiding_need), (vec![true, false], 1));
    assert_eq!(advice.guests[0].findings, [GuestFinding::HiddenNeed { percent: 100 }]);
    // The guest cannot get more than its boot memory.
    assert_eq!(advice.swap_in_avoided, Bytes::ZERO);
}

#[test]
fn an_agent_shows_the_need_of_a_swapping_guest() {
    let tick = |second: u64| {
        let swapping = Seen { swap_in: second * 20, reported: Some(600), ..seen(512, 500) };
        vec![swapping, seen(4096, 300)]
    };
    let ticks: Vec<Vec<Seen>> = (0..300).map(tick).collect();
    let advice = observed(PolicyName::Global, 1, &ticks).unwrap();
    assert_eq!((advice.confidence.visibility, advice.guests_hiding_need), (100, 0));
    let need = advice.guests[0].need.unwrap();
    // At most the 500 MiB in use, and what it has in swap: at most its 512 MiB of memory count.
    assert_eq!(need.max, Bytes::mib(1012));
    assert!(advice.guests[0].findings.is_empty(), "{:?}", advice.guests[0]);
}

#[test]
fn swap_ins_are_not_foreseen_where_used_memory_is_taken() {
    let grows = |second: u64| vec![seen(2048, if second < 100 { 300 } else { 1500 })];
    let ticks: Vec<Vec<Seen>> = (0..200).map(grows).collect();
    for (policy, expected) in
        [(PolicyName::Static, Some(Bytes::ZERO)), (PolicyName::SelfScheduling, None)]
    {
        let advice = observed(policy, 1, &ticks).unwrap();
        assert_eq!(
            (advice.imagined_swap_in, advice.guests[0].imagined_swap_in),
            (expected, expected)
        );
        assert_eq!(advice.swap_in_avoided, Bytes::ZERO);
    }
}

#[test]
fn without_two_ticks_together_there_is_no_advice() {
    assert_eq!(observed(PolicyName::Global, 1, &[]), None);
    assert_eq!(observed(PolicyName::Global, 1, &[vec![seen(1024, 100)]]), None);
    assert_eq!(observed(PolicyName::Global, 3600, &vec![vec![seen(1024, 100)]; 3]), None);
}

/// The median from a list with one entry per millisecond.
fn naive_median(sizes: &[(Bytes, u128)]) -> Option<Bytes> {
    let mut all: Vec<Bytes> = Vec::new();
    for (size, ms) in sizes {
        all.extend(std::iter::repeat_n(*size, usize::try_from(*ms).unwrap()));
    }
    all.sort_unstable();
    all.get(all.len().div_ceil(2).max(1) - 1).copied()
}

fn guests() -> impl Strategy<Value = Vec<Seen>> {
    let guest = (256u64..4096).prop_flat_map(|memory| (Just(memory), 0..memory));
    prop::collection::vec(guest.prop_map(|(memory, used)| seen(memory, used)), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_median_is_that_of_the_whole_list(
        sizes in prop::collection::vec((0u64..100, 1u128..50), 0..20),
    ) {
        let sizes: Vec<(Bytes, u128)> =
            sizes.into_iter().map(|(mib, ms)| (Bytes::mib(mib), ms)).collect();
        prop_assert_eq!(median_by_time(sizes.clone()), naive_median(&sizes));
    }

    #[test]
    fn no_more_is_promised_than_guests_hold_beyond_floors(
        ticks in prop::collection::vec(guests(), 2..30),
        policy in prop::sample::select(vec![
            PolicyName::Static, PolicyName::Global, PolicyName::SelfScheduling,
        ]),
    ) {
        let most = |guests: &Vec<Seen>| -> u64 {
            guests.iter().map(|it| {
                let memory = Bytes::mib(it.memory);
                (memory - GuestLimits::default().floor_for(memory)).get()
            }).sum()
        };
        let advice = observed(policy, 1, &ticks).unwrap();
        let most = Bytes::new(ticks.iter().map(most).max().unwrap());
        prop_assert!(advice.returnable.p50 <= most + most.fraction(1, 900) + Bytes::kib(4));
        prop_assert!(advice.returnable.p95 <= advice.returnable.p50);
        prop_assert!(advice.room.p95 >= advice.returnable.p95);
        prop_assert!(advice.swap_in_avoided <= advice.swap_in);
        for guest in &advice.guests {
            if let Some(NeedAdvice { p50, p95, max }) = guest.need {
                prop_assert!(p50 <= p95 && p95 <= max, "{guest:?}");
            }
        }
    }

    #[test]
    fn more_idle_memory_is_more_to_give_back(
        memory in 512u64..2048, used in 0u64..400, more in 1u64..2048,
    ) {
        let returnable = |memory: u64| {
            // A floor of the same size, as the default grows with memory.
            let ticks = vec![vec![seen(memory, used)]; 30];
            let floor = GuestLimits::default().floor_for(Bytes::mib(memory));
            observed(PolicyName::SelfScheduling, 1, &ticks).unwrap().returnable.mean + floor
        };
        prop_assert!(returnable(memory + more) + Bytes::mib(1) >= returnable(memory));
    }
}
