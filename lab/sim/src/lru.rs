//! LRU lists of blocks.
//!
//! Idea: the four lists of Linux (active and inactive, of anonymous memory and of page cache) as
//! doubly linked lists in one array. Cost: O(1) per operation, 8 bytes per block.
//! Limits: a block is on at most one list; the caller remembers which.

/// No block.
const NONE: u32 = u32::MAX;

/// One of the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    ActiveAnon,
    InactiveAnon,
    ActiveFile,
    InactiveFile,
}

/// All lists of a guest.
#[derive(Clone, Debug)]
pub(crate) struct Lru {
    /// Links towards the head and towards the tail.
    links: Vec<[u32; 2]>,
    ends: [[u32; 2]; 4],
    lens: [u64; 4],
}

const NEWER: usize = 0;
const OLDER: usize = 1;
const HEAD: usize = 0;
const TAIL: usize = 1;

impl Lru {
    /// Creates empty lists for blocks `0..blocks`.
    pub(crate) fn new(blocks: usize) -> Lru {
        Lru { links: vec![[NONE; 2]; blocks], ends: [[NONE; 2]; 4], lens: [0; 4] }
    }

    pub(crate) fn len(&self, list: List) -> u64 {
        self.lens[list as usize]
    }

    /// Adds a block that is on no list at the head, as the newest.
    pub(crate) fn push(&mut self, list: List, block: u32) {
        let ends = &mut self.ends[list as usize];
        let head = ends[HEAD];
        self.links[block as usize] = [NONE, head];
        ends[HEAD] = block;
        match head {
            NONE => ends[TAIL] = block,
            _ => self.links[head as usize][NEWER] = block,
        }
        self.lens[list as usize] += 1;
    }

    /// Removes a block that is on `list`.
    pub(crate) fn remove(&mut self, list: List, block: u32) {
        let [newer, older] = self.links[block as usize];
        let ends = &mut self.ends[list as usize];
        match newer {
            NONE => ends[HEAD] = older,
            _ => self.links[newer as usize][OLDER] = older,
        }
        match older {
            NONE => ends[TAIL] = newer,
            _ => self.links[older as usize][NEWER] = newer,
        }
        self.lens[list as usize] -= 1;
    }

    /// Removes and returns the oldest block.
    pub(crate) fn pop_oldest(&mut self, list: List) -> Option<u32> {
        let block = self.ends[list as usize][TAIL];
        if block == NONE {
            return None;
        }
        self.remove(list, block);
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn oldest_block_leaves_first() {
        let mut lru = Lru::new(4);
        for block in [2, 0, 3] {
            lru.push(List::ActiveFile, block);
        }
        lru.remove(List::ActiveFile, 0);
        lru.push(List::InactiveAnon, 0);
        assert_eq!(lru.len(List::ActiveFile), 2);
        assert_eq!(lru.pop_oldest(List::ActiveFile), Some(2));
        assert_eq!(lru.pop_oldest(List::ActiveFile), Some(3));
        assert_eq!(lru.pop_oldest(List::ActiveFile), None);
        assert_eq!(lru.pop_oldest(List::InactiveAnon), Some(0));
    }

    proptest! {
        /// Compared to a queue: push an absent block, remove a present one, or pop the oldest.
        #[test]
        fn list_behaves_like_a_queue_with_removal(steps in prop::collection::vec((0..8u32, any::<bool>()), 0..200)) {
            let mut lru = Lru::new(8);
            let mut queue = VecDeque::new();
            for (block, oldest) in steps {
                if oldest {
                    prop_assert_eq!(lru.pop_oldest(List::ActiveAnon), queue.pop_back());
                } else if let Some(at) = queue.iter().position(|&it| it == block) {
                    queue.remove(at);
                    lru.remove(List::ActiveAnon, block);
                } else {
                    queue.push_front(block);
                    lru.push(List::ActiveAnon, block);
                }
                prop_assert_eq!(lru.len(List::ActiveAnon), queue.len() as u64);
            }
        }
    }
}
