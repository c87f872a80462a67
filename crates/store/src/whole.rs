//! Decides which ticks are written whole, and which as their difference from a whole one.
//!
//! Idea: a tick is written whole, and the next [`DELTAS_MAX`] as differences from it (`delta.rs`).
//! All differ from the whole one, not each from the one before. So any tick is read with at most
//! one other, and a damaged difference spoils only itself. A tick whose difference would save less
//! than half is written whole. Cost: the last whole tick stays in memory as a tree (`tree.rs`).
//! Limits: retention has to delete a whole tick together with its differences and the events
//! between them. So [`DELTAS_MAX`] counts events too.

use std::io;

use serde::Serialize;

use crate::codec::Encoder;
use crate::delta::difference;
use crate::tree::Tree;

/// Most ticks that are written as differences from one whole tick: at one tick a second, the rest
/// of a minute. Twice as many would save 3 % more. Once this many rows follow the whole tick,
/// events among them, the next tick is whole.
pub const DELTAS_MAX: u32 = 59;

/// The last tick that was written whole.
struct WholeTick {
    id: i64,
    tree: Tree,
    /// Size of its row.
    bytes: usize,
    /// Rows after it, events among them.
    rows: u32,
}

/// Encodes ticks, whole or as differences from the last whole one.
#[derive(Default)]
pub(crate) struct DeltaEncoder {
    last: Option<WholeTick>,
}

pub(crate) struct TickBody {
    pub(crate) bytes: Vec<u8>,
    /// The row it differs from; `None`: it is whole.
    pub(crate) base: Option<i64>,
    /// The tick itself, if it is whole.
    tree: Option<Tree>,
}

impl DeltaEncoder {
    /// The body to write for `row`; with `is_whole`, never a difference.
    pub(crate) fn encode(
        &self,
        row: &impl Serialize,
        is_whole: bool,
        encoder: &mut Encoder,
    ) -> io::Result<TickBody> {
        let tree = Tree::of(row)?;
        let base = self.last.as_ref().filter(|whole| !is_whole && whole.rows < DELTAS_MAX);
        if let Some(whole) = base {
            let bytes = encoder.encode_bytes(&difference(&whole.tree, &tree)?)?;
            if bytes.len() <= whole.bytes / 2 {
                let bytes = bytes.to_vec();
                return Ok(TickBody { bytes, base: Some(whole.id), tree: None });
            }
        }
        Ok(TickBody { bytes: encoder.encode(row)?.to_vec(), base: None, tree: Some(tree) })
    }

    /// Notes that rows up to `id` were committed. `tick`: the content of row `id`, if it is a tick.
    pub(crate) fn committed(&mut self, id: i64, tick: Option<TickBody>) {
        if let Some(TickBody { bytes, tree: Some(tree), .. }) = tick {
            self.last = Some(WholeTick { id, tree, bytes: bytes.len(), rows: 0 });
        } else if let Some(whole) = &mut self.last {
            whole.rows = u32::try_from(id.saturating_sub(whole.id)).unwrap_or(u32::MAX);
        }
    }

    /// Notes that the rows below `id` are deleted. Returns whether the last tick is one of them:
    /// retention keeps the whole tick as long as any difference from it.
    pub(crate) fn deleted_below(&mut self, id: i64) -> bool {
        self.last.take_if(|whole| whole.id < id).is_some()
    }
}
