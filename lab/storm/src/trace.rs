//! The true state and the decisions in each tick of a run, for people who read a story.
//!
//! Idea: one line for the host and one for each guest, first the true state, then the daemon's
//! view. Cost: O(n) a tick, and only for a story. Limits: sizes in MiB. For a tick in which the
//! daemon dies, the line shows what it had decided.

use ballast_model::{Bytes, GuestPlan, Plan};

use crate::guest::StormGuest;
use crate::world::StormWorld;

/// The ticks of a run so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    /// Whether the ticks are wanted.
    pub(crate) is_kept: bool,
    /// The ticks, some lines each.
    pub(crate) ticks: Vec<String>,
    /// The number of ticks before the calm.
    before_calm: usize,
}

impl Trace {
    /// Notes the tick that was just played.
    pub(crate) fn note(&mut self, tick: u64, world: &StormWorld, plan: Option<&Plan>) {
        if let Some(plan) = plan.filter(|_| self.is_kept) {
            self.ticks.push(tick_text(tick, world, plan));
        }
    }

    pub(crate) fn calm_begins(&mut self) {
        self.before_calm = self.ticks.len();
    }

    /// The ticks before the calm.
    pub(crate) fn until_calm(mut self) -> Vec<String> {
        self.ticks.truncate(self.before_calm);
        self.ticks
    }
}

fn tick_text(tick: u64, world: &StormWorld, plan: &Plan) -> String {
    let budget = plan.budget;
    let mut lines = vec![format!(
        "tick {} at {:.1} s: {} committed of {}, {} grantable; {} free, {} free in swap",
        tick,
        world.now.as_secs_f64(),
        mib(budget.committed),
        mib(budget.distributable),
        mib(budget.grantable),
        world.host.free(&world.guests),
        world.host.swap_free(&world.guests),
    )];
    lines.extend(plan.notes.iter().map(|note| format!("  {note}")));
    for guest in &world.guests {
        let line = plan.guest(&guest.id).map_or_else(|| "not seen".to_owned(), decided);
        let cap = world.left(guest).and_then(|left| left.handover.resident_cap);
        let cap = cap.map_or_else(String::new, |cap| format!(", capped at {}", mib(cap)));
        lines.push(format!("  {}: {}; {line}{cap}", guest.id, truth(world, guest)));
    }
    lines.join("\n")
}

fn truth(world: &StormWorld, guest: &StormGuest) -> String {
    let StormGuest { holds, touched, paged_out, target, granted, .. } = guest;
    let now = world.now;
    let mut text = format!(
        "holds {holds}, claims {}, filled {touched}, paged out {paged_out}, ordered {target}, \
             granted {granted}",
        guest.claims()
    );
    let states = [
        (guest.is_gone(), "gone"),
        (now < guest.stalled_until || guest.is_unheard, "unheard"),
        (now < guest.stopped_until, "stopped"),
        (now < guest.unseen_until, "unseen"),
    ];
    for (is_so, word) in states {
        if is_so {
            text.push_str(", ");
            text.push_str(word);
        }
    }
    text
}

/// The daemon's decision about a guest.
fn decided(line: &GuestPlan) -> String {
    let size = |size: Option<Bytes>| size.map_or_else(|| "?".to_owned(), |it| mib(it).to_string());
    let demand = line.estimate.as_ref().map(|it| it.demand.size);
    let desired = line.desired.as_ref().map(|it| it.target);
    format!(
        "seen to hold {}, needs {}, to have {}, target {}: {}, {:?}",
        size(line.allocation),
        size(demand),
        size(desired),
        size(line.target),
        line.change,
        line.compliance
    )
}

fn mib(size: Bytes) -> u64 {
    size.get() >> 20
}
