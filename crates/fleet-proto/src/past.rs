//! The finished moves of a guest, after which it rests.
//!
//! Idea: when the leader removes a move's record, it notes the end of the move under the guest's
//! own key, in the same write. The guest rests after each move, even after an abandoned one, so
//! that what failed is not tried again at once.
//! Limits: only the moves of a day, and at most [`PAST_MOVES_MAX`] of them. Times are by the
//! leaders' clocks: if these differ, a rest is longer or shorter.

use std::time::Duration;

use ballast_fleet::LastMove;
use ballast_fleet_move::{MoveRecord, Phase};
use ballast_model::Timestamp;
use serde::{Deserialize, Serialize};

/// Most moves kept of one guest.
pub const PAST_MOVES_MAX: usize = 32;
/// For how long a move counts.
const PAST_MOVE_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// A guest's finished moves, the latest last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastMoves {
    moves: Vec<PastMove>,
}

/// One finished move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PastMove {
    #[serde(rename = "ended_ms")]
    ended_at: Timestamp,
    took_ms: u64,
    /// Whether the guest was moved; if not, the move was abandoned or the guest lost.
    moved: bool,
}

impl PastMoves {
    /// These moves and that of `record`, which ends `now`. Moves that no longer count are dropped.
    #[must_use]
    pub fn with(&self, record: &MoveRecord, now: Timestamp) -> PastMoves {
        let took = now.saturating_since(record.ordered_at);
        let mut moves = self.clone();
        moves.moves.retain(|it| it.counts(now));
        moves.moves.push(PastMove {
            ended_at: now,
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            moved: record.phase == Phase::Moved,
        });
        let surplus = moves.moves.len().saturating_sub(PAST_MOVES_MAX);
        moves.moves.drain(..surplus);
        moves
    }

    /// Whether no move of them counts any more.
    pub fn are_expired(&self, now: Timestamp) -> bool {
        !self.moves.iter().any(|it| it.counts(now))
    }

    /// How often the guest was moved in the last 24 hours; if there were only failed attempts, 1.
    pub(crate) fn moves_in_24h(&self, now: Timestamp) -> u32 {
        let counted = self.moves.iter().filter(|it| it.counts(now));
        let moved = counted.clone().filter(|it| it.moved).count().max(counted.count().min(1));
        u32::try_from(moved).unwrap_or(u32::MAX)
    }

    /// The last move that counts.
    pub(crate) fn last(&self, now: Timestamp) -> Option<LastMove> {
        let last = self.moves.iter().rev().find(|it| it.counts(now))?;
        // The clock of the leader that noted it may be ahead.
        let at = last.ended_at.min(now);
        Some(LastMove { at, took: Duration::from_millis(last.took_ms) })
    }
}

impl PastMove {
    fn counts(&self, now: Timestamp) -> bool {
        self.ended_at + PAST_MOVE_AGE_MAX > now
    }
}
