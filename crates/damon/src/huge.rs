//! How much of a guest's memory is in huge pages.
//!
//! Idea: a huge page has one accessed bit, so a touch of 4 KiB counts as 2 MiB. An estimate of
//! memory in huge pages is therefore an upper bound.
//! Cost: the kernel walks the page tables for `smaps`, 10 ms for a guest of some hundred MiB.
//! Source: proc_pid_smaps(5).
//! Limits: malformed lines are skipped; memory without a figure counts as small pages.

use std::ops::Range;

use ballast_tracker_proto::Mapping;

/// Guest memory in the page tables of the hypervisor, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugeShare {
    /// All of it.
    pub resident: u64,
    /// In huge pages.
    pub huge: u64,
}

impl HugeShare {
    /// Sums up the text of `smaps` over mappings that overlap `regions`.
    pub fn of(smaps: &str, regions: &[Range<u64>]) -> HugeShare {
        let mut sum = HugeShare::default();
        let mut is_guest = false;
        for line in smaps.lines() {
            let amount = |name: &str| {
                let kib = line.strip_prefix(name)?.trim().strip_suffix(" kB")?.parse::<u64>();
                Some(kib.ok()?.saturating_mul(1024))
            };
            if let Some(mapping) = Mapping::parse(line) {
                let end = mapping.start.saturating_add(mapping.len);
                is_guest = regions.iter().any(|it| it.start < end && mapping.start < it.end);
            } else if !is_guest {
                continue;
            } else if let Some(resident) = amount("Rss:") {
                sum.resident = sum.resident.saturating_add(resident);
            } else if let Some(huge) = NAMES.iter().find_map(|name| amount(name)) {
                sum.huge = sum.huge.saturating_add(huge);
            }
        }
        // `Rss` does not include hugetlbfs pages.
        sum.resident = sum.resident.max(sum.huge);
        sum
    }

    /// As a ratio, 0 to 1; 0 while nothing is resident.
    pub fn ratio(self) -> f64 {
        if self.resident == 0 { 0.0 } else { self.huge as f64 / self.resident as f64 }
    }
}

/// Lines with memory in huge pages.
const NAMES: [&str; 5] =
    ["AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:", "Private_Hugetlb:", "Shared_Hugetlb:"];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GUEST: [Range<u64>; 2] = [0x1000_0000..0x1800_0000, 0x1800_0000..0x2000_0000];
    const SMAPS: &str = "\
10000000-20000000 rw-p 00000000 00:00 0 \n\
Size:             262144 kB\n\
Rss:              100000 kB\n\
AnonHugePages:     75000 kB\n\
30000000-30001000 rw-p 00000000 00:00 0                          [heap]\n\
Rss:               50000 kB\n\
AnonHugePages:     50000 kB\n";

    #[test]
    fn only_guest_memory_counts() {
        let share = HugeShare::of(SMAPS, &GUEST);
        assert_eq!(share, HugeShare { resident: 100_000 << 10, huge: 75_000 << 10 });
        assert_eq!(share.ratio(), 0.75);
        assert_eq!(HugeShare::of(SMAPS, &[]).ratio(), 0.0);
        let hugetlb = "10000000-10200000 rw-s 0 00:0f 9 /a\nRss: 0 kB\nShared_Hugetlb: 2048 kB\n";
        assert_eq!(HugeShare::of(hugetlb, &GUEST).ratio(), 1.0);
    }

    proptest! {
        #[test]
        fn rubbish_gives_a_ratio(text in "([a-zA-Z:_0-9 -]{0,40}( kB)?\n){0,20}") {
            let text = format!("10000000-20000000 rw-p 0 00:00 0\n{text}");
            let ratio = HugeShare::of(&text, &GUEST).ratio();
            prop_assert!((0.0..=1.0).contains(&ratio));
        }
    }
}
