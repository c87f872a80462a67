//! Least sums of gaps of the guests from some place on, for all totals that matter.

use super::convolve::{Sums, convolve};
use super::relaxed::Size;
use super::survivors::Survivors;
use super::window::Window;
use crate::meb::cost::Cost;

/// Least sums by total steps of these guests, from `first` on.
#[derive(Clone, Debug)]
pub(super) struct Layer<C> {
    first: i64,
    sums: Vec<C>,
}

impl<C: Cost> Layer<C> {
    /// The layer after the last guest, where each step left over costs its price.
    pub(super) fn behind_all(survivors: &Survivors<C>, window: Window) -> Self {
        let last = window.last.min(survivors.left_over_max as i64);
        let price = |steps: i64| survivors.relaxed.price * C::from(steps as u64);
        Self { first: window.first, sums: (window.first..=last).map(price).collect() }
    }

    /// The layer with one more guest in front.
    pub(super) fn with(&self, survivors: &Survivors<C>, guest: usize, window: Window) -> Self {
        let sizes = survivors.of(guest);
        let at = |size: Option<&Size<C>>| size.map_or(0, |size| i64::from(size.at));
        let first = window.first.max(self.first + at(sizes.first()));
        let behind_last = self.first + self.sums.len() as i64 - 1;
        let last = window.last.min(behind_last + at(sizes.last()));
        let mut sums = vec![C::END; usize::try_from(last - first + 1).unwrap_or(0)];
        let behind = Sums { first: self.first, sums: &self.sums[..] };
        convolve(&mut Sums { first, sums: &mut sums[..] }, behind, sizes);
        // Totals at either end that are worse than the known sum would only lengthen later layers.
        let is_dead = |sum: &&C| **sum > survivors.known;
        sums.truncate(sums.len() - sums.iter().rev().take_while(is_dead).count());
        let dead = sums.iter().take_while(is_dead).count();
        sums.drain(..dead);
        Self { first: first + dead as i64, sums }
    }

    /// The least sum for a total of `steps`; `None` if it certainly exceeds the limit.
    pub(super) fn sum(&self, steps: i64) -> Option<C> {
        self.sums.get(usize::try_from(steps - self.first).ok()?).copied()
    }
}
