//! The host's swap, and how much of it may be used.
//!
//! Source: proc_meminfo(5).
//! Limits: whoever else swaps is not known here; between looking and writing a step's bytes may come on top.

use std::fs;
use std::path::Path;

use ballast_model::Bytes;

use crate::Refusal;
use crate::line::{KIB_EXPECTED, kib, malformed, numbered};

/// How much swap there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swap {
    /// Altogether (`SwapTotal`).
    pub total: Bytes,
    /// Not in use (`SwapFree`).
    pub free: Bytes,
    /// Memory of the host that has a copy in swap (`SwapCached`): given away as soon as anybody needs it.
    pub cached: Bytes,
}

impl Swap {
    /// Reads `meminfo` in `proc` (`/proc` on every ordinary host).
    ///
    /// # Errors
    /// [`Refusal::Unreadable`].
    pub fn read(proc: &Path) -> Result<Swap, Refusal> {
        let path = proc.join("meminfo");
        let text = fs::read(&path).map_err(|error| Refusal::unreadable(&path, error))?;
        parse_swap(&text).map_err(|why| Refusal::unreadable(&path, why))
    }

    /// In use.
    pub fn used(&self) -> Bytes {
        self.total.saturating_sub(self.free)
    }
}

/// Understands the text of `meminfo`. A kernel without swap has no such lines: then there is none.
///
/// # Errors
/// What is wrong with which line.
pub fn parse_swap(text: &[u8]) -> Result<Swap, String> {
    let mut swap = Swap::default();
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

/// How much of the swap may be in use, by whomever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapBounds {
    /// At most this part of it, in percent; more than 100 is 100.
    pub use_max_percent: u64,
    /// And at least this much of it stays free.
    pub reserve: Bytes,
}

impl Default for SwapBounds {
    /// The kernel writes in clusters and slows down when few are empty: a fifth stays free, and 64 MiB.
    fn default() -> Self {
        SwapBounds { use_max_percent: 80, reserve: Bytes::mib(64) }
    }
}

impl SwapBounds {
    /// What may still be written.
    ///
    /// # Errors
    /// [`Refusal::NoSwap`] or [`Refusal::SwapFull`].
    pub fn room(&self, swap: &Swap) -> Result<Bytes, Refusal> {
        if swap.total == Bytes::ZERO {
            return Err(Refusal::NoSwap);
        }
        let share = swap.total.fraction(self.use_max_percent.min(100), 100);
        let bound = share.min(swap.total.saturating_sub(self.reserve));
        let room = bound.saturating_sub(swap.used()).page_floor();
        if room == Bytes::ZERO {
            return Err(Refusal::SwapFull { used: swap.used(), total: swap.total, bound });
        }
        Ok(room)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn swap_is_read() {
        let text = b"MemTotal: 9 kB\nSwapCached:  4 kB\nSwapTotal:  1024 kB\nSwapFree: 512 kB\n";
        let swap = parse_swap(text).unwrap();
        let expected = Swap { total: Bytes::mib(1), free: Bytes::kib(512), cached: Bytes::kib(4) };
        assert_eq!((swap, swap.used()), (expected, Bytes::kib(512)));
        assert_eq!(parse_swap(b""), Ok(Swap::default()));
        let why = parse_swap(b"MemTotal: 1 kB\nSwapFree: lots\n").unwrap_err();
        assert!(why.starts_with("line 2: `SwapFree: lots`: expected"), "{why}");
        let folder = tempfile::tempdir().unwrap();
        let told = Swap::read(folder.path()).unwrap_err().to_string();
        assert!(told.contains("/meminfo: "), "{told}");
    }

    #[test]
    fn both_bounds_hold() {
        let bounds =
            |use_max_percent, reserve| SwapBounds { use_max_percent, reserve: Bytes::mib(reserve) };
        let swap = |total, used| Swap {
            total: Bytes::mib(total),
            free: Bytes::mib(total - used),
            ..Swap::default()
        };
        for (bounds, swap, room) in [
            (bounds(80, 0), swap(1000, 300), 500),
            (bounds(80, 400), swap(1000, 300), 300),
            (bounds(300, 0), swap(1000, 300), 700),
            (bounds(100, 0), swap(1, 0), 1),
        ] {
            assert_eq!(bounds.room(&swap), Ok(Bytes::mib(room)));
        }
        assert_eq!(bounds(80, 0).room(&swap(0, 0)), Err(Refusal::NoSwap));
        let full = bounds(80, 400).room(&swap(1000, 600));
        let (used, total) = (Bytes::mib(600), Bytes::mib(1000));
        assert_eq!(full, Err(Refusal::SwapFull { used, total, bound: used }));
        assert_eq!(bounds(100, 64).room(&swap(10, 0)).unwrap_err().code(), "swap-full");
    }

    proptest! {
        #[test]
        fn what_fits_keeps_to_both_bounds(total in 1u64..1 << 30, used: prop::sample::Index, percent in 0u64..120, reserve in 0u64..1 << 31) {
            let used = Bytes::new(used.index(total as usize) as u64);
            let total = Bytes::new(total);
            let swap = Swap { total, free: total - used, ..Swap::default() };
            let bounds = SwapBounds { use_max_percent: percent, reserve: Bytes::new(reserve) };
            if let Ok(room) = bounds.room(&swap) {
                let after = (used + room).get();
                prop_assert!(u128::from(after) * 100 <= u128::from(total.get()) * u128::from(percent.min(100)));
                prop_assert!(after + reserve <= total.get());
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text: Vec<u8>, lines in "(Swap(Total|Free|Cached): {1,3}[0-9a-]{0,4}( kB)?\n){0,4}") {
            let _ = parse_swap(&text);
            let _ = parse_swap(lines.as_bytes());
        }
    }
}
