//! Whom the host pages, and what it then holds their processes to.

use ballast_guard::{GuardSettings, Ledger, Standing};
use ballast_mechanism::paging::{Bound, Page, PagingInput, SwapRules};
use ballast_model::{Held, Paging, PerGuest, Plan, Snapshot};

/// Everything that is looked at beside the plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) standings: &'a [Standing],
    pub(crate) ledger: &'a Ledger,
    pub(crate) guard: &'a GuardSettings,
    /// How much of the host's swap is used for that; `None`: the host pages nobody.
    pub(crate) swap: Option<SwapRules>,
    pub(crate) paused: bool,
}

/// The plan with whom the host pages, and the bounds that are in force once it is carried out. O(n).
pub(crate) fn paged(
    input: Pages<'_>,
    mut plan: Plan,
    mut bounds: PerGuest<Bound>,
) -> (Plan, PerGuest<Bound>) {
    let now = input.snapshot.taken_at;
    // Where no bound can be kept, what a guest holds counts again.
    let may_page = input.swap.is_some_and(|rules| rules.has_room(&input.snapshot.host));
    let seen = input.snapshot.guests().iter().zip(input.standings).zip(input.ledger.records());
    let each = seen.zip(plan.guests.iter_mut()).zip(bounds.values_mut());
    for ((((guest, standing), record), planned), bound) in each {
        // As balloons, the host takes nothing of a guest whose figures are missing, old or cannot be true.
        let is_known = matches!(standing.verdict, Ok(_) | Err(Held::Stuck { .. }));
        if !may_page || !is_known {
            bound.end();
            continue;
        }
        let page = bound.decide(&PagingInput {
            now,
            resident: guest.resident,
            holds: standing.allocation,
            compliance: record.compliance(now),
            rung: plan.rung,
            asked: record.asked(),
            floor: standing.bounds.map(|(floor, _)| floor),
            stale_after: input.guard.stale_after,
        });
        let Some(Page { mechanism, resident, told }) = page.filter(|_| !input.paused) else {
            continue;
        };
        planned.moves.push(told);
        plan.paging.push(Paging {
            guest: guest.id.clone(),
            mechanism,
            resident,
            generation: plan.generation,
            deadline: now + input.guard.action_deadline,
        });
    }
    (plan, bounds)
}
