//! The host's swap, and the limits of its use.
//!
//! Source: proc_meminfo(5).
//! Limits: other users of swap are not visible here. Between the check and the write, swap use may
//! exceed the limit by what others write, and by a step.

use std::fs;
use std::path::Path;

use ballast_model::Bytes;

use crate::error::ReclaimError;
use crate::line::{KIB_EXPECTED, kib, malformed, numbered};

/// The host's swap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwapUsage {
    /// Size of all areas (`SwapTotal`).
    pub total: Bytes,
    /// Unused (`SwapFree`).
    pub free: Bytes,
    /// Host memory with a copy in swap (`SwapCached`), freed as soon as memory is needed.
    pub cached: Bytes,
}

impl SwapUsage {
    /// Reads `meminfo` in `proc` (usually `/proc`).
    ///
    /// # Errors
    /// [`ReclaimError::Unreadable`].
    pub fn read(proc: &Path) -> Result<SwapUsage, ReclaimError> {
        let path = proc.join("meminfo");
        let text = fs::read(&path).map_err(|error| ReclaimError::unreadable(&path, error))?;
        parse_swap(&text).map_err(|why| ReclaimError::unreadable(&path, why))
    }

    /// The part in use.
    pub fn used(&self) -> Bytes {
        self.total.saturating_sub(self.free)
    }
}

/// Parses the text of `meminfo`. A kernel without swap support has no such lines; all figures are
/// then zero.
///
/// # Errors
/// A line is malformed; the error names it.
pub fn parse_swap(text: &[u8]) -> Result<SwapUsage, String> {
    let mut swap = SwapUsage::default();
    for (at, line) in numbered(text) {
        let Some(colon) = line.iter().position(|&b| b == b':') else { continue };
        let field = match &line[..colon] {
            b"SwapTotal" => &mut swap.total,
            b"SwapFree" => &mut swap.free,
            b"SwapCached" => &mut swap.cached,
            _ => continue,
        };
        *field = kib(&line[colon + 1..]).ok_or_else(|| malformed(at, line, KIB_EXPECTED))?;
    }
    Ok(swap)
}

/// Limits of the swap in use by all processes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapBounds {
    /// Most in use, in per cent of all swap; more than 100 counts as 100.
    pub use_max_percent: u64,
    /// Least that stays free.
    pub reserve: Bytes,
}

impl Default for SwapBounds {
    /// A fifth and 64 MiB stay free: the kernel writes in clusters and slows down when few are
    /// empty.
    fn default() -> Self {
        SwapBounds { use_max_percent: 80, reserve: Bytes::mib(64) }
    }
}

impl SwapBounds {
    /// How much may still be written.
    ///
    /// # Errors
    /// [`ReclaimError::NoSwap`] or [`ReclaimError::SwapFull`].
    pub fn room(&self, swap: &SwapUsage) -> Result<Bytes, ReclaimError> {
        if swap.total == Bytes::ZERO {
            return Err(ReclaimError::NoSwap);
        }
        let share = swap.total.fraction(self.use_max_percent.min(100), 100);
        let bound = share.min(swap.total.saturating_sub(self.reserve));
        let room = bound.saturating_sub(swap.used()).page_floor();
        if room == Bytes::ZERO {
            return Err(ReclaimError::SwapFull { used: swap.used(), total: swap.total, bound });
        }
        Ok(room)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn swap_figures_are_parsed() {
        let text = b"MemTotal: 9 kB\nSwapCached:  4 kB\nSwapTotal:  1024 kB\nSwapFree: 512 kB\n";
        let swap = parse_swap(text).unwrap();
        let expected =
            SwapUsage { total: Bytes::mib(1), free: Bytes::kib(512), cached: Bytes::kib(4) };
        assert_eq!((swap, swap.used()), (expected, Bytes::kib(512)));
        assert_eq!(parse_swap(b""), Ok(SwapUsage::default()));
        let why = parse_swap(b"MemTotal: 1 kB\nSwapFree: lots\n").unwrap_err();
        assert!(why.starts_with("line 2: `SwapFree: lots`: expected"), "{why}");
        let folder = tempfile::tempdir().unwrap();
        let message = SwapUsage::read(folder.path()).unwrap_err().to_string();
        assert!(message.contains("/meminfo: "), "{message}");
    }

    #[test]
    fn room_is_the_smaller_of_both_limits() {
        let bounds =
            |use_max_percent, reserve| SwapBounds { use_max_percent, reserve: Bytes::mib(reserve) };
        let swap = |total, used| SwapUsage {
            total: Bytes::mib(total),
            free: Bytes::mib(total - used),
            ..SwapUsage::default()
        };
        for (bounds, swap, room) in [
            (bounds(80, 0), swap(1000, 300), 500),
            (bounds(80, 400), swap(1000, 300), 300),
            (bounds(300, 0), swap(1000, 300), 700),
            (bounds(100, 0), swap(1, 0), 1),
        ] {
            assert_eq!(bounds.room(&swap), Ok(Bytes::mib(room)));
        }
        assert_eq!(bounds(80, 0).room(&swap(0, 0)), Err(ReclaimError::NoSwap));
        let full = bounds(80, 400).room(&swap(1000, 600));
        let (used, total) = (Bytes::mib(600), Bytes::mib(1000));
        assert_eq!(full, Err(ReclaimError::SwapFull { used, total, bound: used }));
        assert_eq!(bounds(100, 64).room(&swap(10, 0)).unwrap_err().code(), "swap-full");
    }

    proptest! {
        #[test]
        fn using_all_room_exceeds_neither_limit(
            total in 1u64..1 << 30, used: prop::sample::Index,
            percent in 0u64..120, reserve in 0u64..1 << 31,
        ) {
            let used = Bytes::new(used.index(total as usize) as u64);
            let total = Bytes::new(total);
            let swap = SwapUsage { total, free: total - used, ..SwapUsage::default() };
            let bounds = SwapBounds { use_max_percent: percent, reserve: Bytes::new(reserve) };
            if let Ok(room) = bounds.room(&swap) {
                let after = (used + room).get();
                let (all, percent) = (u128::from(total.get()), u128::from(percent.min(100)));
                prop_assert!(u128::from(after) * 100 <= all * percent);
                prop_assert!(after + reserve <= total.get());
            }
        }

        #[test]
        fn any_text_is_parsed_or_rejected(
            text: Vec<u8>,
            lines in "(Swap(Total|Free|Cached): {1,3}[0-9a-]{0,4}( kB)?\n){0,4}",
        ) {
            let _ = parse_swap(&text);
            let _ = parse_swap(lines.as_bytes());
        }
    }
}
