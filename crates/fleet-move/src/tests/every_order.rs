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

/// It also prints the number of states: `-- --nocapture`.
#[test]
#[allow(clippy::disallowed_macros)]
fn every_order_of_events_keeps_every_promise() {
    for (orders, faults) in [(1, 0), (1, 1), (1, 2), (2, 1)] {
        every_order_of(small(orders, faults));
    }
}

#[test]
fn promises_hold_where_copying_ends_the_source() {
    for (orders, faults) in [(1, 0), (1, 1), (1, 2), (2, 1)] {
        every_order_of(small_and_ending(orders, faults));
    }
}

#[allow(clippy::disallowed_macros)]
fn every_order_of(world: World) {
    let (orders, faults) = (world.orders_left, world.faults_left);
    let found = explore(world, &HONEST).unwrap_or_else(|story| panic!("{story}"));
    println!("{orders} moves, {faults} faults: {} states", found.states);
    // A search that gets nowhere would not find a broken promise either.
    for host in 0..2 {
        assert!(found.rests_at[host], "never at rest at h{host}");
    }
    let all = [
        PhaseKind::Ordered,
        PhaseKind::Ready,
        PhaseKind::Copying,
        PhaseKind::Copied,
        PhaseKind::Starting,
    ];
    let all = all.into_iter().chain([PhaseKind::Moved, PhaseKind::Abandoned]);
    for step in all.chain((faults > 0).then_some(PhaseKind::Lost)) {
        assert!(found.steps.contains(&step), "{step:?} is never reached");
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

fn is_source(record: &Option<MoveRecord>, view: &HostView<'_>) -> bool {
    record.as_ref().is_some_and(|it| it.from == *view.host)
}

fn carried(phase: &Phase) -> Option<Box<CarriedState>> {
    match phase {
        Phase::Copied { carried } | Phase::Starting { carried } => Some(carried.clone()),
        _ => None,
    }
}

const ABANDONED: Phase = Phase::Abandoned { why: AbandonReason::TimedOut };

/// The source does not look at what a guest holds while it is copied.
const IGNORES_GROWTH: Sabotage = Sabotage {
    host: |record, view| {
        let is_copied = |it: &MoveRecord| matches!(it.phase, Phase::Copying { .. });
        if record.as_ref().is_some_and(is_copied) {
            view.holds = Some(Bytes::ZERO);
        }
    },
    ..HONEST
};

/// A machine that has taken over a host's name declares a guest gone that it does not see.
const TRUSTS_ABSENCE: Sabotage = Sabotage { stranger: |view| view.has_part = true, ..HONEST };

/// Each entry: one safety taken away by changing what a role sees; a word of the promise that this
/// breaks; the change.
const SABOTAGES: [(&str, &str, Sabotage); 26] = [
    ("writes do not compare", "the last copy", Sabotage { blind: true, ..HONEST }),
    (
        "the destination starts the guest without writing so before",
        "an outdated copy",
        Sabotage {
            host: |record, view| {
                if !is_source(record, view) && view.process != Process::Absent {
                    let starting = |carried| Phase::Starting { carried };
                    bend(record, |phase| match phase {
                        Phase::Copied { .. } => carried(phase).map(starting),
                        _ => None,
                    });
                }
            },
            ..HONEST
        },
    ),
    (
        "the destination starts the guest as soon as it is loaded",
        "an outdated copy",
        Sabotage {
            host: |record, view| {
                if !is_source(record, view) && view.process == Process::Loaded {
                    let carried = Box::new(view.carried.clone());
                    bend(record, |_| Some(Phase::Starting { carried }));
                }
            },
            ..HONEST
        },
    ),
    (
        "a source that was left resumes the guest when it is late, without writing so",
        "the last copy",
        Sabotage {
            host: |record, view| {
                let is_late = record.as_ref().is_some_and(|it| it.due <= view.now);
                if is_source(record, view) && is_late {
                    bend(record, |phase| {
                        matches!(phase, Phase::Copied { .. }).then_some(ABANDONED)
                    });
                }
            },
            ..HONEST
        },
    ),
    (
        "a source that was left resumes the guest although it lives elsewhere",
        "the last copy",
        Sabotage {
            host: |record, view| {
                if is_source(record, view) {
                    bend(record, |phase| {
                        matches!(phase, Phase::Starting { .. } | Phase::Moved).then_some(ABANDONED)
                    });
                }
            },
            ..HONEST
        },
    ),
    (
        "the source calls a copy complete that is not",
        "an outdated copy",
        Sabotage {
            host: |_, view| {
                if view.process == Process::Runs(CopyState::Partly) {
                    view.process = Process::Left;
                }
            },
            ..HONEST
        },
    ),
    (
        "the source ends its copy before the guest runs elsewhere",
        "the last copy",
        Sabotage {
            host: |record, view| {
                if is_source(record, view) {
                    bend(record, |phase| {
                        matches!(phase, Phase::Copied { .. }).then_some(Phase::Moved)
                    });
                }
            },
            ..HONEST
        },
    ),
    (
        "the source abandons without a copy of its own",
        "the last copy",
        Sabotage {
            host: |record, view| {
                let is_copied = |it: &MoveRecord| matches!(it.phase, Phase::Copied { .. });
                let is_copied = record.as_ref().is_some_and(is_copied);
                if is_source(record, view) && is_copied && view.process == Process::Absent {
                    view.process = Process::Left;
                    view.now = Timestamp::from_millis(100);
                }
            },
            ..HONEST
        },
    ),
    (
        "a leader abandons what was copied",
        "the last copy",
        Sabotage {
            leader: |record, _| {
                bend(record, |phase| {
                    matches!(phase, Phase::Copied { .. }).then_some(Phase::Ordered)
                });
            },
            ..HONEST
        },
    ),
    (
        "a leader abandons what is being started",
        "the last copy",
        Sabotage {
            leader: |record, _| {
                bend(record, |phase| {
                    matches!(phase, Phase::Starting { .. }).then_some(Phase::Ordered)
                });
            },
            ..HONEST
        },
    ),
    (
        "a destination gives back a guest that it may have started",
        "an outdated copy",
        Sabotage {
            host: |record, view| {
                if !is_source(record, view) && view.process == Process::Absent {
                    bend(record, |phase| match phase {
                        Phase::Starting { .. } => {
                            carried(phase).map(|carried| Phase::Copied { carried })
                        }
                        _ => None,
                    });
                }
            },
            ..HONEST
        },
    ),
    (
        "a host takes a hypervisor that does not answer for one that has ended",
        "without a promise",
        Sabotage {
            host: |_, view| {
                if view.process == Process::Unknown {
                    view.process = Process::Absent;
                }
            },
            ..HONEST
        },
    ),
    (
        "the destination listens before it has reserved",
        "without a promise",
        Sabotage {
            host: |_, view| {
                if view.promise == Promise::Nothing {
                    view.promise = Promise::Reserved { size: Bytes::gib(1), is_ready: true };
                }
            },
            ..HONEST
        },
    ),
    (
        "the destination takes a refusal for a reservation",
        "without a promise",
        Sabotage {
            host: |_, view| {
                if view.promise == Promise::Refused {
                    view.promise = Promise::Reserved { size: Bytes::gib(1), is_ready: true };
                }
            },
            ..HONEST
        },
    ),
    (
        "the destination takes nothing over before it starts the guest",
        "without an entitlement",
        Sabotage { host: |_, view| view.is_taken_over = true, ..HONEST },
    ),
    (
        "the destination keeps what it reserved for a move that was abandoned",
        "never comes to rest",
        Sabotage {
            host: |record, view| {
                let is_under_way = record.as_ref().is_some_and(|it| it.phase == Phase::Ordered);
                if !is_under_way && matches!(view.promise, Promise::Reserved { .. }) {
                    view.promise = Promise::Entitled;
                }
            },
            ..HONEST
        },
    ),
    (
        "the source forgets what it asked the guest to give",
        "never comes to rest",
        Sabotage {
            host: |record, view| {
                let is_over = |it: &MoveRecord| it.phase == ABANDONED || it.phase == Phase::Moved;
                if record.as_ref().is_none_or(is_over) {
                    view.shrink = None;
                }
            },
            ..HONEST
        },
    ),
    (
        "the source copies before it has asked the guest to shrink",
        "not asked to shrink",
        Sabotage {
            host: |record, view| {
                if let Some(record) = record {
                    (record.shrink_to, view.holds) = (None, Some(Bytes::ZERO));
                }
            },
            ..HONEST
        },
    ),
    (
        "the source copies a guest as it is once shrinking has taken too long",
        "more than was reserved",
        Sabotage { host: |_, view| view.holds = Some(Bytes::ZERO), ..HONEST },
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
    (
        "a host obeys an older leader",
        "an older leader",
        Sabotage { host: |_, view| view.term = Term(0), ..HONEST },
    ),
    (
        "a leader removes a record before its source has closed it",
        "the last copy",
        Sabotage {
            leader: |record, _| {
                if let Some(record) = record {
                    record.is_closed =
                        matches!(record.phase, Phase::Abandoned { .. } | Phase::Moved);
                }
            },
            ..HONEST
        },
    ),
    (
        "an operator removes the record of a guest that was copied",
        "the last copy",
        Sabotage {
            operator: |record| {
                if matches!(record.phase, Phase::Copied { .. }) {
                    record.phase = ABANDONED;
                }
            },
            ..HONEST
        },
    ),
    (
        "an operator removes the record of a guest that is being started",
        "the last copy",
        Sabotage {
            operator: |record| {
                if matches!(record.phase, Phase::Starting { .. }) {
                    record.phase = ABANDONED;
                }
            },
            ..HONEST
        },
    ),
];

/// Prints the shortest story of each, from its end: `-- --nocapture`.
#[test]
#[allow(clippy::disallowed_macros)]
fn each_safety_is_needed() {
    for (name, breaks, sabotage) in &SABOTAGES {
        let search = |(orders, faults)| explore(small(orders, faults), sabotage).err();
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
        Sabotage {
            leader: |record, now| {
                of_listener(record);
                *now = Timestamp::from_millis(100);
            },
            ..HONEST
        },
    ),
    (
        "a destination abandons what is being copied when it is late",
        "where nobody expects it",
        Sabotage {
            host: |record, view| {
                if !is_source(record, view) {
                    of_listener(record);
                }
            },
            ..HONEST
        },
    ),
    (
        "a source takes a guest that was copied for one that has died",
        "the last copy",
        Sabotage {
            host: |record, view| {
                if is_source(record, view) && view.process == Process::Ended {
                    view.process = Process::Absent;
                }
            },
            ..HONEST
        },
    ),
    (
        "a source takes a guest that has died for one that was copied",
        "an outdated copy",
        Sabotage {
            host: |record, view| {
                if is_source(record, view) && view.process == Process::Absent {
                    view.process = Process::Ended;
                }
            },
            ..HONEST
        },
    ),
    (
        "a source abandons what it copies without cancelling it first",
        "the last copy",
        Sabotage {
            host: |record, view| {
                let is_late = record.as_ref().is_some_and(|it| it.due <= view.now);
                let copies = view.process == Process::Runs(CopyState::Partly);
                if is_source(record, view) && copies && is_late {
                    view.process = Process::Runs(CopyState::Failed);
                }
            },
            ..HONEST
        },
    ),
    (
        "a source that was not told that the guest may go on resumes it",
        "an outdated copy",
        Sabotage {
            host: |record, view| {
                if is_source(record, view) && view.process == Process::Left {
                    bend(record, |phase| {
                        matches!(phase, Phase::Starting { .. } | Phase::Moved).then_some(ABANDONED)
                    });
                }
            },
            ..HONEST
        },
    ),
    (
        "a machine without a part in a move declares the guest gone",
        "where nobody expects it",
        TRUSTS_ABSENCE,
    ),
    (
        "a destination waits for a guest that has died while it was copied",
        "never comes to rest",
        Sabotage {
            host: |record, view| {
                let is_copied = |it: &MoveRecord| matches!(it.phase, Phase::Copied { .. });
                view.ends_source &= !record.as_ref().is_some_and(is_copied);
            },
            ..HONEST
        },
    ),
    (
        "an operator removes the record of a guest that is being copied",
        "the last copy",
        Sabotage {
            operator: |record| {
                if matches!(record.phase, Phase::Copying { .. }) {
                    record.phase = ABANDONED;
                }
            },
            ..HONEST
        },
    ),
];

#[test]
#[allow(clippy::disallowed_macros)]
fn each_safety_is_needed_where_copying_ends_the_source() {
    for (name, breaks, sabotage) in &ENDING {
        let search = |(orders, faults)| explore(small_and_ending(orders, faults), sabotage).err();
        let found = [(1, 1), (1, 2), (2, 1)].into_iter().find_map(search);
        let story = found.unwrap_or_else(|| panic!("{name}: nothing is found"));
        println!("{name}: {}", story.split(", after").next().unwrap());
        assert!(story.contains(breaks), "{name}: {story}");
    }
}
