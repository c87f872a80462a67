//! Single figures: swap, a cgroup's memory, a process's start time.
#![no_main]

use ballast_reclaim::{SwapBounds, parse_amount, parse_start_time, parse_swap};

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let _ = parse_start_time(text);
    if let Ok(Some(amount)) = parse_amount(text) {
        assert_eq!(parse_amount(amount.get().to_string().as_bytes()), Ok(Some(amount)));
    }
    if let Ok(swap) = parse_swap(text)
        && let Ok(room) = SwapBounds::default().room(&swap)
    {
        assert!(swap.used().saturating_add(room) <= swap.total);
    }
});
