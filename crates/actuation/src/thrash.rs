//! Whether a guest thrashes after memory was taken from it.
//!
//! Idea: after memory is taken from a guest, what it reads back from its swap and re-reads from
//! files for a while is what it lacked. Where that exceeds a part of what was taken, the guest
//! thrashes: the reduction should be undone, and the guest must not be shrunk below that point
//! again for a pause that grows each time. Memory that it read back at its usual pace before is not
//! counted against the reduction.
//!
//! Successive reductions are judged together, because the guest feels their sum.
//!
//! Cost: O(1) per guest and tick. Source: Global §4.5 asks what an exchange costs. Limits: needs
//! the swap counter of the statistics or the refault counter of an agent; without either nothing is
//! judged. Free-page reporting does not show here, because it takes no memory in use.

mod restart;

use std::collections::VecDeque;
use std::time::Duration;

use ballast_model::{Bytes, GuestSample, Regret, Thrashed, Timestamp};

/// Smaller changes are a balloon's last pages.
const CHANGE_MIN: Bytes = Bytes::mib(1);

/// Number of reductions that make up a regret: some minutes of an eager policy.
const REMEMBERED_MAX: usize = 8;

/// A sequence of reductions is judged at most this many windows after it began.
const WINDOWS_MAX: u32 = 6;

/// Settings of a [`ThrashDetector`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThrashSettings {
    /// How long after a change its cost is measured.
    pub window: Duration,
    /// Least part of what was taken that a guest reads back when it thrashes, in hundredths.
    pub thrash_percent: u64,
    /// Least amount that a guest reads back when it thrashes.
    pub thrash_min: Bytes,
    /// First pause before a guest that thrashed may be shrunk that far again; doubles each time.
    pub pause: Duration,
}

impl Default for ThrashSettings {
    fn default() -> Self {
        ThrashSettings {
            window: ThrashSettings::WINDOW_DEFAULT,
            thrash_percent: ThrashSettings::THRASH_PERCENT_DEFAULT,
            thrash_min: ThrashSettings::THRASH_MIN_DEFAULT,
            pause: ThrashSettings::PAUSE_DEFAULT,
        }
    }
}

impl ThrashSettings {
    /// A guest that lacks memory it uses notices within seconds; statistics are up to two late.
    pub const WINDOW_DEFAULT: Duration = Duration::from_secs(10);
    /// Some of what a kernel gives up first is wanted again. If a quarter is, it was not idle
    /// memory.
    pub const THRASH_PERCENT_DEFAULT: u64 = 25;
    /// An amount that is read in a tenth of a second.
    pub const THRASH_MIN_DEFAULT: Bytes = Bytes::mib(16);
    /// Six windows: long enough that trying again costs at most a tenth of the time.
    pub const PAUSE_DEFAULT: Duration = Duration::from_secs(60);
    /// Longest pause: after a quarter of an hour a guest's load may have changed.
    pub const PAUSE_MAX: Duration = Duration::from_secs(960);
}

/// A guest thrashes: what was taken from it should be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thrashing {
    /// What it held before.
    pub held: Bytes,
    /// What was taken.
    pub taken: Bytes,
    /// What it read back.
    pub read_back: Bytes,
}

/// Watches the reductions of one guest.
#[derive(Clone, Debug, Default)]
pub struct ThrashDetector {
    /// What it held after its last change; `None`: it was not seen yet.
    held: Option<Bytes>,
    read: ReadBack,
    baseline: BaselineReadBack,
    recent: RecentReadBack,
    /// `None`: nothing was taken from it yet.
    reductions: Option<Box<Reductions>>,
}

/// Reductions of a guest and their cost.
#[derive(Clone, Debug, Default)]
struct Reductions {
    watched: Option<WatchedReduction>,
    /// The cost of the last ones.
    costs: VecDeque<Cost>,
    undone: u64,
    thrashed: Option<Thrashed>,
}

/// The cost of a sequence of reductions to the guest.
#[derive(Clone, Copy, Debug)]
struct Cost {
    taken: Bytes,
    read_back: Bytes,
}

/// Reductions under observation.
#[derive(Clone, Copy, Debug)]
struct WatchedReduction {
    from: Bytes,
    taken: Bytes,
    begun: Timestamp,
    /// When the latest part was taken.
    last: Timestamp,
    /// Total read back when they began.
    before: Bytes,
    /// What the guest usually reads back in a window.
    usual: Bytes,
}

/// What a guest reads back while nothing is taken from it.
#[derive(Clone, Copy, Debug, Default)]
struct BaselineReadBack {
    mark: Option<(Timestamp, Bytes)>,
    in_window: Bytes,
}

/// What a guest read back in the current window and in the one before.
#[derive(Clone, Copy, Debug, Default)]
struct RecentReadBack {
    mark: Option<(Timestamp, Bytes)>,
    now: Bytes,
    before: Bytes,
}

impl RecentReadBack {
    fn observe(&mut self, now: Timestamp, read: Bytes, window: Duration) {
        let (since, mark) = *self.mark.get_or_insert((now, read));
        self.now = read.saturating_sub(mark);
        if now.saturating_since(since) >= window {
            *self = RecentReadBack { mark: Some((now, read)), now: Bytes::ZERO, before: self.now };
        }
    }
}

impl ThrashDetector {
    /// The cost of the last reductions; `None`: not known yet.
    pub fn regret(&self) -> Option<Regret> {
        let Reductions { costs, undone, .. } = self.reductions.as_deref()?;
        if costs.is_empty() {
            return None;
        }
        Some(Regret {
            taken: costs.iter().map(|cost| cost.taken).sum(),
            read_back: costs.iter().map(|cost| cost.read_back).sum(),
            undone: *undone,
        })
    }

    /// The size below which the guest may not be shrunk for now because it thrashed; `None`: no
    /// such bound.
    pub fn least(&self, now: Timestamp) -> Option<Bytes> {
        let thrashed = self.reductions.as_ref()?.thrashed?;
        (now < thrashed.until).then_some(thrashed.least)
    }

    /// Whether it is reading back much at present, for whatever cause: it has too little memory.
    pub fn lacks(&self, settings: &ThrashSettings) -> bool {
        self.recent.now.max(self.recent.before) > settings.thrash_min
    }

    /// Takes in a sample. Returns whether the guest was now found to thrash. Call once for every
    /// snapshot.
    pub fn observe(
        &mut self,
        now: Timestamp,
        sample: &GuestSample,
        settings: &ThrashSettings,
    ) -> Option<Thrashing> {
        let holds = sample.allocation?.value;
        let before = self.held.unwrap_or(holds);
        let (given, taken) = (holds.saturating_sub(before), before.saturating_sub(holds));
        if given.max(taken) >= CHANGE_MIN || self.held.is_none() {
            self.held = Some(holds);
        }
        let goes_on = self.read.observe(sample);
        if goes_on != Some(true) {
            // Most guests report no counter; their state is left as it is, to save writing it each
            // time.
            if goes_on.is_none() && self.watched().is_none() && self.recent.mark.is_none() {
                return None;
            }
            if let Some(reductions) = &mut self.reductions {
                reductions.watched = None;
            }
            self.recent = RecentReadBack::default();
            if goes_on == Some(false) {
                self.baseline = BaselineReadBack::default();
            }
            return None;
        }
        let read = self.read.sum;
        self.recent.observe(now, read, settings.window);
        if given >= CHANGE_MIN {
            // Memory given back ends the reduction, and its cost with it.
            self.close(now, settings.window);
        }
        if taken >= CHANGE_MIN {
            self.record_reduction(now, before, taken);
        } else if self.watched().is_none() {
            self.baseline.observe(now, read, settings.window);
        }
        self.judge(now, settings)
    }

    fn watched(&self) -> Option<WatchedReduction> {
        self.reductions.as_ref()?.watched
    }

    fn record_reduction(&mut self, now: Timestamp, from: Bytes, by: Bytes) {
        let (usual, read) = (self.baseline.in_window, self.read.sum);
        let reductions = self.reductions.get_or_insert_default();
        let reduction = reductions.watched.get_or_insert(WatchedReduction {
            from,
            taken: Bytes::ZERO,
            begun: now,
            last: now,
            before: read,
            usual,
        });
        reduction.taken = reduction.taken.saturating_add(by);
        reduction.last = now;
        self.baseline.mark = None;
    }

    /// Judges the reductions under way: they cost too much, or they are long enough ago to be
    /// remembered.
    fn judge(&mut self, now: Timestamp, settings: &ThrashSettings) -> Option<Thrashing> {
        let reductions = self.reductions.as_mut()?;
        let reduction = reductions.watched?;
        let read_back = reduction.cost(self.read.sum, now, settings.window);
        let too_much =
            reduction.taken.fraction(settings.thrash_percent, 100).max(settings.thrash_min);
        if read_back > too_much {
            reductions.close(read_back);
            reductions.undone += 1;
            let pause = match reductions.thrashed {
                Some(last) => (last.pause * 2).min(ThrashSettings::PAUSE_MAX),
                None => settings.pause,
            };
            let WatchedReduction { from: held, taken, .. } = reduction;
            reductions.thrashed = Some(Thrashed { least: held, until: now + pause, pause });
            return Some(Thrashing { held, taken, read_back });
        }
        let over = now.saturating_since(reduction.last) >= settings.window
            || now.saturating_since(reduction.begun) >= settings.window * WINDOWS_MAX;
        if over {
            reductions.close(read_back);
            // It was shrunk to where it thrashed and did not thrash, so the next pause is a first
            // one.
            if reductions.thrashed.is_some_and(|it| now >= it.until && reduction.to() < it.least) {
                reductions.thrashed = None;
            }
        }
        None
    }

    /// Ends the observation of the reductions under way.
    fn close(&mut self, now: Timestamp, window: Duration) {
        let Some(reductions) = &mut self.reductions else { return };
        if let Some(reduction) = reductions.watched {
            reductions.close(reduction.cost(self.read.sum, now, window));
        }
    }
}

impl Reductions {
    /// The reductions under way are over, at a cost of `read_back`.
    fn close(&mut self, read_back: Bytes) {
        let Some(reduction) = self.watched.take() else { return };
        self.costs.push_back(Cost { taken: reduction.taken, read_back });
        if self.costs.len() > REMEMBERED_MAX {
            self.costs.pop_front();
        }
    }
}

impl WatchedReduction {
    /// The size that it left to the guest.
    fn to(&self) -> Bytes {
        self.from.saturating_sub(self.taken)
    }

    /// Memory that was read back for lack of what was taken.
    fn cost(&self, read: Bytes, now: Timestamp, window: Duration) -> Bytes {
        let passed = now.saturating_since(self.begun).as_millis();
        let usual = u128::from(self.usual.get()) * passed / window.as_millis().max(1);
        let usual = Bytes::new(u64::try_from(usual).unwrap_or(u64::MAX));
        read.saturating_sub(self.before).saturating_sub(usual)
    }
}

impl BaselineReadBack {
    fn observe(&mut self, now: Timestamp, read: Bytes, window: Duration) {
        let (since, before) = *self.mark.get_or_insert((now, read));
        if now.saturating_since(since) >= window || read < before {
            self.in_window = read.saturating_sub(before);
            self.mark = Some((now, read));
        }
    }
}

/// Counts what a guest reads back: from its swap, and from files that it had read before. Either
/// counter may come and go.
#[derive(Clone, Copy, Debug, Default)]
struct ReadBack {
    swap: Option<Bytes>,
    files: Option<Bytes>,
    /// Total seen to be read back.
    sum: Bytes,
}

impl ReadBack {
    /// Takes in a sample. `None`: it has neither counter. `Some(false)`: a counter fell because the
    /// guest restarted.
    fn observe(&mut self, sample: &GuestSample) -> Option<bool> {
        let swap = sample.stats.and_then(|stats| stats.value.swap_in);
        let files = sample
            .agent
            .as_ref()
            .and_then(|agent| agent.value.refaulted_file_pages)
            .map(Bytes::pages);
        let mut goes_on = true;
        for (before, now) in [(&mut self.swap, swap), (&mut self.files, files)] {
            let Some(now) = now else { continue };
            let before = before.replace(now).unwrap_or(now);
            goes_on &= now >= before;
            self.sum = self.sum.saturating_add(now.saturating_sub(before));
        }
        (swap.is_some() || files.is_some()).then_some(goes_on)
    }
}
