//! Memory of a guest goes to the host's swap.
//!
//! Idea: each step draws pages until it has found as much in memory as it may take, has the kernel write them all
//! (`MADV_PAGEOUT`), and looks which really went. What was not taken, as the guest is just using it, is not tried
//! again; others go instead.
//!
//! Shared pages that the hypervisor has not in its page table, because a tracker took them out, are evicted through
//! the file ([`SharedFile`](crate::shared_file::SharedFile)).
//!
//! Cost: see `benches/paging.rs`; a step looks at no more than [`LOOKS_MAX`] places.
//! Source: process_madvise(2), madvise(2).
//! Limits: the kernel leaves pages that several processes have mapped, that are locked, or that are held (a passthrough
//! device).

use ballast_model::{Bytes, Timestamp};
use rustix::io::Errno;

use crate::kernel::{Own, Remote, advise};
use crate::paging::{Scene, Taken};
use crate::picker::Draw;
use crate::refusal::NEEDS_NICE;
use crate::{AddressRange, Finish, Paging, Picker, Progress, Rate, Refusal, State, SwapBounds};

/// Most places looked at in one step: 20 to 40 ms where nothing is in memory.
const LOOKS_MAX: u32 = 16_384;
/// When so much in a row was tried and nothing moved, the kernel will not move any.
pub(crate) const STUCK: Bytes = Bytes::mib(16);
/// Less than this is not worth a step; unless it is all.
pub(crate) const WORTH: Bytes = Bytes::kib(256);

/// Bounds of paging out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageOutLimits {
    /// Bytes a second that the kernel is asked to write.
    pub per_second: Bytes,
    /// Bytes in one step: bounds how long it takes.
    pub step_bytes_max: Bytes,
    /// How much of the swap may be in use.
    pub swap: SwapBounds,
}

/// An order to page out.
#[derive(Debug)]
pub struct PageOut {
    amount: Bytes,
    limits: PageOutLimits,
    picker: Picker,
    draw: Option<Draw>,
    rate: Rate,
    tried: Bytes,
    moved: Bytes,
    /// Tried in a row, and nothing moved.
    in_vain: Bytes,
    /// Mappings of which the kernel moves nothing.
    unmovable: Vec<AddressRange>,
    finish: Option<Finish>,
}

impl PageOut {
    /// Of `amount`, in whole pages, rounded down.
    pub fn new(amount: Bytes, picker: Picker, limits: PageOutLimits) -> PageOut {
        PageOut {
            amount: amount.page_floor(),
            limits,
            picker,
            draw: None,
            rate: Rate::new(limits.per_second, limits.step_bytes_max.max(Bytes::pages(1))),
            tried: Bytes::ZERO,
            moved: Bytes::ZERO,
            in_vain: Bytes::ZERO,
            unmovable: Vec::new(),
            finish: None,
        }
    }

    /// Moves what may be moved at `now`. Takes as long as the kernel needs to write `step_bytes_max`.
    pub fn step(&mut self, paging: &Paging, now: Timestamp) -> Progress {
        let state = match self.finish {
            Some(finish) => State::Finished(finish),
            None => self.try_step(paging, now).unwrap_or_else(State::Refused),
        };
        if let State::Finished(finish) = state {
            self.finish = Some(finish);
        }
        Progress { state, tried: self.tried, moved: self.moved }
    }

    fn try_step(&mut self, paging: &Paging, now: Timestamp) -> Result<State, Refusal> {
        let missing = self.amount.saturating_sub(self.moved);
        if missing == Bytes::ZERO {
            return Ok(State::Finished(Finish::Reached));
        }
        paging.alive()?;
        let room = self.limits.swap.room(&paging.swap()?)?;
        let step = self.limits.step_bytes_max.max(Bytes::pages(1));
        let worth = missing.min(step).min(WORTH);
        if self.rate.available(now) < worth {
            return Ok(State::Waiting { until: self.rate.ready_at(worth) });
        }
        let most = missing.min(room).min(step).min(self.rate.available(now)).page_floor();
        let scene = paging.scene()?;
        if scene.pieces.iter().all(|it| self.unmovable.contains(&it.region.mapping)) {
            return Err(Refusal::Unmovable { pid: paging.vmm().pid() });
        }
        let (taken, is_all) = self.pick(&scene, most);
        let before: Bytes = taken.iter().map(|it| it.range.len()).sum();
        self.evict(paging, &scene, &taken)?;
        let after = taken.iter().map(|it| scene.resident(it.piece, it.range)).sum();
        // Nothing is to be seen of a process that ends, which would pass for success.
        paging.alive()?;
        self.rate.spend(before);
        self.tried += before;
        let moved = before.saturating_sub(after);
        self.moved += moved;
        self.in_vain = if moved > Bytes::ZERO { Bytes::ZERO } else { self.in_vain + before };
        Ok(if self.moved >= self.amount {
            State::Finished(Finish::Reached)
        } else if self.in_vain >= STUCK {
            State::Finished(Finish::Stuck)
        } else if is_all {
            State::Finished(Finish::Exhausted)
        } else {
            State::Going
        })
    }

    /// Draws up to `most` that is in memory, in order of addresses; and whether all has been drawn.
    fn pick(&mut self, scene: &Scene, most: Bytes) -> (Vec<Taken>, bool) {
        let draw = self.draw.get_or_insert_with(|| {
            Draw::new(&self.picker, scene.pieces.iter().map(|piece| piece.region.range))
        });
        let mut taken: Vec<Taken> = Vec::new();
        let mut found = Bytes::ZERO;
        let mut is_all = false;
        for _ in 0..LOOKS_MAX {
            if found >= most {
                break;
            }
            let Some(drawn) = draw.next(most.saturating_sub(found)) else {
                is_all = true;
                break;
            };
            let first = taken.len();
            for (piece, range) in scene.pieces_of(drawn) {
                if !self.unmovable.contains(&scene.pieces[piece].region.mapping) {
                    scene.look(piece, range, &mut taken);
                }
            }
            found += taken[first..].iter().map(|it| it.range.len()).sum();
        }
        taken.sort_unstable();
        taken.dedup_by(|next, last| {
            let joins = (last.piece, last.is_mapped, last.range.end())
                == (next.piece, next.is_mapped, next.range.start());
            if joins {
                last.range = AddressRange::new(last.range.start(), next.range.end());
            }
            joins
        });
        (taken, is_all)
    }

    fn evict(&mut self, paging: &Paging, scene: &Scene, taken: &[Taken]) -> Result<(), Refusal> {
        let mapped: Vec<AddressRange> =
            taken.iter().filter(|it| it.is_mapped).map(|it| it.range).collect();
        let refused = advise(paging.vmm().pidfd(), &mapped, Remote::PageOut)
            .map_err(|error| refusal(paging.vmm().pid(), error))?;
        // Others are of ranges that are mapped no longer, or not taken this time.
        for (range, _) in refused.into_iter().filter(|(_, error)| *error == Errno::INVAL) {
            let mappings =
                scene.pieces_of(range).map(|(piece, _)| scene.pieces[piece].region.mapping);
            self.unmovable.extend(mappings);
        }
        for it in taken.iter().filter(|it| !it.is_mapped) {
            if let Some(Ok(file)) = &scene.pieces[it.piece].file {
                // What fails stays where it is, and is not counted.
                let _ = file.act(it.range, Own::Evict);
            }
        }
        Ok(())
    }
}

/// Why a process's memory is not acted on at all.
pub(crate) fn refusal(pid: u32, error: Errno) -> Refusal {
    match error {
        Errno::PERM | Errno::ACCESS => {
            Refusal::Permission { pid, what: "page its memory out or in", needs: NEEDS_NICE }
        }
        Errno::NOSYS => Refusal::KernelTooOld { call: "process_madvise", since: "5.10" },
        // The advice itself is not known.
        Errno::INVAL => {
            Refusal::KernelTooOld { call: "MADV_PAGEOUT of another process", since: "5.10" }
        }
        _ => Refusal::Gone { pid },
    }
}
