//! The sizes that an allocation within a limit can use.

use super::relaxed::{Relaxed, Size};
use crate::meb::cost::Cost;

/// Sizes with a gap up to a limit.
#[derive(Debug)]
pub(super) struct Survivors<'a, C> {
    /// All sizes.
    pub(super) relaxed: &'a Relaxed<C>,
    sizes: Vec<Size<C>>,
    /// Start of each guest's sizes, and the end of the last.
    starts: Vec<usize>,
    pub(super) limit: C,
    /// The sum of gaps of a known allocation; at least the limit.
    pub(super) known: C,
    /// Most steps that can be left over within the limit.
    pub(super) left_over_max: usize,
}

impl<'a, C: Cost> Survivors<'a, C> {
    pub(super) fn new(relaxed: &'a Relaxed<C>, limit: C, known: C) -> Self {
        let (mut sizes, mut starts) = (Vec::new(), vec![0]);
        for guest in 0..relaxed.bases.len() {
            sizes.extend(relaxed.of(guest).iter().filter(|size| size.gap <= limit));
            starts.push(sizes.len());
        }
        let left_over = limit.into() / relaxed.price.into().max(1);
        let left_over_max = usize::try_from(left_over).unwrap_or(usize::MAX).min(relaxed.spare);
        Self { relaxed, sizes, starts, limit, known, left_over_max }
    }

    /// Number of guests.
    pub(super) fn guests(&self) -> usize {
        self.relaxed.bases.len()
    }

    /// The sizes of a guest, from the smallest; never empty, because its base has no gap.
    pub(super) fn of(&self, guest: usize) -> &[Size<C>] {
        &self.sizes[self.starts[guest]..self.starts[guest + 1]]
    }
}
