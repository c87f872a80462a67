//! AET: stack distances out of how long ago tags were used, without any order of tags.
//!
//! Idea: of a reference it is counted how many references ago its tag was used (its reuse time `t`).
//! With `P(x)` the share of references whose reuse time is above `x`, a tag that was used `x`
//! references ago is still the latest to be used then with chance `P(x)`; so in `t` references
//!
//! ```text
//! d(t) = Σ P(x) over 0 ≤ x < t
//! ```
//!
//! different tags are used on average, and that is the expected stack distance. In the paper's
//! words: an average eviction time of `t` belongs to a cache of `d(t)`.
//!
//! Reuse times can be sampled by picking references, not tags: a few hundred tags are watched, each
//! from a random reference to it until it is used again. Every reference has the same chance, hot
//! tag or not, so chance weighs less than in SHARDS with as many tags. When there are too many, a
//! random one is given up: that its reuse time is longer than so far is still known and counts
//! (Kaplan and Meier's estimate). The gap between picked references doubles as long as tags have to
//! be given up, and each counts with the gap of its time.
//!
//! Cost: of all references a table look-up each, of sampled ones 4–8 cycles. Memory: 20 to 60 bytes for
//! each tag, or about 60 for each watched one and 64 KiB to count different tags.
//! Source: Hu, Wang, Li, Zhou, Luo, Ding, Jiang, Wang: Kinetic Modeling of Data Eviction in Cache, ATC
//! 2016; Kaplan and Meier 1958; giving up watched tags as censoring is ours.
//! Limits: takes references to be independent of their place in time, so phases blur; reuse times
//! are kept in 64 buckets per octave, so distances are off by up to 1/128 of themselves.

use hashbrown::HashMap;

use crate::distinct::Distinct;
use crate::hash::{Random, TagHash};
use crate::index::TagIndex;
use crate::log_linear::LogLinear;
use crate::shards::Estimates;
use crate::{Engine, EngineName, Full, Granularity, Histogram};

/// Reuse times.
type Times = LogLinear<6>;

/// Average eviction time.
#[derive(Clone, Debug)]
pub struct Aet {
    /// References since the beginning.
    now: u64,
    references: u64,
    cold: f64,
    seen: ReuseTimes,
    tracked: Tracked,
}

/// Reuse times, known and known in part.
#[derive(Clone, Debug, Default)]
struct ReuseTimes {
    /// Tags used again after this long.
    reused: Times,
    /// Tags given up after this long.
    given_up: Times,
    /// Tags that were watched this long before the interval started.
    entered: Times,
}

#[derive(Clone, Debug)]
enum Tracked {
    All { index: TagIndex, last: Vec<u64> },
    Some(Box<Watch>),
}

impl Default for Aet {
    fn default() -> Self {
        Self::new()
    }
}

impl Aet {
    /// Watched tags that [`sampled`](Self::sampled) is good with.
    pub const WATCHED_DEFAULT: usize = 512;
    /// Most tags that are watched.
    pub const WATCHED_MAX: usize = 1 << 20;

    /// Every reference's reuse time.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Tracked::All { index: TagIndex::default(), last: Vec::new() })
    }

    /// Reuse times of references that `seed` picks; at most `watched_max` tags (from 1 to
    /// [`Self::WATCHED_MAX`], else the nearest) are watched at a time.
    #[must_use]
    pub fn sampled(watched_max: usize, seed: u64) -> Self {
        let watched_max = watched_max.clamp(1, Self::WATCHED_MAX);
        Self::with(Tracked::Some(Box::new(Watch::new(watched_max, seed))))
    }

    fn with(tracked: Tracked) -> Self {
        Self { now: 0, references: 0, cold: 0.0, seen: ReuseTimes::default(), tracked }
    }

    /// The weight of cold references since the interval started.
    fn cold(&self) -> f64 {
        match &self.tracked {
            Tracked::All { .. } => self.cold,
            Tracked::Some(watch) => {
                let new = watch.distinct.count() - watch.distinct_at_start;
                new.clamp(0.0, self.references as f64)
            }
        }
    }
}

impl Engine for Aet {
    fn name(&self) -> EngineName {
        EngineName::Aet
    }

    fn record(&mut self, tags: &[u64]) -> Result<(), Full> {
        match &mut self.tracked {
            Tracked::All { index, last } => {
                for &tag in tags {
                    let (number, is_new) = index.number(tag)?;
                    if is_new {
                        last.push(self.now);
                        self.cold += 1.0;
                    } else {
                        let before = std::mem::replace(&mut last[number as usize], self.now);
                        self.seen.reused.add(self.now - before, 1.0);
                    }
                    self.now += 1;
                    self.references += 1;
                }
            }
            Tracked::Some(watch) => {
                watch.record(tags, self.now, &mut self.seen);
                self.now += tags.len() as u64;
                self.references += tags.len() as u64;
            }
        }
        Ok(())
    }

    fn references(&self) -> u64 {
        self.references
    }

    fn distinct(&self) -> u64 {
        match &self.tracked {
            Tracked::All { index, .. } => index.len(),
            Tracked::Some(watch) => watch.distinct.count().round() as u64,
        }
    }

    fn histogram(&self) -> Option<Histogram> {
        let cold = self.cold();
        let mut seen = self.seen.clone();
        match &self.tracked {
            Tracked::All { .. } => {
                // Cold references were never used before, however long one goes back.
                seen.given_up.add(self.now.max(1), self.cold);
            }
            Tracked::Some(watch) => watch.ages(self.now, &mut seen.given_up),
        }
        let warm = self.references as f64 - cold;
        Some(seen.distances(warm, self.distinct() as f64).into_histogram(cold))
    }

    fn start_interval(&mut self) {
        self.seen = ReuseTimes::default();
        self.references = 0;
        self.cold = 0.0;
        if let Tracked::Some(watch) = &mut self.tracked {
            watch.ages(self.now, &mut self.seen.entered);
            watch.distinct_at_start = watch.distinct.count();
        }
    }

    /// A coarser tag was used when the last of its members was. Finer ones were used, all of them,
    /// when the coarse one was; watched ones are forgotten. When tags are watched, different ones are
    /// counted anew.
    fn regroup(&mut self, from: Granularity, to: Granularity) -> Result<(), Full> {
        match &mut self.tracked {
            Tracked::All { index, last } => {
                let mut order: Vec<u32> = (0..last.len() as u32).collect();
                order.sort_unstable_by_key(|&number| std::cmp::Reverse(last[number as usize]));
                let (mut index_new, mut last_new) = (TagIndex::default(), Vec::new());
                for number in order {
                    for tag in from.regroup(to, &[index.tag(number)]) {
                        if index_new.number(tag)?.1 {
                            last_new.push(last[number as usize]);
                        }
                    }
                }
                (*index, *last) = (index_new, last_new);
            }
            Tracked::Some(watch) => watch.regroup(from, to),
        }
        self.start_interval();
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        let times = [&self.seen.reused, &self.seen.given_up, &self.seen.entered];
        let times: u64 = times.iter().map(|times| times.memory_bytes()).sum();
        times
            + match &self.tracked {
                Tracked::All { index, last } => {
                    index.memory_bytes() + (last.capacity() * size_of::<u64>()) as u64
                }
                Tracked::Some(watch) => watch.memory_bytes(),
            }
    }
}

impl ReuseTimes {
    /// The expected distance of each reuse time, with weights that add up to `warm`; none is above
    /// `distinct`.
    fn distances(&self, warm: f64, distinct: f64) -> Estimates {
        let weight = |times: &Times, index| times.weights().get(index).copied().unwrap_or(0.0);
        let sum = |times: &Times| times.weights().iter().sum::<f64>();
        let buckets = self.reused.weights().len();
        let mut watched = sum(&self.reused) + sum(&self.given_up) - sum(&self.entered);
        // `P` where the bucket begins, and `d`.
        let (mut share, mut distance) = (1.0, 0.0);
        let mut points = Vec::new();
        for index in 0..buckets {
            let width = Times::span(index).1 as f64;
            let reused = weight(&self.reused, index);
            let fall = if watched > 0.0 { share * (reused / watched).min(1.0) } else { 0.0 };
            if fall > 0.0 {
                let half = (width - 1.0) / 2.0;
                let middle = distance + half * share - fall * half * (half + 1.0) / (2.0 * width);
                points.push((middle.clamp(1.0, distinct.max(1.0)), fall));
            }
            distance += width * share - fall * (width + 1.0) / 2.0;
            share -= fall;
            watched += weight(&self.entered, index) - reused - weight(&self.given_up, index);
        }
        let scale = if share < 1.0 { warm / (1.0 - share) } else { 0.0 };
        let mut estimates = Estimates::default();
        points.iter().for_each(|&(distance, fall)| estimates.push(distance, fall * scale));
        if points.is_empty() {
            // Nothing is known of them but that they need no more than all tags.
            estimates.push(distinct, warm);
        }
        estimates
    }
}

/// Tags watched until they are used again.
#[derive(Clone, Debug)]
struct Watch {
    watched_max: usize,
    random: Random,
    hash: TagHash,
    watched: Vec<Watched>,
    /// Where in `watched` a tag is.
    places: HashMap<u64, u32>,
    /// By hash, how many watched tags have it: nearly all references are to none.
    filter: Vec<u8>,
    /// References between picked ones, on average.
    gap: u64,
    /// References until the next picked one.
    left: u64,
    /// Tags given up with this gap.
    given_up: usize,
    distinct: Distinct,
    distinct_at_start: f64,
}

#[derive(Clone, Copy, Debug)]
struct Watched {
    tag: u64,
    since: u64,
    weight: f64,
}

impl Watch {
    fn new(watched_max: usize, seed: u64) -> Self {
        Self {
            watched_max,
            random: Random::new(seed),
            hash: TagHash::new(seed),
            watched: Vec::new(),
            places: HashMap::new(),
            filter: vec![0; (watched_max * 16).next_power_of_two()],
            gap: 1,
            left: 0,
            given_up: 0,
            distinct: Distinct::constant(seed),
            distinct_at_start: 0.0,
        }
    }

    fn record(&mut self, tags: &[u64], now: u64, seen: &mut ReuseTimes) {
        self.distinct.note(tags);
        for (now, &tag) in (now..).zip(tags) {
            if self.filter[self.slot(tag)] > 0
                && let Some(&place) = self.places.get(&tag)
            {
                let watched = self.remove(place as usize);
                seen.reused.add(now - watched.since, watched.weight);
            }
            if self.left == 0 {
                self.pick(tag, now, seen);
            }
            self.left -= 1;
        }
    }

    fn slot(&self, tag: u64) -> usize {
        // The filter is no longer than 2^24.
        (self.hash.of(tag) >> 40) as usize & (self.filter.len() - 1)
    }

    fn pick(&mut self, tag: u64, now: u64, seen: &mut ReuseTimes) {
        if self.watched.len() == self.watched_max {
            let place = self.random.below(self.watched.len() as u64);
            let watched = self.remove(place as usize);
            seen.given_up.add(now - watched.since, watched.weight);
            self.given_up += 1;
            if self.given_up == self.watched_max {
                self.given_up = 0;
                self.gap = self.gap.saturating_mul(2).min(1 << 40);
            }
        }
        self.insert(Watched { tag, since: now, weight: self.gap as f64 });
        self.left = 1 + self.random.below(2 * self.gap - 1);
    }

    fn insert(&mut self, watched: Watched) {
        let slot = self.slot(watched.tag);
        // At 255 it stays, and is only of less use.
        self.filter[slot] = self.filter[slot].saturating_add(1);
        self.places.insert(watched.tag, self.watched.len() as u32);
        self.watched.push(watched);
    }

    fn remove(&mut self, place: usize) -> Watched {
        let watched = self.watched.swap_remove(place);
        self.places.remove(&watched.tag);
        if let Some(moved) = self.watched.get(place) {
            self.places.insert(moved.tag, place as u32);
        }
        let slot = self.slot(watched.tag);
        if self.filter[slot] < u8::MAX {
            self.filter[slot] -= 1;
        }
        watched
    }

    /// Adds for how long each tag has been watched.
    fn ages(&self, now: u64, times: &mut Times) {
        self.watched.iter().for_each(|watched| times.add(now - watched.since, watched.weight));
    }

    fn regroup(&mut self, from: Granularity, to: Granularity) {
        let mut watched = std::mem::take(&mut self.watched);
        self.places.clear();
        self.filter.fill(0);
        self.distinct.clear();
        if to < from {
            return;
        }
        // The latest of each coarser tag: one used before has been used again since.
        watched.sort_by_key(|watched| std::cmp::Reverse(watched.since));
        for mut watched in watched {
            watched.tag = from.regroup(to, &[watched.tag])[0];
            if !self.places.contains_key(&watched.tag) {
                self.insert(watched);
            }
        }
    }

    fn memory_bytes(&self) -> u64 {
        let watched = self.watched.capacity() * size_of::<Watched>();
        let bytes = watched + self.places.allocation_size() + self.filter.capacity();
        bytes as u64 + self.distinct.memory_bytes()
    }
}
