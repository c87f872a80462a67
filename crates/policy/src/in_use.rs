//! Falls back to memory in use plus a reserve for guests without the policy's own input.
//!
//! Idea: the policies that use this decide every second and act on every change. While a balloon
//! moves, memory in use reads too large for about a second, so a guest would get back what was just
//! taken, lose it again, and so on forever. Using the lesser of two consecutive readings avoids
//! that, at the price that growth is answered one decision later.
//! Cost: O(n); the last readings are kept in the order of the problem's guests.
//! Limits: knows only the guests of the last decision.

use ballast_model::{Bytes, GuestId, Input, Reason};

use crate::problem::{Contender, Division, Problem};
use crate::wants::{Want, grant};

/// Memory that guests without the policy's input used at the last decision.
#[derive(Clone, Debug, Default)]
pub(crate) struct InUseFallback {
    /// Sorted by name.
    before: Vec<(GuestId, Bytes)>,
}

impl InUseFallback {
    /// Gives every guest what `want` returns, or a part of it. If that is `None`, because `what` is
    /// unknown, the guest wants what it uses plus `reserve`.
    pub(crate) fn grant(
        &mut self,
        problem: &Problem,
        what: Input,
        reserve: Bytes,
        want: impl Fn(&Contender) -> Option<Want>,
    ) -> Division {
        let mut remembered = self.before.iter().peekable();
        let division = grant(problem, |contender| {
            want(contender).unwrap_or_else(|| {
                while remembered.next_if(|(id, _)| *id < contender.id).is_some() {}
                let before = remembered.next_if(|(id, _)| *id == contender.id);
                let before = before.map(|&(_, used)| used);
                let used = before.unwrap_or(contender.used).min(contender.used);
                let size = used.saturating_add(reserve);
                Want { size, reason: Reason::Missing { what, used, reserve } }
            })
        });
        let unknown = problem.contenders().iter().filter(|contender| want(contender).is_none());
        self.before = unknown.map(|contender| (contender.id.clone(), contender.used)).collect();
        division
    }
}
