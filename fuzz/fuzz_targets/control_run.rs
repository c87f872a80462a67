//! The controller (estimates, policies, guard and checker) on any samples and events, with plugged
//! memory, paging and a host under pressure: the checker refuses no plan, orders belong to their
//! plan and are within the guest's limits, and the same history gives the same plan.
#![no_main]

use ballast_actuation::hotplug::HotplugSettings;
use ballast_actuation::paging::SwapRules;
use ballast_control::{Controller, Event, Settings};
use ballast_fuzz::Source;
use ballast_model::{Action, Mechanism, Mode, Outcome, Plan, Snapshot, Timestamp};

/// Most steps in a row.
const STEPS_MAX: usize = 24;

fn mode(from: &mut Source<'_>) -> Mode {
    if from.byte().is_multiple_of(4) { Mode::Observe } else { Mode::Balance }
}

fn settings(from: &mut Source<'_>) -> Settings {
    let mut settings = Settings::new(from.policy());
    settings.policy_settings = from.policy_settings();
    settings.guard.budget = from.perhaps(Source::size);
    settings.guard.host_reserve = from.size();
    settings.guard.step_up_max = from.perhaps(Source::size);
    settings.guard.step_down_max = from.perhaps(Source::size);
    settings.guard.dead_band = from.perhaps(Source::size);
    settings.interval = from.perhaps(Source::span);
    settings.limits.default = from.limits();
    settings.hotplug = from.perhaps(|from| HotplugSettings {
        keep: from.size(),
        ahead: from.size(),
        plug_chunk_max: from.size(),
        unplug_chunk_max: from.size(),
        idle_after: from.pause(),
        ..HotplugSettings::default()
    });
    settings.paging = from.perhaps(|from| SwapRules {
        use_max_percent: u64::from(from.byte()),
        reserve: from.size(),
    });
    settings.thrash.window = from.pause();
    settings.thrash.pause = from.pause();
    settings.undo = from.yes();
    settings.mode = mode(from);
    settings
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut from = Source::new(bytes);
    let mut now = Timestamp::ZERO;
    let mut control = Controller::new(settings(&mut from), now);
    for _ in 0..STEPS_MAX {
        if from.is_empty() {
            break;
        }
        match from.byte() % 16 {
            0 => control.handle_event(Event::Pause),
            1 => control.handle_event(Event::Resume),
            2 => {
                let id = from.id();
                control.handle_event(Event::SetLimits(id, from.limits()));
            }
            3 => control.handle_event(Event::SetPolicy(from.policy())),
            4 => control.handle_event(Event::Reconfigure(Box::new(settings(&mut from)))),
            5 => control.handle_timeout(from.moment(now)),
            6 => {
                let credits = (0..from.below(4)).map(|_| (from.id(), from.number())).collect();
                control.handle_event(Event::Credits(credits));
            }
            7 => control.handle_event(Event::SetMode(mode(&mut from))),
            _ => {
                now = from.moment(now);
                let snapshot = from.snapshot(now);
                let dry = control.dry_run(&snapshot);
                let twin = control.clone().handle_sample(&snapshot);
                let plan = control.handle_sample(&snapshot);
                assert_eq!(twin, plan, "the same history, another plan");
                assert_eq!(control.plans_refused(), 0, "{plan:?} of {snapshot:?}");
                assert!(control.held().is_none() || plan.actions.is_empty(), "{plan:?}");
                check(&plan, &snapshot);
                let _ = format!("{dry:?} {plan:?}");
                while let Some(action) = control.poll_action() {
                    // Some actions are never fetched, and some fetched ones are never answered.
                    match from.byte() % 8 {
                        0 => break,
                        1 => continue,
                        _ => control.handle_event(Event::Outcome(outcome(&action, &mut from))),
                    }
                }
            }
        }
    }
});

/// What holds for every plan, after any samples.
fn check(plan: &Plan, snapshot: &Snapshot) {
    assert_eq!(plan.guests.len(), snapshot.guests().len());
    for (guest, sample) in plan.guests.iter().zip(snapshot.guests()) {
        assert_eq!(guest.id, sample.id);
        let _ = format!("{} {}", guest.change, guest.compliance);
        guest.moves.iter().for_each(|one| drop(one.to_string()));
    }
    for action in &plan.actions {
        assert_eq!(action.generation, plan.generation);
        assert_eq!(action.target.page_floor(), action.target);
        let sample = snapshot.guest(&action.guest).expect("a guest that was seen");
        let most = sample.memory_max().expect("a guest of known size");
        assert!(action.target <= most, "{action:?} of {sample:?}");
        if let (Some(plug), Some(hotplug)) = (action.plug, sample.hotplug) {
            let plugged_max = hotplug.max.max(hotplug.plugged).max(hotplug.requested);
            assert!(plug <= plugged_max, "{action:?} of {sample:?}");
        }
    }
    for paging in &plan.paging {
        assert_eq!(paging.generation, plan.generation);
        assert!(matches!(paging.mechanism, Mechanism::PageOut | Mechanism::PageIn), "{paging:?}");
        let sample = snapshot.guest(&paging.guest).expect("a guest that was seen");
        assert!(sample.resident.is_some(), "{paging:?} of {sample:?}");
    }
}

fn outcome(action: &Action, from: &mut Source<'_>) -> Outcome {
    // Now and then the outcome belongs to another plan.
    let generation =
        if from.byte().is_multiple_of(16) { Default::default() } else { action.generation };
    let (guest, target) = (action.guest.clone(), action.target);
    Outcome { guest, generation, target, kind: from.outcome() }
}
