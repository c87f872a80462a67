//! A rival: the LRU order as a splay tree with subtree sizes.
//!
//! Idea: in order, the tree is the LRU list. A referenced page is splayed to the root; the pages
//! left of it were referenced later and give its distance. Then it becomes the root above all
//! others. Hot pages stay near the root. Public stack-distance programs use such a tree with times
//! as keys, searched from the root; here pages know their nodes, which saves the keys and the
//! search.
//!
//! Source: Olken 1981; Sleator and Tarjan 1985. Cost: O(log n) a reference on average, O(1) in a
//! scan; 16 bytes for each page number.

use super::rival::Distances;

/// No node: its size is 0.
const NIL: u32 = 0;

const LEFT: usize = 0;

#[derive(Clone, Copy)]
#[repr(align(16))]
struct Node {
    children: [u32; 2],
    parent: u32,
    size: u32,
}

/// Pages in a splay tree, most recently referenced leftmost.
pub(super) struct Splay {
    /// By page number + 1; a size of 0 means that the page is not in the tree.
    nodes: Vec<Node>,
    root: u32,
}

impl Splay {
    /// An empty tree; for page numbers below `numbers`.
    pub(super) fn new(numbers: u64) -> Self {
        let empty = Node { children: [NIL; 2], parent: NIL, size: 0 };
        Self { nodes: vec![empty; numbers as usize + 1], root: NIL }
    }

    #[inline]
    fn node(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }

    #[inline]
    fn side(&self, parent: u32, child: u32) -> usize {
        usize::from(self.nodes[parent as usize].children[LEFT] != child)
    }

    /// Rotates `at` above its parent, which becomes its child on the other side. The caller sets
    /// the link from above, and `at`'s own size, which is the parent's old one.
    #[inline]
    fn raise(&mut self, at: u32, parent: u32, side: usize) {
        let other = side ^ 1;
        let middle = self.node(at).children[other];
        let size_middle = self.node(middle).size;
        let size = self.node(at).size;
        let lowered = self.node(parent);
        lowered.children[side] = middle;
        let size_before = lowered.size;
        lowered.size = size_before - size + size_middle;
        lowered.parent = at;
        if middle != NIL {
            self.node(middle).parent = parent;
        }
        let raised = self.node(at);
        raised.children[other] = parent;
        raised.size = size_before;
    }

    /// Rotates `at` up until it has no parent.
    fn splay(&mut self, at: u32) {
        loop {
            let parent = self.node(at).parent;
            if parent == NIL {
                return;
            }
            let above = self.node(parent).parent;
            let side = self.side(parent, at);
            if above == NIL {
                self.raise(at, parent, side);
                self.node(at).parent = NIL;
                return;
            }
            let top = self.node(above).parent;
            let side_above = self.side(above, parent);
            if side == side_above {
                self.raise(parent, above, side);
                self.raise(at, parent, side);
            } else {
                self.raise(at, parent, side);
                self.node(above).children[side_above] = at;
                self.raise(at, above, side_above);
            }
            self.node(at).parent = top;
            if top != NIL {
                let side_top = self.side(top, above);
                self.node(top).children[side_top] = at;
            }
        }
    }

    /// Joins two trees and returns the root; everything in `left` comes before everything in
    /// `right`.
    fn join(&mut self, left: u32, right: u32) -> u32 {
        if left == NIL || right == NIL {
            return left | right;
        }
        self.node(right).parent = NIL;
        let mut first = right;
        loop {
            let next = self.node(first).children[LEFT];
            if next == NIL {
                break;
            }
            first = next;
        }
        self.splay(first);
        let size = self.node(left).size;
        self.node(left).parent = first;
        let root = self.node(first);
        root.children[LEFT] = left;
        root.size += size;
        first
    }
}

impl Distances for Splay {
    #[inline]
    fn touch(&mut self, page: u64) -> u32 {
        let at = page as u32 + 1;
        let mut distance = 0;
        let mut others = self.root;
        if self.node(at).size != 0 {
            self.splay(at);
            let [left, right] = self.node(at).children;
            distance = self.node(left).size + 1;
            if left == NIL {
                self.root = at;
                return distance;
            }
            self.node(left).parent = NIL;
            others = self.join(left, right);
        }
        let size = self.node(others).size;
        if others != NIL {
            self.node(others).parent = at;
        }
        *self.node(at) = Node { children: [NIL, others], parent: NIL, size: size + 1 };
        self.root = at;
        distance
    }

    fn pages(&self) -> u64 {
        self.nodes[self.root as usize].size.into()
    }

    fn memory_bytes(&self) -> u64 {
        (self.nodes.capacity() * size_of::<Node>()) as u64
    }
}
