//! Operations in flight: a list of domains, a run of `xl`, a change of maxmem.

use ballast_model::{Bytes, Timestamp};
use tokio::task::JoinHandle;

use crate::key::DomainId;
use crate::xl::{XlDomain, XlInfo};

/// The state of the list of all domains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    /// Whether the list is to be requested.
    pub(super) is_wanted: bool,
    /// Whether it was requested in this sample: another one waits for the next sample.
    pub(super) was_begun: bool,
    /// Whether its answer is awaited.
    pub(super) is_asked: bool,
    /// If the list does not fit one answer: the parts received so far.
    pub(super) parts: Option<ListingParts>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ListingParts {
    pub(super) generation: String,
    pub(super) offset: u32,
    pub(super) names: Vec<String>,
    pub(super) attempts: u32,
}

/// A change of maxmem that has ended.
#[derive(Debug)]
pub(super) struct LimitRun {
    pub(super) id: DomainId,
    pub(super) to: Bytes,
    pub(super) is_fence: bool,
    pub(super) result: Result<(), String>,
}

/// A run of `xl`, and when it was begun.
#[derive(Debug)]
pub(super) struct XlRun {
    pub(super) begun: Timestamp,
    pub(super) task: JoinHandle<Result<(Vec<XlDomain>, XlInfo), String>>,
}

impl Drop for XlRun {
    fn drop(&mut self) {
        self.task.abort();
    }
}
