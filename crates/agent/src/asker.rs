//! From statistics to requests.
//!
//! Idea: the rules are those of `ballast-request`, which the simulator has too; here are the figures
//! they look at, and the words that say why.
//! Limits: without watermarks or lists in the statistics nothing is asked for; an emergency needs the
//! reclaim counters.

use std::time::Duration;

use ballast_agent_wire::{GuestMessage, Kind, Rule, Statistics, Why};
use ballast_model::{Bytes, Timestamp};
use ballast_request::linux::{Before, Figures, Reclaim, Thresholds};
use ballast_request::{Call, Caller, Wish};

use crate::config::Requests;

/// Asks for memory.
#[derive(Debug)]
pub struct Asker {
    settings: Requests,
    caller: Caller,
    last: Option<Statistics>,
    number: u64,
}

impl Asker {
    /// One that has asked for nothing.
    pub fn new(settings: Requests) -> Asker {
        Asker { settings, caller: Caller::new(Duration::ZERO), last: None, number: 0 }
    }

    /// The host greeted: nothing is asked for any more, and its period is this.
    pub fn greeted(&mut self, emergency_period: Duration) {
        self.caller = Caller::new(emergency_period);
        self.last = None;
    }

    /// The host answered a request; whether it is the last one.
    pub fn answered(&mut self, request: u64) -> bool {
        if request == self.number {
            self.caller.answered();
        }
        request == self.number
    }

    /// What to ask for, having seen `now`.
    pub fn look(&mut self, statistics: &Statistics, now: Timestamp) -> Option<GuestMessage> {
        let last = self.last.replace(*statistics);
        if !self.settings.enabled {
            return None;
        }
        let figures = figures(statistics, self.settings.margin)?;
        let before = last.and_then(|last| {
            let (total, free) = (last.memory.total_bytes?, last.memory.free_bytes?);
            Some(Before { total: Bytes::new(total), free: Bytes::new(free) })
        });
        let reclaim = last.map(|last| reclaimed(&last, statistics)).unwrap_or_default();
        let rules = Thresholds {
            emergency: self.settings.emergency_percent,
            spare: self.settings.spare_percent,
        };
        let emergency = self.settings.emergencies && rules.is_emergency(reclaim);
        let wish = rules.wish(&figures, before, reclaim);
        let call = self.caller.say(wish, emergency, now)?;
        let without_reclaim = rules.wish(&figures, before, Reclaim::default());
        let is_falling = matches!(without_reclaim, Some(Wish::More(_)));
        self.number += 1;
        let (kind, bytes, rule) = match call {
            Call::More(bytes) if is_falling => (Kind::More, bytes, Rule::FreeFalling),
            Call::More(bytes) => (Kind::More, bytes, Rule::ReadsBack),
            Call::Less(bytes) => (Kind::Less, bytes, Rule::MostlyInactive),
            Call::Emergency => (Kind::Emergency, figures.emergency(wish), Rule::ReclaimFails),
        };
        let text = match rule {
            Rule::FreeFalling => format!(
                "free {:#}, {:#} less than before, at a low watermark of {:#}",
                figures.free,
                before.map_or(Bytes::ZERO, |before| before.free.saturating_sub(figures.free)),
                figures.watermark_low
            ),
            Rule::ReadsBack => format!(
                "{} pages read back while {} were reclaimed",
                reclaim.read_back, reclaim.reclaimed
            ),
            Rule::ReclaimFails => {
                format!("reclaim won {} of {} pages", reclaim.reclaimed, reclaim.scanned)
            }
            _ => format!(
                "active {:#} of free {:#} and inactive {:#}",
                figures.active, figures.free, figures.inactive
            ),
        };
        let why = Why { rule, text };
        Some(GuestMessage::Request { number: self.number, kind, bytes: bytes.get(), why })
    }
}

fn figures(statistics: &Statistics, margin: Bytes) -> Option<Figures> {
    let (memory, marks) = (&statistics.memory, &statistics.watermarks);
    let mark = |mark: Option<u64>| Some(Bytes::new(mark?).saturating_add(margin));
    Some(Figures {
        total: Bytes::new(memory.total_bytes?),
        free: Bytes::new(memory.free_bytes?),
        watermark_low: mark(marks.low_bytes)?,
        watermark_high: mark(marks.high_bytes)?,
        active: Bytes::new(memory.active_bytes?),
        inactive: Bytes::new(memory.inactive_bytes?),
    })
}

fn reclaimed(before: &Statistics, now: &Statistics) -> Reclaim {
    let (before, now) = (&before.counters, &now.counters);
    let grown = |one: Option<u64>, other: Option<u64>| match (one, other) {
        (Some(before), Some(now)) => now.saturating_sub(before),
        _ => 0,
    };
    let sum = |one: u64, other: u64| one.saturating_add(other);
    Reclaim {
        scanned: sum(
            grown(before.scan_kswapd_pages, now.scan_kswapd_pages),
            grown(before.scan_direct_pages, now.scan_direct_pages),
        ),
        reclaimed: sum(
            grown(before.steal_kswapd_pages, now.steal_kswapd_pages),
            grown(before.steal_direct_pages, now.steal_direct_pages),
        ),
        read_back: sum(
            grown(before.swap_in_pages, now.swap_in_pages),
            grown(before.refault_file_pages, now.refault_file_pages),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics(free_mib: u64, scanned: u64, won: u64) -> Statistics {
        let mut it = Statistics::default();
        it.memory.total_bytes = Some(1 << 30);
        it.memory.free_bytes = Some(free_mib << 20);
        it.memory.active_bytes = Some(900 << 20);
        it.memory.inactive_bytes = Some(10 << 20);
        it.watermarks.low_bytes = Some(20 << 20);
        it.watermarks.high_bytes = Some(30 << 20);
        it.counters.scan_direct_pages = Some(scanned);
        it.counters.scan_kswapd_pages = Some(0);
        it.counters.steal_direct_pages = Some(won);
        it.counters.steal_kswapd_pages = Some(0);
        it
    }

    fn at(s: u64) -> Timestamp {
        Timestamp::from_millis(s * 1_000)
    }

    #[test]
    fn asks_says_why_and_waits_for_the_answer() {
        let mut asker = Asker::new(Requests::default());
        assert_eq!(asker.look(&statistics(35, 0, 0), at(0)), None);
        // At the next look 15 would be free: asks for 20 + 4 × 10 − 25.
        let Some(GuestMessage::Request { number: 1, kind: Kind::More, bytes, why }) =
            asker.look(&statistics(25, 0, 0), at(1))
        else {
            panic!("it asks")
        };
        assert_eq!((bytes, why.rule), (35 << 20, Rule::FreeFalling));
        assert_eq!(why.text, "free 25MiB, 10MiB less than before, at a low watermark of 20MiB");
        assert_eq!(asker.look(&statistics(15, 0, 0), at(2)), None);
        assert!(!asker.answered(9) && asker.answered(1));
        assert!(asker.look(&statistics(5, 0, 0), at(3)).is_some());
        // A new host knows of no request.
        asker.greeted(Duration::from_secs(1));
        assert!(asker.look(&statistics(5, 0, 0), at(4)).is_some());
    }

    #[test]
    fn what_is_read_back_is_asked_for() {
        let mut asker = Asker::new(Requests::default());
        let reading = |pages| {
            let mut it = statistics(100, 100 + pages, 100 + pages);
            it.counters.swap_in_pages = Some(pages);
            it
        };
        assert_eq!(asker.look(&reading(0), at(0)), None);
        let Some(GuestMessage::Request { kind: Kind::More, bytes, why, .. }) =
            asker.look(&reading(90), at(1))
        else {
            panic!("it asks")
        };
        assert_eq!((bytes, why.rule), (8 << 20, Rule::ReadsBack));
        assert_eq!(why.text, "90 pages read back while 90 were reclaimed");
    }

    #[test]
    fn failing_reclaim_is_an_emergency_once_a_period() {
        let mut asker = Asker::new(Requests::default());
        asker.greeted(Duration::from_secs(5));
        asker.look(&statistics(500, 0, 0), at(0));
        let cry = asker.look(&statistics(500, 1_000, 100), at(1));
        let Some(GuestMessage::Request { kind: Kind::Emergency, bytes, why, .. }) = cry else {
            panic!("{cry:?}")
        };
        assert_eq!(
            (bytes, why.rule, why.text.as_str()),
            (30 << 20, Rule::ReclaimFails, "reclaim won 100 of 1000 pages")
        );
        assert_eq!(asker.look(&statistics(500, 2_000, 200), at(2)), None);
        assert!(asker.look(&statistics(500, 3_000, 300), at(6)).is_some());
    }

    #[test]
    fn what_is_switched_off_or_unknown_is_not_asked_for() {
        let mut off = Asker::new(Requests { enabled: false, ..Requests::default() });
        assert_eq!(off.look(&statistics(5, 0, 0), at(0)), None);
        let mut asker = Asker::new(Requests::default());
        assert_eq!(asker.look(&Statistics::default(), at(0)), None);
        let margin = Requests { margin: Bytes::mib(100), ..Requests::default() };
        let mut early = Asker::new(margin);
        assert!(early.look(&statistics(110, 0, 0), at(0)).is_some());
    }
}
