//! Whom the host pages, and what it then holds their processes to.

use ballast_guard::{GuardSettings, Ledger, Record, Standing};
use ballast_mechanism::paging::{Bound, Page, PagingInput, SwapRules, Wealth, richest};
use ballast_mechanism::rates::{Rates, Reduction, choose};
use ballast_model::{
    Bytes, Compliance, GuestPlan, GuestSample, Held, Mechanism, Paging, PerGuest, Plan, Rung,
    Snapshot, Timestamp, Why,
};

/// Everything that is looked at beside the plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) standings: &'a [Standing],
    pub(crate) ledger: &'a Ledger,
    pub(crate) rates: &'a PerGuest<Rates>,
    pub(crate) guard: &'a GuardSettings,
    /// How much of the host's swap is used for that; `None`: the host pages nobody.
    pub(crate) swap: Option<SwapRules>,
    pub(crate) paused: bool,
}

/// The plan with whom the host pages, and the bounds that are in force once it is carried out. O(n), O(n log n) where
/// the host is short.
pub(crate) fn paged(
    input: Pages<'_>,
    mut plan: Plan,
    mut bounds: PerGuest<Bound>,
) -> (Plan, PerGuest<Bound>) {
    let now = input.snapshot.taken_at;
    // Where no bound can be kept, what a guest holds counts again.
    let may_page = input.swap.is_some_and(|rules| rules.has_room(&input.snapshot.host));
    let rich = rich(&input, &plan, &bounds);
    let seen = input.snapshot.guests().iter().zip(input.standings).zip(input.ledger.records());
    let memories = input.rates.values().zip(bounds.values_mut()).zip(rich);
    let each = seen.zip(plan.guests.iter_mut()).zip(memories);
    for ((((guest, standing), record), planned), ((rates, bound), is_rich)) in each {
        // As balloons, the host takes nothing of a guest whose figures are missing, old or cannot be true.
        if !may_page || !is_known(standing) {
            bound.end();
            continue;
        }
        let short = || Some((part(planned)?, Why::HostShort { rung: plan.rung }));
        let is_bounded = bound.in_force().is_some();
        let owed = owed(guest, record, rates, plan.rung, is_bounded, now);
        let take_to = owed.or_else(|| if is_rich { short() } else { None });
        let page = bound.decide(&PagingInput {
            now,
            resident: guest.resident,
            holds: standing.allocation,
            take_to,
            floor: standing.bounds.map(|(floor, _)| floor),
            may_read_back: plan.rung == Rung::Normal,
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

fn is_known(standing: &Standing) -> bool {
    matches!(standing.verdict, Ok(_) | Err(Held::Stuck { .. }))
}

/// What a guest was asked to hold and is to be paged out for, and why.
fn owed(
    sample: &GuestSample,
    record: &Record,
    rates: &Rates,
    rung: Rung,
    is_bounded: bool,
    now: Timestamp,
) -> Option<(Bytes, Why)> {
    let asked = record.asked()?;
    let amount = sample.allocation?.value.saturating_sub(asked);
    let compliance = record.compliance(now);
    let reduction = Reduction { sample, compliance, amount, rung, may_page: true };
    match choose(&reduction, rates)? {
        (Mechanism::PageOut, why) => Some((asked, why)),
        // Others may have what the host took: it is held to what it was asked for until it has given all of that.
        _ if is_bounded => {
            let Compliance::Releasing { left, idle } = compliance else { return None };
            Some((asked, Why::NotGiven { left, asked: idle }))
        }
        _ => None,
    }
}

/// What the policy wants for a guest.
fn part(planned: &GuestPlan) -> Option<Bytes> {
    planned.desired.as_ref().map(|desired| desired.target)
}

/// Of each guest, whether the host takes from it because it is among the richest.
fn rich(input: &Pages<'_>, plan: &Plan, bounds: &PerGuest<Bound>) -> Vec<bool> {
    let available = input.snapshot.host.memory_available;
    let (Some(available), true) = (available, plan.rung >= Rung::ReclaimRichest) else {
        return vec![false; plan.guests.len()];
    };
    let wealth = |((standing, planned), bound): ((&Standing, &GuestPlan), &Bound)| {
        let least = part(planned).max(standing.bounds.map(|(floor, _)| floor));
        let holds = standing.allocation.filter(|_| standing.verdict.is_ok());
        let beyond = holds.unwrap_or_default().saturating_sub(least.unwrap_or(Bytes::MAX));
        Wealth { beyond, was_rich: bound.in_force().is_some() }
    };
    let each = input.standings.iter().zip(&plan.guests).zip(bounds.values());
    let wealth: Vec<Wealth> = each.map(wealth).collect();
    richest(&wealth, input.guard.host_reserve.saturating_sub(available))
}
