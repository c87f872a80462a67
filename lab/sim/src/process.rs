//! A running workload: the touches it does in a tick.
//!
//! Idea: visits cost processor time, and disk time if they miss, until the tick is over. The time
//! by which the last visit exceeds the tick is charged to the next ticks, and its events are
//! counted in them in proportion. Two shortcuts limit the cost of a tick: once everything is
//! resident, the rest of the tick is hits; and if a tick has far more visits than blocks, its rest
//! is extrapolated from the second half of the simulated visits.
//! Cost: at most [`VISITS_PER_BLOCK`] visits per block.
//! Limits: the second shortcut is exact only if the ratio of hits to misses has settled.

use std::sync::Arc;
use std::time::Duration;

use ballast_workload::{Pattern, ScheduleEntry};

use crate::counters::Counters;
use crate::disk::ns;
use crate::memory::{Memory, OutOfMemory};
use crate::scenario::TimedWorkload;
use crate::visits::Visits;

/// Visits simulated in a tick, per block of the workload: as many random visits reach seven of
/// eight blocks.
const VISITS_PER_BLOCK: u64 = 2;
/// Visits simulated individually in a tick in which all hit. They only set referenced bits, which
/// stay until the next scan, so that those of several ticks accumulate.
const HITS_SIMULATED: u64 = 256;
/// Fewest visits simulated in a tick before the rest is extrapolated.
const VISITS_MIN: u64 = 512;
/// Divisor of a rate that gives the size of the token bucket: a tenth of a second, as in the lab.
const BURST_PER_S: u64 = 10;
/// Credit per touch; a rate gives one unit per nanosecond and touch per second.
const TOUCH: u128 = 1_000_000_000;

/// The stage of a workload's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Running,
    /// The OOM killer ended it.
    Killed,
    /// It has done all its work.
    Over,
}

/// A workload and its state.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    region: usize,
    timed: Arc<TimedWorkload>,
    seed: u64,
    visits: Visits,
    rng: fastrand::Rng,
    phase: u64,
    stage: Stage,
    /// Time of the last visit that is charged to the next ticks.
    debt_ns: u64,
    /// The events of that visit, and its duration.
    last_visit: (Counters, u64),
    /// Processor time still to be charged for freed memory.
    giving_back_ns: u64,
    /// Tokens of the rate limit, in units of 1 / [`TOUCH`].
    credit: u128,
    /// Touches done so far.
    touched: u64,
    /// The time that these touches take with all memory, in ns.
    worked_ns: u64,
}

/// The time that a tick gives a workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    /// Start of the tick, from the start of the scenario.
    pub(crate) now: Duration,
    /// Length of the tick, in ns.
    pub(crate) tick_ns: u64,
    /// Usable part of the tick, in ns.
    pub(crate) usable_ns: u64,
    /// Processor time of a touch that hits, in ns.
    pub(crate) touch_ns: u64,
    /// Processor time of freeing a page, in ns.
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
            worked_ns: 0,
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

    /// Time still charged for a visit of an earlier tick, in ns.
    pub(crate) fn debt_ns(&self) -> u64 {
        self.debt_ns
    }

    /// Events already counted for a visit that is still in progress: for a block read page by page,
    /// the pages that have not arrived yet.
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

    /// Whether it has work to do at `now`; true also after it was killed.
    pub(crate) fn has_work(&self, now: Duration) -> bool {
        self.is_running(now) || self.stage == Stage::Killed
    }

    /// Kills it and frees its memory.
    pub(crate) fn kill(&mut self, memory: &mut Memory) {
        self.end(Stage::Killed, memory);
    }

    fn end(&mut self, stage: Stage, memory: &mut Memory) {
        self.stage = stage;
        self.debt_ns = 0;
        memory.clear(self.region);
    }

    /// Runs for one tick.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(crate) fn run(&mut self, memory: &mut Memory, slice: Slice) -> Result<(), OutOfMemory> {
        if !self.is_running(slice.now) {
            return Ok(());
        }
        self.stage = Stage::Running;
        let timed = Arc::clone(&self.timed);
        let elapsed = match timed.workload.is_paced_by_work() {
            true => Duration::from_nanos(self.worked_ns),
            false => slice.now.saturating_sub(timed.at),
        };
        let Some(entry) = timed.workload.at(elapsed, self.seed, draw_pages) else {
            self.end(Stage::Over, memory);
            return Ok(());
        };
        let had = memory.len(self.region);
        self.follow_schedule(memory, &entry);
        let gone = u64::from(had.saturating_sub(memory.len(self.region))) * memory.block_pages();
        self.giving_back_ns += gone.saturating_mul(slice.give_back_ns);
        let before = memory.counters.touches;
        let done = self.work(memory, slice, &entry);
        let touches = memory.counters.touches - before;
        self.touched += touches;
        self.worked_ns = self.worked_ns.saturating_add(full_speed_ns(slice, &entry, touches));
        if let Pattern::Sequential { size, passes: Some(passes) } = entry.pattern
            && self.touched / size.to_pages().max(1) >= *passes
        {
            self.end(Stage::Over, memory);
        }
        done
    }

    fn follow_schedule(&mut self, memory: &mut Memory, entry: &ScheduleEntry<'_>) {
        let is_phased = matches!(self.timed.workload.pattern, Pattern::Phases { .. });
        let is_new = entry.phase != self.phase || self.touched == 0;
        if is_phased && is_new {
            memory.clear(self.region);
            let block = memory.block_pages() * ballast_model::PAGE_SIZE;
            self.visits = Visits::new(entry.pattern, block, self.seed ^ entry.phase);
            self.phase = entry.phase;
        }
        memory.resize(self.region, entry.size);
        self.visits.resize(memory.len(self.region));
    }

    fn work(
        &mut self,
        memory: &mut Memory,
        slice: Slice,
        entry: &ScheduleEntry<'_>,
    ) -> Result<(), OutOfMemory> {
        let pages = memory.block_pages();
        let touch_ns = slice.touch_ns.max(1);
        let mut left = slice.usable_ns.saturating_sub(self.debt_ns);
        self.debt_ns = self.debt_ns.saturating_sub(slice.usable_ns);
        let giving_back = self.giving_back_ns.min(left);
        left -= giving_back;
        self.giving_back_ns -= giving_back;
        let mut allowed = self.allowed(entry.touches_per_s, slice.tick_ns, pages);
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
        if entry.touches_per_s.is_some() {
            self.credit = self.credit.min(u128::from(allowed) * TOUCH + self.credit % TOUCH);
        }
        Ok(())
    }

    /// Number of touches allowed in this tick.
    fn allowed(&mut self, touches_per_s: Option<u64>, tick_ns: u64, pages: u64) -> u64 {
        let Some(rate) = touches_per_s else {
            self.credit = 0;
            return u64::MAX;
        };
        let burst = u128::from((rate / BURST_PER_S).max(pages)) * TOUCH;
        self.credit = self.credit.min(burst) + u128::from(rate) * u128::from(tick_ns);
        u64::try_from(self.credit / TOUCH).unwrap_or(u64::MAX)
    }

    /// Touches `hits` resident pages.
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
        for _ in 0..visits.min(HITS_SIMULATED) {
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

/// A generator of its own for each draw, so that the size at any moment can be computed directly.
fn draw_pages(seed: u64, draw: u64, most: u64) -> u64 {
    fastrand::Rng::with_seed(seed.wrapping_add(draw)).u64(0..=most)
}

/// How long `touches` take with all memory in a tick with the speeds of `slice`, in ns.
fn full_speed_ns(slice: Slice, entry: &ScheduleEntry<'_>, touches: u64) -> u64 {
    let touches = u128::from(touches);
    let usable_ns = u128::from(slice.usable_ns.max(1));
    let by_processor = touches * u128::from(slice.touch_ns) * u128::from(slice.tick_ns) / usable_ns;
    let by_rate = entry.touches_per_s.map_or(0, |rate| touches * TOUCH / u128::from(rate.max(1)));
    u64::try_from(by_processor.max(by_rate)).unwrap_or(u64::MAX)
}

/// The processor time of a touch when `runners` share one processor, in ns.
pub(crate) fn shared_touch_ns(touch: Duration, runners: usize) -> u64 {
    ns(touch).saturating_mul(runners.max(1) as u64)
}
