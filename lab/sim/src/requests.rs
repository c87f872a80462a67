//! What an agent in a guest asks for.
//!
//! Idea: the rules are `ballast_request`'s, those of the real agent; here is only who asks when, and
//! what counts as an answer: a target that is another one than when it asked.
//! Source: flexmemd §3.1.2. Limits: guests are Linux.

use std::time::Duration;

use ballast_model::{Bytes, MemoryRequest, RequestKind, Timestamp};
use ballast_request::linux::{Before, Figures, Reclaim, Thresholds};
use ballast_request::{Call, Caller};

use crate::counters::Counters;
use crate::memory::Memory;

/// The host's period: flexmemd's policies decide once a second.
const PERIOD: Duration = Duration::from_secs(1);

/// The requests of one guest.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    caller: Caller,
    last: Option<MemoryRequest>,
    target_then: Option<Bytes>,
    before: Option<Before>,
}

impl Default for Requests {
    fn default() -> Self {
        let caller = Caller::new(PERIOD);
        Requests { caller, last: None, target_then: None, before: None }
    }
}

impl Requests {
    /// The last request made.
    pub(crate) fn last(&self) -> Option<MemoryRequest> {
        self.last
    }

    /// Looks at a guest that is to have `target`, at the end of a tick in which `tick` happened.
    pub(crate) fn look(
        &mut self,
        memory: &Memory,
        target: Option<Bytes>,
        tick: &Counters,
        now: Duration,
    ) {
        if target != self.target_then {
            self.caller.answered();
        }
        let figures = Figures {
            total: memory.total(),
            free: Bytes::new(memory.free()),
            watermark_low: Bytes::new(memory.watermark_low()),
            watermark_high: Bytes::new(memory.watermark_high()),
            active: memory.active(),
            inactive: memory.inactive(),
        };
        let reclaim = Reclaim {
            scanned: tick.scanned_pages,
            reclaimed: tick.reclaimed_pages,
            read_back: tick.swap_in_pages + tick.refaulted_file_pages,
        };
        let rules = Thresholds::default();
        let seen = Before { total: figures.total, free: figures.free };
        let wish = rules.wish(&figures, self.before.replace(seen), reclaim);
        let ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let call = self.caller.say(wish, rules.is_emergency(reclaim), Timestamp::from_millis(ms));
        let Some(call) = call else { return };
        let (kind, amount) = match call {
            Call::More(amount) => (RequestKind::More, amount),
            Call::Less(amount) => (RequestKind::Less, amount),
            Call::Emergency => (RequestKind::Emergency, figures.emergency(wish)),
        };
        let number = self.last.map_or(0, |last| last.number) + 1;
        self.last = Some(MemoryRequest { number, kind, amount });
        self.target_then = target;
    }
}
