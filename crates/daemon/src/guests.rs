//! What guests' agents are told of a plan.
//!
//! Idea: before balloons take memory, programs give back what they can do without; afterwards requests that were decided
//! on are answered, and guests hear what their balloons do.

use ballast_control::Controller;
use ballast_model::{Action, Outcome, OutcomeKind, Plan, Snapshot};

use crate::agents::{Agents, Answer};

/// The actions with which balloons are to wait, as programs in their guests give memory back first; and the others.
pub(super) fn hold_back(
    agents: &mut Agents,
    snapshot: &Snapshot,
    actions: Vec<Action>,
) -> (Vec<Outcome>, Vec<Action>) {
    let (waiting, at_once): (Vec<Action>, Vec<Action>) = actions.into_iter().partition(|action| {
        let guest = snapshot.guest(&action.guest);
        let free = guest.and_then(|guest| guest.stats?.value.free);
        let holds = guest.and_then(|guest| Some(guest.allocation?.value));
        holds.is_some_and(|holds| agents.waits(&action.guest, holds, free, action.target))
    });
    let outcome = |action: Action| Outcome {
        guest: action.guest,
        generation: action.generation,
        target: action.target,
        kind: OutcomeKind::Waiting,
    };
    (waiting.into_iter().map(outcome).collect(), at_once)
}

/// Answers the requests that were decided on, and tells guests what their balloons do.
pub(super) fn answer(
    agents: &mut Agents,
    controller: &Controller,
    snapshot: &Snapshot,
    plan: &Plan,
) {
    for guest in &plan.guests {
        let Some(holds) = guest.allocation else { continue };
        let target = guest.target.unwrap_or(holds);
        agents.balloon(&guest.id, holds, target);
        let agent = snapshot.guest(&guest.id).and_then(|sample| sample.agent);
        let Some(request) = agent.and_then(|agent| agent.value.request) else { continue };
        if controller.request_decided(&guest.id) < Some(request.number) {
            continue;
        }
        // What is wanted for it may come in steps, as others release it.
        let (wanted, why) = match &guest.desired {
            Some(desired) => (desired.target, desired.reason.to_string()),
            None => (target, guest.change.to_string()),
        };
        agents.answer(&guest.id, request.number, Answer::to(request, holds, wanted, &why));
    }
}
