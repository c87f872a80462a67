//! Progress of a paging job.

use ballast_model::{Bytes, Timestamp};

use crate::error::ReclaimError;

/// The result of all steps so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagingProgress {
    /// What the caller does next.
    pub state: PagingState,
    /// Memory the kernel was asked to move.
    pub tried: Bytes,
    /// Memory that really moved, counted page by page afterwards: out of the process when paging
    /// out, into memory when paging in.
    pub moved: Bytes,
}

/// What the caller does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PagingState {
    /// Take the next step at any time.
    InProgress,
    /// Take the next step at `until`; an earlier one does nothing.
    Waiting {
        /// When enough may be moved again. `None`: a limit is zero, and the job cannot proceed.
        until: Option<Timestamp>,
    },
    /// The job is over.
    Finished(FinishReason),
    /// This step failed, wholly or partly; the next one may be tried.
    Failed(ReclaimError),
}

impl PagingState {
    /// Why the job is over; `None` while it is not.
    pub(crate) fn finish_reason(&self) -> Option<FinishReason> {
        match self {
            PagingState::Finished(reason) => Some(*reason),
            _ => None,
        }
    }
}

/// Why a job is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The amount was moved.
    Reached,
    /// Every page was visited, and none is left to move.
    Exhausted,
    /// The kernel moved nothing in repeated attempts, for instance because of a cgroup's swap
    /// limit.
    Stuck,
    /// The cgroup shrank by the amount, partly by memory that is not the process's: page cache, or
    /// cached copies of swapped pages.
    GaveOther,
}

impl FinishReason {
    /// Stable word for machines.
    pub const fn code(self) -> &'static str {
        match self {
            FinishReason::Reached => "reached",
            FinishReason::Exhausted => "exhausted",
            FinishReason::Stuck => "stuck",
            FinishReason::GaveOther => "gave-other",
        }
    }
}
