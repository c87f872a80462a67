//! Generations of pages: how long memory has not been used.
//!
//! Idea: a kernel with multi-generational LRU sorts pages into up to four generations, and tells when
//! each began. What is in a generation was not used since the next one began. Generations of all
//! control groups and nodes are put into groups with fixed edges.
//!
//! Source: the kernel's `Documentation/admin-guide/mm/multigen_lru.rst`, `lru_gen_seq_show` in
//! `mm/vmscan.c`. Limits: as coarse as generations are, which without reclaim get old and few; the file
//! is in debugfs, which only root reads.

use ballast_agent_wire::{AgeGroup, Ages};

/// Where the kernel shows them, below the root.
pub const FILE: &str = "sys/kernel/debug/lru_gen";
/// Edges between groups: memory idle for at least so long, in milliseconds.
const EDGES_MS: [u64; 9] =
    [0, 1_000, 5_000, 15_000, 60_000, 180_000, 600_000, 1_800_000, 3_600_000];
/// The youngest two generations are not reclaimed by themselves (`MIN_NR_GENS`).
const GENERATIONS_KEPT: usize = 2;

/// One generation of one node of one control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Generation {
    number: u64,
    began_ms: u64,
    anon_pages: u64,
    file_pages: u64,
}

/// A control group's memory on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Vector {
    group: u64,
    node: u64,
    generations: Vec<Generation>,
}

/// What can be reclaimed of page cache without asking for what was used lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reclaimable {
    group: u64,
    node: u64,
    number: u64,
    /// Page cache in generations that may go.
    pub file_pages: u64,
}

impl Reclaimable {
    /// The command that reclaims up to `pages` of it and no memory of programs (swappiness 0).
    pub fn command(&self, pages: u64) -> String {
        format!("- {} {} {} 0 {pages}", self.group, self.node, self.number)
    }
}

fn parse(text: &str) -> Vec<Vector> {
    let mut vectors: Vec<Vector> = Vec::new();
    let mut group = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |at: usize| words.get(at)?.trim_end_matches('x').parse::<u64>().ok();
        match words.first() {
            Some(&"memcg") => group = number(1).unwrap_or(0),
            Some(&"node") => vectors.push(Vector {
                group,
                node: number(1).unwrap_or(0),
                generations: Vec::new(),
            }),
            _ => {
                if let (Some(number), Some(began_ms), Some(anon_pages), Some(file_pages)) =
                    (number(0), number(1), number(2), number(3))
                    && let Some(vector) = vectors.last_mut()
                {
                    let it = Generation { number, began_ms, anon_pages, file_pages };
                    vector.generations.push(it);
                }
            }
        }
    }
    vectors
}

/// How long memory has not been used; `None` where `text` has no generations.
pub fn ages(text: &str, page_bytes: u64) -> Option<Ages> {
    let mut sums = [(0u64, 0u64); EDGES_MS.len()];
    let vectors = parse(text);
    for vector in &vectors {
        for (at, generation) in vector.generations.iter().enumerate() {
            let idle_ms = vector.generations.get(at + 1).map_or(0, |next| next.began_ms);
            let group = EDGES_MS.iter().rposition(|edge| *edge <= idle_ms).unwrap_or(0);
            let sum = &mut sums[group];
            sum.0 = sum.0.saturating_add(generation.anon_pages);
            sum.1 = sum.1.saturating_add(generation.file_pages);
        }
    }
    let groups = EDGES_MS.iter().zip(sums).rev().filter(|(_, pages)| *pages != (0, 0));
    let groups = groups.map(|(idle_ms, (anon, file))| AgeGroup {
        idle_ms: *idle_ms,
        anon_bytes: anon.saturating_mul(page_bytes),
        file_bytes: file.saturating_mul(page_bytes),
    });
    let groups: Vec<AgeGroup> = groups.collect();
    (!groups.is_empty()).then_some(Ages { groups })
}

/// Page cache that could be reclaimed, largest first.
pub fn reclaimable(text: &str) -> Vec<Reclaimable> {
    let old = |vector: &Vector| {
        let kept = vector.generations.len().saturating_sub(GENERATIONS_KEPT);
        let generations = vector.generations.get(..kept)?;
        let file_pages = generations.iter().map(|it| it.file_pages).fold(0, u64::saturating_add);
        let number = generations.last()?.number;
        Some(Reclaimable { group: vector.group, node: vector.node, number, file_pages })
    };
    let mut all: Vec<Reclaimable> = parse(text).iter().filter_map(old).collect();
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
    fn by_hand() {
        let group = |idle_ms, anon: u64, file: u64| AgeGroup {
            idle_ms,
            anon_bytes: anon * 4096,
            file_bytes: file * 4096,
        };
        // Generation 0 was not used since 1 began 70 s ago, and so on; 5 not since 6 began.
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
    fn what_was_used_lately_is_not_reclaimed() {
        let all = reclaimable(TEXT);
        assert_eq!(all.len(), 1, "the other group has only its two youngest");
        assert_eq!(all[0].file_pages, 70);
        assert_eq!(all[0].command(9), "- 0 0 1 0 9");
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in "((memcg|node| [0-9]{1,20})?( +[0-9]{1,20}x?){0,4}\n){0,20}") {
            if let Some(ages) = ages(&text, 4096) {
                prop_assert!(ages.groups.len() <= EDGES_MS.len());
            }
            reclaimable(&text);
        }
    }
}
