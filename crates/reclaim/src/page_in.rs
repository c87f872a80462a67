//! Reads guest memory back from the host's swap before the guest faults on it.
//!
//! Idea: each step finds swapped pages, from the lowest address on, lets the kernel start reading
//! them all at once (`MADV_WILLNEED`), and then brings each into memory. `MADV_WILLNEED` alone
//! leaves pages in the swap cache: on Linux 6.18 the process's resident memory does not grow, its
//! swap does not shrink, and the guest still takes a short fault for each page. Private pages are
//! brought in by reading a byte of each through `/proc/PID/mem`, shared ones by mapping their file
//! ([`SharedFile`](crate::shared_file::SharedFile)): the kernel refuses `MADV_POPULATE_READ` on
//! another process (`EINVAL`).
//!
//! Shared pages are then in memory, but not in the hypervisor's page table: the guest's access
//! takes a short fault, which a tracker sees.
//!
//! The swap space of private pages stays in use, as a copy, until the kernel needs it.
//!
//! Cost: pages that had been paged out at random came back from a disk at 34 MiB/s one by one, and
//! at 130 to 510 MiB/s after `MADV_WILLNEED` (`benches/paging.rs`).
//! Source: process_madvise(2), proc_pid_mem(5).
//! Limits: waits for the disk; does not return to pages that are paged out below its current
//! position; shared memory needs access to its file ([`ReclaimError::Permission`]). On private
//! memory watched by a userfaultfd handler, waits for that handler.

use ballast_model::{Bytes, Timestamp};

use crate::error::ReclaimError;
use crate::guest_memory::{GuestMemory, MemoryView};
use crate::kernel::{RemoteAdvice, advise};
use crate::page_out::STEP_MIN;
use crate::progress::{FinishReason, PagingProgress, PagingState};
use crate::ranges::AddressRange;
use crate::token_bucket::TokenBucket;

/// Most memory scanned in one step: 10 ms if none of it is in swap.
const SCAN_BYTES_MAX: Bytes = Bytes::gib(2);
/// Memory scanned at a time: small, so that little is scanned for nothing.
const CHUNK: Bytes = Bytes::mib(16);

/// Limits of paging in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageInLimits {
    /// Bytes read per second.
    pub per_second: Bytes,
    /// Bytes per step: bounds a step's duration.
    pub step_bytes_max: Bytes,
}

/// A job that pages in an amount.
#[derive(Debug)]
pub struct PageIn {
    /// `None`: all.
    amount: Option<Bytes>,
    limits: PageInLimits,
    bucket: TokenBucket,
    /// All memory below this address was scanned.
    position: u64,
    tried: Bytes,
    moved: Bytes,
    finish: Option<FinishReason>,
}

impl PageIn {
    /// Pages in `amount`, rounded down to whole pages; `None` pages in everything.
    pub fn new(amount: Option<Bytes>, limits: PageInLimits) -> PageIn {
        PageIn {
            amount: amount.map(Bytes::page_floor),
            limits,
            bucket: TokenBucket::new(limits.per_second, limits.step_bytes_max.max(Bytes::pages(1))),
            position: 0,
            tried: Bytes::ZERO,
            moved: Bytes::ZERO,
            finish: None,
        }
    }

    /// Reads as much as the limits permit at `now`, and at most `host_spare`: the memory that the
    /// host can spare now. Takes as long as the disk needs to read `step_bytes_max`. Does not wait
    /// for memory: if the host can spare none, it returns [`PagingState::Waiting`] without a time.
    pub fn step(
        &mut self,
        memory: &GuestMemory,
        now: Timestamp,
        host_spare: Bytes,
    ) -> PagingProgress {
        let state = match self.finish {
            Some(finish) => PagingState::Finished(finish),
            None => self.try_step(memory, now, host_spare).unwrap_or_else(PagingState::Failed),
        };
        self.finish = state.finish_reason();
        PagingProgress { state, tried: self.tried, moved: self.moved }
    }

    fn try_step(
        &mut self,
        memory: &GuestMemory,
        now: Timestamp,
        host_spare: Bytes,
    ) -> Result<PagingState, ReclaimError> {
        let missing = self.missing();
        if missing == Bytes::ZERO {
            return Ok(PagingState::Finished(FinishReason::Reached));
        }
        memory.check_alive()?;
        let step = self.limits.step_bytes_max.max(Bytes::pages(1));
        let step_min = missing.min(step).min(STEP_MIN);
        if self.bucket.available(now) < step_min {
            return Ok(PagingState::Waiting { until: self.bucket.ready_at(step_min) });
        }
        let most = missing.min(host_spare).min(step).min(self.bucket.available(now)).page_floor();
        if most == Bytes::ZERO {
            return Ok(PagingState::Waiting { until: None });
        }
        let view = memory.view()?;
        if view.regions.iter().all(|open| matches!(open.file, Some(Err(_))))
            && let Some(Err(error)) = view.regions.first().and_then(|open| open.file.as_ref())
        {
            return Err(error.clone());
        }
        let (found, is_all) = self.find(&view, most);
        self.read(memory, &view, &found)?;
        Ok(if self.missing() == Bytes::ZERO {
            PagingState::Finished(FinishReason::Reached)
        } else if is_all {
            PagingState::Finished(FinishReason::Exhausted)
        } else {
            PagingState::InProgress
        })
    }

    fn missing(&self) -> Bytes {
        self.amount.map_or(Bytes::MAX, |amount| amount.saturating_sub(self.moved))
    }

    /// Finds up to `most` in swap from the current position on. Returns the ranges, each with the
    /// index of its region, and whether the scan reached the end.
    fn find(&mut self, view: &MemoryView, most: Bytes) -> (Vec<(usize, AddressRange)>, bool) {
        let mut found = Vec::new();
        let (mut sum, mut scanned) = (Bytes::ZERO, Bytes::ZERO);
        for (index, open) in view.regions.iter().enumerate() {
            let ahead = AddressRange::new(self.position, u64::MAX);
            let mut rest = open.region.range.intersection(ahead);
            while !rest.is_empty() {
                let missing = most.saturating_sub(sum);
                if missing == Bytes::ZERO || scanned >= SCAN_BYTES_MAX {
                    return (found, false);
                }
                let chunk = rest.split(CHUNK).0;
                let parts = view.swapped(index, chunk, missing);
                let new = parts.iter().map(|part| part.len()).sum();
                self.position = match parts.last() {
                    // The step is full: the chunk may have more behind this part.
                    Some(last) if new >= missing => last.end(),
                    _ => chunk.end(),
                };
                rest = AddressRange::new(self.position, rest.end());
                scanned += chunk.len();
                sum += new;
                found.extend(parts.into_iter().map(|part| (index, part)));
            }
        }
        (found, true)
    }

    fn read(
        &mut self,
        memory: &GuestMemory,
        view: &MemoryView,
        found: &[(usize, AddressRange)],
    ) -> Result<(), ReclaimError> {
        let ranges: Vec<AddressRange> = found.iter().map(|&(_, range)| range).collect();
        // A kernel without this advice refuses each range; the pages are then read one by one.
        advise(memory.vmm().pidfd(), &ranges, RemoteAdvice::WillNeed)
            .map_err(|error| ReclaimError::of_advice(memory.vmm().pid(), error))?;
        let mem_file = memory.mem_file()?;
        let resident = || found.iter().map(|&(index, range)| view.resident(index, range)).sum();
        let before: Bytes = resident();
        for &(index, range) in found {
            view.populate(index, range, &mem_file);
        }
        let after: Bytes = resident();
        memory.check_alive()?;
        let tried = ranges.iter().map(|range| range.len()).sum();
        self.bucket.spend(tried);
        self.tried += tried;
        self.moved += after.saturating_sub(before);
        Ok(())
    }
}
