//! Whether a guest's kernel uses plugged memory.
//!
//! Idea: the gap between what a guest holds and its `MemTotal` is what its kernel keeps for itself.
//! It does not change when the balloon moves, because the driver subtracts its pages from
//! `MemTotal`. (A driver whose balloon deflates on OOM does not; there the gap to present memory
//! stays the same.) Plugged memory that is not onlined widens the gap by its size. Onlined memory
//! widens it only by its page descriptors, a sixty-fourth. Limits: a gap counts only if the
//! statistics were taken after the allocation last changed. Without statistics nothing is judged.

use std::time::Duration;

use ballast_model::{Bytes, GuestSample, Timestamp};

use super::layout::Layout;

/// The gap of a guest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gap {
    /// Its total and plugged size, and since when both are unchanged.
    sizes: Option<((Bytes, Bytes), Timestamp)>,
    /// The last gap that counted, and the moment of its statistics.
    pub(super) last: Option<(Bytes, Timestamp)>,
}

impl Gap {
    /// Takes in a sample.
    pub(super) fn observe(&mut self, layout: &Layout, sample: &GuestSample, now: Timestamp) {
        let sizes = (layout.total, layout.plugged);
        let since = match self.sizes {
            Some((before, since)) if before == sizes => since,
            _ => now,
        };
        self.sizes = Some((sizes, since));
        let Some((managed, taken_at)) = managed(sample, now) else { return };
        if taken_at < since {
            return;
        }
        let counted = match sample.capabilities.deflate_on_oom {
            Some(true) => layout.present(),
            Some(false) | None => layout.total,
        };
        self.last = Some((counted.saturating_sub(managed), taken_at));
    }
}

/// A guest's `MemTotal`, and the moment when it was read.
fn managed(sample: &GuestSample, now: Timestamp) -> Option<(Bytes, Timestamp)> {
    let stats = sample.stats?;
    Some((stats.value.total?, now.saturating_sub(stats.age)))
}

/// Memory that was plugged in and is not proven to be used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unproven {
    /// The plugged size before.
    pub(super) base: Bytes,
    /// The gap before; `None`: it cannot be judged.
    gap: Option<Bytes>,
    /// When all of it was seen to be plugged in; `None`: not yet.
    since: Option<Timestamp>,
    /// Whether it was judged to be unused.
    pub(super) refused: bool,
}

/// The judgement about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// The kernel uses it, or there is no way to know.
    Used,
    /// Not known yet.
    Open,
    /// The kernel does not use this much of it.
    Unused(Bytes),
}

impl Unproven {
    pub(super) fn new(base: Bytes, gap: &Gap) -> Unproven {
        Unproven { base, gap: gap.last.map(|(gap, _)| gap), since: None, refused: false }
    }

    /// More is being plugged in.
    pub(super) fn plug_more(&mut self) {
        self.since = None;
    }

    /// All of it was seen to be plugged in.
    pub(super) fn all_plugged(&mut self, now: Timestamp) {
        self.since.get_or_insert(now);
    }

    /// Judges `plugged`, after the gap was observed.
    pub(super) fn judge(
        &self,
        plugged: Bytes,
        gap: &Gap,
        now: Timestamp,
        within: Duration,
    ) -> Proof {
        let Some(gap_before) = self.gap else { return Proof::Used };
        let Some(since) = self.since else { return Proof::Open };
        let Some((gap_now, _)) = gap.last.filter(|(_, taken_at)| *taken_at >= since) else {
            return Proof::Open;
        };
        let unused = gap_now.saturating_sub(gap_before);
        if unused.get() < plugged.saturating_sub(self.base).get().div_ceil(2) {
            Proof::Used
        } else if now.saturating_since(since) >= within {
            Proof::Unused(unused.min(plugged.saturating_sub(self.base)))
        } else {
            Proof::Open
        }
    }
}
