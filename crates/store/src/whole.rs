//! Which ticks are written whole, and which as their difference from one that is.
//!
//! Idea: a tick is written whole, and the next [`DELTAS_MAX`] as differences from it (`delta.rs`):
//! not each from the one before, so that any tick can be read with one other, and a damaged one
//! spoils none but itself, unless it is the whole one. A difference that saves less than half is no
//! use: that tick is written whole. Cost: the whole tick as a tree in memory (`tree.rs`).
//! Limits: retention has to delete a whole tick together with its differences.

use std::io;

use serde::Serialize;

use crate::codec::Encoder;
use crate::delta::difference;
use crate::tree::Tree;

/// Most ticks that are written as differences from one: at a tick a second, all of a minute. Twice
/// as many would save 3 % more.
pub const DELTAS_MAX: u32 = 59;

/// The last tick that was written whole.
struct Whole {
    id: i64,
    tree: Tree,
    /// Size of its row.
    bytes: usize,
    deltas: u32,
}

/// What the next difference is made from.
#[derive(Default)]
pub(crate) struct Wholes {
    last: Option<Whole>,
}

/// A tick as it is written.
pub(crate) struct TickBody {
    pub(crate) bytes: Vec<u8>,
    /// The row it differs from; `None`: it is whole.
    pub(crate) base: Option<i64>,
    /// The tick, where it is whole.
    tree: Option<Tree>,
}

impl Wholes {
    /// `row` as it is to be written; `is_whole`: never as a difference.
    pub(crate) fn body(
        &self,
        row: &impl Serialize,
        is_whole: bool,
        encoder: &mut Encoder,
    ) -> io::Result<TickBody> {
        let tree = Tree::of(row)?;
        let base = self.last.as_ref().filter(|whole| !is_whole && whole.deltas < DELTAS_MAX);
        if let Some(whole) = base {
            let bytes = encoder.encode_bytes(&difference(&whole.tree, &tree)?)?;
            if bytes.len() <= whole.bytes / 2 {
                let bytes = bytes.to_vec();
                return Ok(TickBody { bytes, base: Some(whole.id), tree: None });
            }
        }
        Ok(TickBody { bytes: encoder.encode(row)?.to_vec(), base: None, tree: Some(tree) })
    }

    /// `body` is the row `id` of the file now.
    pub(crate) fn committed(&mut self, id: i64, body: TickBody) {
        if let Some(tree) = body.tree {
            self.last = Some(Whole { id, tree, bytes: body.bytes.len(), deltas: 0 });
        } else if let Some(whole) = &mut self.last {
            whole.deltas += 1;
        }
    }
}
