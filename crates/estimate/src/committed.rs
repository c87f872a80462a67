//! What a guest's kernel has promised to its processes.
//!
//! Idea: the baseline that probing is compared with. Xen's self-ballooning makes `Committed_AS`, as
//! Linux tells it in `/proc/meminfo`, the target as it is.
//!
//! Source: TWS §2. Limits: promised is not used, so a program that asked for memory and left it alone is
//! given it; page cache is not promised to anybody, so a guest that lives by it is given too little
//! (TWS §4.1: OLTP lost 18.0 % under it, and 3.3 % by probing, which gave 6.7 % more).

use ballast_model::Bytes;

use crate::probing::Bounds;

/// The target of self-ballooning.
pub fn self_balloon(committed: Bytes, bounds: Bounds) -> Bytes {
    bounds.clamp(committed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_is_what_was_promised_within_bounds() {
        let bounds = Bounds::new(Bytes::mib(256), Bytes::gib(2));
        for (committed, target) in [(100, 256), (700, 700), (4000, 2048)] {
            assert_eq!(self_balloon(Bytes::mib(committed), bounds), Bytes::mib(target));
        }
    }

    proptest! {
        #[test]
        fn it_is_within_any_bounds(committed: u64, min: u64, max: u64) {
            let bounds = Bounds::new(Bytes::new(min), Bytes::new(max));
            let target = self_balloon(Bytes::new(committed), bounds);
            prop_assert!(target <= Bytes::new(max) && target >= Bytes::new(min.min(max)));
        }
    }
}
