//! The LRU order as a doubly linked list that is searched from its head.
//!
//! Idea: each tag is a node. A referenced node moves to the head in O(1), but its position is found
//! only by walking to it. This is the papers' baseline; it is here for comparison and to check the
//! other stacks.
//!
//! Source: MEB §3.1.1. Cost: O(distance) for each reference, 8 bytes for each tag, and the index.

use crate::index::TagIndex;
use crate::{COLD, Full, Stack};

/// No node: before the head and after the tail.
const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Links {
    towards_head: u32,
    towards_tail: u32,
}

/// Tags in a doubly linked list, most recently referenced first.
#[derive(Clone, Debug)]
pub struct List {
    index: TagIndex,
    /// By the tag's number in the index.
    nodes: Vec<Links>,
    head: u32,
}

impl List {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self { index: TagIndex::default(), nodes: Vec::new(), head: NIL }
    }

    fn touch(&mut self, tag: u64) -> Result<u32, Full> {
        let (node, is_new) = self.index.number(tag)?;
        if is_new {
            self.nodes.push(Links { towards_head: NIL, towards_tail: NIL });
            self.push_front(node);
            return Ok(COLD);
        }
        let distance = self.position(node);
        if distance > 1 {
            self.unlink(node);
            self.push_front(node);
        }
        Ok(distance)
    }

    /// The 1-based position of `node`, which is in the list.
    fn position(&self, node: u32) -> u32 {
        let (mut at, mut position) = (self.head, 1);
        while at != node {
            at = self.nodes[at as usize].towards_tail;
            position += 1;
        }
        position
    }

    /// Removes a node that is not the head.
    fn unlink(&mut self, node: u32) {
        let Links { towards_head, towards_tail } = self.nodes[node as usize];
        self.nodes[towards_head as usize].towards_tail = towards_tail;
        if towards_tail != NIL {
            self.nodes[towards_tail as usize].towards_head = towards_head;
        }
    }

    fn push_front(&mut self, node: u32) {
        if self.head != NIL {
            self.nodes[self.head as usize].towards_head = node;
        }
        self.nodes[node as usize] = Links { towards_head: NIL, towards_tail: self.head };
        self.head = node;
    }
}

impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

impl Stack for List {
    fn reference(&mut self, tags: &[u64], distances: &mut [u32]) -> Result<(), Full> {
        assert_eq!(tags.len(), distances.len(), "a distance for each tag");
        for (&tag, distance) in tags.iter().zip(distances) {
            *distance = self.touch(tag)?;
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.index.len()
    }

    fn order(&self) -> Vec<u64> {
        let after = |&node: &u32| Some(self.nodes[node as usize].towards_tail);
        std::iter::successors(Some(self.head), after)
            .take(self.nodes.len())
            .map(|node| self.index.tag(node))
            .collect()
    }

    fn restore(&mut self, order: &[u64]) -> Result<(), Full> {
        *self = Self::new();
        let mut tail = NIL;
        for &tag in order {
            let (node, is_new) = self.index.number(tag)?;
            if !is_new {
                continue;
            }
            self.nodes.push(Links { towards_head: tail, towards_tail: NIL });
            match tail {
                NIL => self.head = node,
                _ => self.nodes[tail as usize].towards_tail = node,
            }
            tail = node;
        }
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        (self.nodes.capacity() * size_of::<Links>()) as u64 + self.index.memory_bytes()
    }
}
