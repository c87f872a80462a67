//! dom0's own statistics: those of the kernel that Ballast runs on.
//!
//! Idea: dom0 is a guest of the hypervisor like any other, and its `/proc` can be read here. Cost:
//! two small files per sample. Source: `proc(5)`. Limits: a malformed line is left out.

use std::fs;
use std::path::Path;

use ballast_model::{Bytes, GuestStats};

/// Reads dom0's statistics below `proc` (`/proc`); `None` if they cannot be read.
pub(crate) fn read_dom0_stats(proc: &Path) -> Option<GuestStats> {
    let meminfo = fs::read(proc.join("meminfo")).ok()?;
    let vmstat = fs::read(proc.join("vmstat")).unwrap_or_default();
    Some(parse_dom0_stats(&meminfo, &vmstat))
}

/// Reads the texts of `/proc/meminfo` and `/proc/vmstat`.
pub fn parse_dom0_stats(meminfo: &[u8], vmstat: &[u8]) -> GuestStats {
    let (meminfo, vmstat) = (String::from_utf8_lossy(meminfo), String::from_utf8_lossy(vmstat));
    let mut stats = GuestStats::default();
    for line in meminfo.lines() {
        let Some((name, rest)) = line.split_once(':') else { continue };
        let field = match name {
            "MemTotal" => &mut stats.total,
            "MemFree" => &mut stats.free,
            "MemAvailable" => &mut stats.available,
            "Cached" => &mut stats.disk_caches,
            _ => continue,
        };
        let kib = rest.trim().strip_suffix(" kB").and_then(|it| it.trim().parse::<u64>().ok());
        *field = kib.and_then(|it| it.checked_mul(1024)).map(Bytes::new);
    }
    for line in vmstat.lines() {
        let Some((name, number)) = line.split_once(' ') else { continue };
        let Ok(number) = number.trim().parse::<u64>() else { continue };
        let pages = number.checked_mul(Bytes::pages(1).get()).map(Bytes::new);
        match name {
            "pswpin" => stats.swap_in = pages,
            "pswpout" => stats.swap_out = pages,
            "pgmajfault" => stats.major_faults = Some(number),
            "pgfault" => stats.minor_faults = Some(number),
            _ => {}
        }
    }
    stats
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn figures_are_in_bytes_and_malformed_ones_left_out() {
        let meminfo = b"MemTotal:  524288 kB\nMemFree: 1024 kB\nMemAvailable: x kB\nCached: 7\n";
        let vmstat = b"pgfault 9\npgmajfault 3\npswpin 2\npswpout -1\n";
        let expected = GuestStats {
            total: Some(Bytes::mib(512)),
            free: Some(Bytes::mib(1)),
            swap_in: Some(Bytes::kib(8)),
            major_faults: Some(3),
            minor_faults: Some(9),
            ..GuestStats::default()
        };
        assert_eq!(parse_dom0_stats(meminfo, vmstat), expected);
    }

    proptest! {
        #[test]
        fn any_text_is_read(meminfo: Vec<u8>, vmstat in "(pswpin|pgfault) [0-9]{0,30}") {
            let _ = parse_dom0_stats(&meminfo, vmstat.as_bytes());
        }
    }
}
