//! What must be left to a guest without swap.
//!
//! Idea: memory taken from a guest beyond what it can spare goes to its swap. Where it has no swap,
//! or its swap is full, its kernel kills a program instead, whatever floor and ceiling say. So the
//! guest is left what it uses and some to spare, less its free swap. Its agent reports whether it
//! has swap. The device's statistics do not, but a guest that was seen to write to swap has some.
//! The operator's setting overrides both.
//!
//! Cost: O(1). Limits: a guest that is not known to have swap keeps what it uses, even if it has
//! swap; the operator can say so.

use std::time::Duration;

use ballast_model::{Bytes, GuestLimits, GuestSample};

/// Left to a guest besides what it uses: its kernel needs free memory to work with, and its figures
/// are a second old.
const SPARE: Bytes = Bytes::mib(32);

/// The most that can be taken of what a guest uses: its free swap. `None`: it has swap, but how
/// much is unknown.
fn room(sample: &GuestSample, limits: &GuestLimits, stale_after: Duration) -> Option<Bytes> {
    let agent = sample.agent.as_ref().filter(|agent| agent.age <= stale_after);
    let swap_free = agent.and_then(|agent| agent.value.swap_free);
    let has_swapped = || sample.stats?.value.swap_out.filter(|out| *out > Bytes::ZERO);
    match limits.swap {
        Some(true) => None,
        Some(false) => Some(Bytes::ZERO),
        None => match (swap_free, has_swapped()) {
            (Some(free), _) => Some(free),
            (None, Some(_)) => None,
            (None, None) => Some(Bytes::ZERO),
        },
    }
}

/// What a guest uses and cannot give without swap: what it claims to hold less what it says it can
/// spare. `None` without those figures.
pub(crate) fn used_by(sample: &GuestSample) -> Option<Bytes> {
    let stats = sample.stats?.value;
    Some(sample.claimed()?.saturating_sub(stats.available_or_free()?))
}

/// What must be left to a guest that uses `used`, in whole pages and never more than it holds.
/// `None`: its floor alone decides.
pub(crate) fn min_without_swap(
    used: Bytes,
    sample: &GuestSample,
    limits: &GuestLimits,
    stale_after: Duration,
) -> Option<Bytes> {
    let room = room(sample, limits, stale_after)?;
    let holds = sample.claimed()?.page_floor();
    Some(used.saturating_add(SPARE).saturating_sub(room).page_ceil().min(holds))
}

#[cfg(test)]
mod tests {
    use ballast_model::{AgentReport, GuestStats, LinkState, Measured};

    use super::*;

    const STALE_AFTER: Duration = Duration::from_secs(10);

    fn guest(available: u64, swap_out: u64, swap_free: Option<u64>) -> GuestSample {
        let stats = GuestStats {
            available: Some(Bytes::mib(available)),
            swap_out: Some(Bytes::mib(swap_out)),
            ..GuestStats::default()
        };
        let report = |free| AgentReport { swap_free: Some(Bytes::mib(free)), ..Default::default() };
        GuestSample {
            allocation: Some(Measured::fresh(Bytes::mib(500))),
            stats: Some(Measured::fresh(stats)),
            agent: swap_free.map(|free| Box::new(Measured::fresh(report(free)))),
            ..GuestSample::unknown("a".parse().unwrap(), LinkState::Up)
        }
    }

    fn left(guest: &GuestSample, swap: Option<bool>) -> Option<u64> {
        let limits = GuestLimits { swap, ..GuestLimits::default() };
        let min = min_without_swap(used_by(guest).unwrap(), guest, &limits, STALE_AFTER)?;
        Some(min.get() >> 20)
    }

    #[test]
    fn a_guest_without_swap_is_left_what_it_uses() {
        assert_eq!(left(&guest(200, 0, None), None), Some(332));
        assert_eq!(left(&guest(200, 0, Some(0)), None), Some(332));
        assert_eq!(left(&guest(10, 0, None), None), Some(500), "no more than it holds");
        assert_eq!(left(&guest(200, 9, None), Some(false)), Some(332), "the operator knows");
    }

    #[test]
    fn a_guest_with_swap_is_left_what_swap_cannot_take() {
        assert_eq!(left(&guest(200, 9, None), None), None);
        assert_eq!(left(&guest(200, 0, None), Some(true)), None);
        assert_eq!(left(&guest(200, 9, Some(100)), None), Some(232), "what is left of it");
        assert_eq!(left(&guest(200, 9, Some(900)), None), Some(0));
        let mut old = guest(200, 0, Some(900));
        old.agent.as_mut().unwrap().age = Duration::from_secs(11);
        assert_eq!(left(&old, None), Some(332));
    }
}
