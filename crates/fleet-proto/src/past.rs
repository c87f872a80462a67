//! Which moves of a guest are over: what makes it rest.
//!
//! Idea: the leader that removes a move's record notes its end under the guest's own key, in the
//! same write. A guest rests after each, also after one that was abandoned: what failed is not
//! tried again at once.
//! Limits: a day's, and at most [`PAST_MOVES_MAX`]. Moments are those of the leaders' clocks: that
//! they differ makes a rest longer or shorter.

use std::time::Duration;

use ballast_fleet::LastMove;
use ballast_fleet_move::{MoveRecord, Phase};
use ballast_model::Timestamp;
use serde::{Deserialize, Serialize};

/// Most moves kept of one guest.
pub const PAST_MOVES_MAX: usize = 32;
/// For how long a move counts.
const COUNTS_FOR: Duration = Duration::from_secs(24 * 3600);

/// A guest's moves that are over, the latest last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastMoves {
    moves: Vec<PastMove>,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PastMove {
    #[serde(rename = "ended_ms")]
    ended_at: Timestamp,
    took_ms: u64,
    /// Whether the guest is elsewhere since.
    moved: bool,
}

impl PastMoves {
    /// These, and that of `record`, which ends `now`.
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

    /// Whether none of them counts any more.
    pub fn are_over(&self, now: Timestamp) -> bool {
        !self.moves.iter().any(|it| it.counts(now))
    }

    /// How often the guest came elsewhere in the last 24 hours; one that was only tried to be moved
    /// counts once.
    pub(crate) fn moves_in_24h(&self, now: Timestamp) -> u32 {
        let counted = self.moves.iter().filter(|it| it.counts(now));
        let moved = counted.clone().filter(|it| it.moved).count().max(counted.count().min(1));
        u32::try_from(moved).unwrap_or(u32::MAX)
    }

    /// The last that counts.
    pub(crate) fn last(&self, now: Timestamp) -> Option<LastMove> {
        let last = self.moves.iter().rev().find(|it| it.counts(now))?;
        // None is in the future: the clock of whoever noted it may be ahead.
        let at = last.ended_at.min(now);
        Some(LastMove { at, took: Duration::from_millis(last.took_ms) })
    }
}

impl PastMove {
    fn counts(&self, now: Timestamp) -> bool {
        self.ended_at + COUNTS_FOR > now
    }
}
