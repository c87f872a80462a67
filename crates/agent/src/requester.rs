//! Makes requests for memory from statistics.
//!
//! The rules are those of [`ballast_agent_proto::request`], which the simulator uses too. This
//! module extracts the numbers that they need, and puts the reasons into words.
//! Limits: without watermarks or LRU lists there are no requests; an emergency needs the reclaim
//! counters.

use std::time::Duration;

use ballast_agent_proto::request::linux::{
    MemoryState, PreviousSample, ReclaimDelta, RequestThresholds,
};
use ballast_agent_proto::request::{OutgoingRequest, RequestLimiter, WantedChange};
use ballast_agent_proto::wire::{
    GuestMessage, KernelCounters, RequestReason, RequestRule, Statistics, WireRequestKind,
};
use ballast_model::{Bytes, Timestamp};

use crate::config::RequestConfig;

/// Makes requests for memory.
#[derive(Debug)]
pub struct Requester {
    settings: RequestConfig,
    limiter: RequestLimiter,
    last: Option<Statistics>,
    /// Number of the last request.
    number: u64,
}

impl Requester {
    /// A requester that has made no requests.
    pub fn new(settings: RequestConfig) -> Requester {
        let limiter = RequestLimiter::new(Duration::ZERO);
        Requester { settings, limiter, last: None, number: 0 }
    }

    /// The host greeted: forgets outstanding requests and adopts its emergency period.
    pub fn greeted(&mut self, emergency_period: Duration) {
        self.limiter = RequestLimiter::new(emergency_period);
        self.last = None;
    }

    /// The host answered a request; returns whether it is the last one.
    pub fn answered(&mut self, request: u64) -> bool {
        if request == self.number {
            self.limiter.answered();
        }
        request == self.number
    }

    /// The request to make after the sample `statistics`.
    pub fn request(&mut self, statistics: &Statistics, now: Timestamp) -> Option<GuestMessage> {
        let last = self.last.replace(*statistics);
        if !self.settings.enabled {
            return None;
        }
        let state = memory_state(statistics, self.settings.margin)?;
        let before = last.and_then(|last| {
            let (total, free) = (last.memory.total_bytes?, last.memory.free_bytes?);
            Some(PreviousSample { total: Bytes::new(total), free: Bytes::new(free) })
        });
        let reclaim = last
            .map(|last| reclaim_delta(&last.counters, &statistics.counters))
            .unwrap_or_default();
        let thresholds = RequestThresholds {
            emergency: self.settings.emergency_percent,
            spare: self.settings.spare_percent,
        };
        let is_emergency = self.settings.emergencies && thresholds.is_emergency(reclaim);
        let wanted = thresholds.wanted_change(&state, before, reclaim);
        let request = self.limiter.next_request(wanted, is_emergency, now)?;
        // A request that would be made even without reclaim is made because free memory falls.
        let without_reclaim = thresholds.wanted_change(&state, before, ReclaimDelta::default());
        let is_falling = matches!(without_reclaim, Some(WantedChange::More(_)));
        self.number += 1;
        let (kind, bytes, rule) = match request {
            OutgoingRequest::More(bytes) if is_falling => {
                (WireRequestKind::More, bytes, RequestRule::FreeFalling)
            }
            OutgoingRequest::More(bytes) => (WireRequestKind::More, bytes, RequestRule::ReadsBack),
            OutgoingRequest::Less(bytes) => {
                (WireRequestKind::Less, bytes, RequestRule::MostlyInactive)
            }
            OutgoingRequest::Emergency => {
                let bytes = state.emergency_amount(wanted);
                (WireRequestKind::Emergency, bytes, RequestRule::ReclaimFails)
            }
        };
        let text = match rule {
            RequestRule::FreeFalling => format!(
                "free {:#}, {:#} less than before, at a low watermark of {:#}",
                state.free,
                before.map_or(Bytes::ZERO, |before| before.free.saturating_sub(state.free)),
                state.watermark_low
            ),
            RequestRule::ReadsBack => format!(
                "{} pages read back while {} were reclaimed",
                reclaim.read_back, reclaim.reclaimed
            ),
            RequestRule::ReclaimFails => {
                format!("reclaimed only {} of {} scanned pages", reclaim.reclaimed, reclaim.scanned)
            }
            _ => format!(
                "active {:#}, free {:#}, inactive {:#}",
                state.active, state.free, state.inactive
            ),
        };
        let why = RequestReason { rule, text };
        Some(GuestMessage::Request { number: self.number, kind, bytes: bytes.get(), why })
    }
}

fn memory_state(statistics: &Statistics, margin: Bytes) -> Option<MemoryState> {
    let (memory, watermarks) = (&statistics.memory, &statistics.watermarks);
    let with_margin = |bytes: u64| Bytes::new(bytes).saturating_add(margin);
    Some(MemoryState {
        total: Bytes::new(memory.total_bytes?),
        free: Bytes::new(memory.free_bytes?),
        watermark_low: with_margin(watermarks.low_bytes?),
        watermark_high: with_margin(watermarks.high_bytes?),
        active: Bytes::new(memory.active_bytes?),
        inactive: Bytes::new(memory.inactive_bytes?),
    })
}

fn reclaim_delta(before: &KernelCounters, now: &KernelCounters) -> ReclaimDelta {
    let growth = |before: Option<u64>, now: Option<u64>| match (before, now) {
        (Some(before), Some(now)) => now.saturating_sub(before),
        _ => 0,
    };
    ReclaimDelta {
        scanned: growth(before.scan_kswapd_pages, now.scan_kswapd_pages)
            .saturating_add(growth(before.scan_direct_pages, now.scan_direct_pages)),
        reclaimed: growth(before.steal_kswapd_pages, now.steal_kswapd_pages)
            .saturating_add(growth(before.steal_direct_pages, now.steal_direct_pages)),
        read_back: growth(before.swap_in_pages, now.swap_in_pages)
            .saturating_add(growth(before.refault_file_pages, now.refault_file_pages)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics(free_mib: u64, scanned: u64, reclaimed: u64) -> Statistics {
        let mut it = Statistics::default();
        it.memory.total_bytes = Some(1 << 30);
        it.memory.free_bytes = Some(free_mib << 20);
        it.memory.active_bytes = Some(900 << 20);
        it.memory.inactive_bytes = Some(10 << 20);
        it.watermarks.low_bytes = Some(20 << 20);
        it.watermarks.high_bytes = Some(30 << 20);
        it.counters.scan_direct_pages = Some(scanned);
        it.counters.scan_kswapd_pages = Some(0);
        it.counters.steal_direct_pages = Some(reclaimed);
        it.counters.steal_kswapd_pages = Some(0);
        it
    }

    fn at(s: u64) -> Timestamp {
        Timestamp::from_millis(s * 1_000)
    }

    #[test]
    fn a_request_has_a_reason_and_waits_for_its_answer() {
        let mut requester = Requester::new(RequestConfig::default());
        assert_eq!(requester.request(&statistics(35, 0, 0), at(0)), None);
        // The next sample would have 15 free: asks for 20 + 4 × 10 − 25.
        let Some(GuestMessage::Request { number: 1, kind: WireRequestKind::More, bytes, why }) =
            requester.request(&statistics(25, 0, 0), at(1))
        else {
            panic!("no request")
        };
        assert_eq!((bytes, why.rule), (35 << 20, RequestRule::FreeFalling));
        assert_eq!(why.text, "free 25MiB, 10MiB less than before, at a low watermark of 20MiB");
        assert_eq!(requester.request(&statistics(15, 0, 0), at(2)), None);
        assert!(!requester.answered(9) && requester.answered(1));
        assert!(requester.request(&statistics(5, 0, 0), at(3)).is_some());
        // A new host has no outstanding request.
        requester.greeted(Duration::from_secs(1));
        assert!(requester.request(&statistics(5, 0, 0), at(4)).is_some());
    }

    #[test]
    fn refaults_cause_a_request_for_more() {
        let mut requester = Requester::new(RequestConfig::default());
        let reading = |pages| {
            let mut it = statistics(100, 100 + pages, 100 + pages);
            it.counters.swap_in_pages = Some(pages);
            it
        };
        assert_eq!(requester.request(&reading(0), at(0)), None);
        let Some(GuestMessage::Request { kind: WireRequestKind::More, bytes, why, .. }) =
            requester.request(&reading(90), at(1))
        else {
            panic!("no request")
        };
        assert_eq!((bytes, why.rule), (8 << 20, RequestRule::ReadsBack));
        assert_eq!(why.text, "90 pages read back while 90 were reclaimed");
    }

    #[test]
    fn failing_reclaim_is_one_emergency_per_period() {
        let mut requester = Requester::new(RequestConfig::default());
        requester.greeted(Duration::from_secs(5));
        requester.request(&statistics(500, 0, 0), at(0));
        let emergency = requester.request(&statistics(500, 1_000, 100), at(1));
        let Some(GuestMessage::Request { kind: WireRequestKind::Emergency, bytes, why, .. }) =
            emergency
        else {
            panic!("{emergency:?}")
        };
        assert_eq!(
            (bytes, why.rule, why.text.as_str()),
            (30 << 20, RequestRule::ReclaimFails, "reclaimed only 100 of 1000 scanned pages")
        );
        assert_eq!(requester.request(&statistics(500, 2_000, 200), at(2)), None);
        assert!(requester.request(&statistics(500, 3_000, 300), at(6)).is_some());
    }

    #[test]
    fn disabled_or_incomplete_requests_are_not_made() {
        let mut off = Requester::new(RequestConfig { enabled: false, ..RequestConfig::default() });
        assert_eq!(off.request(&statistics(5, 0, 0), at(0)), None);
        let mut requester = Requester::new(RequestConfig::default());
        assert_eq!(requester.request(&Statistics::default(), at(0)), None);
        let margin = RequestConfig { margin: Bytes::mib(100), ..RequestConfig::default() };
        let mut early = Requester::new(margin);
        assert!(early.request(&statistics(110, 0, 0), at(0)).is_some());
    }
}
