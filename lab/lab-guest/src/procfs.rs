//! Parsers of the kernel's memory statistics.
//!
//! Idea: pure functions from the text of a file under `/proc` to the fields of a report. A field
//! that is missing or malformed is `None`.
//! Limits: unknown lines are skipped; amounts are in kB as the kernel prints them (1 kB is 1,024
//! bytes).

use ballast_model::Bytes;

use crate::protocol::{MemoryInfo, VmCounters};

/// Parses `/proc/meminfo`.
pub fn meminfo(text: &str) -> MemoryInfo {
    let mut info = MemoryInfo::default();
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(':') else { continue };
        let field = match name {
            "MemTotal" => &mut info.total,
            "MemFree" => &mut info.free,
            "MemAvailable" => &mut info.available,
            "Buffers" => &mut info.buffers,
            "Cached" => &mut info.cached,
            "Shmem" => &mut info.shmem,
            "AnonPages" => &mut info.anon,
            "Active" => &mut info.active,
            "Inactive" => &mut info.inactive,
            "SwapTotal" => &mut info.swap_total,
            "SwapFree" => &mut info.swap_free,
            "SwapCached" => &mut info.swap_cached,
            "Dirty" => &mut info.dirty,
            "Committed_AS" => &mut info.committed,
            _ => continue,
        };
        *field = kb(rest);
    }
    info
}

/// Parses `/proc/vmstat`.
pub fn vmstat(text: &str) -> VmCounters {
    let mut vm = VmCounters::default();
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(' ') else { continue };
        let field = match name {
            "pswpin" => &mut vm.pswpin,
            "pswpout" => &mut vm.pswpout,
            "pgfault" => &mut vm.pgfault,
            "pgmajfault" => &mut vm.pgmajfault,
            "workingset_refault_anon" => &mut vm.workingset_refault_anon,
            "workingset_refault_file" => &mut vm.workingset_refault_file,
            "pgsteal_direct" => &mut vm.pgsteal_direct,
            "pgsteal_kswapd" => &mut vm.pgsteal_kswapd,
            "oom_kill" => &mut vm.oom_kill,
            "balloon_inflate" => &mut vm.balloon_inflate,
            "balloon_deflate" => &mut vm.balloon_deflate,
            _ => continue,
        };
        *field = rest.trim().parse().ok();
    }
    vm
}

/// Major page faults: field 12 of `/proc/PID/stat`. The second field, the program's name in
/// parentheses, may itself contain spaces and parentheses.
pub fn major_faults(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(12 - 3)?.parse().ok()
}

/// A process's parent and its processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lineage {
    /// Process id of its parent.
    pub parent: u32,
    /// User time of the process and of its reaped children, in clock ticks.
    pub user_ticks: u64,
}

/// Fields 4, 14 and 16 of `/proc/PID/stat`.
pub fn lineage(stat: &str) -> Option<Lineage> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let user_ticks = field(14)?.checked_add(field(16)?)?;
    Some(Lineage { parent: u32::try_from(field(4)?).ok()?, user_ticks })
}

/// Resident and swapped-out memory: `VmRSS` and `VmSwap` of `/proc/PID/status`.
pub fn resident_swapped(status: &str) -> (Option<Bytes>, Option<Bytes>) {
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).and_then(kb);
    (line("VmRSS:"), line("VmSwap:"))
}

fn kb(rest: &str) -> Option<Bytes> {
    rest.trim().strip_suffix(" kB")?.trim_end().parse().ok().map(Bytes::kib)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn meminfo_of_linux_6_1_is_parsed() {
        let text = "MemTotal:         486404 kB\nMemFree:          449924 kB\n\
                    MemAvailable:     446900 kB\nBuffers:               0 kB\n\
                    Cached:            12040 kB\nSwapCached:            0 kB\n\
                    Active:                4 kB\nInactive:            116 kB\n\
                    Active(anon):          8 kB\nSwapTotal:        524284 kB\n\
                    SwapFree:         524280 kB\nDirty:                 0 kB\n\
                    AnonPages:           120 kB\nShmem:                 4 kB\n\
                    Committed_AS:        536 kB\nHugePages_Total:       0\n";
        let info = meminfo(text);
        assert_eq!(info.total, Some(Bytes::kib(486_404)));
        assert_eq!(info.available, Some(Bytes::kib(446_900)));
        assert_eq!(info.active, Some(Bytes::kib(4)), "not Active(anon)");
        assert_eq!(info.buffers, Some(Bytes::ZERO));
        assert_eq!(info.swap_free, Some(Bytes::kib(524_280)));
        assert_eq!(info.committed, Some(Bytes::kib(536)));
    }

    #[test]
    fn missing_and_malformed_fields_are_none() {
        assert_eq!(meminfo(""), MemoryInfo::default());
        assert_eq!(meminfo("MemTotal: many kB\nMemFree: 4\nMemAvailable").total, None);
        assert_eq!(meminfo("MemFree: 4").free, None, "an amount without its unit");
        assert_eq!(vmstat("pswpin\npswpout x\n"), VmCounters::default());
    }

    #[test]
    fn vmstat_of_linux_6_1_is_parsed() {
        let vm = vmstat("nr_free_pages 1\npswpin 12\npswpout 340\npgmajfault 5\noom_kill 0\n");
        assert_eq!((vm.pswpin, vm.pswpout), (Some(12), Some(340)));
        assert_eq!((vm.pgmajfault, vm.oom_kill), (Some(5), Some(0)));
        assert_eq!(vm.balloon_inflate, None);
    }

    #[test]
    fn stat_is_parsed_for_any_program_name() {
        let rest = "R 1 77 77 0 -1 4194304 100 0 42 0 7 8 0 0 20 0 1 0 300 9 9";
        for name in ["lab-guest", "a b", "(x) y)", ""] {
            assert_eq!(major_faults(&format!("77 ({name}) {rest}")), Some(42), "{name}");
        }
        let stat = format!("77 (a) b) {rest}");
        assert_eq!(lineage(&stat), Some(Lineage { parent: 1, user_ticks: 7 }));
        assert_eq!(lineage("77 (x) R 1 77"), None);
        assert_eq!(major_faults("77 (x) R 1"), None);
        assert_eq!(major_faults("rubbish"), None);
    }

    #[test]
    fn resident_and_swapped_memory_are_parsed() {
        let status =
            "Name:\tlab-guest\nVmRSS:\t  102400 kB\nRssAnon:\t 5 kB\nVmSwap:\t    2048 kB\n";
        assert_eq!(resident_swapped(status), (Some(Bytes::mib(100)), Some(Bytes::mib(2))));
        assert_eq!(resident_swapped("Name:\tkthreadd\n"), (None, None));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_panic(text in "(?s).{0,300}") {
            meminfo(&text);
            vmstat(&text);
            major_faults(&text);
            resident_swapped(&text);
        }
    }
}
