//! Statistical sampling: the part of a guest's memory that is in use, from some randomly picked
//! tags.
//!
//! Idea: in each period some of all tags are picked at random; if `touched` of `n` were used by the
//! end of the period, the working set is about `touched / n` of the allocation. Real systems revoke
//! access to the picked tags and count faults; here references are examined instead.
//!
//! VMware smooths the result with three moving averages over periods: a slow one, a fast one, and a
//! fast one that already includes the current period. The greatest of the three is the estimate, so
//! it rises fast and falls slowly.
//!
//! Cost: 2 cycles for each reference while few of them hit picked tags. Memory: about 60 bytes for
//! each picked tag. Source: Waldspurger: Memory Resource Management in VMware ESX Server, OSDI
//! 2002, §5.3; the comparison of MEB §5.2.1. The papers do not give the weights of the averages;
//! ours are below. Limits: has no distances, so no curve; sees nothing beyond the allocation, so a
//! greater demand looks like all of it; the standard error of one period is `√(p (1−p) / n)` of the
//! allocation, 5 % with 100 tags and half in use.

use hashbrown::HashMap;

use crate::hash::{Random, TagHash, mix};
use crate::{Engine, EngineName, Full, Granularity, Histogram};

/// The weight of the latest period in the fast moving average.
const FAST: f64 = 1.0 / 2.0;
/// The weight of the latest period in the slow moving average.
const SLOW: f64 = 1.0 / 16.0;

/// Working set by statistical sampling.
#[derive(Clone, Debug)]
pub struct Statistical {
    /// The guest's memory is the tags from 0 to below this.
    allocation: u64,
    picked_max: usize,
    /// References in a period; `None` if the caller starts periods.
    period: Option<u64>,
    random: Random,
    hash: TagHash,
    /// Whether each picked tag was touched.
    picked: HashMap<u64, bool>,
    /// By hash: whether a picked tag may have it. The length is a power of two.
    filter: Vec<bool>,
    touched: usize,
    references: u64,
    /// References in this period.
    references_now: u64,
    averages: Option<Averages>,
}

/// Moving averages over periods, as parts of the allocation.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Averages {
    latest: f64,
    fast: f64,
    slow: f64,
}

impl Averages {
    fn next(before: Option<Self>, part: f64) -> Self {
        let towards = |from: f64, weight: f64| from + weight * (part - from);
        match before {
            None => Self { latest: part, fast: part, slow: part },
            Some(before) => Self {
                latest: part,
                fast: towards(before.fast, FAST),
                slow: towards(before.slow, SLOW),
            },
        }
    }
}

impl Statistical {
    /// The number of tags picked in a period (VMware's default).
    pub const PICKED_DEFAULT: usize = 100;
    /// The greatest number of tags picked in a period.
    pub const PICKED_MAX: usize = 1 << 20;

    /// Memory of `allocation` tags, numbered from 0. In each period `picked` of them are selected
    /// by `seed`; `picked` is from 1 to [`Self::PICKED_MAX`], other values become the nearest of
    /// these, and all tags are picked if there are fewer. A period begins when
    /// [`begin_period`](Self::begin_period) is called.
    #[must_use]
    pub fn new(allocation: u64, picked: usize, seed: u64) -> Self {
        let picked_max = picked.clamp(1, Self::PICKED_MAX);
        let mut result = Self {
            allocation,
            picked_max,
            period: None,
            random: Random::new(seed),
            hash: TagHash::new(mix(seed)),
            picked: HashMap::new(),
            filter: vec![false; (picked_max * 32).next_power_of_two()],
            touched: 0,
            references: 0,
            references_now: 0,
            averages: None,
        };
        result.pick();
        result
    }

    /// Also begins a new period after every `references` references (at least 1).
    #[must_use]
    pub fn with_period(mut self, references: u64) -> Self {
        self.period = Some(references.max(1));
        self
    }

    /// Ends the period and picks other tags.
    pub fn begin_period(&mut self) {
        if self.references_now > 0 {
            self.averages = Some(Averages::next(self.averages, self.part_now()));
        }
        self.pick();
    }

    /// The estimated working set in tags, never above the allocation: the greatest of the slow
    /// moving average, the fast one, and the fast one including this period. `None` before any
    /// reference.
    #[must_use]
    pub fn working_set(&self) -> Option<u64> {
        let now = (self.references_now > 0).then(|| self.part_now());
        let part = match (self.averages, now) {
            (None, None) => return None,
            (None, Some(now)) => now,
            (Some(past), None) => past.fast.max(past.slow),
            (Some(past), Some(now)) => {
                past.fast.max(past.slow).max(Averages::next(Some(past), now).fast)
            }
        };
        Some(self.tags(part))
    }

    /// The result of the last whole period, in tags.
    #[must_use]
    pub fn latest(&self) -> Option<u64> {
        self.averages.map(|averages| self.tags(averages.latest))
    }

    fn tags(&self, part: f64) -> u64 {
        ((part * self.allocation as f64).round() as u64).min(self.allocation)
    }

    fn part_now(&self) -> f64 {
        if self.picked.is_empty() { 0.0 } else { self.touched as f64 / self.picked.len() as f64 }
    }

    /// Picks tags without repetition (Floyd's algorithm).
    fn pick(&mut self) {
        self.picked.clear();
        self.filter.fill(false);
        self.touched = 0;
        self.references_now = 0;
        let count = self.allocation.min(self.picked_max as u64);
        for last in self.allocation - count..self.allocation {
            let tag = self.random.below(last + 1);
            let tag = if self.picked.contains_key(&tag) { last } else { tag };
            self.picked.insert(tag, false);
            let slot = self.slot(tag);
            self.filter[slot] = true;
        }
    }

    fn slot(&self, tag: u64) -> usize {
        // The top bits are the good ones; the filter has 32 to 2^25 entries.
        (self.hash.of(tag) >> (64 - self.filter.len().trailing_zeros())) as usize
    }

    fn touch(&mut self, tags: &[u64]) {
        for &tag in tags {
            if self.filter[self.slot(tag)]
                && let Some(is_touched) = self.picked.get_mut(&tag)
                && !std::mem::replace(is_touched, true)
            {
                self.touched += 1;
            }
        }
        self.references += tags.len() as u64;
        self.references_now += tags.len() as u64;
    }
}

impl Engine for Statistical {
    fn name(&self) -> EngineName {
        EngineName::Statistical
    }

    fn record(&mut self, tags: &[u64]) -> Result<(), Full> {
        let Some(period) = self.period else {
            self.touch(tags);
            return Ok(());
        };
        let mut tags = tags;
        while !tags.is_empty() {
            let left = period.saturating_sub(self.references_now).min(tags.len() as u64);
            let (now, later) = tags.split_at(left as usize);
            self.touch(now);
            if self.references_now >= period {
                self.begin_period();
            }
            tags = later;
        }
        Ok(())
    }

    fn references(&self) -> u64 {
        self.references
    }

    /// The estimated working set, 0 before any reference.
    fn distinct(&self) -> u64 {
        self.working_set().unwrap_or(0)
    }

    fn histogram(&self) -> Option<Histogram> {
        None
    }

    /// References are counted from zero again; the averages continue.
    fn start_interval(&mut self) {
        self.references = 0;
    }

    /// The allocation is rounded up to whole tags; a period begins.
    fn regroup(&mut self, from: Granularity, to: Granularity) -> Result<(), Full> {
        self.start_interval();
        self.allocation = match to >= from {
            true => self.allocation.div_ceil(to.pages() / from.pages()),
            false => self.allocation.saturating_mul(from.pages() / to.pages()),
        };
        self.pick();
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        (self.picked.allocation_size() + self.filter.capacity()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_a_run_fill_the_filter() {
        for picked in [1, 3, Statistical::PICKED_DEFAULT, 5000] {
            let engine = Statistical::new(1 << 50, picked, 1);
            let mut is_met = vec![false; engine.filter.len()];
            (0..is_met.len() as u64).for_each(|tag| is_met[engine.slot(tag)] = true);
            let met = is_met.iter().filter(|is_met| **is_met).count();
            // Independent draws would meet 63 %.
            assert!(met * 2 > is_met.len(), "{picked}: {met} of {}", is_met.len());
        }
        let greatest = Statistical::new(u64::MAX, Statistical::PICKED_MAX, 1);
        assert!([0, 1, u64::MAX].iter().all(|&tag| greatest.slot(tag) < greatest.filter.len()));
    }
}
