//! The memory requests of an agent in a guest.
//!
//! Idea: the rules are those of the real agent, in `ballast_agent_proto`; this module only decides
//! when to ask, and treats a changed target as the answer.
//! Source: flexmemd §3.1.2. Limits: guests are Linux.

use std::time::Duration;

use ballast_agent_proto::request::linux::{
    MemoryState, PreviousSample, ReclaimDelta, RequestThresholds,
};
use ballast_agent_proto::request::{OutgoingRequest, RequestLimiter};
use ballast_model::{Bytes, MemoryRequest, RequestKind, Timestamp};

use crate::counters::Counters;
use crate::memory::Memory;

/// The host's period: flexmemd's policies decide once a second.
const PERIOD: Duration = Duration::from_secs(1);

/// The requests of one guest.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    caller: RequestLimiter,
    last: Option<MemoryRequest>,
    target_then: Option<Bytes>,
    before: Option<PreviousSample>,
}

impl Default for Requests {
    fn default() -> Self {
        let caller = RequestLimiter::new(PERIOD);
        Requests { caller, last: None, target_then: None, before: None }
    }
}

impl Requests {
    /// The last request made.
    pub(crate) fn last(&self) -> Option<MemoryRequest> {
        self.last
    }

    /// Updates the request of a guest with this target, at the end of a tick with the events
    /// `tick`.
    pub(crate) fn observe(
        &mut self,
        memory: &Memory,
        target: Option<Bytes>,
        tick: &Counters,
        now: Duration,
    ) {
        if target != self.target_then {
            self.caller.answered();
        }
        let figures = MemoryState {
            total: memory.total(),
            free: Bytes::new(memory.free()),
            watermark_low: Bytes::new(memory.watermark_low()),
            watermark_high: Bytes::new(memory.watermark_high()),
            active: memory.active(),
            inactive: memory.inactive(),
        };
        let reclaim = ReclaimDelta {
            scanned: tick.scanned_pages,
            reclaimed: tick.reclaimed_pages,
            read_back: tick.swap_in_pages + tick.refaulted_file_pages,
        };
        let rules = RequestThresholds::default();
        let seen = PreviousSample { total: figures.total, free: figures.free };
        let wish = rules.wanted_change(&figures, self.before.replace(seen), reclaim);
        let ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let call =
            self.caller.next_request(wish, rules.is_emergency(reclaim), Timestamp::from_millis(ms));
        let Some(call) = call else { return };
        let (kind, amount) = match call {
            OutgoingRequest::More(amount) => (RequestKind::More, amount),
            OutgoingRequest::Less(amount) => (RequestKind::Less, amount),
            OutgoingRequest::Emergency => (RequestKind::Emergency, figures.emergency_amount(wish)),
        };
        let number = self.last.map_or(0, |last| last.number) + 1;
        self.last = Some(MemoryRequest { number, kind, amount });
        self.target_then = target;
    }
}
