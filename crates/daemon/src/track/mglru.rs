//! Follows one guest by the generations of its cgroup's pages (MGLRU).
//!
//! Idea: the kernel ages the cgroup at the end of each interval and so tells how much was touched
//! in it ([`PageGenerations`]). That is the working set; which pages it were is not told, so there
//! is no curve, and what a guest returns to after more than an interval does not count.
//!
//! In huge pages one touch ages 2 MiB, as with DAMON: then the figure is an upper bound.
//! Cost: a walk over all memory of the cgroup an interval, which is lengthened, up to
//! [`WINDOW_MAX`], to keep that within the budget; every [`LOOK_INTERVALS`] a read of `maps` and
//! `smaps`.
//! Limits: those of [`PageGenerations`]: what the hypervisor itself touches counts, some MiB.

use std::path::Path;
use std::time::{Duration, Instant};

use ballast_host::PROC;
use ballast_model::{Bytes, TrackingSource};
use ballast_reclaim::{Aging, PageGenerations};
use ballast_tracker::{TrackerError, check_bits_tell};

use super::damon::{HUGE_MAX, HUGE_PAGES, memory_in_huge_pages};
use super::damon_hub::WINDOW_MAX;
use super::row::{Row, Seen};
use super::source::{SourceError, WorkingSetSource};
use super::thread::interval_within;

/// The first kernel whose aging asks KVM what its guests touched.
const ASKS_KVM_SINCE: (u32, u32) = (6, 12);
/// Intervals between two looks at the guest's mappings.
const LOOK_INTERVALS: u64 = 16;
/// Time between two looks whether to go on.
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
}

impl MglruFollower {
    /// Starts to age the guest of process `pid`, in intervals of at least `shortest`.
    ///
    /// # Errors
    /// This kernel would not see what the guest touches; the process has no cgroup of its own; the
    /// kernel has no such LRU, or it is turned off; the process is gone or has no guest memory.
    pub fn begin(pid: u32, shortest: Duration) -> Result<MglruFollower, SourceError> {
        let mut generations = find(pid)?;
        // What the first one finds was touched at any time.
        generations.age()?;
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
        };
        follower.look()?;
        Ok(follower)
    }

    fn look(&mut self) -> Result<(), SourceError> {
        let (memory, huge) = memory_in_huge_pages(self.pid)?;
        (self.memory, self.is_huge) = (memory, huge.ratio() > HUGE_MAX);
        Ok(())
    }

    fn row(&self, length: Duration, cost: Duration, seen: Option<Seen>) -> Row {
        Row {
            at: self.began.elapsed(),
            length,
            tracked: self.memory,
            known: self.known,
            moved: None,
            events: None,
            step: None,
            up_ratio: 1.0,
            cost,
            seen,
        }
    }

    fn seen(&self, touched: Bytes) -> Seen {
        let (source, granule_pages) = match self.is_huge {
            true => (TrackingSource::MglruHuge, HUGE_PAGES),
            false => (TrackingSource::Mglru, 1),
        };
        Seen {
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
        if self.intervals > 0 && self.intervals.is_multiple_of(LOOK_INTERVALS) {
            self.look()?;
        }
        let began = Instant::now();
        while go_on() {
            let left = self.length.saturating_sub(began.elapsed());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(WAIT));
        }
        let Aging { touched, took } = self.generations.age()?;
        // What the hypervisor touches beside is no more than the guest's memory.
        let touched = touched.min(self.memory);
        let longest = WINDOW_MAX.max(self.shortest);
        self.length = interval_within(took, self.budget).clamp(self.shortest, longest);
        self.intervals += 1;
        self.known = Some(touched);
        Ok((self.row(began.elapsed(), took, Some(self.seen(touched))), Vec::new()))
    }

    fn set_length(&mut self, length: Duration) {
        self.shortest = length;
    }

    fn set_budget(&mut self, limit: f64) {
        self.budget = limit;
    }
}

/// The generations of the guest of process `pid`, where they show what it touches.
///
/// # Errors
/// Those of [`MglruFollower::begin`].
pub(super) fn find(pid: u32) -> Result<PageGenerations, SourceError> {
    match check_bits_tell(Path::new(PROC), pid) {
        Err(TrackerError::Kvm) => {
            let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
            if !asks_kvm(release.trim()) {
                return Err(SourceError::Blind(release.trim().to_owned()));
            }
        }
        told => told?,
    }
    Ok(PageGenerations::find(Path::new("/"), pid)?)
}

/// Whether the kernel of this release asks KVM what its guests touched; not where that is not to be
/// told.
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
    fn a_process_that_is_gone_is_told() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(MglruFollower::begin(child.id(), WAIT).is_err());
    }
}
