//! A workload at work: what it gets done in a tick.
//!
//! Idea: visits cost processor time, and time on the disk where they miss, until the tick is over;
//! what a last visit takes longer is owed by the next ticks, and what it does is seen in them in
//! proportion. Two short cuts make a tick cost little
//! more than the blocks there are: once everything is in memory, the rest of the tick is hits; and
//! where a tick has far more visits than blocks, it goes on as it went in the last half of those
//! that were simulated.
//! Cost: at most [`VISITS_PER_BLOCK`] visits for each block.
//! Limits: the second short cut is exact only where the mixture of hits and misses has settled.

use std::sync::Arc;
use std::time::Duration;

use crate::counters::Counters;
use crate::disk::ns;
use crate::memory::{Memory, OutOfMemory};
use crate::scenario::TimedWorkload;
use crate::schedule::{Wanted, wanted};
use crate::visits::Visits;
use crate::workload::Pattern;

/// Visits simulated in a tick, for each block of the workload: after as many at random, seven blocks
/// of eight have been visited.
const VISITS_PER_BLOCK: u64 = 2;
/// Visits told apart in a tick in which all hit. They only set referenced bits, which stay until
/// reclaim looks at them, so that those of some ticks add up.
const HITS_LOOKED_AT: u64 = 256;
/// Least visits simulated in a tick before it is taken for settled.
const VISITS_MIN: u64 = 512;
/// Touches that a workload with a rate may save up, as a share of a second: as in the lab.
const BURST_PER_S: u64 = 10;
/// A touch, as a part of the credit that a rate gives in a nanosecond.
const TOUCH: u128 = 1_000_000_000;

/// Where a workload stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Running,
    Over,
}

/// A workload and what it remembers.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    region: usize,
    timed: Arc<TimedWorkload>,
    seed: u64,
    visits: Visits,
    rng: fastrand::Rng,
    phase: u64,
    stage: Stage,
    /// Time of the last tick's last visit that is still to pass.
    debt_ns: u64,
    /// What happened in that visit, and how long it takes.
    last_visit: (Counters, u64),
    /// Processor time it still owes for memory given back.
    giving_back_ns: u64,
    /// Touches saved up, in parts of [`TOUCH`].
    credit: u128,
    /// Touches done so far.
    touched: u64,
}

/// What a tick gives a workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    /// Its beginning, since that of the scenario.
    pub(crate) now: Duration,
    /// Time of the tick, in ns.
    pub(crate) tick_ns: u64,
    /// Of it, what is there to be used.
    pub(crate) usable_ns: u64,
    /// Processor time of a touch that hits, in ns.
    pub(crate) touch_ns: u64,
    /// Processor time of giving a page back, in ns.
    pub(crate) give_back_ns: u64,
}

impl Process {
    pub(crate) fn new(timed: &TimedWorkload, region: usize, block: u64, seed: u64) -> Process {
        let seed = fastrand::Rng::with_seed(seed ^ timed.workload.seed).u64(..);
        Process {
            region,
            visits: Visits::new(&timed.workload.pattern, block, seed),
            rng: fastrand::Rng::with_seed(!seed),
            timed: Arc::new(timed.clone()),
            seed,
            phase: 0,
            stage: Stage::Waiting,
            debt_ns: 0,
            last_visit: (Counters::default(), 0),
            giving_back_ns: 0,
            credit: 0,
            touched: 0,
        }
    }

    pub(crate) fn region(&self) -> usize {
        self.region
    }

    pub(crate) fn visits(&self) -> &Visits {
        &self.visits
    }

    /// Touches done so far.
    pub(crate) fn touched(&self) -> u64 {
        self.touched
    }

    /// Time it still owes for a visit of an earlier tick, in ns.
    pub(crate) fn debt_ns(&self) -> u64 {
        self.debt_ns
    }

    /// What is counted already of a visit that still goes on: of 256 pages read one after the other
    /// for a block those that are not there yet.
    pub(crate) fn pending(&self) -> Counters {
        let (visit, takes_ns) = &self.last_visit;
        let mut pending = Counters::default();
        pending.repeat(visit, self.debt_ns.min(*takes_ns), *takes_ns);
        pending
    }

    /// Whether it wants the processor at `now`.
    pub(crate) fn is_running(&self, now: Duration) -> bool {
        self.stage == Stage::Running || (self.stage == Stage::Waiting && now >= self.timed.at)
    }

    /// It is ended, and its memory given back.
    pub(crate) fn kill(&mut self, memory: &mut Memory) {
        self.stage = Stage::Over;
        self.debt_ns = 0;
        memory.clear(self.region);
    }

    /// Runs for one tick.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(crate) fn run(&mut self, memory: &mut Memory, slice: Slice) -> Result<(), OutOfMemory> {
        if !self.is_running(slice.now) {
            return Ok(());
        }
        self.stage = Stage::Running;
        let timed = Arc::clone(&self.timed);
        let elapsed = slice.now.saturating_sub(timed.at);
        let Some(wanted) = wanted(&timed.workload, self.seed, elapsed) else {
            self.kill(memory);
            return Ok(());
        };
        let had = memory.len(self.region);
        self.take_shape(memory, &wanted);
        let gone = u64::from(had.saturating_sub(memory.len(self.region))) * memory.block_pages();
        self.giving_back_ns += gone.saturating_mul(slice.give_back_ns);
        let before = memory.counters.touches;
        let done = self.work(memory, slice, &wanted);
        self.touched += memory.counters.touches - before;
        if let Pattern::Sequential { size, passes: Some(passes) } = wanted.pattern
            && self.touched / size.to_pages().max(1) >= *passes
        {
            self.kill(memory);
        }
        done
    }

    fn take_shape(&mut self, memory: &mut Memory, wanted: &Wanted<'_>) {
        let is_phased = matches!(self.timed.workload.pattern, Pattern::Phases { .. });
        let is_new = wanted.phase != self.phase || self.touched == 0;
        if is_phased && is_new {
            memory.clear(self.region);
            let block = memory.block_pages() * ballast_model::PAGE_SIZE;
            self.visits = Visits::new(wanted.pattern, block, self.seed ^ wanted.phase);
            self.phase = wanted.phase;
        }
        memory.resize(self.region, wanted.size);
        self.visits.resize(memory.len(self.region));
    }

    fn work(
        &mut self,
        memory: &mut Memory,
        slice: Slice,
        wanted: &Wanted<'_>,
    ) -> Result<(), OutOfMemory> {
        let pages = memory.block_pages();
        let touch_ns = slice.touch_ns.max(1);
        let mut left = slice.usable_ns.saturating_sub(self.debt_ns);
        self.debt_ns = self.debt_ns.saturating_sub(slice.usable_ns);
        let giving_back = self.giving_back_ns.min(left);
        left -= giving_back;
        self.giving_back_ns -= giving_back;
        let mut allowed = self.allowed(wanted.touches_per_s, slice.tick_ns, pages);
        let most = VISITS_MIN.max(VISITS_PER_BLOCK * u64::from(memory.len(self.region)));
        let mut half: Option<(Counters, u64)> = None;
        let mut visits = 0;
        while left > 0 && allowed >= pages {
            if memory.is_ready(self.region) {
                let hits = (left / touch_ns).min(allowed);
                self.hit(memory, hits);
                allowed -= hits;
                break;
            }
            if visits == most / 2 {
                half = Some((memory.counters, left));
            }
            if let (Some((then, left_then)), true) = (half, visits == most) {
                let part = memory.counters.since(&then);
                let time = left_then - left;
                let by_rate = u128::from(allowed) * u128::from(time);
                let by_rate = by_rate / u128::from(part.touches.max(1));
                let times = left.min(u64::try_from(by_rate).unwrap_or(u64::MAX));
                let before = memory.counters.touches;
                memory.counters.repeat(&part, times, time);
                allowed = allowed.saturating_sub(memory.counters.touches - before);
                break;
            }
            let at = self.visits.next();
            let write = self.writes();
            let before = memory.counters;
            let waited = memory.touch(self.region, at, write, self.visits.is_ascending())?;
            let cost = (pages * touch_ns).saturating_add(waited);
            if cost > left {
                self.debt_ns += cost - left;
                self.last_visit = (memory.counters.since(&before), cost);
            }
            left = left.saturating_sub(cost);
            allowed -= pages;
            visits += 1;
        }
        if wanted.touches_per_s.is_some() {
            self.credit = self.credit.min(u128::from(allowed) * TOUCH + self.credit % TOUCH);
        }
        Ok(())
    }

    /// Touches that may be done in this tick.
    fn allowed(&mut self, touches_per_s: Option<u64>, tick_ns: u64, pages: u64) -> u64 {
        let Some(rate) = touches_per_s else {
            self.credit = 0;
            return u64::MAX;
        };
        let burst = u128::from((rate / BURST_PER_S).max(pages)) * TOUCH;
        self.credit = self.credit.min(burst) + u128::from(rate) * u128::from(tick_ns);
        u64::try_from(self.credit / TOUCH).unwrap_or(u64::MAX)
    }

    /// Touches that all hit: `hits` pages.
    fn hit(&mut self, memory: &mut Memory, hits: u64) {
        memory.account(hits);
        let len = memory.len(self.region);
        let visits = hits / memory.block_pages();
        if self.visits.is_cyclic() {
            let first = self.visits.skip(visits);
            let whole = visits >= u64::from(len) || !self.visits.is_ascending();
            let (from, count) = if whole { (0, len) } else { (first, visits as u32) };
            let write = self.writes();
            memory.mark_range(self.region, from, count, write);
            return;
        }
        for _ in 0..visits.min(HITS_LOOKED_AT) {
            let at = self.visits.next();
            let write = self.writes();
            memory.mark_range(self.region, at, 1, write);
        }
    }

    /// Whether the next visit writes.
    fn writes(&mut self) -> bool {
        match self.timed.workload.write_share {
            None => !self.timed.workload.pattern.is_file(),
            Some(share) => self.rng.f64() < share,
        }
    }
}

/// The processor time of a touch where `runners` share one processor, in ns.
pub(crate) fn shared_touch_ns(touch: Duration, runners: usize) -> u64 {
    ns(touch).saturating_mul(runners.max(1) as u64)
}
