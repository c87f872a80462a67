//! From a draft of targets to actions: by which mechanisms each guest gets there.
//!
//! Idea: the guard says how much, a router per guest says how; an order may come of it where the guard has none, as
//! memory is plugged in ahead of need and pulled out when idle. Whatever that takes beyond targets comes out of what
//! the guard's own grants left.
//! Cost: O(n log n) a tick. Limits: guests that take no part are routed nowhere.

use ballast_guard::{Draft, Ledger, Standing};
use ballast_mechanism::hotplug::{HotplugSettings, Route, RouteInput, Router};
use ballast_model::{Action, Bytes, Generation, GuestPlan, PerGuest, Snapshot, Timestamp};

/// Everything that routing looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routing<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) standings: &'a [Standing],
    pub(crate) ledger: &'a Ledger,
    /// What can be granted at once, as far as memory may be plugged in.
    pub(crate) spare: Bytes,
    pub(crate) settings: &'a HotplugSettings,
    pub(crate) generation: Generation,
    pub(crate) deadline: Timestamp,
}

/// The draft with its actions routed, releases first, and with the moves of each guest; `routers` are in step with the
/// snapshot.
pub(crate) fn route(input: Routing<'_>, routers: &mut PerGuest<Router>, mut draft: Draft) -> Draft {
    let sent = sent(&draft);
    let granted = |((standing, target), ask): ((&Standing, &Option<Bytes>), &Option<Bytes>)| {
        let target = ask.or(*target).unwrap_or_default();
        match standing.paged {
            Some(_) => standing.committed_at(target).saturating_sub(standing.lasting()),
            None => target.saturating_sub(standing.covered()),
        }
    };
    let granted: Bytes = input.standings.iter().zip(&sent).zip(&draft.asks).map(granted).sum();
    let mut spare = input.spare.saturating_sub(granted);
    let (mut releases, mut grants) = (Vec::with_capacity(draft.actions.len()), Vec::new());
    let seen = input.snapshot.guests().iter().zip(input.standings).zip(input.ledger.records());
    let each = seen.zip(routers.values_mut()).zip(draft.guests.iter_mut()).zip(sent);
    for (((((sample, standing), record), router), guest), send) in each {
        let route = router.route(&RouteInput {
            now: input.snapshot.taken_at,
            sample,
            in_force: record.target(),
            send,
            bounds: standing.bounds.filter(|_| standing.verdict.is_ok()),
            spare,
            settings: input.settings,
        });
        spare = spare.saturating_sub(route.from_spare);
        let Some(action) = action(&input, guest, route) else { continue };
        if action.target > standing.covered() { grants.push(action) } else { releases.push(action) }
    }
    releases.append(&mut grants);
    draft.actions = releases;
    draft
}

/// What the guard sends to each guest, in the order of the draft's guests.
fn sent(draft: &Draft) -> Vec<Option<Bytes>> {
    let mut sent = vec![None; draft.guests.len()];
    for action in &draft.actions {
        if let Ok(place) = draft.guests.binary_search_by(|guest| guest.id.cmp(&action.guest)) {
            sent[place] = Some(action.target);
        }
    }
    sent
}

fn action(input: &Routing<'_>, guest: &mut GuestPlan, route: Route) -> Option<Action> {
    guest.moves = route.moves;
    Some(Action {
        guest: guest.id.clone(),
        target: route.target?,
        plug: route.plug,
        generation: input.generation,
        deadline: input.deadline,
    })
}
