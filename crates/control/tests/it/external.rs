//! A program decides: plans are safe whatever it answers, and the recorded answers alone reproduce
//! the plans.

use ballast_control::{Controller, Event};
use ballast_model::{
    AnswerFault, Bytes, Change, GuestTarget, Note, PolicyAnswer, PolicyName, Snapshot, Timestamp,
};
use ballast_policy::Question;
use ballast_policy_proto::parse_answer;
use proptest::prelude::*;

use crate::world::{ToyGuest, World, settings};

fn guests() -> Vec<ToyGuest> {
    vec![ToyGuest::new("a", 1024, 512, 300), ToyGuest::new("b", 1024, 512, 100)]
}

fn world(policy: PolicyName) -> World {
    World::new(settings(policy, 1024), guests())
}

fn gives(a: u64, b: u64) -> PolicyAnswer {
    let target = |(name, mib): (&str, u64)| GuestTarget {
        guest: name.parse().unwrap(),
        target: Bytes::mib(mib),
    };
    PolicyAnswer::Targets([("a", a), ("b", b)].map(target).to_vec())
}

fn fault(answer: &PolicyAnswer) -> bool {
    matches!(answer, PolicyAnswer::Fault(_))
}

#[test]
fn what_the_program_answers_is_carried_out() {
    let mut world = world(PolicyName::External);
    for _ in 0..30 {
        world.tick_asking(|_| gives(400, 600));
    }
    assert_eq!(world.holds(), [400, 600]);
    let (_, _, plan) = world.tick_asking(|_| gives(400, 600));
    assert_eq!(plan.policy, PolicyName::External);
    assert!(plan.notes.is_empty(), "{:?}", plan.notes);
    let reason = &plan.guests[0].desired.as_ref().unwrap().reason;
    assert_eq!(reason.code(), "answered");
}

#[test]
fn without_an_answer_plans_are_those_of_global() {
    let (mut external, mut global) = (world(PolicyName::External), world(PolicyName::Global));
    let late = || PolicyAnswer::Fault(AnswerFault::NotAsked);
    for second in 0..60u64 {
        external.guests[0].used = 100 + second * 10;
        global.guests[0].used = 100 + second * 10;
        let (_, _, plan) = external.tick_asking(|_| late());
        let other = global.tick();
        let changes = |plan: &ballast_model::Plan| -> Vec<Change> {
            plan.guests.iter().map(|it| it.change.clone()).collect()
        };
        assert_eq!(changes(&plan), changes(&other), "{second}");
        assert_eq!(plan.actions, other.actions);
        let note = Note::Unanswered { fault: AnswerFault::NotAsked };
        let notes: Vec<&Note> = plan.notes.iter().filter(|it| !other.notes.contains(it)).collect();
        assert_eq!(notes, [&note]);
    }
}

#[test]
fn it_is_asked_once_for_each_decision() {
    let mut world = world(PolicyName::External);
    let asked = (0..20).filter(|_| world.tick_asking(|_| gives(512, 512)).1.is_some()).count();
    // Every other second, as `global` decides.
    assert_eq!(asked, 10);
    let mut other = World::new(settings(PolicyName::Global, 1024), guests());
    assert!((0..20).all(|_| other.tick_asking(|_| gives(512, 512)).1.is_none()));
}

#[test]
fn a_question_has_no_effect() {
    let (mut with, mut without) = (world(PolicyName::External), world(PolicyName::External));
    for second in 0..20u64 {
        with.guests[1].used = second * 30;
        without.guests[1].used = second * 30;
        let snapshot = with.snapshot();
        with.controller.question(&snapshot);
        with.controller.question(&snapshot);
        assert_eq!(with.tick_asking(|_| gives(600, 400)), without.tick_asking(|_| gives(600, 400)));
    }
}

#[test]
fn a_dry_run_goes_by_the_last_answer() {
    let mut world = world(PolicyName::External);
    let wanted = |plan: &ballast_model::Plan| plan.guests[0].desired.as_ref().unwrap().target;
    world.tick_asking(|_| gives(700, 300));
    assert_eq!(wanted(&world.controller.dry_run(&world.snapshot())), Bytes::mib(700));
}

/// Lines as a program may write them: garbage, incomplete answers and complete ones.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let targets = (0..2048u64, 0..2048u64, 0..4usize).prop_map(|(a, b, more)| {
        let more = ["", ",\"c\":5", ",\"b\":0", "}"][more];
        let (a, b) = (a << 20, b << 20);
        format!("{{\"question\":1,\"targets\":{{\"a\":{a},\"b\":{b}{more}}}}}").into_bytes()
    });
    prop_oneof![4 => targets, 1 => prop::collection::vec(any::<u8>(), 0..80)]
}

fn answer(line: &[u8]) -> PolicyAnswer {
    match parse_answer(line) {
        Ok(answer) => PolicyAnswer::Targets(answer.targets),
        Err(fault) => PolicyAnswer::Fault(fault),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever bytes the program writes, plans keep the budget and pass the checker. A replay of
    /// the answers gives the same plans.
    #[test]
    fn any_bytes_give_safe_plans_that_replay(
        turns in prop::collection::vec((line(), 0..1024u64, 1..6u64), 1..20),
    ) {
        let mut world = world(PolicyName::External);
        let mut recorded: Vec<(Snapshot, Option<PolicyAnswer>, String)> = Vec::new();
        for (line, used, ticks) in turns {
            world.guests[0].used = used;
            for _ in 0..ticks {
                let (snapshot, answered, plan) = world.tick_asking(|_: &Question| answer(&line));
                prop_assert!(world.committed() <= 1024, "{}", world.committed());
                prop_assert_eq!(world.controller.plans_refused(), 0, "{:?}", plan.notes);
                let is_noted = plan.notes.iter().any(|note| note.code() == "unanswered");
                prop_assert!(is_noted || answered.as_ref().is_none_or(|it| !fault(it)));
                recorded.push((snapshot, answered, format!("{plan:?}")));
            }
        }
        let mut replay = Controller::new(settings(PolicyName::External, 1024), Timestamp::ZERO);
        for (snapshot, answered, recorded) in recorded {
            if let Some(answer) = answered {
                replay.handle_event(Event::Answer(answer));
            }
            let plan = replay.handle_sample(&snapshot);
            while replay.poll_action().is_some() {}
            prop_assert_eq!(format!("{plan:?}"), recorded);
        }
    }
}
