//! Needs: what guests need beyond their memory in use, as far as it is met.
//!
//! Idea: the guest that reads back most must not take memory that another one uses. So a need
//! counts as memory in use only as far as there is memory that no guest uses: first what guests
//! swap, then page cache within each guest's own share, then page cache beyond it. The last leaves
//! each guest room to grow ([`headroom`]). Needs that do not all fit count in proportion.
//!
//! Cost: O(contenders). Source: ours. Limits: a floor counts as used, even where it is not.

use ballast_model::{Bytes, DemandSource};
use ballast_policy::Contender;

/// What a contender needs beyond its memory in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// Its place among the contenders.
    place: usize,
    /// What it swaps for lack of room.
    swap: Bytes,
    /// Page cache within its share; all of it until shares are known.
    cache: Bytes,
    /// Page cache beyond its share.
    more_cache: Bytes,
}

impl Need {
    /// The need of the contender at `place`.
    pub(crate) fn new(place: usize, swap: Bytes, cache: Bytes) -> Need {
        Need { place, swap, cache, more_cache: Bytes::ZERO }
    }

    /// Divides the page cache by what is left of the contender's `share` and below its ceiling.
    fn divide_cache(&mut self, contender: &Contender, share: Bytes) {
        let all = self.cache.min(contender.ceiling.saturating_sub(contender.used));
        self.cache = all.min(share.saturating_sub(contender.used));
        self.more_cache = all.saturating_sub(self.cache);
    }
}

/// Adds what each guest needs to its memory in use, as far as `budget`, the memory of all
/// contenders, allows.
pub(crate) fn add_needs(contenders: &mut [Contender], needs: &mut [Need], budget: Bytes) {
    if needs.is_empty() {
        return;
    }
    add_in_proportion(contenders, needs, |need| need.swap, unused(contenders, budget));
    let shares: u64 = contenders.iter().map(|contender| u64::from(contender.shares)).sum();
    for need in needs.iter_mut() {
        let contender = &contenders[need.place];
        need.divide_cache(contender, budget.fraction(u64::from(contender.shares), shares));
    }
    add_in_proportion(contenders, needs, |need| need.cache, unused(contenders, budget));
    let reserved: Bytes = contenders.iter().map(headroom).sum();
    let spare = unused(contenders, budget).saturating_sub(reserved);
    add_in_proportion(contenders, needs, |need| need.more_cache, spare);
}

/// The part of `budget` that no contender uses.
fn unused(contenders: &[Contender], budget: Bytes) -> Bytes {
    budget.saturating_sub(contenders.iter().map(|it| it.used.max(it.floor)).sum())
}

/// Room for a guest to grow into before others' page cache gives way: an eighth of what it uses, at
/// least 128 MiB.
fn headroom(contender: &Contender) -> Bytes {
    contender.used.fraction(1, 8).max(Bytes::mib(128))
}

/// Adds a part of each need to the use of its guest: all of it or, if that is more than `most` in
/// sum, of each the same share.
fn add_in_proportion(
    contenders: &mut [Contender],
    needs: &[Need],
    part: impl Fn(&Need) -> Bytes,
    most: Bytes,
) {
    let all: Bytes = needs.iter().map(&part).sum();
    for need in needs {
        let wanted = part(need);
        let added = wanted.min(wanted.fraction(most.get(), all.get()));
        add_use(&mut contenders[need.place], added);
    }
}

/// Counts more memory as used, and as demanded where that is the guest's use.
fn add_use(contender: &mut Contender, more: Bytes) {
    contender.used = contender.used.saturating_add(more);
    if let Some(demand) = &mut contender.demand
        && demand.source == DemandSource::Used
    {
        demand.size = contender.used;
    }
}
