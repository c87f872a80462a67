//! Which guests are cheapest to copy and relieve a host enough?
//!
//! Idea: a host is short by some bytes. Of its guests, choose those that together relieve it of at
//! least that and have the least to copy: a minimum knapsack. A greedy choice, by bytes copied for
//! each byte of relief, comes first. Then a depth-first search in the same order looks for a
//! cheaper one: branch and bound, where the bound counts a fraction of the last guest. A choice
//! counts only if every guest of it finds a destination.
//! Source: the bound is Dantzig's of 1957 for the knapsack.
//! Cost: at most the given number of steps, of O(guests) each; placing a guest counts as
//! [`PLACEMENT_STEPS`] steps. If the steps are enough, the choice is the cheapest there is, given
//! the order in which destinations are looked for.

/// Steps that the search for one guest's destination counts as.
const PLACEMENT_STEPS: usize = 8;

/// What moving one guest costs and gains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// Bytes copied.
    pub(crate) traffic: u64,
    /// By how many bytes it makes the shortage smaller; more than none.
    pub(crate) relief: u64,
}

/// The cheapest choice of `items`, as indices, that relieves at least `short`, copies less than
/// `below`, and has destinations; `None` if none was found. `place` tells whether all guests of a
/// choice find destinations, and reserves nothing.
pub(crate) fn cheapest_cover(
    items: &[Item],
    short: u64,
    below: u64,
    steps: usize,
    place: &mut dyn FnMut(&[usize]) -> bool,
) -> Option<Vec<usize>> {
    let order = by_price(items);
    let mut relief_from = vec![0; order.len() + 1];
    for (at, &item) in order.iter().enumerate().rev() {
        relief_from[at] = relief_from[at + 1] + items[item].relief;
    }
    let mut search = ReliefSearch {
        items,
        order,
        relief_from,
        steps,
        place,
        taken: Vec::new(),
        best: None,
        best_traffic: below,
    };
    search.descend(0, short, 0);
    search.best
}

/// The indices of items, those with the cheapest byte of relief first.
pub(crate) fn by_price(items: &[Item]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by(|&a, &b| {
        let (first, second) = (items[a], items[b]);
        let left = u128::from(first.traffic) * u128::from(second.relief);
        let right = u128::from(second.traffic) * u128::from(first.relief);
        left.cmp(&right).then(second.relief.cmp(&first.relief)).then(a.cmp(&b))
    });
    order
}

/// Drops items that `chosen` does not need for a relief of `short`, the dearest first.
pub(crate) fn drop_needless(items: &[Item], chosen: &mut Vec<usize>, short: u64) {
    let mut relief: u64 = chosen.iter().map(|&item| items[item].relief).sum();
    let mut dearest = chosen.clone();
    dearest.sort_by_key(|&item| (std::cmp::Reverse(items[item].traffic), item));
    for item in dearest {
        if relief - items[item].relief >= short {
            relief -= items[item].relief;
            chosen.retain(|&it| it != item);
        }
    }
}

struct ReliefSearch<'a> {
    items: &'a [Item],
    order: Vec<usize>,
    /// What the items from each place in `order` on relieve together.
    relief_from: Vec<u64>,
    steps: usize,
    place: &'a mut dyn FnMut(&[usize]) -> bool,
    taken: Vec<usize>,
    best: Option<Vec<usize>>,
    best_traffic: u64,
}

impl ReliefSearch<'_> {
    /// Decides on the items from place `at` on, with `short` bytes still to be relieved.
    fn descend(&mut self, at: usize, short: u64, traffic: u64) {
        if self.steps == 0 {
            return;
        }
        self.steps -= 1;
        if short == 0 {
            self.steps = self.steps.saturating_sub(PLACEMENT_STEPS * self.taken.len());
            if traffic < self.best_traffic && (self.place)(&self.taken) {
                self.best_traffic = traffic;
                self.best = Some(self.taken.clone());
            }
            return;
        }
        if self.relief_from[at] < short || self.lower_bound(at, short, traffic) >= self.best_traffic
        {
            return;
        }
        let item = self.order[at];
        let Item { traffic: more, relief } = self.items[item];
        self.taken.push(item);
        self.descend(at + 1, short.saturating_sub(relief), traffic + more);
        self.taken.pop();
        self.descend(at + 1, short, traffic);
    }

    /// A lower bound of what every choice from here on copies: the last item counts in part.
    fn lower_bound(&self, at: usize, mut short: u64, mut traffic: u64) -> u64 {
        for &item in &self.order[at..] {
            let Item { traffic: more, relief } = self.items[item];
            if relief >= short {
                let part = u128::from(more) * u128::from(short) / u128::from(relief);
                return traffic + u64::try_from(part).unwrap_or(more);
            }
            short -= relief;
            traffic += more;
        }
        traffic
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every choice there is.
    fn brute_force(items: &[Item], short: u64, may: &dyn Fn(&[usize]) -> bool) -> Option<u64> {
        let choices = (0..1u32 << items.len())
            .map(|bits| (0..items.len()).filter(|at| bits >> at & 1 == 1).collect::<Vec<usize>>());
        let relief = |it: &[usize]| it.iter().map(|&at| items[at].relief).sum::<u64>();
        let enough = choices.filter(|it| relief(it) >= short && may(it));
        enough.map(|it| it.iter().map(|&at| items[at].traffic).sum()).min()
    }

    proptest! {
        #[test]
        fn cheapest_of_all_choices_is_found(
            items in prop::collection::vec((0u64..50, 1u64..50), 0..11),
            short in 1u64..200,
            unplaceable in prop::collection::vec(any::<bool>(), 11),
        ) {
            let items: Vec<Item> =
                items.iter().map(|&(traffic, relief)| Item { traffic, relief }).collect();
            // A choice of more than three, or with an item that fits nowhere, finds no place.
            let may = |it: &[usize]| it.len() <= 3 && it.iter().all(|&at| !unplaceable[at]);
            let found = cheapest_cover(&items, short, u64::MAX, 1 << 20, &mut |it| may(it));
            let traffic = found.as_ref().map(|it| it.iter().map(|&at| items[at].traffic).sum());
            prop_assert_eq!(traffic, brute_force(&items, short, &may));
        }

        #[test]
        fn nothing_needless_is_left(
            items in prop::collection::vec((0u64..50, 1u64..50), 1..11),
            short in 1u64..200,
        ) {
            let items: Vec<Item> =
                items.iter().map(|&(traffic, relief)| Item { traffic, relief }).collect();
            let mut chosen: Vec<usize> = (0..items.len()).collect();
            drop_needless(&items, &mut chosen, short);
            let relief: u64 = chosen.iter().map(|&at| items[at].relief).sum();
            prop_assert!(chosen.iter().all(|&at| relief - items[at].relief < short));
        }
    }
}
