//! Idle ages of memory, from the kernel's multi-generational LRU (MGLRU).
//!
//! MGLRU sorts pages into up to four generations and shows when each began. Pages of a generation
//! were not used since the next one began. The histogram sums the generations of all control groups
//! and nodes in groups with fixed edges.
//!
//! Source: the kernel's `Documentation/admin-guide/mm/multigen_lru.rst`, `lru_gen_seq_show` in
//! `mm/vmscan.c`. Limits: generations are coarse, and get old and few without reclaim; the file is
//! in debugfs, which only root can read.

use ballast_agent_proto::wire::statistics::NUMBER_MAX;
use ballast_agent_proto::wire::{AgeGroup, Ages};

/// Path of the kernel's file, below the root.
pub const FILE: &str = "sys/kernel/debug/lru_gen";
/// Lower edges of the histogram's groups, in milliseconds of idle time.
const EDGES_MS: [u64; 9] =
    [0, 1_000, 5_000, 15_000, 60_000, 180_000, 600_000, 1_800_000, 3_600_000];
/// The kernel keeps the two youngest generations (`MIN_NR_GENS`).
const GENERATIONS_KEPT: usize = 2;

/// One generation of one node of one control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Generation {
    number: u64,
    began_ms: u64,
    anon_pages: u64,
    file_pages: u64,
}

/// The generations of one control group on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeGenerations {
    group: u64,
    node: u64,
    generations: Vec<Generation>,
}

/// The old generations of one control group on one node, whose page cache can be reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimableGenerations {
    group: u64,
    node: u64,
    number: u64,
    /// Page cache in these generations.
    pub file_pages: u64,
}

impl ReclaimableGenerations {
    /// The command that reclaims up to `pages` of page cache and no anonymous memory (swappiness
    /// 0).
    pub fn command(&self, pages: u64) -> String {
        format!("- {} {} {} 0 {pages}", self.group, self.node, self.number)
    }
}

fn parse(text: &str) -> Vec<NodeGenerations> {
    let mut nodes: Vec<NodeGenerations> = Vec::new();
    let mut group = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |at: usize| words.get(at)?.trim_end_matches('x').parse::<u64>().ok();
        match words.first() {
            Some(&"memcg") => group = number(1).unwrap_or(0),
            Some(&"node") => nodes.push(NodeGenerations {
                group,
                node: number(1).unwrap_or(0),
                generations: Vec::new(),
            }),
            _ => {
                if let (Some(number), Some(began_ms), Some(anon_pages), Some(file_pages)) =
                    (number(0), number(1), number(2), number(3))
                    && let Some(node) = nodes.last_mut()
                {
                    node.generations.push(Generation { number, began_ms, anon_pages, file_pages });
                }
            }
        }
    }
    nodes
}

/// The histogram of idle ages, with sizes capped to what a message can carry; `None` if `text` has
/// no generations.
pub fn ages(text: &str, page_bytes: u64) -> Option<Ages> {
    let mut sums = [(0u64, 0u64); EDGES_MS.len()];
    let nodes = parse(text);
    for node in &nodes {
        for (at, generation) in node.generations.iter().enumerate() {
            let idle_ms = node.generations.get(at + 1).map_or(0, |next| next.began_ms);
            let group = EDGES_MS.iter().rposition(|edge| *edge <= idle_ms).unwrap_or(0);
            let sum = &mut sums[group];
            sum.0 = sum.0.saturating_add(generation.anon_pages);
            sum.1 = sum.1.saturating_add(generation.file_pages);
        }
    }
    let bytes = |pages: u64| pages.saturating_mul(page_bytes).min(NUMBER_MAX);
    let mut groups = Vec::new();
    for (idle_ms, (anon, file)) in EDGES_MS.into_iter().zip(sums).rev() {
        if (anon, file) != (0, 0) {
            groups.push(AgeGroup { idle_ms, anon_bytes: bytes(anon), file_bytes: bytes(file) });
        }
    }
    (!groups.is_empty()).then_some(Ages { groups })
}

/// Reclaimable page cache, largest first.
pub fn reclaimable(text: &str) -> Vec<ReclaimableGenerations> {
    let old = |node: &NodeGenerations| {
        let old_count = node.generations.len().saturating_sub(GENERATIONS_KEPT);
        let generations = node.generations.get(..old_count)?;
        let file_pages = generations.iter().map(|it| it.file_pages).fold(0, u64::saturating_add);
        let number = generations.last()?.number;
        Some(ReclaimableGenerations { group: node.group, node: node.node, number, file_pages })
    };
    let mut all: Vec<ReclaimableGenerations> = parse(text).iter().filter_map(old).collect();
    all.retain(|it| it.file_pages > 0);
    all.sort_by_key(|it| std::cmp::Reverse(it.file_pages));
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "memcg     0 /\n node     0\n          0     200000       100x        50 \n\
                        \x20         1      70000        10          20 \n          2       4000        3          1 \n\
                        \x20         3        900         7          2 \nmemcg    31 /system.slice\n node     0\n\
                        \x20         5       9000         1          1 \n          6       1500         2          2 \n";

    #[test]
    fn ages_computed_by_hand() {
        let group = |idle_ms, anon: u64, file: u64| AgeGroup {
            idle_ms,
            anon_bytes: anon * 4096,
            file_bytes: file * 4096,
        };
        // Generation 0 was not used since generation 1 began 70 s ago, and so on.
        let groups = vec![
            group(60_000, 100, 50),
            group(1_000, 10 + 1, 20 + 1),
            group(0, 3 + 7 + 2, 1 + 2 + 2),
        ];
        assert_eq!(ages(TEXT, 4096), Some(Ages { groups }));
        assert_eq!(ages("", 4096), None);
        assert_eq!(ages("memcg 0 /\n node 0\n", 4096), None);
    }

    #[test]
    fn absurd_page_counts_still_fit_a_message() {
        let text = "memcg 0 /\n node 0\n 0 5 18446744073709551615 9999999999999\n";
        let group = AgeGroup { idle_ms: 0, anon_bytes: NUMBER_MAX, file_bytes: NUMBER_MAX };
        assert_eq!(ages(text, 4096), Some(Ages { groups: vec![group] }));
    }

    #[test]
    fn the_two_youngest_generations_are_kept() {
        let all = reclaimable(TEXT);
        assert_eq!(all.len(), 1, "the other group has only two generations");
        assert_eq!(all[0].file_pages, 70);
        assert_eq!(all[0].command(9), "- 0 0 1 0 9");
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in "((memcg|node| [0-9]{1,20})?( +[0-9]{1,20}x?){0,4}\n){0,20}") {
            if let Some(ages) = ages(&text, 4096) {
                prop_assert!(ages.groups.len() <= EDGES_MS.len());
            }
            reclaimable(&text);
        }
    }
}
