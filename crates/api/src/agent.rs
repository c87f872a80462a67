//! Reports of the agent inside a guest.

use ballast_model::{Bytes, GuestSample};
use serde::{Deserialize, Serialize};

use crate::Coded;
use crate::tick::millis;

/// A report of the agent inside a guest. A figure that it does not contain is `null`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentView {
    /// Age of the report at the tick.
    pub age_ms: u64,
    /// Memory that the guest's kernel has promised to processes (`Committed_AS`).
    pub committed_bytes: Option<u64>,
    /// Swap in use, without pages that are in memory too.
    pub swap_used_bytes: Option<u64>,
    /// Swap not in use; 0 if there is no swap.
    pub swap_free_bytes: Option<u64>,
    /// Memory on the kernel's active lists.
    pub active_bytes: Option<u64>,
    /// Memory on the kernel's inactive lists.
    pub inactive_bytes: Option<u64>,
    /// Free memory at which reclaim stops: the sum of the zones' high watermarks.
    pub watermark_high_bytes: Option<u64>,
    /// Page cache that was read again after its eviction, in pages since the guest's boot.
    pub refaulted_file_pages: Option<u64>,
    /// Pages that reclaim scanned since the guest's boot.
    pub scanned_pages: Option<u64>,
    /// Pages that reclaim freed since the guest's boot.
    pub reclaimed_pages: Option<u64>,
    /// The guest's last request for memory: `more`, `less` or `emergency`; `null`: none.
    pub request: Option<Coded>,
}

impl AgentView {
    /// The view for `sample`; `None`: no agent ever reported.
    pub(crate) fn of(sample: &GuestSample) -> Option<AgentView> {
        let agent = sample.agent.as_deref()?;
        let report = agent.value;
        Some(AgentView {
            age_ms: millis(agent.age),
            committed_bytes: report.committed.map(Bytes::get),
            swap_used_bytes: report.swap_used.map(Bytes::get),
            swap_free_bytes: report.swap_free.map(Bytes::get),
            active_bytes: report.active.map(Bytes::get),
            inactive_bytes: report.inactive.map(Bytes::get),
            watermark_high_bytes: report.watermark_high.map(Bytes::get),
            refaulted_file_pages: report.refaulted_file_pages,
            scanned_pages: report.scanned_pages,
            reclaimed_pages: report.reclaimed_pages,
            request: report.request.map(|request| Coded::new(request.kind.code(), request)),
        })
    }
}
