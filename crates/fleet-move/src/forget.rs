//! Which records an operator may remove because the source never comes back.
//!
//! Idea: once a move is over, its record only tells the source what to do with what is left there,
//! and only the source closes it. If that machine is gone for ever, nothing is lost with the
//! record: the destination does without it what it would do with it. In an earlier phase a
//! destination without the record would end a guest that has arrived whole (`clean_up`).
//! Limits: only an operator knows that a machine is gone. A source that comes back without the
//! record neither resumes nor ends a copy that stands still there.

use crate::{MoveRecord, Phase};

impl MoveRecord {
    /// Why this record must stay even if the source is gone for ever: a sentence with the phase and
    /// what to do. `None` if nothing is lost with it.
    pub fn why_kept(&self) -> Option<String> {
        let MoveRecord { guest, from, to, .. } = self;
        let what = match &self.phase {
            Phase::Moved | Phase::Abandoned { .. } | Phase::Lost => return None,
            Phase::Ordered | Phase::Ready { .. } | Phase::Copying { ends_source: false, .. } => {
                "the leader gives it up once it is late, and after `ballast fleet pause` at once"
                    .to_owned()
            }
            Phase::Copying { ends_source: true, .. } => format!(
                "{to} may have the only copy of the guest, and only {from} can tell: bring {from} \
                 back"
            ),
            Phase::Copied { .. } => format!(
                "{from} or {to} has the only copy of the guest, and lets it run: bring back the \
                 one that is down"
            ),
            Phase::Starting { .. } => format!(
                "{to} has the only copy of the guest: bring {to} back, or see its log for why the \
                 guest does not start"
            ),
        };
        Some(format!("the move of {guest} is in phase `{}`: {what}", self.phase.code()))
    }
}
