//! The kernel's texts as figures.
//!
//! Idea: one pass over each text; a line that is not as expected is passed over, and its figure stays
//! `None`. Source: `proc(5)`, the kernel's `Documentation/accounting/psi.rst`.

use ballast_agent_wire::statistics::NUMBER_MAX;
use ballast_agent_wire::{Counters, Memory, Pressure, Stall, Watermarks};

/// `/proc/meminfo`.
pub fn meminfo(text: &str) -> Memory {
    let mut memory = Memory::default();
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(':') else { continue };
        let figure = match name {
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
            _ => continue,
        };
        let mut words = rest.split_ascii_whitespace();
        if let (Some(number), Some("kB")) = (words.next(), words.next()) {
            *figure = sent(number.parse().ok(), 1024);
        }
    }
    memory
}

/// `/proc/vmstat`.
pub fn vmstat(text: &str) -> Counters {
    let mut counters = Counters::default();
    for line in text.lines() {
        let Some((name, number)) = line.split_once(' ') else { continue };
        let figure = match name {
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
            // One for each zone.
            _ if name.starts_with("allocstall") => &mut counters.alloc_stalls,
            _ => continue,
        };
        let before = figure.filter(|_| name.starts_with("allocstall")).unwrap_or(0);
        let number: Option<u64> = number.trim().parse().ok();
        *figure = sent(number.and_then(|number| number.checked_add(before)), 1).or(*figure);
    }
    counters
}

/// `/proc/pressure/memory`.
pub fn pressure(text: &str) -> Option<Pressure> {
    let stall = |which: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(which))?;
        let field = |name: &str| {
            line.split_ascii_whitespace().find_map(|it| it.strip_prefix(name)?.strip_prefix('='))
        };
        Some(Stall {
            avg10_basis_points: field("avg10").and_then(hundredths),
            total_us: sent(field("total").and_then(|it| it.parse().ok()), 1),
        })
    };
    Some(Pressure { some: stall("some ")?, full: stall("full ").unwrap_or_default() })
}

/// `12.34` as 1234, at most 100.00.
fn hundredths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.')?;
    if part.len() != 2 {
        return None;
    }
    let (whole, part): (u64, u64) = (whole.parse().ok()?, part.parse().ok()?);
    Some(whole.checked_mul(100)?.checked_add(part)?.min(10_000))
}

/// The sums over all zones of `/proc/zoneinfo`, which counts pages.
pub fn zoneinfo(text: &str, page_bytes: u64) -> Watermarks {
    let mut watermarks = Watermarks::default();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        // Lists of pages have `high:` too, with a colon.
        let figure = match words.next() {
            Some("min") => &mut watermarks.min_bytes,
            Some("low") => &mut watermarks.low_bytes,
            Some("high") => &mut watermarks.high_bytes,
            _ => continue,
        };
        let pages = words.next().and_then(|it| it.parse::<u64>().ok());
        let bytes = pages.and_then(|pages| pages.checked_mul(page_bytes));
        let sum = bytes.and_then(|bytes| bytes.checked_add(figure.unwrap_or(0)));
        *figure = sent(sum, 1).or(*figure);
    }
    watermarks
}

/// What a message may carry of it.
fn sent(number: Option<u64>, unit: u64) -> Option<u64> {
    number?.checked_mul(unit).filter(|bytes| *bytes <= NUMBER_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn meminfo_by_hand() {
        let text = "MemTotal:         491520 kB\nMemFree:          102400 kB\nActive(file):     7 kB\n\
                    Active:           9 kB\nHugePages_Total:       3\nCommitted_AS:   xyz kB\n\
                    SwapFree: 18446744073709551615 kB\nCached: 5\n";
        let expected = Memory {
            total_bytes: Some(491_520 << 10),
            free_bytes: Some(102_400 << 10),
            active_file_bytes: Some(7 << 10),
            active_bytes: Some(9 << 10),
            ..Memory::default()
        };
        assert_eq!(meminfo(text), expected);
    }

    #[test]
    fn vmstat_by_hand() {
        let text = "nr_free_pages 5\npswpin 7\nallocstall_dma 1\nallocstall_normal 2\n\
                    allocstall_movable 4\noom_kill 0\npgscan_direct 8\npgscan_direct_throttle 9\n";
        let expected = Counters {
            swap_in_pages: Some(7),
            alloc_stalls: Some(7),
            oom_kills: Some(0),
            scan_direct_pages: Some(8),
            ..Counters::default()
        };
        assert_eq!(vmstat(text), expected);
    }

    #[test]
    fn pressure_by_hand() {
        let text = "some avg10=1.52 avg60=0.40 avg300=0.10 total=123456\n\
                    full avg10=0.11 avg60=0.00 avg300=0.00 total=23456\n";
        let stall = |avg10, total| Stall { avg10_basis_points: Some(avg10), total_us: Some(total) };
        let expected = Pressure { some: stall(152, 123_456), full: stall(11, 23_456) };
        assert_eq!(pressure(text), Some(expected));
        assert_eq!(pressure(""), None);
        assert_eq!(pressure("some avg10=1.5\n").unwrap().some, Stall::default());
    }

    #[test]
    fn zoneinfo_by_hand() {
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
        fn no_text_breaks_them(text in "([a-zA-Z_()]{0,12}[: ]{0,3}[0-9.=]{0,22}( kB)?\n){0,12}") {
            let (memory, counters) = (meminfo(&text), vmstat(&text));
            let sent = memory.figures().chain(counters.figures()).chain(zoneinfo(&text, 4096).figures());
            for (name, figure) in sent {
                prop_assert!(figure.unwrap_or(0) <= NUMBER_MAX, "{name}");
            }
            pressure(&text);
        }
    }
}
