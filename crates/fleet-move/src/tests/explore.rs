//! Every order of events in a small world.
//!
//! Idea: breadth first over all states that can be reached, so that a broken promise comes with the
//! shortest story that breaks it. If a state has no way to quiet without further faults, something
//! is left there for ever.
//! Cost: every state is kept; some hundred thousand with two faults.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use super::world::{Event, PhaseKind, Sabotage, World};

/// What a search found.
pub(super) struct Exploration {
    pub(super) states: usize,
    /// The phases that were reached.
    pub(super) phases: BTreeSet<PhaseKind>,
    /// Whether the first guest ends at each of two hosts in some order of events.
    pub(super) rests_at: [bool; 2],
}

/// Visits all states that follow from `first`.
///
/// # Errors
/// A promise is broken, or something is left for ever: the story that leads there.
pub(super) fn explore(first: World, sabotage: &Sabotage) -> Result<Exploration, String> {
    let mut places: HashMap<World, u32> = HashMap::new();
    let mut worlds = vec![first.clone()];
    let mut parents: Vec<Option<(u32, Event)>> = vec![None];
    // For each state, the states that lead to it without a fault.
    let mut before: Vec<Vec<u32>> = vec![Vec::new()];
    places.insert(first, 0);
    let mut at = 0;
    while at < worlds.len() {
        let world = worlds[at].clone();
        for event in world.events() {
            let next = match world.after(event, sabotage) {
                Ok(next) => next,
                Err(what) => return Err(story(&what, &parents, &worlds, at, Some(event))),
            };
            let place = *places.entry(next).or_insert_with_key(|next| {
                worlds.push(next.clone());
                parents.push(Some((at as u32, event)));
                before.push(Vec::new());
                (worlds.len() - 1) as u32
            });
            if world.is_calm(event) {
                before[place as usize].push(at as u32);
            }
        }
        at += 1;
    }
    let mut comes_to_rest: Vec<bool> = worlds.iter().map(World::is_quiet).collect();
    let quiet: Vec<usize> = (0..worlds.len()).filter(|at| comes_to_rest[*at]).collect();
    let rests_at = [0, 1].map(|host| quiet.iter().any(|at| worlds[*at].side(host, 0).runs()));
    let stored = worlds.iter().flat_map(|world| world.store.iter().flatten());
    let phases = stored.map(|stored| stored.step).collect();
    let found = Exploration { states: worlds.len(), phases, rests_at };
    let mut reached = quiet;
    while let Some(at) = reached.pop() {
        for place in &before[at] {
            let place = *place as usize;
            if !std::mem::replace(&mut comes_to_rest[place], true) {
                reached.push(place);
            }
        }
    }
    match comes_to_rest.iter().position(|it| !it) {
        None => Ok(found),
        Some(at) => Err(story("this never comes to rest", &parents, &worlds, at, None)),
    }
}

/// The events that led to a state.
fn story(
    what: &str,
    parents: &[Option<(u32, Event)>],
    worlds: &[World],
    at: usize,
    last: Option<Event>,
) -> String {
    let mut events: Vec<Event> = last.into_iter().collect();
    let mut place = at;
    while let Some((parent, event)) = parents[place] {
        events.push(event);
        place = parent as usize;
    }
    let lines: Vec<String> = events.iter().rev().map(|event| format!("{event:?}")).collect();
    format!("{what}, after\n  {}\nin {:#?}", lines.join("\n  "), worlds[at])
}
