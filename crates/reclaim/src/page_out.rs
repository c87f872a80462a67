//! Pages guest memory out to the host's swap.
//!
//! Idea: each step draws pages until it has found as much in memory as it may move, lets the kernel
//! write them all (`MADV_PAGEOUT`), and counts which really left. Pages that stayed, because the
//! guest is using them, are not tried again; others follow instead.
//!
//! Shared pages missing from the hypervisor's page table, because a tracker unmapped them, are
//! evicted through the file ([`SharedFile`](crate::shared_file::SharedFile)).
//!
//! Cost: see `benches/paging.rs`; a step draws at most [`DRAWS_MAX`] ranges.
//! Source: process_madvise(2), madvise(2).
//! Limits: the kernel does not move pages that are mapped by several processes, locked, or pinned
//! (by a passthrough device).

use ballast_model::{Bytes, Timestamp};
use rustix::io::Errno;

use crate::error::ReclaimError;
use crate::guest_memory::{GuestMemory, MemoryView, ResidentRange};
use crate::kernel::{CacheAction, RemoteAdvice, advise};
use crate::picker::{Draw, Picker};
use crate::progress::{FinishReason, PagingProgress, PagingState};
use crate::ranges::AddressRange;
use crate::swap::SwapBounds;
use crate::token_bucket::TokenBucket;

/// Most ranges drawn in one step: 20 to 40 ms if none is in memory.
const DRAWS_MAX: u32 = 16_384;
/// If this much was tried in a row and nothing moved, the kernel will not move anything.
pub(crate) const STUCK_AFTER: Bytes = Bytes::mib(16);
/// A step waits until it may move this much, or all that is left.
pub(crate) const STEP_MIN: Bytes = Bytes::kib(256);

/// Limits of paging out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageOutLimits {
    /// Bytes per second the kernel is asked to write.
    pub per_second: Bytes,
    /// Bytes per step: bounds a step's duration.
    pub step_bytes_max: Bytes,
    /// How much of the host's swap may be in use.
    pub swap: SwapBounds,
}

/// A job that pages out an amount.
#[derive(Debug)]
pub struct PageOut {
    amount: Bytes,
    limits: PageOutLimits,
    picker: Picker,
    draw: Option<Draw>,
    bucket: TokenBucket,
    tried: Bytes,
    moved: Bytes,
    /// Tried since something last moved.
    tried_in_vain: Bytes,
    /// Mappings whose pages the kernel refuses to move.
    unmovable: Vec<AddressRange>,
    finish: Option<FinishReason>,
}

impl PageOut {
    /// Pages out `amount`, rounded down to whole pages.
    pub fn new(amount: Bytes, picker: Picker, limits: PageOutLimits) -> PageOut {
        PageOut {
            amount: amount.page_floor(),
            limits,
            picker,
            draw: None,
            bucket: TokenBucket::new(limits.per_second, limits.step_bytes_max.max(Bytes::pages(1))),
            tried: Bytes::ZERO,
            moved: Bytes::ZERO,
            tried_in_vain: Bytes::ZERO,
            unmovable: Vec::new(),
            finish: None,
        }
    }

    /// Moves as much as the limits permit at `now`. Takes as long as the kernel needs to write
    /// `step_bytes_max`.
    pub fn step(&mut self, memory: &GuestMemory, now: Timestamp) -> PagingProgress {
        let state = match self.finish {
            Some(finish) => PagingState::Finished(finish),
            None => self.try_step(memory, now).unwrap_or_else(PagingState::Failed),
        };
        self.finish = state.finish_reason();
        PagingProgress { state, tried: self.tried, moved: self.moved }
    }

    fn try_step(
        &mut self,
        memory: &GuestMemory,
        now: Timestamp,
    ) -> Result<PagingState, ReclaimError> {
        let missing = self.amount.saturating_sub(self.moved);
        if missing == Bytes::ZERO {
            return Ok(PagingState::Finished(FinishReason::Reached));
        }
        memory.check_alive()?;
        let room = self.limits.swap.room(&memory.swap()?)?;
        let step = self.limits.step_bytes_max.max(Bytes::pages(1));
        let step_min = missing.min(step).min(STEP_MIN);
        if self.bucket.available(now) < step_min {
            return Ok(PagingState::Waiting { until: self.bucket.ready_at(step_min) });
        }
        let most = missing.min(room).min(step).min(self.bucket.available(now)).page_floor();
        let view = memory.view()?;
        if view.regions.iter().all(|it| self.unmovable.contains(&it.region.mapping)) {
            return Err(ReclaimError::Unmovable { pid: memory.vmm().pid() });
        }
        let (taken, is_all) = self.pick(&view, most);
        let before: Bytes = taken.iter().map(|it| it.range.len()).sum();
        self.evict(memory, &view, &taken)?;
        let after = taken.iter().map(|it| view.resident(it.region, it.range)).sum();
        // The files of an ending process are empty, which must not pass for success.
        memory.check_alive()?;
        self.bucket.spend(before);
        self.tried += before;
        let moved = before.saturating_sub(after);
        self.moved += moved;
        self.tried_in_vain =
            if moved > Bytes::ZERO { Bytes::ZERO } else { self.tried_in_vain + before };
        Ok(if self.moved >= self.amount {
            PagingState::Finished(FinishReason::Reached)
        } else if self.tried_in_vain >= STUCK_AFTER {
            PagingState::Finished(FinishReason::Stuck)
        } else if is_all {
            PagingState::Finished(FinishReason::Exhausted)
        } else {
            PagingState::InProgress
        })
    }

    /// Draws pages until `most` of them are in memory. Returns those, in order of addresses, and
    /// whether all pages have been drawn.
    fn pick(&mut self, view: &MemoryView, most: Bytes) -> (Vec<ResidentRange>, bool) {
        let draw = self.draw.get_or_insert_with(|| {
            Draw::new(&self.picker, view.regions.iter().map(|open| open.region.range))
        });
        let mut taken: Vec<ResidentRange> = Vec::new();
        let mut found = Bytes::ZERO;
        let mut is_all = false;
        for _ in 0..DRAWS_MAX {
            if found >= most {
                break;
            }
            let Some(drawn) = draw.next(most.saturating_sub(found)) else {
                is_all = true;
                break;
            };
            let first = taken.len();
            for (index, range) in view.overlaps(drawn) {
                if !self.unmovable.contains(&view.regions[index].region.mapping) {
                    view.find_resident(index, range, &mut taken);
                }
            }
            found += taken[first..].iter().map(|it| it.range.len()).sum();
        }
        taken.sort_unstable();
        // Join neighbouring ranges.
        taken.dedup_by(|next, last| {
            let joins = (last.region, last.is_mapped, last.range.end())
                == (next.region, next.is_mapped, next.range.start());
            if joins {
                last.range = AddressRange::new(last.range.start(), next.range.end());
            }
            joins
        });
        (taken, is_all)
    }

    fn evict(
        &mut self,
        memory: &GuestMemory,
        view: &MemoryView,
        taken: &[ResidentRange],
    ) -> Result<(), ReclaimError> {
        let mapped: Vec<AddressRange> =
            taken.iter().filter(|it| it.is_mapped).map(|it| it.range).collect();
        let refused = advise(memory.vmm().pidfd(), &mapped, RemoteAdvice::PageOut)
            .map_err(|error| ReclaimError::of_advice(memory.vmm().pid(), error))?;
        for (range, error) in refused {
            // Other errors mean that the range was unmapped, or not accepted this time.
            if error == Errno::INVAL {
                let mappings =
                    view.overlaps(range).map(|(index, _)| view.regions[index].region.mapping);
                self.unmovable.extend(mappings);
            }
        }
        for it in taken.iter().filter(|it| !it.is_mapped) {
            if let Some(Ok(file)) = &view.regions[it.region].file {
                // A page that cannot be evicted stays in memory; the caller counts afterwards.
                let _ = file.apply(it.range, CacheAction::Evict);
            }
        }
        Ok(())
    }
}
