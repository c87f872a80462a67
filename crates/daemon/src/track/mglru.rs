//! Follows one guest by the generations of its cgroup's pages (MGLRU).
//!
//! Idea: the daemon has the kernel age the cgroup's pages at the end of each interval; the
//! generations then show how much was touched in it ([`PageGenerations`]). That is the working set.
//! They do not show which pages were touched, so there is no curve, and memory to which a guest
//! returns only after more than an interval does not count.
//!
//! In a huge page one touch ages 2 MiB, as with DAMON; then the figure is an upper bound.
//!
//! A guest with touches that the kernel does not see would look idle and lose its memory. So
//! figures of a running guest are believed only after it once touched more than [`TRUSTED`]
//! ([`Trust`]), and its memory must be in the generations ([`LISTED_MIN`]).
//! Cost: a walk over all memory of the cgroup in each interval. Intervals are lengthened, up to
//! [`WINDOW_MAX`], to keep that within the budget; with more memory than that allows, the share is
//! higher, up to [`COST_MAX`]. Every [`LOOK_INTERVALS`] intervals, a read of `maps` and `smaps`.
//! Limits: those of [`PageGenerations`]: memory that the hypervisor itself touches counts too, some
//! MiB.

use std::path::Path;
use std::time::{Duration, Instant};

use ballast_host::PROC;
use ballast_model::{Bytes, TrackingSource};
use ballast_reclaim::{Aging, PageGenerations};
use ballast_tracker::{TrackerError, check_referenced_bits};

use super::damon::{HUGE_MAX, HUGE_PAGES, memory_in_huge_pages};
use super::damon_hub::WINDOW_MAX;
use super::row::{Row, WatchedInterval};
use super::source::{SourceError, WorkingSetSource, interval_within};

/// The first kernel whose aging asks KVM what its guests touched.
const ASKS_KVM_SINCE: (u32, u32) = (6, 12);
/// Intervals between two checks of the guest's mappings.
const LOOK_INTERVALS: u64 = 16;
/// A running guest must have been seen once to touch more than this. A Linux guest that does
/// nothing touches more in a second.
const TRUSTED: Bytes = Bytes::kib(256);
/// Intervals in which a guest ran and touched less than that, until it is given up.
const UNSEEN_MAX: u32 = 3;
/// A guest runs if it uses at least this share of a processor.
const RUNS: f64 = 0.01;
/// Least share of the guest's memory that must be in generations.
const LISTED_MIN: f64 = 0.9;
/// Successive intervals in which the kernel itself ages too often, until the guest is given up.
const CROWDED_MAX: u32 = 5;
/// Highest share of one core.
const COST_MAX: f64 = 0.1;
/// Time between two checks whether to go on.
const WAIT: Duration = Duration::from_millis(100);

/// A guest whose pages are aged. Dropping it ends that.
pub struct MglruFollower {
    pid: u32,
    generations: PageGenerations,
    shortest: Duration,
    length: Duration,
    /// Share of one core.
    budget: f64,
    memory: Bytes,
    is_huge: bool,
    intervals: u64,
    began: Instant,
    known: Option<Bytes>,
    trust: Trust,
}

/// Whether the generations of a guest are believed to show its touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// It was seen to touch memory.
    Seen,
    /// Not yet, in this many intervals in which it ran.
    Unseen(u32),
}

impl Trust {
    /// Judges an interval of this `length` by the memory `touched` and the processor time `used` in
    /// it. Returns whether its figure is believed.
    fn judge(&mut self, touched: Bytes, used: Option<Duration>, length: Duration) -> bool {
        let Trust::Unseen(intervals) = self else { return true };
        if touched > TRUSTED {
            *self = Trust::Seen;
            return true;
        }
        // A guest whose processor time is unknown may run.
        if used.is_some_and(|used| used < length.mul_f64(RUNS)) {
            return true;
        }
        *intervals += 1;
        false
    }
}

impl MglruFollower {
    /// Starts to age the guest of process `pid`, in intervals of at least `shortest`.
    ///
    /// # Errors
    /// This kernel does not see what the guest touches; the process has no cgroup of its own, or
    /// its memory is not charged there; the kernel has no such LRU, or it is turned off; an aging
    /// takes too long; or the process is gone or has no guest memory.
    pub fn begin(pid: u32, shortest: Duration) -> Result<MglruFollower, SourceError> {
        let mut generations = find(pid)?;
        // Memory found by the first aging may have been touched at any time.
        let first = generations.age()?;
        let mut follower = MglruFollower {
            pid,
            generations,
            shortest,
            length: shortest,
            budget: 1.0,
            memory: Bytes::ZERO,
            is_huge: false,
            intervals: 0,
            began: Instant::now(),
            known: None,
            trust: Trust::Unseen(0),
        };
        follower.check_memory(first)?;
        Ok(follower)
    }

    /// Checks the guest's memory, just after an aging.
    fn check_memory(&mut self, aged: Aging) -> Result<(), SourceError> {
        // Another process may have joined the cgroup, or the setting may have changed.
        find(self.pid)?;
        let (memory, huge) = memory_in_huge_pages(self.pid)?;
        (self.memory, self.is_huge) = (memory, huge.ratio() > HUGE_MAX);
        check_listed(aged.listed, Bytes::new(huge.resident))?;
        let longest = longest(self.shortest);
        if aged.took > longest.mul_f64(COST_MAX) {
            return Err(SourceError::Costly(aged.took, longest.mul_f64(COST_MAX)));
        }
        Ok(())
    }

    /// Waits for an interval's end, unless it ends early, and ages. Returns the aging and the
    /// interval's length.
    fn age(&mut self, go_on: &mut dyn FnMut() -> bool) -> Result<(Aging, Duration), SourceError> {
        let began = Instant::now();
        while go_on() {
            let left = self.length.saturating_sub(began.elapsed());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(WAIT));
        }
        let aged = self.generations.age()?;
        self.length =
            interval_within(aged.took, self.budget).clamp(self.shortest, longest(self.shortest));
        Ok((aged, began.elapsed()))
    }

    fn row(&self, length: Duration, cost: Duration, seen: Option<WatchedInterval>) -> Row {
        Row::without_rest(self.began.elapsed(), length, self.memory, self.known, cost, seen)
    }

    fn watched_interval(&self, touched: Bytes) -> WatchedInterval {
        let (source, granule_pages) = match self.is_huge {
            true => (TrackingSource::MglruHuge, HUGE_PAGES),
            false => (TrackingSource::Mglru, 1),
        };
        WatchedInterval {
            source,
            working_set: touched,
            touched,
            half_miss: None,
            curve: None,
            granule_pages,
            share: 1.0,
            hot_granules: None,
            touches: touched.to_pages(),
            lost: 0,
            trap: Duration::ZERO,
            revoked_in: Duration::ZERO,
        }
    }
}

impl WorkingSetSource for MglruFollower {
    fn interval(
        &mut self,
        _: Option<Bytes>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(Row, Vec<u64>), SourceError> {
        let mut crowded = 0;
        loop {
            let before = self.generations.processor_time();
            let (aged, length) = self.age(go_on)?;
            if !go_on() {
                return Ok((self.row(length, aged.took, None), Vec::new()));
            }
            self.intervals += 1;
            if self.intervals.is_multiple_of(LOOK_INTERVALS) {
                self.check_memory(aged)?;
            }
            let Some(touched) = aged.touched else {
                crowded += 1;
                if crowded >= CROWDED_MAX {
                    return Err(SourceError::Crowded(crowded));
                }
                continue;
            };
            let after = self.generations.processor_time();
            let used = after.zip(before).map(|(after, before)| after.saturating_sub(before));
            if self.trust.judge(touched, used, length) {
                // The cgroup includes what the hypervisor itself touches.
                let touched = touched.min(self.memory);
                self.known = Some(touched);
                let watched = self.watched_interval(touched);
                return Ok((self.row(length, aged.took, Some(watched)), Vec::new()));
            }
            if let Trust::Unseen(UNSEEN_MAX..) = self.trust {
                return Err(SourceError::Unseen(UNSEEN_MAX, TRUSTED));
            }
        }
    }

    fn set_length(&mut self, length: Duration) {
        self.shortest = length;
    }

    fn set_budget(&mut self, limit: f64) {
        self.budget = limit;
    }
}

/// The generations of the guest of process `pid`, if they show what it touches.
///
/// # Errors
/// Those of [`MglruFollower::begin`].
pub(super) fn find(pid: u32) -> Result<PageGenerations, SourceError> {
    match check_referenced_bits(Path::new(PROC), pid) {
        Err(TrackerError::Kvm) => {
            let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
            if !asks_kvm(release.trim()) {
                return Err(SourceError::Blind(release.trim().to_owned()));
            }
        }
        checked => checked?,
    }
    Ok(PageGenerations::find(Path::new("/"), pid)?)
}

/// Whether the guest of process `pid` could be aged now. Ages nothing.
///
/// # Errors
/// Those of [`MglruFollower::begin`], except what only agings show.
pub(super) fn probe(pid: u32) -> Result<(), SourceError> {
    let listed = find(pid)?.listed()?;
    let (_, huge) = memory_in_huge_pages(pid)?;
    check_listed(listed, Bytes::new(huge.resident))
}

/// Checks that the generations contain the guest's memory.
fn check_listed(listed: Bytes, resident: Bytes) -> Result<(), SourceError> {
    if (listed.get() as f64) < LISTED_MIN * resident.get() as f64 {
        return Err(SourceError::Unlisted { listed, resident });
    }
    Ok(())
}

/// The longest interval, given the shortest one.
fn longest(shortest: Duration) -> Duration {
    WINDOW_MAX.max(shortest)
}

/// Whether the kernel of this release asks KVM what its guests touched; `false` if the release is
/// not recognized.
fn asks_kvm(release: &str) -> bool {
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => (major, minor) >= ASKS_KVM_SINCE,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_do_not_ask_kvm_are_told_apart() {
        for release in ["6.12.95+deb12-amd64", "6.13", "7.0-rc1", "10.1.0"] {
            assert!(asks_kvm(release), "{release}");
        }
        for release in ["6.1.0-50-amd64", "6.11.9", "5.19", "", "6", "six.twelve"] {
            assert!(!asks_kvm(release), "{release}");
        }
    }

    #[test]
    fn a_guest_that_runs_and_shows_nothing_is_not_believed() {
        let second = Duration::from_secs(1);
        let (idle, busy) = (Some(Duration::from_millis(5)), Some(Duration::from_millis(300)));
        let mut trust = Trust::Unseen(0);
        assert!(trust.judge(Bytes::ZERO, idle, second), "a stopped guest touches nothing");
        assert_eq!(trust, Trust::Unseen(0));
        assert!(!trust.judge(TRUSTED, busy, second));
        assert!(!trust.judge(Bytes::ZERO, None, second));
        assert_eq!(trust, Trust::Unseen(2));
        assert!(trust.judge(Bytes::mib(1), busy, second));
        assert!(trust.judge(Bytes::ZERO, busy, second), "it was seen before");
        assert_eq!(trust, Trust::Seen);
    }

    #[test]
    fn memory_outside_the_generations_is_told() {
        assert!(check_listed(Bytes::mib(240), Bytes::mib(256)).is_ok());
        assert!(check_listed(Bytes::ZERO, Bytes::ZERO).is_ok(), "nothing is resident yet");
        let told = check_listed(Bytes::mib(12), Bytes::mib(256)).unwrap_err();
        assert!(!told.is_lasting());
        assert!(told.to_string().starts_with("only 12MiB are in the generations"), "{told}");
    }

    #[test]
    fn a_process_that_is_gone_is_told() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(MglruFollower::begin(child.id(), WAIT).is_err());
    }
}
