//! What a guest like OSv asks for: a kernel that does not page, whose application is made to shrink
//! when memory runs out.
//!
//! Rules (flexmemd §3.1.2): more before the shrinker would run, which is when free memory falls
//! under the low watermark; less when more than a quarter of all memory is free.
//!
//! Deviations: the paper gives no size for what is given back: here as much as leaves a quarter of
//! the rest free.

use ballast_model::Bytes;

use crate::trend::{Wish, less, more};

/// What a guest sees of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// All its memory.
    pub total: Bytes,
    /// Memory in no use at all.
    pub free: Bytes,
    /// Free memory below which the application is made to shrink.
    pub watermark_low: Bytes,
}

/// What the guest wants, which had `free_before` at the look before.
pub fn wish(now: &Figures, free_before: Option<Bytes>) -> Option<Wish> {
    if let Some(more) = more(now.free, free_before, now.watermark_low) {
        return Some(more);
    }
    // free − x = (total − x) / 4.
    let surplus = now.free.fraction(4, 3).saturating_sub(now.total.fraction(1, 3));
    less(surplus.min(now.free.saturating_sub(now.watermark_low)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish_of(free: u64, before: u64) -> Option<Wish> {
        let mib = Bytes::mib;
        let now = Figures { total: mib(1024), free: mib(free), watermark_low: mib(50) };
        wish(&now, Some(mib(before)))
    }

    #[test]
    fn by_hand() {
        // 256 of 1,024 MiB is a quarter: nothing. 400: (1,600 − 1,024) / 3 = 192 less.
        assert_eq!(wish_of(256, 256), None);
        assert_eq!(wish_of(400, 400), Some(Wish::Less(Bytes::mib(192))));
        assert_eq!((400 - 192) * 4, 1024 - 192);
        // 70 free and 30 less than before: 40 at the next look, under the watermark of 50.
        assert_eq!(wish_of(70, 100), Some(Wish::More(Bytes::mib(50 + 120 - 70))));
        assert_eq!(wish_of(70, 90), None);
    }
}
