//! When DAMON is set up anew because guests joined or left.
//!
//! Idea: DAMON is set up soon after a change, and once for several changes. But a set-up costs
//! every guest its window in progress. So the guests that are sampled get [`WINDOWS_KEPT`] whole
//! windows first, and guests that join and leave without end cannot keep windows from the others.
//! Limits: a guest that joins waits that long for its first window.

use std::time::{Duration, Instant};

/// Longest wait for more guests to join or leave, so that DAMON is set up once for all of them.
pub(super) const SETTLE_MAX: Duration = Duration::from_secs(1);
/// Whole windows of one set-up. With two, a guest misses less than a third of its windows while
/// another one joins and leaves without end.
pub(super) const WINDOWS_KEPT: u32 = 2;

/// Guests that joined or left since DAMON was set up.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// When the first of them was seen; `None`: there are none.
    since: Option<Instant>,
}

impl Changes {
    /// Guests joined or left, as seen at `now`. Returns whether more may follow at once.
    pub(super) fn add(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        now.saturating_duration_since(since) < SETTLE_MAX
    }

    /// Whether DAMON is to be set up at `now`; the changes so far are then forgotten. `begun`: when
    /// the last set-up began windows, and how long they are; `None`: no member would lose one.
    pub(super) fn take(&mut self, now: Instant, begun: Option<(Instant, Duration)>) -> bool {
        let is_kept = begun.is_some_and(|(at, window)| {
            now.saturating_duration_since(at) < window * WINDOWS_KEPT + SETTLE_MAX
        });
        !is_kept && self.since.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Time between two looks of the hub.
    const LOOK: Duration = Duration::from_millis(100);

    #[test]
    fn several_changes_are_one_set_up() {
        let mut changes = Changes::default();
        let begun = Instant::now();
        assert!(!changes.take(begun, None), "nothing has changed");
        assert!(changes.add(begun) && changes.add(begun + SETTLE_MAX - LOOK));
        assert!(!changes.add(begun + SETTLE_MAX), "it does not wait for ever");
        assert!(changes.take(begun + SETTLE_MAX, None));
        assert!(!changes.take(begun + SETTLE_MAX, None), "it is done");
    }

    proptest! {
        #[test]
        fn windows_come_whatever_other_guests_do(
            window_ms in 1000..60_000_u64,
            gaps in prop::collection::vec(1..300_u32, 1..40),
        ) {
            let window = Duration::from_millis(window_ms);
            let mut changes = Changes::default();
            let mut now = Instant::now();
            // The last set-up, the end of the last complete window, and the next change.
            let (mut begun, mut last) = (now, now);
            let mut next_change = now + LOOK * gaps[0];
            let mut waits_since = None;
            let end = now + window * 20;
            for place in 1_usize.. {
                if now >= end {
                    break;
                }
                now += LOOK;
                // The guest that was sampled from the beginning stays.
                let in_windows = (now - begun).as_nanos() / window.as_nanos();
                let whole = window * u32::try_from(in_windows).unwrap();
                last = last.max(begun + whole);
                prop_assert!(now - last < window * 2 + LOOK, "a window came {:?} ago", now - last);
                if now >= next_change {
                    next_change = now + LOOK * gaps[place % gaps.len()];
                    waits_since.get_or_insert(now);
                    if changes.add(now) {
                        continue;
                    }
                }
                if changes.take(now, Some((begun, window))) {
                    let waited = now - waits_since.take().unwrap();
                    let longest = window * WINDOWS_KEPT + SETTLE_MAX * 2 + LOOK;
                    prop_assert!(waited <= longest, "who joined waited {:?}", waited);
                    prop_assert!(now - begun >= window * WINDOWS_KEPT);
                    begun = now;
                }
            }
        }
    }
}
