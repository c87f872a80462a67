//! What guests held, needed and read back from swap in the last ticks.
//!
//! Idea: one line of figures per guest and kind, as long as the view can draw. Rates of swap-in are
//! computed from a guest's own counter and the time of its report, not the time of the tick that
//! read it. Between two reports the last rate stays. Cost: memory for [`HISTORY_TICKS`] figures per
//! guest and kind. Limits: the history of a guest that is missing in one tick starts again.

use std::collections::{BTreeMap, VecDeque};

use ballast_api::StatusReply;

/// Ticks that are kept: a minute at the default tick, and more than the widest column shows.
pub(crate) const HISTORY_TICKS: usize = 60;

/// Least time between two reports from which a rate is computed. Guests date reports in whole
/// seconds, so two readings of the same report differ by less.
const REPORTS_APART_MS_MIN: u64 = 500;

/// Figures of the last ticks, oldest first; `None`: not known in that tick.
pub(crate) type HistorySeries = VecDeque<Option<u64>>;

/// The value of a guest's swap-in counter, and when it was reported.
#[derive(Clone, Copy, Debug)]
struct CounterReading {
    at_ms: u64,
    bytes: u64,
}

/// One guest's last ticks.
#[derive(Clone, Debug, Default)]
pub(crate) struct GuestHistory {
    /// What it held, in bytes.
    pub(crate) allocation: HistorySeries,
    /// What it needed, in bytes.
    pub(crate) demand: HistorySeries,
    /// What it read back from swap, in bytes a second.
    pub(crate) swap_in: HistorySeries,
    last_reading: Option<CounterReading>,
}

impl GuestHistory {
    /// Its rate of swap-in in the last tick, in bytes a second.
    pub(crate) fn swap_in_rate(&self) -> Option<u64> {
        self.swap_in.back().copied().flatten()
    }

    fn swap_in_of(&mut self, now: Option<CounterReading>) -> Option<u64> {
        let last = self.last_reading;
        let (Some(last), Some(now)) = (last, now) else {
            self.last_reading = now;
            return None;
        };
        if now.bytes < last.bytes || now.at_ms < last.at_ms {
            // The guest was restarted, or a clock was set back.
            self.last_reading = Some(now);
            return None;
        }
        let apart_ms = now.at_ms - last.at_ms;
        if apart_ms < REPORTS_APART_MS_MIN {
            return self.swap_in_rate();
        }
        self.last_reading = Some(now);
        let bytes = u128::from(now.bytes - last.bytes) * 1000 / u128::from(apart_ms);
        Some(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

/// All guests' last ticks.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    guests: BTreeMap<String, GuestHistory>,
    last: Option<(u64, u64)>,
}

impl History {
    /// Takes in a tick, unless it is the one taken in last. Drops guests that are not in it.
    pub(crate) fn push(&mut self, status: &StatusReply) {
        let tick = (status.tick.seen_at_unix_ms, status.tick.generation);
        if self.last.replace(tick) == Some(tick) {
            return;
        }
        let mut guests = BTreeMap::new();
        for guest in &status.guests {
            let mut history = self.guests.remove(&guest.guest).unwrap_or_default();
            let reading = guest.swap_in_bytes.zip(guest.stats_age_ms);
            let swap_in = history.swap_in_of(reading.map(|(bytes, age_ms)| CounterReading {
                at_ms: status.tick.seen_at_unix_ms.saturating_sub(age_ms),
                bytes,
            }));
            append(&mut history.allocation, guest.allocation_bytes);
            append(&mut history.demand, guest.demand_bytes);
            append(&mut history.swap_in, swap_in);
            guests.insert(guest.guest.clone(), history);
        }
        self.guests = guests;
    }

    /// One guest's last ticks; `None`: there is no such guest.
    pub(crate) fn guest(&self, name: &str) -> Option<&GuestHistory> {
        self.guests.get(name)
    }
}

fn append(series: &mut HistorySeries, figure: Option<u64>) {
    if series.len() == HISTORY_TICKS {
        series.pop_front();
    }
    series.push_back(figure);
}

/// The last `width` figures as bars from 0 to `top`, aligned to the right; a space where nothing is
/// known.
pub(crate) fn sparkline(series: &HistorySeries, top: u64, width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let known = series.len().min(width);
    let mut text = " ".repeat(width - known);
    for figure in series.iter().skip(series.len() - known) {
        let bar = figure.map(|figure| {
            let step = u128::from(figure) * BARS.len() as u128 / (u128::from(top) + 1);
            BARS[usize::try_from(step).unwrap_or(usize::MAX).min(BARS.len() - 1)]
        });
        text.push(bar.unwrap_or(' '));
    }
    text
}

/// The largest figure of the lines; 0 where nothing is known.
pub(crate) fn largest<'a>(lines: impl IntoIterator<Item = &'a HistorySeries>) -> u64 {
    lines.into_iter().flatten().flatten().copied().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{guest, status};

    fn pushed(history: &mut History, second: u64, swap_in: Option<u64>, age_ms: u64) {
        let mut it = guest("web");
        it.swap_in_bytes = swap_in;
        it.stats_age_ms = Some(age_ms);
        history.push(&status(second, vec![it]));
    }

    fn rates(history: &History) -> Vec<Option<u64>> {
        history.guest("web").unwrap().swap_in.iter().copied().collect()
    }

    #[test]
    fn rates_follow_the_guests_own_reports() {
        let mut history = History::default();
        // The guest reports every two seconds, and is read every second.
        pushed(&mut history, 10, Some(0), 0);
        pushed(&mut history, 11, Some(0), 1000);
        pushed(&mut history, 12, Some(8192), 0);
        pushed(&mut history, 13, Some(8192), 1000);
        pushed(&mut history, 14, Some(8192), 0);
        pushed(&mut history, 15, None, 0);
        pushed(&mut history, 16, Some(0), 0);
        let known = [None, None, Some(4096), Some(4096), Some(0), None, None];
        assert_eq!(rates(&history), known);
    }

    #[test]
    fn a_restarted_guest_has_no_rate_at_first() {
        let mut history = History::default();
        pushed(&mut history, 10, Some(9000), 0);
        pushed(&mut history, 11, Some(10), 0);
        pushed(&mut history, 12, Some(1010), 0);
        assert_eq!(rates(&history), [None, None, Some(1000)]);
    }

    #[test]
    fn a_tick_read_twice_counts_once_and_absent_guests_go() {
        let mut history = History::default();
        for second in [10, 10, 11] {
            history.push(&status(second, vec![guest("web")]));
        }
        assert_eq!(history.guest("web").unwrap().allocation.len(), 2);
        history.push(&status(12, vec![]));
        assert!(history.guest("web").is_none());
    }

    #[test]
    fn no_more_than_the_bound_is_kept() {
        let mut history = History::default();
        for second in 0..HISTORY_TICKS as u64 + 5 {
            history.push(&status(second, vec![guest("web")]));
        }
        let web = history.guest("web").unwrap();
        assert_eq!([web.allocation.len(), web.demand.len(), web.swap_in.len()], [HISTORY_TICKS; 3]);
    }

    #[test]
    fn bars_tell_nothing_known_from_zero() {
        let series = HistorySeries::from([Some(0), None, Some(4), Some(8)]);
        assert_eq!(sparkline(&series, 8, 6), "  ▁ ▄█");
        assert_eq!(sparkline(&series, 8, 2), "▄█");
        assert_eq!(sparkline(&series, 8, 0), "");
        assert_eq!(sparkline(&HistorySeries::from([Some(u64::MAX)]), u64::MAX, 1), "█");
        assert_eq!(sparkline(&HistorySeries::from([Some(9)]), 8, 1), "█");
    }
}
