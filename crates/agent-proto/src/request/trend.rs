//! How much memory to ask for, from free memory and its trend.
//!
//! The fall of free memory between two samples is expected to repeat. A guest asks when its next
//! sample would be under a watermark below which its kernel starts to reclaim, and it asks for
//! enough to last for [`SAMPLES_AHEAD`] samples.
//!
//! Source: flexmemd §3.1.2 defines when to ask (just before reclaim begins); how much is our
//! choice.

use ballast_model::Bytes;

/// Samples a request should last for: the host answers within one, and the balloon takes one or two
/// more to move the memory.
pub const SAMPLES_AHEAD: u64 = 4;

/// Smallest request: moving less costs more than it gains.
pub const REQUEST_MIN: Bytes = Bytes::mib(1);

/// A change of a guest's memory that the guest wants, in whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedChange {
    /// More memory.
    More(Bytes),
    /// Less memory.
    Less(Bytes),
}

/// The memory to ask for if the next sample of free memory would be under `watermark`;
/// `free_before` is the previous sample.
pub(crate) fn more(
    free: Bytes,
    free_before: Option<Bytes>,
    watermark: Bytes,
) -> Option<WantedChange> {
    let fall = free_before.map_or(Bytes::ZERO, |before| before.saturating_sub(free));
    if free.saturating_sub(fall) >= watermark {
        return None;
    }
    let needed = watermark.saturating_add(fall.fraction(SAMPLES_AHEAD, 1));
    Some(WantedChange::More(needed.saturating_sub(free).max(REQUEST_MIN).page_ceil()))
}

/// Offers `surplus`, unless it is under [`REQUEST_MIN`].
pub(crate) fn less(surplus: Bytes) -> Option<WantedChange> {
    let surplus = surplus.page_floor();
    (surplus >= REQUEST_MIN).then_some(WantedChange::Less(surplus))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_one_sample_ahead_for_four() {
        let mib = Bytes::mib;
        // 100 MiB free, 30 less than before: 70 in the next sample, enough for a watermark of 64.
        assert_eq!(more(mib(100), Some(mib(130)), mib(64)), None);
        // With a watermark of 80: asks for 80 + 4 × 30 − 100.
        assert_eq!(more(mib(100), Some(mib(130)), mib(80)), Some(WantedChange::More(mib(100))));
        // Without a fall the watermark alone decides.
        assert_eq!(more(mib(100), Some(mib(90)), mib(100)), None);
        assert_eq!(more(mib(99), None, mib(100)), Some(WantedChange::More(REQUEST_MIN)));
        assert_eq!(more(mib(60), None, mib(100)), Some(WantedChange::More(mib(40))));
        // Extremes do not overflow.
        assert!(more(Bytes::ZERO, Some(Bytes::MAX), Bytes::MAX).is_some());
    }
}
