//! Whether a guest thrashes after memory was taken from it.
//!
//! Idea: after memory is taken from a guest, what it reads back from its swap and re-reads from
//! files for a while is what it lacked. Where that exceeds a part of what was taken, the guest
//! thrashes: the reduction should be undone, and the guest must not be shrunk below that point
//! again for a pause that grows each time. Memory that it read back at its usual pace before is not
//! counted against the reduction. For granted memory, the detector checks whether the guest's free
//! memory was drawn on: what stays free was not needed.
//!
//! Successive reductions are judged together, because the guest feels their sum.
//!
//! Cost: O(1) per guest and tick. Source: Global §4.5 asks what an exchange costs. Limits: needs
//! the swap counter of the statistics or the refault counter of an agent; without either nothing is
//! judged. Free-page reporting does not show here, because it takes no memory in use.

mod restart;

use std::collections::VecDeque;
use std::time::Duration;

use ballast_model::{Bytes, GuestSample, Regret, Timestamp};

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

/// The verdict on a guest that was shrunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It thrashes: restore what was taken.
    Undo {
        /// What it held before.
        to: Bytes,
        /// What was taken.
        taken: Bytes,
        /// What it read back.
        read_back: Bytes,
    },
}

/// How much of the granted memory was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// Memory granted.
    pub granted: Bytes,
    /// The part of it for which the guest's free memory was seen to be drawn on.
    pub used: Bytes,
}

/// Watches the changes of one guest.
#[derive(Clone, Debug, Default)]
pub struct ThrashDetector {
    last: Option<Bytes>,
    read: ReadBack,
    free: Option<Bytes>,
    baseline: BaselineReadBack,
    recent: RecentReadBack,
    /// `None`: nothing was taken from it or granted to it yet.
    changes: Option<Box<ThrashChanges>>,
}

/// Changes of a guest and their cost.
#[derive(Clone, Debug, Default)]
struct ThrashChanges {
    reduction: Option<WatchedReduction>,
    grant: Option<WatchedGrant>,
    /// The cost of the last reductions.
    remembered: VecDeque<Cost>,
    undone: u64,
    hold: Option<Hold>,
    grants: Grants,
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
    /// Total read back before that.
    before: Bytes,
    /// What the guest usually reads back in a window.
    usual: Bytes,
}

/// Grants under observation.
#[derive(Clone, Copy, Debug)]
struct WatchedGrant {
    granted: Bytes,
    free_before: Bytes,
    used: Bytes,
    last: Timestamp,
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

/// The size below which a guest that thrashed may not be shrunk.
#[derive(Clone, Copy, Debug)]
struct Hold {
    at: Bytes,
    until: Timestamp,
    pause: Duration,
}

impl ThrashDetector {
    /// The cost of the last reductions; `None`: not known yet.
    pub fn regret(&self) -> Option<Regret> {
        let ThrashChanges { remembered, undone, .. } = self.changes.as_deref()?;
        if remembered.is_empty() {
            return None;
        }
        Some(Regret {
            taken: remembered.iter().map(|cost| cost.taken).sum(),
            read_back: remembered.iter().map(|cost| cost.read_back).sum(),
            undone: *undone,
        })
    }

    /// How much of the granted memory was used.
    pub fn grants(&self) -> Grants {
        self.changes.as_ref().map_or_else(Grants::default, |changes| changes.grants)
    }

    /// The size below which the guest may not be shrunk for now because it thrashed; `None`: no
    /// such bound.
    pub fn least(&self, now: Timestamp) -> Option<Bytes> {
        let hold = self.changes.as_ref()?.hold?;
        (now < hold.until).then_some(hold.at)
    }

    /// Whether it is reading back much at present, for whatever cause: it has too little memory.
    pub fn lacks(&self, settings: &ThrashSettings) -> bool {
        self.recent.now.max(self.recent.before) > settings.thrash_min
    }

    /// Takes in a sample. Returns what must be done at once. Call once for every snapshot.
    pub fn observe(
        &mut self,
        now: Timestamp,
        sample: &GuestSample,
        settings: &ThrashSettings,
    ) -> Option<Verdict> {
        let holds = sample.allocation?.value;
        let last = self.last.unwrap_or(holds);
        let (given, taken) = (holds.saturating_sub(last), last.saturating_sub(holds));
        if given.max(taken) >= CHANGE_MIN || self.last.is_none() {
            self.last = Some(holds);
        }
        self.measure_use(now, sample, given, settings.window);
        match self.read.observe(sample) {
            Some(true) => {}
            // Most guests report no counter; their state is left as it is, to save writing it each
            // time.
            None if self.reduction().is_none() && self.recent.mark.is_none() => return None,
            known => {
                if let Some(changes) = &mut self.changes {
                    changes.reduction = None;
                }
                self.recent = RecentReadBack::default();
                if known.is_some() {
                    self.baseline = BaselineReadBack::default();
                }
                return None;
            }
        }
        let read = self.read.sum;
        self.recent.observe(now, read, settings.window);
        if given >= CHANGE_MIN {
            // Memory given back ends the reduction, and its cost with it.
            self.close(now, settings.window);
        }
        if taken >= CHANGE_MIN {
            self.record_reduction(now, last, taken);
        } else if self.reduction().is_none() {
            self.baseline.observe(now, read, settings.window);
        }
        self.judge(now, settings)
    }

    fn reduction(&self) -> Option<WatchedReduction> {
        self.changes.as_ref()?.reduction
    }

    /// Records a reduction.
    fn record_reduction(&mut self, now: Timestamp, from: Bytes, by: Bytes) {
        let (usual, read) = (self.baseline.in_window, self.read.sum);
        let changes = self.changes.get_or_insert_default();
        let reduction = changes.reduction.get_or_insert(WatchedReduction {
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
    fn judge(&mut self, now: Timestamp, settings: &ThrashSettings) -> Option<Verdict> {
        let changes = self.changes.as_mut()?;
        let reduction = changes.reduction?;
        let read_back = reduction.cost(self.read.sum, now, settings.window);
        let too_much =
            reduction.taken.fraction(settings.thrash_percent, 100).max(settings.thrash_min);
        if read_back > too_much {
            changes.close(read_back);
            changes.undone += 1;
            let pause = match changes.hold {
                Some(hold) => (hold.pause * 2).min(ThrashSettings::PAUSE_MAX),
                None => settings.pause,
            };
            changes.hold = Some(Hold { at: reduction.from, until: now + pause, pause });
            let WatchedReduction { from, taken, .. } = reduction;
            return Some(Verdict::Undo { to: from, taken, read_back });
        }
        let over = now.saturating_since(reduction.last) >= settings.window
            || now.saturating_since(reduction.begun) >= settings.window * WINDOWS_MAX;
        if over {
            changes.close(read_back);
            // It was shrunk to where it thrashed and did not thrash, so the next pause is a first
            // one.
            if changes.hold.is_some_and(|hold| now >= hold.until && reduction.to() < hold.at) {
                changes.hold = None;
            }
        }
        None
    }

    /// Ends the observation of the reductions under way.
    fn close(&mut self, now: Timestamp, window: Duration) {
        let Some(changes) = &mut self.changes else { return };
        if let Some(reduction) = changes.reduction {
            changes.close(reduction.cost(self.read.sum, now, window));
        }
    }

    /// Measures how much of a grant is used.
    fn measure_use(&mut self, now: Timestamp, sample: &GuestSample, by: Bytes, window: Duration) {
        let stats = sample.stats;
        let Some((free, age)) = stats.and_then(|stats| Some((stats.value.free?, stats.age))) else {
            self.free = None;
            if let Some(changes) = &mut self.changes {
                changes.grant = None;
            }
            return;
        };
        let before = self.free.replace(free);
        if by >= CHANGE_MIN
            && let Some(free_before) = before
        {
            let changes = self.changes.get_or_insert_default();
            let grant = changes.grant.get_or_insert(WatchedGrant {
                granted: Bytes::ZERO,
                free_before,
                used: Bytes::ZERO,
                last: now,
            });
            grant.granted = grant.granted.saturating_add(by);
            grant.last = now;
        }
        let Some(changes) = &mut self.changes else { return };
        let Some(grant) = changes.grant.as_mut() else { return };
        // Older figures do not include the grant.
        if age <= now.saturating_since(grant.last) {
            let untouched = grant.free_before.saturating_add(grant.granted);
            grant.used = grant.used.max(untouched.saturating_sub(free).min(grant.granted));
        }
        if now.saturating_since(grant.last) >= window {
            changes.grants.granted = changes.grants.granted.saturating_add(grant.granted);
            changes.grants.used = changes.grants.used.saturating_add(grant.used);
            changes.grant = None;
        }
    }
}

impl ThrashChanges {
    /// The reductions under way are over, at a cost of `read_back`.
    fn close(&mut self, read_back: Bytes) {
        let Some(reduction) = self.reduction.take() else { return };
        self.remembered.push_back(Cost { taken: reduction.taken, read_back });
        if self.remembered.len() > REMEMBERED_MAX {
            self.remembered.pop_front();
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
