//! How much to ask for: free memory and where it is going.
//!
//! Idea: from one look to the next free memory fell by so much, and will again. A guest asks when
//! the next look would find less than a watermark, below which its kernel begins to reclaim, and
//! asks for enough that it need not ask again for a few looks.
//!
//! Source: flexmemd §3.1.2 says when (just before reclaim begins), not how much; that is ours.

use ballast_model::Bytes;

/// Looks for which a request should last: the host answers within one, and a balloon takes about
/// another one or two to move what was granted.
pub const LOOKS_AHEAD: u64 = 4;

/// No request is smaller: below, moving it costs more than it brings.
pub const REQUEST_MIN: Bytes = Bytes::mib(1);

/// What a guest would like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// That much more memory, in whole pages.
    More(Bytes),
    /// That much less.
    Less(Bytes),
}

/// More, if free memory, which was `free_before` at the last look, would be under `watermark` at the
/// next.
pub(crate) fn more(free: Bytes, free_before: Option<Bytes>, watermark: Bytes) -> Option<Wish> {
    let fall = free_before.map_or(Bytes::ZERO, |before| before.saturating_sub(free));
    if free.saturating_sub(fall) >= watermark {
        return None;
    }
    let needed = watermark.saturating_add(fall.fraction(LOOKS_AHEAD, 1));
    Some(Wish::More(needed.saturating_sub(free).max(REQUEST_MIN).page_ceil()))
}

/// Less, if that is worth saying.
pub(crate) fn less(surplus: Bytes) -> Option<Wish> {
    let surplus = surplus.page_floor();
    (surplus >= REQUEST_MIN).then_some(Wish::Less(surplus))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_one_look_ahead_for_four() {
        let mib = Bytes::mib;
        // 100 MiB free, 30 less than before: 70 at the next look, at a watermark of 64 all is well.
        assert_eq!(more(mib(100), Some(mib(130)), mib(64)), None);
        // At 80: asks for 80 + 4 × 30 − 100.
        assert_eq!(more(mib(100), Some(mib(130)), mib(80)), Some(Wish::More(mib(100))));
        // Rising, or never seen before: no trend, so the watermark alone decides.
        assert_eq!(more(mib(100), Some(mib(90)), mib(100)), None);
        assert_eq!(more(mib(99), None, mib(100)), Some(Wish::More(REQUEST_MIN)));
        assert_eq!(more(mib(60), None, mib(100)), Some(Wish::More(mib(40))));
        // Extremes neither overflow nor panic.
        assert!(more(Bytes::ZERO, Some(Bytes::MAX), Bytes::MAX).is_some());
    }
}
