//! The LRU order as an AVL tree with subtree sizes.
//!
//! Idea: in order, the tree is the LRU list: a tag's left child was referenced after it, its right
//! child before it. The distance of a tag is the number of nodes left of the path to it, summed
//! while walking up: each ancestor that is reached from its right child adds itself and its left
//! subtree (the paper's ANC is the next such one). Then the tag is removed and becomes the leftmost
//! leaf.
//!
//! Source: MEB §3.3. Cost: O(log n) a reference: one walk up that sums and shrinks, one of at most
//! the same length that rebalances, and one along the left edge. 16 bytes for each tag, and the
//! index: which child is taller is stored in the top bits of the links, so that a node never
//! straddles cache lines.
//!
//! Limit: one tag less than [`TAGS_MAX`](crate::TAGS_MAX), because that number means "none".

use crate::index::TagIndex;
use crate::{COLD, Full, Stack};

/// No node.
const NIL: u32 = TALLER - 1;
/// In a link to a child: this child's subtree is one taller than the other.
const TALLER: u32 = 1 << 31;

const LEFT: usize = 0;
const RIGHT: usize = 1;

#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
struct Node {
    /// Links, with [`TALLER`].
    children: [u32; 2],
    parent: u32,
    /// The number of nodes in its subtree, including itself.
    size: u32,
}

impl Node {
    const LEAF: Self = Self { children: [NIL; 2], parent: NIL, size: 1 };

    #[inline]
    fn child(&self, side: usize) -> u32 {
        self.children[side] & !TALLER
    }

    #[inline]
    fn is_taller(&self, side: usize) -> bool {
        self.children[side] & TALLER != 0
    }

    /// Links to `child` without changing which child is taller.
    #[inline]
    fn set_child(&mut self, side: usize, child: u32) {
        self.children[side] = (self.children[side] & TALLER) | child;
    }

    #[inline]
    fn set_taller(&mut self, side: usize) {
        self.children[side] |= TALLER;
    }

    #[inline]
    fn set_even(&mut self) {
        self.children[LEFT] &= !TALLER;
        self.children[RIGHT] &= !TALLER;
    }
}

/// Tags in an AVL tree, most recently referenced leftmost.
#[derive(Clone, Debug)]
pub struct Avl {
    index: TagIndex,
    /// By the tag's number in the index.
    nodes: Vec<Node>,
    root: u32,
    leftmost: u32,
}

impl Avl {
    /// An empty tree.
    #[must_use]
    pub fn new() -> Self {
        Self { index: TagIndex::default(), nodes: Vec::new(), root: NIL, leftmost: NIL }
    }

    #[inline]
    fn touch(&mut self, tag: u64) -> Result<u32, Full> {
        let (node, is_new) = self.number(tag)?;
        if is_new {
            self.nodes.push(Node::LEAF);
            self.insert_leftmost(node);
            return Ok(COLD);
        }
        if node == self.leftmost {
            return Ok(1);
        }
        let distance = self.count_out(node);
        self.remove(node);
        self.insert_leftmost(node);
        Ok(distance)
    }

    #[inline]
    fn number(&mut self, tag: u64) -> Result<(u32, bool), Full> {
        let (node, is_new) = self.index.number(tag)?;
        if node == NIL { Err(Full) } else { Ok((node, is_new)) }
    }

    #[inline]
    fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    #[inline]
    fn node_mut(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }

    fn size(&self, at: u32) -> u32 {
        if at == NIL { 0 } else { self.node(at).size }
    }

    /// The side on which `node` is a child of its parent.
    #[inline]
    fn side(&self, parent: u32, node: u32) -> usize {
        usize::from(self.node(parent).child(LEFT) != node)
    }

    /// The distance of `node`; afterwards no ancestor counts it.
    fn count_out(&mut self, node: u32) -> u32 {
        let Node { size, mut parent, .. } = *self.node(node);
        let mut distance = self.size(self.node(node).child(LEFT)) + 1;
        let (mut below, mut size_below) = (node, size);
        while parent != NIL {
            let above = self.node_mut(parent);
            let size_above = above.size;
            above.size = size_above - 1;
            // The nodes above but not below are the ancestor and its left subtree, which need not
            // be visited.
            let from_right = above.child(RIGHT) == below;
            distance += if from_right { size_above - size_below } else { 0 };
            (below, size_below) = (parent, size_above);
            parent = above.parent;
        }
        distance
    }

    /// Removes `node`, which is not the leftmost and which its ancestors no longer count.
    fn remove(&mut self, node: u32) {
        let Node { children, parent, .. } = *self.node(node);
        let (left, right) = (children[LEFT] & !TALLER, children[RIGHT] & !TALLER);
        if left == NIL || right == NIL {
            let child = if left == NIL { right } else { left };
            let side = self.replace(parent, node, child);
            self.rebalance_shrunk(parent, side);
            return;
        }
        // The next node in order takes its place; that node has no left child.
        let next = self.uncount_leftmost(right);
        let Node { children: [_, after], parent: above, .. } = *self.node(next);
        let after = after & !TALLER;
        if above == node {
            // `right` itself moves up, and its right child stays below it.
            let taller = children[RIGHT] & TALLER;
            self.node_mut(next).children = [children[LEFT], taller | after];
        } else {
            self.node_mut(above).set_child(LEFT, after);
            if after != NIL {
                self.node_mut(after).parent = above;
            }
            self.node_mut(next).children = children;
            self.node_mut(right).parent = next;
        }
        self.node_mut(next).size = self.node(node).size - 1;
        self.node_mut(left).parent = next;
        self.replace(parent, node, next);
        if above == node {
            self.rebalance_shrunk(next, RIGHT);
        } else {
            self.rebalance_shrunk(above, LEFT);
        }
    }

    /// The leftmost node of the subtree of `top`; afterwards no node on the way counts it.
    fn uncount_leftmost(&mut self, top: u32) -> u32 {
        let mut at = top;
        loop {
            let node = self.node_mut(at);
            let left = node.child(LEFT);
            if left == NIL {
                return at;
            }
            node.size -= 1;
            at = left;
        }
    }

    /// Puts `new` (or nothing) in the place of `old`, and returns the side of `parent` on which
    /// that is.
    fn replace(&mut self, parent: u32, old: u32, new: u32) -> usize {
        if new != NIL {
            self.node_mut(new).parent = parent;
        }
        if parent == NIL {
            self.root = new;
            return LEFT;
        }
        let side = self.side(parent, old);
        self.node_mut(parent).set_child(side, new);
        side
    }

    /// Rebalances after the subtree on `side` of `at` has become one lower.
    fn rebalance_shrunk(&mut self, mut at: u32, mut side: usize) {
        while at != NIL {
            let other = side ^ 1;
            let node = self.node_mut(at);
            let mut top = at;
            if node.is_taller(side) {
                node.set_even();
            } else if !node.is_taller(other) {
                node.set_taller(other);
                return;
            } else {
                let child = node.child(other);
                let child_was_even = {
                    let child = self.node(child);
                    !child.is_taller(LEFT) && !child.is_taller(RIGHT)
                };
                if self.node(child).is_taller(side) {
                    top = self.rotate_twice(at, side);
                } else {
                    top = self.rotate(at, side);
                    if child_was_even {
                        self.node_mut(at).set_taller(other);
                        self.node_mut(top).set_taller(side);
                        return;
                    }
                }
            }
            let parent = self.node(top).parent;
            if parent == NIL {
                return;
            }
            side = self.side(parent, top);
            at = parent;
        }
    }

    /// Rotates `at` down to `side`; its other child comes up and is returned. Both are balanced
    /// afterwards.
    fn rotate(&mut self, at: u32, side: usize) -> u32 {
        let other = side ^ 1;
        let Node { children, parent, size, .. } = *self.node(at);
        let up = children[other] & !TALLER;
        let risen = self.node(up);
        let (middle, risen_size) = (risen.child(side), risen.size);
        let middle_size = self.size(middle);
        if middle != NIL {
            self.node_mut(middle).parent = at;
        }
        let lowered = self.node_mut(at);
        lowered.children[other] = middle;
        lowered.set_even();
        lowered.size = size - risen_size + middle_size;
        lowered.parent = up;
        let risen = self.node_mut(up);
        risen.children[side] = at;
        risen.set_even();
        risen.size = size;
        self.replace(parent, at, up);
        up
    }

    /// Rotates `at` down to `side` if its other child leans to `side`: that child's child comes up
    /// between the two and is returned.
    fn rotate_twice(&mut self, at: u32, side: usize) -> u32 {
        let other = side ^ 1;
        let child = self.node(at).child(other);
        let up = *self.node(self.node(child).child(side));
        self.rotate(child, other);
        let top = self.rotate(at, side);
        // The subtrees of the node that came up: the lower one leaves its new parent unbalanced.
        if up.is_taller(other) {
            self.node_mut(at).set_taller(side);
        } else if up.is_taller(side) {
            self.node_mut(child).set_taller(other);
        }
        top
    }

    /// Inserts `node` left of all others.
    fn insert_leftmost(&mut self, node: u32) {
        let below = self.leftmost;
        *self.node_mut(node) = Node { parent: below, ..Node::LEAF };
        self.leftmost = node;
        if below == NIL {
            self.root = node;
            return;
        }
        self.node_mut(below).set_child(LEFT, node);
        // Rebalancing ends somewhere along the left edge; above that only counts change.
        let mut at = below;
        while at != NIL {
            let above = self.node_mut(at);
            above.size += 1;
            let parent = above.parent;
            if above.is_taller(RIGHT) {
                above.set_even();
                return self.count_in(parent);
            }
            if above.is_taller(LEFT) {
                // The left side of a left side has grown: one rotation is enough.
                self.rotate(at, RIGHT);
                return self.count_in(parent);
            }
            above.set_taller(LEFT);
            at = parent;
        }
    }

    /// Counts one more node in `at` and all its ancestors.
    fn count_in(&mut self, mut at: u32) {
        while at != NIL {
            let node = self.node_mut(at);
            node.size += 1;
            at = node.parent;
        }
    }

    /// Links the nodes of `range`, which are numbered in order, as a subtree; returns its root and
    /// height. The recursion is as deep as the tree is high.
    fn link(&mut self, range: std::ops::Range<u32>, parent: u32) -> (u32, u32) {
        if range.is_empty() {
            return (NIL, 0);
        }
        let middle = range.start + (range.end - range.start) / 2;
        let (left, height_left) = self.link(range.start..middle, middle);
        let (right, height_right) = self.link(middle + 1..range.end, middle);
        let size = range.end - range.start;
        *self.node_mut(middle) = Node { children: [left, right], parent, size };
        // The left half is never smaller than the right one.
        if height_left > height_right {
            self.node_mut(middle).set_taller(LEFT);
        }
        (middle, height_left + 1)
    }
}

impl Default for Avl {
    fn default() -> Self {
        Self::new()
    }
}

impl Stack for Avl {
    fn reference(&mut self, tags: &[u64], distances: &mut [u32]) -> Result<(), Full> {
        assert_eq!(tags.len(), distances.len(), "a distance for each tag");
        for (&tag, distance) in tags.iter().zip(distances) {
            *distance = self.touch(tag)?;
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.nodes.len() as u64
    }

    fn order(&self) -> Vec<u64> {
        let mut order = Vec::with_capacity(self.nodes.len());
        let (mut at, mut waiting) = (self.root, Vec::new());
        while at != NIL || !waiting.is_empty() {
            while at != NIL {
                waiting.push(at);
                at = self.node(at).child(LEFT);
            }
            if let Some(next) = waiting.pop() {
                order.push(self.index.tag(next));
                at = self.node(next).child(RIGHT);
            }
        }
        order
    }

    fn restore(&mut self, order: &[u64]) -> Result<(), Full> {
        *self = Self::new();
        for &tag in order {
            let (_, is_new) = self.number(tag)?;
            if is_new {
                self.nodes.push(Node::LEAF);
            }
        }
        if !self.nodes.is_empty() {
            self.leftmost = 0;
            self.root = self.link(0..self.nodes.len() as u32, NIL).0;
        }
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        (self.nodes.capacity() * size_of::<Node>()) as u64 + self.index.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that every node satisfies the rules of an AVL tree with sizes and parents; returns
    /// the height.
    fn check(tree: &Avl, at: u32, parent: u32) -> u32 {
        if at == NIL {
            return 0;
        }
        let node = tree.node(at);
        assert_eq!(node.parent, parent, "parent of {at}");
        let heights = [LEFT, RIGHT].map(|side| check(tree, node.child(side), at));
        assert_eq!(node.is_taller(LEFT), heights[LEFT] == heights[RIGHT] + 1, "{at}: {heights:?}");
        assert_eq!(node.is_taller(RIGHT), heights[RIGHT] == heights[LEFT] + 1, "{at}: {heights:?}");
        assert!(heights[LEFT].abs_diff(heights[RIGHT]) <= 1, "{at}: {heights:?}");
        let sizes = [LEFT, RIGHT].map(|side| tree.size(node.child(side)));
        assert_eq!(node.size, sizes[LEFT] + sizes[RIGHT] + 1, "size of {at}");
        heights[LEFT].max(heights[RIGHT]) + 1
    }

    #[test]
    fn it_is_balanced_after_every_reference() {
        let mut tree = Avl::new();
        let mut state = 1_u64;
        for step in 0..4000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step);
            let tag = (state >> 33) % (step / 8 + 1);
            tree.reference(&[tag], &mut [0]).unwrap();
            check(&tree, tree.root, NIL);
        }
        assert!(tree.len() > 300);
    }

    #[test]
    fn it_is_balanced_when_restored() {
        for len in 0..70_u64 {
            let mut tree = Avl::new();
            let order: Vec<_> = (0..len).collect();
            tree.restore(&order).unwrap();
            check(&tree, tree.root, NIL);
            assert_eq!(tree.order(), order);
            for tag in 0..len {
                tree.reference(&[len - 1 - tag], &mut [0]).unwrap();
                check(&tree, tree.root, NIL);
            }
        }
    }

    #[test]
    fn a_node_is_a_quarter_of_a_cache_line() {
        assert_eq!(size_of::<Node>(), 16);
    }
}
