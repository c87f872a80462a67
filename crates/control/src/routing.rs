//! From a draft of targets to actions: by which mechanisms each guest gets there.
//!
//! Idea: the guard says how much, a router per guest says how; an order may come of it where the guard has none, as
//! memory is plugged in ahead of need and pulled out when idle. Whatever that takes beyond targets comes out of what
//! the guard's own grants left.
//! Cost: O(n) a tick. Limits: guests that take no part are routed nowhere.

use ballast_guard::{Draft, Ledger, Standing};
use ballast_mechanism::hotplug::{HotplugSettings, Route, RouteInput, Router, unrouted};
use ballast_model::{Action, Bytes, Generation, GuestPlan, PerGuest, Snapshot, Timestamp};

/// Everything that routing looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routing<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) standings: &'a [Standing],
    pub(crate) ledger: &'a Ledger,
    /// What can be granted at once, as far as memory may be plugged in.
    pub(crate) spare: Bytes,
    /// `None`: nothing is plugged in or out.
    pub(crate) settings: Option<&'a HotplugSettings>,
    pub(crate) generation: Generation,
    pub(crate) deadline: Timestamp,
}

/// The actions for a draft, releases first; the draft's guests are told their moves. `routers` are in step with the snapshot.
pub(crate) fn route(
    input: Routing<'_>,
    routers: &mut PerGuest<Option<Box<Router>>>,
    draft: &mut Draft,
) -> Vec<Action> {
    let granted = |((standing, send), ask): ((&Standing, &Option<Bytes>), &Option<Bytes>)| {
        let target = ask.or(*send).unwrap_or_default();
        match standing.paged {
            Some(_) => standing.committed_at(target).saturating_sub(standing.lasting()),
            None => target.saturating_sub(standing.covered()),
        }
    };
    let granted: Bytes =
        input.standings.iter().zip(&draft.sends).zip(&draft.asks).map(granted).sum();
    let mut spare = input.spare.saturating_sub(granted);
    let (mut releases, mut grants) = (Vec::new(), Vec::new());
    let seen = input.snapshot.guests().iter().zip(input.standings).zip(input.ledger.records());
    let drafted = draft.guests.iter_mut().zip(&draft.sends);
    for ((((sample, standing), record), router), (guest, &send)) in
        seen.zip(routers.values_mut()).zip(drafted)
    {
        if sample.hotplug.is_none() {
            *router = None;
        }
        let route = match input.settings.filter(|_| sample.hotplug.is_some()) {
            Some(settings) => router.get_or_insert_default().route(&RouteInput {
                now: input.snapshot.taken_at,
                sample,
                in_force: record.target(),
                send,
                bounds: standing.bounds.filter(|_| standing.verdict.is_ok()),
                spare,
                settings,
            }),
            None => unrouted(sample, send),
        };
        spare = spare.saturating_sub(route.from_spare);
        let Some(action) = action(&input, guest, route) else { continue };
        if action.target > standing.covered() { grants.push(action) } else { releases.push(action) }
    }
    releases.append(&mut grants);
    releases
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
