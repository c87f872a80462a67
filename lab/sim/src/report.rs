//! What a simulation found.
//!
//! Idea: one [`PolicyReport`] per policy, with everything the table of `ballast simulate` shows and
//! bounded series for its plots. Ratios are measured against two runs of the same scenario: one in
//! which memory is unlimited, and one under `static`.
//! Limits: every figure is simulated.

use std::time::Duration;

use ballast_model::{Bytes, GuestId, PolicyName};

/// Most points of one series; longer runs are averaged down to them.
pub const POINTS_MAX: usize = 512;

/// Policies compared on one scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The scenario's name.
    pub scenario: String,
    /// Its seed.
    pub seed: u64,
    /// Virtual time simulated for each policy.
    pub duration: Duration,
    /// What all guests together could have.
    pub budget: Bytes,
    /// The policies, in the order in which they were asked for.
    pub policies: Vec<PolicyReport>,
}

/// What came of one policy.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyReport {
    /// The policy.
    pub policy: PolicyName,
    /// Page touches done by all guests.
    pub work: u64,
    /// Mean of [`GuestReport::work_ratio`] over the guests that have one; `None` where nobody has.
    pub work_ratio: Option<f64>,
    /// Geometric mean over guests of work done against that under `static`; `None` where no guest
    /// does work under both.
    pub speedup_vs_static: Option<f64>,
    /// Faults that waited for a disk.
    pub major_faults: u64,
    /// Memory read from swap.
    pub swap_in: Bytes,
    /// Memory written to swap.
    pub swap_out: Bytes,
    /// Most swap in use at the same time, summed over guests.
    pub swap_used_max: Bytes,
    /// Memory moved by balloons, both ways.
    pub moved: Bytes,
    /// Jain's index of the guests' work ratios divided by their shares, over the whole run: 1 where
    /// all are alike, 1/n where one has everything (Jain et al. 1984). Counted as for
    /// [`PolicyReport::work_ratio`].
    pub jain: Option<f64>,
    /// The same for each part of the run, in step with [`GuestReport::series`].
    pub jain_series: Vec<Option<f64>>,
    /// Time from the last change of demand until targets stay; see `metrics`. `None`: they do not.
    pub converge: Option<Duration>,
    /// Times a guest's target turned from growing to shrinking or back in an hour, after the last
    /// change of demand: the mean over guests.
    pub reversals_per_h: f64,
    /// Memory by which targets still moved after convergence, in an hour; all guests together.
    /// Where they do not converge, after the last change of demand.
    pub restless_per_h: Bytes,
    /// Plans the checker refused.
    pub plans_refused: u64,
    /// Ticks in which guests held more than the budget, or the host had less than nothing. Always 0
    /// unless something is wrong.
    pub violations: u64,
    /// Every guest, sorted by name.
    pub guests: Vec<GuestReport>,
}

/// What came of one guest under one policy.
#[derive(Clone, Debug, PartialEq)]
pub struct GuestReport {
    /// The guest.
    pub id: GuestId,
    /// Its weight.
    pub shares: u32,
    /// Page touches it did.
    pub work: u64,
    /// Work against that with unlimited memory, 0 to about 1; `None` where it does none even then.
    pub work_ratio: Option<f64>,
    /// Faults that waited for a disk.
    pub major_faults: u64,
    /// Memory read from swap.
    pub swap_in: Bytes,
    /// Memory written to swap.
    pub swap_out: Bytes,
    /// Most swap it ever had in use.
    pub swap_used_max: Bytes,
    /// Pages of files read again after they were evicted.
    pub refaulted_file_pages: u64,
    /// Times its OOM killer ended a workload.
    pub oom_kills: u64,
    /// Memory moved by its balloon, both ways.
    pub moved: Bytes,
    /// Least it ever held.
    pub allocation_min: Bytes,
    /// Mean of what it held.
    pub allocation_mean: Bytes,
    /// Most it ever held.
    pub allocation_max: Bytes,
    /// What it held in the end.
    pub allocation_last: Bytes,
    /// What it went through; at most [`POINTS_MAX`] points.
    pub series: Vec<Point>,
}

/// A part of the run, averaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Its end, from the beginning of the run.
    pub at: Duration,
    /// Mean allocation.
    pub allocation: Bytes,
    /// Target in force at its end; `None` before there is one.
    pub target: Option<Bytes>,
    /// Mean of memory in use by workloads and kernel, swap apart.
    pub used: Bytes,
    /// Mean of the memory it would need to miss nothing, without what it keeps free.
    pub demand: Bytes,
    /// Major faults in it.
    pub major_faults: u64,
    /// Page touches in it.
    pub work: u64,
}

impl Report {
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
