//! The results of a simulation.
//!
//! Idea: one [`PolicyReport`] per policy, with everything that the table of `ballast simulate`
//! shows and bounded series for its plots. Ratios are to two baseline runs of the same scenario:
//! one with unlimited memory, and one under `static`.
//! Limits: every figure is simulated.

use std::time::Duration;

use ballast_model::{Bytes, GuestId, PolicyName};

/// Most points of one series; longer runs are averaged.
pub const POINTS_MAX: usize = 512;

/// The comparison of policies on one scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparisonReport {
    /// The scenario's name.
    pub scenario: String,
    /// Its seed.
    pub seed: u64,
    /// Virtual time simulated for each policy.
    pub duration: Duration,
    /// The memory that all guests together could have.
    pub budget: Bytes,
    /// The policies, in the requested order.
    pub policies: Vec<PolicyReport>,
}

/// The results of one policy.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyReport {
    /// The policy.
    pub policy: PolicyName,
    /// Page touches done by all guests.
    pub work: u64,
    /// Mean of [`GuestReport::work_ratio`] over the guests that have one; `None` if none has.
    pub work_ratio: Option<f64>,
    /// Geometric mean over guests of the ratio of work to that under `static`; `None` if no guest
    /// works under both.
    pub speedup_vs_static: Option<f64>,
    /// Major page faults.
    pub major_faults: u64,
    /// Memory read from swap.
    pub swap_in: Bytes,
    /// Memory written to swap.
    pub swap_out: Bytes,
    /// Most swap in use at the same time, summed over guests.
    pub swap_used_max: Bytes,
    /// Memory moved by balloons, in both directions.
    pub moved: Bytes,
    /// Jain's index of the guests' work ratios divided by their shares, over the whole run: 1 if
    /// all are equal, 1/n if one guest has everything (Jain et al. 1984). Covers the guests of
    /// [`PolicyReport::work_ratio`].
    pub jain: Option<f64>,
    /// The same for each part of the run, in step with [`GuestReport::series`].
    pub jain_series: Vec<Option<f64>>,
    /// Time from the last change of demand until targets are stable; see `metrics`. `None` if they
    /// never are.
    pub converge: Option<Duration>,
    /// Reversals of a guest's target per hour after the last change of demand: the mean over
    /// guests.
    pub reversals_per_h: f64,
    /// Movement of all targets after convergence, per hour; if they do not converge, after the last
    /// change of demand.
    pub restless_per_h: Bytes,
    /// Plans that the checker refused.
    pub plans_refused: u64,
    /// Ticks in which guests held more than the budget, or more than the host has. Anything but 0
    /// is a bug.
    pub violations: u64,
    /// Every guest, sorted by name.
    pub guests: Vec<GuestReport>,
}

/// The results of one guest under one policy.
#[derive(Clone, Debug, PartialEq)]
pub struct GuestReport {
    /// The guest.
    pub id: GuestId,
    /// Its shares.
    pub shares: u32,
    /// Page touches it did.
    pub work: u64,
    /// Time in which its workloads had work to do; if all of them end, this ends with the last one.
    pub working: Duration,
    /// Its work per second of [`GuestReport::working`], against that with unlimited memory, 0 to
    /// about 1; `None` if it does no work even then.
    pub work_ratio: Option<f64>,
    /// Faults that waited for a disk.
    pub major_faults: u64,
    /// Memory read from swap.
    pub swap_in: Bytes,
    /// Memory written to swap.
    pub swap_out: Bytes,
    /// Most swap it ever had in use.
    pub swap_used_max: Bytes,
    /// File pages read again after their eviction.
    pub refaulted_file_pages: u64,
    /// Workloads that its OOM killer killed.
    pub oom_kills: u64,
    /// Memory moved by its balloon, in both directions.
    pub moved: Bytes,
    /// Smallest allocation.
    pub allocation_min: Bytes,
    /// Mean allocation.
    pub allocation_mean: Bytes,
    /// Largest allocation.
    pub allocation_max: Bytes,
    /// Final allocation.
    pub allocation_last: Bytes,
    /// Its series of at most [`POINTS_MAX`] points.
    pub series: Vec<Point>,
}

/// An interval of the run, averaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// End of the interval, from the start of the run.
    pub at: Duration,
    /// Mean allocation.
    pub allocation: Bytes,
    /// Target at its end; `None` before the first.
    pub target: Option<Bytes>,
    /// Mean of memory in use by workloads and kernel, without swap.
    pub used: Bytes,
    /// Mean of the memory it needs to avoid all misses, without its free memory.
    pub demand: Bytes,
    /// Major faults in it.
    pub major_faults: u64,
    /// Page touches in it.
    pub work: u64,
}

impl ComparisonReport {
    /// The report of one policy.
    pub fn policy(&self, policy: PolicyName) -> Option<&PolicyReport> {
        self.policies.iter().find(|report| report.policy == policy)
    }
}

impl PolicyReport {
    /// The report of one guest. O(log n).
    pub fn guest(&self, id: &GuestId) -> Option<&GuestReport> {
        let at = self.guests.binary_search_by(|guest| guest.id.cmp(id)).ok()?;
        self.guests.get(at)
    }
}

impl GuestReport {
    /// Its work per second of [`GuestReport::working`], against that of `other`; `None` if `other`
    /// did no work.
    ///
    /// If both did the same work, this is the time of `other` divided by its own.
    pub fn work_of(&self, other: &GuestReport) -> Option<f64> {
        let rate = |it: &GuestReport| it.work as f64 / it.working.as_secs_f64();
        (other.work > 0 && self.working > Duration::ZERO).then(|| rate(self) / rate(other))
    }
}
