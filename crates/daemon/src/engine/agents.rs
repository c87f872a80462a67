//! Passes a plan to the agents inside guests.
//!
//! Idea: before a balloon inflates, programs in the guest release memory they do not need. After
//! the actions, decided requests are answered and each guest learns what its balloon does.

use ballast_control::Controller;
use ballast_model::{Action, HoldReason, Outcome, OutcomeKind, Plan, Snapshot};

use super::World;
use crate::agents::Answer;

/// Splits `actions`: those that wait until programs in the guest have released memory (as
/// outcomes), and those to carry out now.
pub(super) fn hold_back(
    world: &mut impl World,
    snapshot: &Snapshot,
    actions: Vec<Action>,
) -> (Vec<Outcome>, Vec<Action>) {
    let (waiting, at_once): (Vec<Action>, Vec<Action>) = actions.into_iter().partition(|action| {
        let guest = snapshot.guest(&action.guest);
        let free = guest.and_then(|guest| guest.stats?.value.free);
        let holds = guest.and_then(|guest| Some(guest.allocation?.value));
        holds.is_some_and(|holds| world.must_wait(&action.guest, holds, free, action.target))
    });
    let waiting = waiting.iter().map(|action| outcome(action, OutcomeKind::Waiting));
    (waiting.collect(), at_once)
}

pub(super) fn outcome(action: &Action, kind: OutcomeKind) -> Outcome {
    let (guest, generation, target) = (action.guest.clone(), action.generation, action.target);
    Outcome { guest, generation, target, kind }
}

/// Answers the requests that are decided, and reports to each guest what its balloon does.
pub(super) fn answer(
    world: &mut impl World,
    controller: &Controller,
    snapshot: &Snapshot,
    plan: &Plan,
) {
    // In observe mode nothing can be promised, and a refusal might make the agent shrink programs.
    let may_answer = controller.held() != Some(HoldReason::Observing);
    for guest in &plan.guests {
        let Some(holds) = guest.allocation else { continue };
        let target = guest.target.unwrap_or(holds);
        world.tell_balloon(&guest.id, holds, target);
        let agent = snapshot.guest(&guest.id).and_then(|sample| sample.agent.as_deref());
        let Some(request) = agent.and_then(|agent| agent.value.request) else { continue };
        if !may_answer || controller.request_decided(&guest.id) < Some(request.number) {
            continue;
        }
        // The guest may get this in steps, as other guests release memory.
        let (wanted, why) = match &guest.desired {
            Some(desired) => (desired.target, desired.reason.to_string()),
            None => (target, guest.change.to_string()),
        };
        world.answer(&guest.id, request.number, Answer::to(request, holds, wanted, &why));
    }
}
