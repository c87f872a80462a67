//! The controller (estimates, policies, guard and checker) on any samples and events: no plan is
//! refused by the checker, and actions are of their plan.
#![no_main]

use ballast_control::{Controller, Event, Settings};
use ballast_fuzz::Source;
use ballast_model::{Outcome, OutcomeKind, Timestamp};

/// Most steps in a row.
const STEPS_MAX: usize = 24;

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
            _ => {
                now = from.moment(now);
                let snapshot = from.snapshot(now);
                let dry = control.dry_run(&snapshot);
                let plan = control.handle_sample(&snapshot);
                let _ = format!("{dry:?} {plan:?}");
                for guest in &plan.guests {
                    let _ = format!("{} {}", guest.change, guest.compliance);
                }
                while let Some(action) = control.poll_action() {
                    assert_eq!(action.generation, plan.generation);
                    assert_eq!(action.target.page_floor(), action.target);
                    let kinds = [OutcomeKind::Accepted, OutcomeKind::Expired];
                    let kind = kinds[from.below(2) as usize].clone();
                    let (guest, generation, target) =
                        (action.guest, action.generation, action.target);
                    let outcome = Outcome { guest, generation, target, kind };
                    control.handle_event(Event::Outcome(outcome));
                }
            }
        }
        assert_eq!(control.plans_refused(), 0);
    }
});
