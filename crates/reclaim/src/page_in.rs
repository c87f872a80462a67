//! Memory of a guest comes back from the host's swap before the guest has to wait for it.
//!
//! Idea: each step finds pages in swap, from the lowest address on; has the kernel begin to read them all at once
//! (`MADV_WILLNEED`); and then makes sure of each. `MADV_WILLNEED` alone leaves them in the swap cache: seen on
//! Linux 6.18, neither the process's memory grows nor its swap falls, and the guest still takes a fault for each page,
//! though a short one. Private pages are made sure of by reading a byte of each through `/proc/PID/mem`, shared ones
//! by mapping their file ([`SharedFile`](crate::shared_file::SharedFile)): from outside, `MADV_POPULATE_READ` is
//! refused (`EINVAL`).
//!
//! Shared pages are then in memory and not in the hypervisor's page table; the guest's touch is a short fault,
//! and a tracker sees it.
//!
//! The swap it takes from stays in use for private pages, as copies, until the kernel wants it.
//!
//! Cost: pages that had gone at random came back from a disk one by one at 34 MiB/s, after `MADV_WILLNEED` at 130 to
//! 510 (`benches/paging.rs`).
//! Source: process_madvise(2), proc_pid_mem(5).
//! Limits: waits for the disk; what is paged out below the place it has come to is not seen; shared memory needs its
//! file ([`Refusal::Permission`]). On private memory that a user fault handler watches, waits for that handler.

use ballast_model::{Bytes, Timestamp};

use crate::kernel::{Remote, advise};
use crate::page_out::refusal;
use crate::paging::Scene;
use crate::{AddressRange, Finish, Paging, Progress, Rate, Refusal, State};

/// Memory looked at in one step: 10 ms where none of it is in swap.
const LOOK_BYTES_MAX: Bytes = Bytes::gib(2);
/// Looked at at once, so that little is looked at in vain.
const CHUNK: Bytes = Bytes::mib(16);
/// Less than this is not worth a step; unless it is all.
const WORTH: Bytes = Bytes::kib(256);

/// Bounds of paging in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageInLimits {
    /// Bytes a second that are read.
    pub per_second: Bytes,
    /// Bytes in one step: bounds how long it takes.
    pub step_bytes_max: Bytes,
}

/// An order to page in.
#[derive(Debug)]
pub struct PageIn {
    /// `None` is all.
    amount: Option<Bytes>,
    limits: PageInLimits,
    rate: Rate,
    /// All below was looked at.
    place: u64,
    tried: Bytes,
    moved: Bytes,
    finish: Option<Finish>,
}

impl PageIn {
    /// Of `amount`, in whole pages, rounded down; of all where it is `None`.
    pub fn new(amount: Option<Bytes>, limits: PageInLimits) -> PageIn {
        PageIn {
            amount: amount.map(Bytes::page_floor),
            limits,
            rate: Rate::new(limits.per_second, limits.step_bytes_max.max(Bytes::pages(1))),
            place: 0,
            tried: Bytes::ZERO,
            moved: Bytes::ZERO,
            finish: None,
        }
    }

    /// Reads what may be read at `now`, and no more than `host_spare`: memory that the host can do without at this
    /// moment. Takes as long as the disk needs to read `step_bytes_max`, and never waits for memory to become
    /// free: without any, [`State::Waiting`] with no time.
    pub fn step(&mut self, paging: &Paging, now: Timestamp, host_spare: Bytes) -> Progress {
        let state = match self.finish {
            Some(finish) => State::Finished(finish),
            None => self.try_step(paging, now, host_spare).unwrap_or_else(State::Refused),
        };
        if let State::Finished(finish) = state {
            self.finish = Some(finish);
        }
        Progress { state, tried: self.tried, moved: self.moved }
    }

    fn try_step(
        &mut self,
        paging: &Paging,
        now: Timestamp,
        host_spare: Bytes,
    ) -> Result<State, Refusal> {
        let missing = self.missing();
        if missing == Bytes::ZERO {
            return Ok(State::Finished(Finish::Reached));
        }
        paging.alive()?;
        let step = self.limits.step_bytes_max.max(Bytes::pages(1));
        let worth = missing.min(step).min(WORTH);
        if self.rate.available(now) < worth {
            return Ok(State::Waiting { until: self.rate.ready_at(worth) });
        }
        let most = missing.min(host_spare).min(step).min(self.rate.available(now)).page_floor();
        if most == Bytes::ZERO {
            return Ok(State::Waiting { until: None });
        }
        let scene = paging.scene()?;
        let files: Vec<_> = scene.pieces.iter().map(|piece| &piece.file).collect();
        if let Some(refusal) = files.iter().find_map(|file| file.as_ref()?.as_ref().err())
            && files.iter().all(|file| matches!(file, Some(Err(_))))
        {
            return Err(refusal.clone());
        }
        let (found, is_all) = self.find(&scene, most);
        self.read(paging, &scene, &found)?;
        Ok(if self.missing() == Bytes::ZERO {
            State::Finished(Finish::Reached)
        } else if is_all {
            State::Finished(Finish::Exhausted)
        } else {
            State::Going
        })
    }

    fn missing(&self) -> Bytes {
        self.amount.map_or(Bytes::MAX, |amount| amount.saturating_sub(self.moved))
    }

    /// Up to `most` in swap from the present place on, by piece; and whether the end was reached.
    fn find(&mut self, scene: &Scene, most: Bytes) -> (Vec<(usize, AddressRange)>, bool) {
        let mut found = Vec::new();
        let (mut sum, mut looked) = (Bytes::ZERO, Bytes::ZERO);
        for (number, piece) in scene.pieces.iter().enumerate() {
            let ahead = AddressRange::new(self.place, u64::MAX);
            let mut rest = piece.region.range.intersection(ahead);
            while !rest.is_empty() {
                let missing = most.saturating_sub(sum);
                if missing == Bytes::ZERO || looked >= LOOK_BYTES_MAX {
                    return (found, false);
                }
                let (chunk, after) = rest.split(CHUNK);
                let parts = scene.swapped(number, chunk, missing);
                let more = parts.iter().map(|part| part.len()).sum();
                // A full step may have left some of the chunk.
                let last = parts.last().filter(|_| more >= missing).map(|part| part.end());
                self.place = last.unwrap_or(chunk.end());
                rest =
                    if last.is_some() { AddressRange::new(self.place, rest.end()) } else { after };
                looked += chunk.len();
                sum += more;
                found.extend(parts.into_iter().map(|part| (number, part)));
            }
        }
        (found, true)
    }

    fn read(
        &mut self,
        paging: &Paging,
        scene: &Scene,
        found: &[(usize, AddressRange)],
    ) -> Result<(), Refusal> {
        let ranges: Vec<AddressRange> = found.iter().map(|&(_, range)| range).collect();
        // A kernel without this advice refuses it of every range, and they are read one by one.
        advise(paging.vmm().pidfd(), &ranges, Remote::WillNeed)
            .map_err(|error| refusal(paging.vmm().pid(), error))?;
        let memory = paging.memory()?;
        let resident = || found.iter().map(|&(piece, range)| scene.resident(piece, range)).sum();
        let before: Bytes = resident();
        for &(piece, range) in found {
            scene.fill(piece, range, &memory);
        }
        let after: Bytes = resident();
        paging.alive()?;
        let tried = ranges.iter().map(|range| range.len()).sum();
        self.rate.spend(tried);
        self.tried += tried;
        self.moved += after.saturating_sub(before);
        Ok(())
    }
}
