//! Parses the kernel's text files.
//!
//! One pass per text. Unexpected lines are skipped, and their values stay `None`.
//! Source: `proc(5)`, the kernel's `Documentation/accounting/psi.rst`.

use ballast_agent_proto::wire::statistics::NUMBER_MAX;
use ballast_agent_proto::wire::{KernelCounters, MemorySizes, Pressure, Stall, Watermarks};

/// Parses `/proc/meminfo`.
pub fn meminfo(text: &str) -> MemorySizes {
    let mut memory = MemorySizes::default();
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(':') else { continue };
        let field = match name {
            "MemTotal" => &mut memory.total_bytes,
            "MemFree" => &mut memory.free_bytes,
            "MemAvailable" => &mut memory.available_bytes,
            "Buffers" => &mut memory.buffers_bytes,
            "Cached" => &mut memory.cached_bytes,
            "Shmem" => &mut memory.shmem_bytes,
            "Active" => &mut memory.active_bytes,
            "Inactive" => &mut memory.inactive_bytes,
            "Active(file)" => &mut memory.active_file_bytes,
            "Inactive(file)" => &mut memory.inactive_file_bytes,
            "Unevictable" => &mut memory.unevictable_bytes,
            "Committed_AS" => &mut memory.committed_bytes,
            "SwapTotal" => &mut memory.swap_total_bytes,
            "SwapFree" => &mut memory.swap_free_bytes,
            "SwapCached" => &mut memory.swap_cached_bytes,
            _ => continue,
        };
        let mut words = rest.split_ascii_whitespace();
        if let (Some(number), Some("kB")) = (words.next(), words.next()) {
            *field = bounded(number.parse().ok(), 1024);
        }
    }
    memory
}

/// Parses `/proc/vmstat`.
pub fn vmstat(text: &str) -> KernelCounters {
    let mut counters = KernelCounters::default();
    for line in text.lines() {
        let Some((name, number)) = line.split_once(' ') else { continue };
        let field = match name {
            "pswpin" => &mut counters.swap_in_pages,
            "pswpout" => &mut counters.swap_out_pages,
            "workingset_refault_anon" => &mut counters.refault_anon_pages,
            "workingset_refault_file" => &mut counters.refault_file_pages,
            "pgmajfault" => &mut counters.major_faults,
            "pgscan_kswapd" => &mut counters.scan_kswapd_pages,
            "pgscan_direct" => &mut counters.scan_direct_pages,
            "pgsteal_kswapd" => &mut counters.steal_kswapd_pages,
            "pgsteal_direct" => &mut counters.steal_direct_pages,
            "oom_kill" => &mut counters.oom_kills,
            // One line per zone.
            _ if name.starts_with("allocstall") => &mut counters.alloc_stalls,
            _ => continue,
        };
        let before = field.filter(|_| name.starts_with("allocstall")).unwrap_or(0);
        let number: Option<u64> = number.trim().parse().ok();
        *field = bounded(number.and_then(|number| number.checked_add(before)), 1).or(*field);
    }
    counters
}

/// Parses `/proc/pressure/memory`.
pub fn pressure(text: &str) -> Option<Pressure> {
    let stall = |which: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(which))?;
        let field = |name: &str| {
            line.split_ascii_whitespace().find_map(|it| it.strip_prefix(name)?.strip_prefix('='))
        };
        Some(Stall {
            avg10_basis_points: field("avg10").and_then(hundredths),
            total_us: bounded(field("total").and_then(|it| it.parse().ok()), 1),
        })
    };
    Some(Pressure { some: stall("some ")?, full: stall("full ").unwrap_or_default() })
}

/// Parses `12.34` as 1234, at most 10,000.
fn hundredths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.')?;
    if part.len() != 2 {
        return None;
    }
    let (whole, part): (u64, u64) = (whole.parse().ok()?, part.parse().ok()?);
    Some(whole.checked_mul(100)?.checked_add(part)?.min(10_000))
}

/// Sums the watermarks of all zones in `/proc/zoneinfo`, which counts pages.
pub fn zoneinfo(text: &str, page_bytes: u64) -> Watermarks {
    let mut watermarks = Watermarks::default();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        // Page lists have `high:` too, with a colon.
        let field = match words.next() {
            Some("min") => &mut watermarks.min_bytes,
            Some("low") => &mut watermarks.low_bytes,
            Some("high") => &mut watermarks.high_bytes,
            _ => continue,
        };
        let pages = words.next().and_then(|it| it.parse::<u64>().ok());
        let bytes = pages.and_then(|pages| pages.checked_mul(page_bytes));
        let sum = bytes.and_then(|bytes| bytes.checked_add(field.unwrap_or(0)));
        *field = bounded(sum, 1).or(*field);
    }
    watermarks
}

/// `number × unit`, if a message can carry it.
fn bounded(number: Option<u64>, unit: u64) -> Option<u64> {
    number?.checked_mul(unit).filter(|bytes| *bytes <= NUMBER_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn meminfo_is_parsed() {
        let text = "MemTotal:         491520 kB\nMemFree:          102400 kB\nActive(file):     7 kB\n\
                    Active:           9 kB\nHugePages_Total:       3\nCommitted_AS:   xyz kB\n\
                    SwapFree: 18446744073709551615 kB\nCached: 5\n\
                    SwapCached: 11 kB\n";
        let expected = MemorySizes {
            total_bytes: Some(491_520 << 10),
            free_bytes: Some(102_400 << 10),
            active_file_bytes: Some(7 << 10),
            active_bytes: Some(9 << 10),
            swap_cached_bytes: Some(11 << 10),
            ..MemorySizes::default()
        };
        assert_eq!(meminfo(text), expected);
    }

    #[test]
    fn vmstat_is_parsed() {
        let text = "nr_free_pages 5\npswpin 7\nallocstall_dma 1\nallocstall_normal 2\n\
                    allocstall_movable 4\noom_kill 0\npgscan_direct 8\npgscan_direct_throttle 9\n";
        let expected = KernelCounters {
            swap_in_pages: Some(7),
            alloc_stalls: Some(7),
            oom_kills: Some(0),
            scan_direct_pages: Some(8),
            ..KernelCounters::default()
        };
        assert_eq!(vmstat(text), expected);
    }

    #[test]
    fn pressure_is_parsed() {
        let text = "some avg10=1.52 avg60=0.40 avg300=0.10 total=123456\n\
                    full avg10=0.11 avg60=0.00 avg300=0.00 total=23456\n";
        let stall = |avg10, total| Stall { avg10_basis_points: Some(avg10), total_us: Some(total) };
        let expected = Pressure { some: stall(152, 123_456), full: stall(11, 23_456) };
        assert_eq!(pressure(text), Some(expected));
        assert_eq!(pressure(""), None);
        assert_eq!(pressure("some avg10=1.5\n").unwrap().some, Stall::default());
    }

    #[test]
    fn zoneinfo_is_parsed() {
        let text = "Node 0, zone      DMA\n  pages free     2\n        min      10\n        low      12\n\
                    \x20       high     14\n    cpu: 0\n              high:  378\n\
                    Node 0, zone   Normal\n        min      100\n        low      125\n        high     150\n";
        let expected = Watermarks {
            min_bytes: Some(110 * 4096),
            low_bytes: Some(137 * 4096),
            high_bytes: Some(164 * 4096),
        };
        assert_eq!(zoneinfo(text, 4096), expected);
    }

    proptest! {
        #[test]
        fn arbitrary_text_gives_bounded_values(text in "([a-zA-Z_()]{0,12}[: ]{0,3}[0-9.=]{0,22}( kB)?\n){0,12}") {
            let (memory, counters) = (meminfo(&text), vmstat(&text));
            let sent = memory.fields().chain(counters.fields()).chain(zoneinfo(&text, 4096).fields());
            for (name, value) in sent {
                prop_assert!(value.unwrap_or(0) <= NUMBER_MAX, "{name}");
            }
            pressure(&text);
        }
    }
}
