//! One guest and two hosts in every order of events; and without one safety, what breaks.

use ballast_model::{Bytes, Timestamp};

use super::explore::explore;
use super::world::{HONEST, PhaseKind, Sabotage, World};
use crate::*;

/// A world in which this many moves may be ordered, in any direction, and this many faults strike.
fn small(orders: u8, faults: u8) -> World {
    let mut world = World::new(2, 1, 1);
    (world.orders_left, world.faults_left) = (orders, faults);
    world
}

/// The same where the program that copies ends the source, as libvirt does between two hosts.
fn small_and_ending(orders: u8, faults: u8) -> World {
    let mut world = small(orders, faults);
    world.ends_source = true;
    world
}

#[test]
fn every_order_of_events_keeps_every_promise() {
    every_order_of(small);
}

#[test]
fn promises_hold_where_copying_ends_the_source() {
    every_order_of(small_and_ending);
}

/// It also prints the numbers of states: `-- --nocapture`.
#[allow(clippy::disallowed_macros)]
fn every_order_of(world: fn(u8, u8) -> World) {
    use PhaseKind::{Abandoned, Copied, Copying, Lost, Moved, Ordered, Ready, Starting};
    for (orders, faults) in [(1, 0), (1, 1), (1, 2), (2, 1)] {
        let found = explore(world(orders, faults), &HONEST);
        let found = found.unwrap_or_else(|story| panic!("{story}"));
        println!("{orders} moves, {faults} faults: {} states", found.states);
        // A search that gets nowhere would not find a broken promise either.
        assert_eq!(found.rests_at, [true; 2], "at rest at each host");
        let all = [Ordered, Ready, Copying, Copied, Starting, Moved, Abandoned];
        for phase in all.into_iter().chain((faults > 0).then_some(Lost)) {
            assert!(found.phases.contains(&phase), "{phase:?} is never reached");
        }
    }
}

/// Changes the phase of a record, and nothing else.
fn bend(record: &mut Option<MoveRecord>, bent: impl FnOnce(&Phase) -> Option<Phase>) {
    if let Some(record) = record
        && let Some(phase) = bent(&record.phase)
    {
        record.phase = phase;
    }
}

fn is_source(record: &Option<MoveRecord>, view: &HostView) -> bool {
    record.as_ref().is_some_and(|it| it.from == view.host)
}

fn carried(phase: &Phase) -> Option<Box<CarriedState>> {
    match phase {
        Phase::Copied { carried } | Phase::Starting { carried } => Some(carried.clone()),
        _ => None,
    }
}

const ABANDONED: Phase = Phase::Abandoned { why: AbandonReason::TimedOut };

/// Changes what hosts see, and nothing else.
const fn of_hosts(host: fn(&mut Option<MoveRecord>, &mut HostView)) -> Sabotage {
    Sabotage { host, ..HONEST }
}

/// The same for leaders.
const fn of_leaders(leader: fn(&mut Option<MoveRecord>, &mut Timestamp)) -> Sabotage {
    Sabotage { leader, ..HONEST }
}

/// The same for operators who ask to remove a record.
const fn of_operators(operator: fn(&mut MoveRecord)) -> Sabotage {
    Sabotage { operator, ..HONEST }
}

/// The source does not look at what a guest holds while it is copied.
const IGNORES_GROWTH: Sabotage = of_hosts(|record, view| {
    let is_copied = |it: &MoveRecord| matches!(it.phase, Phase::Copying { .. });
    if record.as_ref().is_some_and(is_copied) {
        view.holds = Some(Bytes::ZERO);
    }
});

/// A machine that has taken over a host's name declares a guest gone that it does not see.
const TRUSTS_ABSENCE: Sabotage = Sabotage { stranger: |view| view.has_part = true, ..HONEST };

/// Each entry: one safety taken away by changing what a role sees; a word of the promise that this
/// breaks; the change.
const SABOTAGES: [(&str, &str, Sabotage); 26] = [
    ("writes do not compare", "the last copy", Sabotage { blind: true, ..HONEST }),
    (
        "the destination starts the guest without writing so before",
        "an outdated copy",
        of_hosts(|record, view| {
            if !is_source(record, view) && view.process != Process::Absent {
                let starting = |carried| Phase::Starting { carried };
                bend(record, |phase| match phase {
                    Phase::Copied { .. } => carried(phase).map(starting),
                    _ => None,
                });
            }
        }),
    ),
    (
        "the destination starts the guest as soon as it is loaded",
        "an outdated copy",
        of_hosts(|record, view| {
            if !is_source(record, view) && view.process == Process::Loaded {
                let carried = Box::new(view.carried.clone());
                bend(record, |_| Some(Phase::Starting { carried }));
            }
        }),
    ),
    (
        "a source that was left resumes the guest when it is late, without writing so",
        "the last copy",
        of_hosts(|record, view| {
            let is_late = record.as_ref().is_some_and(|it| it.due <= view.now);
            if is_source(record, view) && is_late {
                bend(record, |phase| matches!(phase, Phase::Copied { .. }).then_some(ABANDONED));
            }
        }),
    ),
    (
        "a source that was left resumes the guest although it lives elsewhere",
        "the last copy",
        of_hosts(|record, view| {
            if is_source(record, view) {
                bend(record, |phase| {
                    matches!(phase, Phase::Starting { .. } | Phase::Moved).then_some(ABANDONED)
                });
            }
        }),
    ),
    (
        "the source calls a copy complete that is not",
        "an outdated copy",
        of_hosts(|_, view| {
            if view.process == Process::Runs(CopyState::Partly) {
                view.process = Process::Left;
            }
        }),
    ),
    (
        "the source ends its copy before the guest runs elsewhere",
        "the last copy",
        of_hosts(|record, view| {
            if is_source(record, view) {
                bend(record, |phase| matches!(phase, Phase::Copied { .. }).then_some(Phase::Moved));
            }
        }),
    ),
    (
        "the source abandons without a copy of its own",
        "the last copy",
        of_hosts(|record, view| {
            let is_copied = |it: &MoveRecord| matches!(it.phase, Phase::Copied { .. });
            let is_copied = record.as_ref().is_some_and(is_copied);
            if is_source(record, view) && is_copied && view.process == Process::Absent {
                view.process = Process::Left;
                view.now = Timestamp::from_millis(100);
            }
        }),
    ),
    (
        "a leader abandons what was copied",
        "the last copy",
        of_leaders(|record, _| {
            bend(record, |phase| matches!(phase, Phase::Copied { .. }).then_some(Phase::Ordered));
        }),
    ),
    (
        "a leader abandons what is being started",
        "the last copy",
        of_leaders(|record, _| {
            bend(record, |phase| matches!(phase, Phase::Starting { .. }).then_some(Phase::Ordered));
        }),
    ),
    (
        "a destination gives back a guest that it may have started",
        "an outdated copy",
        of_hosts(|record, view| {
            if !is_source(record, view) && view.process == Process::Absent {
                bend(record, |phase| match phase {
                    Phase::Starting { .. } => {
                        carried(phase).map(|carried| Phase::Copied { carried })
                    }
                    _ => None,
                });
            }
        }),
    ),
    (
        "a host takes a hypervisor that does not answer for one that has ended",
        "without a promise",
        of_hosts(|_, view| {
            if view.process == Process::Unknown {
                view.process = Process::Absent;
            }
        }),
    ),
    (
        "the destination listens before it has reserved",
        "without a promise",
        of_hosts(|_, view| {
            if view.promise == Promise::Nothing {
                view.promise = Promise::Reserved { size: Bytes::gib(1), is_ready: true };
            }
        }),
    ),
    (
        "the destination takes a refusal for a reservation",
        "without a promise",
        of_hosts(|_, view| {
            if view.promise == Promise::Refused {
                view.promise = Promise::Reserved { size: Bytes::gib(1), is_ready: true };
            }
        }),
    ),
    (
        "the destination takes nothing over before it starts the guest",
        "without an entitlement",
        of_hosts(|_, view| view.is_taken_over = true),
    ),
    (
        "the destination keeps what it reserved for a move that was abandoned",
        "never comes to rest",
        of_hosts(|record, view| {
            let is_under_way = record.as_ref().is_some_and(|it| it.phase == Phase::Ordered);
            if !is_under_way && matches!(view.promise, Promise::Reserved { .. }) {
                view.promise = Promise::Entitled;
            }
        }),
    ),
    (
        "the source forgets what it asked the guest to give",
        "never comes to rest",
        of_hosts(|record, view| {
            let is_over = |it: &MoveRecord| it.phase == ABANDONED || it.phase == Phase::Moved;
            if record.as_ref().is_none_or(is_over) {
                view.shrink = None;
            }
        }),
    ),
    (
        "the source copies before it has asked the guest to shrink",
        "not asked to shrink",
        of_hosts(|record, view| {
            if let Some(record) = record {
                (record.shrink_to, view.holds) = (None, Some(Bytes::ZERO));
            }
        }),
    ),
    (
        "the source copies a guest as it is once shrinking has taken too long",
        "more than was reserved",
        of_hosts(|_, view| view.holds = Some(Bytes::ZERO)),
    ),
    (
        "the source does not look at what the guest holds while it is copied",
        "more than was reserved",
        IGNORES_GROWTH,
    ),
    (
        "nobody looks at the clock",
        "never comes to rest",
        Sabotage {
            host: |record, _| {
                if let Some(record) = record {
                    record.due = Timestamp::from_millis(1);
                }
            },
            leader: |record, _| {
                if let Some(record) = record {
                    record.due = Timestamp::from_millis(1);
                }
            },
            ..HONEST
        },
    ),
    ("a machine without a part in a move declares the guest lost", "the last copy", TRUSTS_ABSENCE),
    ("a host obeys an older leader", "an older leader", of_hosts(|_, view| view.term = Term(0))),
    (
        "a leader removes a record before its source has closed it",
        "the last copy",
        of_leaders(|record, _| {
            if let Some(record) = record {
                record.is_closed = matches!(record.phase, Phase::Abandoned { .. } | Phase::Moved);
            }
        }),
    ),
    (
        "an operator removes the record of a guest that was copied",
        "the last copy",
        of_operators(|record| {
            if matches!(record.phase, Phase::Copied { .. }) {
                record.phase = ABANDONED;
            }
        }),
    ),
    (
        "an operator removes the record of a guest that is being started",
        "the last copy",
        of_operators(|record| {
            if matches!(record.phase, Phase::Starting { .. }) {
                record.phase = ABANDONED;
            }
        }),
    ),
];

#[test]
fn each_safety_is_needed() {
    assert_each_is_needed(&SABOTAGES, small);
}

/// Asserts that each sabotage breaks its promise. Prints the shortest story of each, from its end:
/// `-- --nocapture`.
#[allow(clippy::disallowed_macros)]
fn assert_each_is_needed(sabotages: &[(&str, &str, Sabotage)], world: fn(u8, u8) -> World) {
    for (name, breaks, sabotage) in sabotages {
        let search = |(orders, faults)| explore(world(orders, faults), sabotage).err();
        let found = [(1, 1), (1, 2), (2, 1)].into_iter().find_map(search);
        let story = found.unwrap_or_else(|| panic!("{name}: nothing is found"));
        println!("{name}: {}", story.split(", after").next().unwrap());
        assert!(story.contains(breaks), "{name}: {story}");
    }
}

/// The record as it is where copying does not end the source, as with plain QEMU.
fn of_listener(record: &mut Option<MoveRecord>) {
    bend(record, |phase| match phase {
        Phase::Copying { address, .. } => {
            Some(Phase::Copying { address: *address, ends_source: false })
        }
        _ => None,
    });
}

/// The same where the program that copies ends the source itself.
const ENDING: [(&str, &str, Sabotage); 10] = [
    (
        "a source copies a guest that has grown since it was small",
        "more than was reserved",
        IGNORES_GROWTH,
    ),
    (
        "a leader abandons what is being copied",
        "where nobody expects it",
        of_leaders(|record, now| {
            of_listener(record);
            *now = Timestamp::from_millis(100);
        }),
    ),
    (
        "a destination abandons what is being copied when it is late",
        "where nobody expects it",
        of_hosts(|record, view| {
            if !is_source(record, view) {
                of_listener(record);
            }
        }),
    ),
    (
        "a source takes a guest that was copied for one that has died",
        "the last copy",
        of_hosts(|record, view| {
            if is_source(record, view) && view.process == Process::Ended {
                view.process = Process::Absent;
            }
        }),
    ),
    (
        "a source takes a guest that has died for one that was copied",
        "an outdated copy",
        of_hosts(|record, view| {
            if is_source(record, view) && view.process == Process::Absent {
                view.process = Process::Ended;
            }
        }),
    ),
    (
        "a source abandons what it copies without cancelling it first",
        "the last copy",
        of_hosts(|record, view| {
            let is_late = record.as_ref().is_some_and(|it| it.due <= view.now);
            let copies = view.process == Process::Runs(CopyState::Partly);
            if is_source(record, view) && copies && is_late {
                view.process = Process::Runs(CopyState::Failed);
            }
        }),
    ),
    (
        "a source that was not told that the guest may go on resumes it",
        "an outdated copy",
        of_hosts(|record, view| {
            if is_source(record, view) && view.process == Process::Left {
                bend(record, |phase| {
                    matches!(phase, Phase::Starting { .. } | Phase::Moved).then_some(ABANDONED)
                });
            }
        }),
    ),
    (
        "a machine without a part in a move declares the guest gone",
        "where nobody expects it",
        TRUSTS_ABSENCE,
    ),
    (
        "a destination waits for a guest that has died while it was copied",
        "never comes to rest",
        of_hosts(|record, view| {
            let is_copied = |it: &MoveRecord| matches!(it.phase, Phase::Copied { .. });
            view.ends_source &= !record.as_ref().is_some_and(is_copied);
        }),
    ),
    (
        "an operator removes the record of a guest that is being copied",
        "the last copy",
        of_operators(|record| {
            if matches!(record.phase, Phase::Copying { .. }) {
                record.phase = ABANDONED;
            }
        }),
    ),
];

#[test]
fn each_safety_is_needed_where_copying_ends_the_source() {
    assert_each_is_needed(&ENDING, small_and_ending);
}
