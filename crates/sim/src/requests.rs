//! What an agent in a guest asks for.
//!
//! Idea: flexmemd §3.1.2. It asks for more just before reclaim would begin, offers what it can spare
//! when much of its memory is inactive, and cries for help when reclaim mostly fails.
//! Limits: at most one request at a time: the next comes when the allocation has moved or the last
//! has gone unanswered for [`REPEAT_AFTER`].

use std::time::Duration;

use ballast_model::{Bytes, MemoryRequest, PAGE_SIZE, RequestKind};

use crate::counters::Counters;
use crate::memory::Memory;

/// A request that nobody answers is made again after this long.
const REPEAT_AFTER: Duration = Duration::from_secs(5);
/// Less is not worth asking for.
const AMOUNT_MIN: Bytes = Bytes::mib(16);

/// The requests of one guest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    last: Option<(MemoryRequest, Duration, Bytes)>,
}

impl Requests {
    /// The last request made.
    pub(crate) fn last(&self) -> Option<MemoryRequest> {
        self.last.map(|(request, _, _)| request)
    }

    /// Looks at the guest at the end of a tick in which `tick` happened.
    pub(crate) fn look(&mut self, memory: &Memory, tick: &Counters, now: Duration) {
        let allocation = memory.allocation();
        if let Some((_, asked_at, then)) = self.last {
            let answered = allocation.abs_diff(then) >= AMOUNT_MIN;
            if !answered && now < asked_at + REPEAT_AFTER {
                return;
            }
        }
        let Some((kind, amount)) = wish(memory, tick) else { return };
        if amount < AMOUNT_MIN {
            return;
        }
        let number = self.last.map_or(0, |(request, _, _)| request.number) + 1;
        let amount = amount.page_floor();
        self.last = Some((MemoryRequest { number, kind, amount }, now, allocation));
    }
}

/// What it would ask for now.
fn wish(memory: &Memory, tick: &Counters) -> Option<(RequestKind, Bytes)> {
    let came = tick.minor_faults + tick.swap_in_pages + tick.refaulted_file_pages;
    let came = Bytes::pages(came);
    let (low, high) = (memory.watermark_low(), memory.watermark_high());
    let free = memory.free();
    // What came in this tick will come in the next too.
    let short = Bytes::new(high).saturating_add(came).saturating_sub(Bytes::new(free));
    let failed = tick.scanned_pages.saturating_sub(tick.reclaimed_pages);
    let reclaimed_something = tick.scanned_pages > 0;
    if reclaimed_something && failed * 10 > tick.scanned_pages * 6 && came > Bytes::ZERO {
        return Some((RequestKind::Emergency, short.max(AMOUNT_MIN)));
    }
    if free < low.saturating_add(came.get()) {
        return Some((RequestKind::More, short));
    }
    let ratio = (10 * (memory.allocation().get() >> 30)).isqrt().max(1);
    let idle = memory.inactive().saturating_add(Bytes::new(free));
    // active < 0.8 × ratio × (free + inactive)
    if memory.active().get().saturating_mul(10) < idle.get().saturating_mul(8 * ratio) {
        let keep = high.saturating_add(came.get()).saturating_mul(2);
        let spare = free.saturating_sub(keep) / 2 / PAGE_SIZE * PAGE_SIZE;
        return Some((RequestKind::Less, Bytes::new(spare)));
    }
    None
}
