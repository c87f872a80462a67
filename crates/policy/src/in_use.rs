//! What a guest gets of which a policy's own input is not known: what it uses, and a reserve.
//!
//! Idea: the policies that fall back to this decide every second and act on every change. While a
//! balloon moves, memory in use reads too large for about a second, so that a guest would be given
//! back what was just taken, and taken again, for ever. The lesser of two readings in a row is free of
//! that; growth of use is answered one decision later.
//! Cost: O(n): what is remembered is in the order of the problem's guests.
//! Limits: remembers guests of the last decision only.

use ballast_model::{Bytes, GuestId, Input, Reason};

use crate::problem::{Contender, Division, Problem};
use crate::wants::{Want, grant};

/// What guests used at the last decision.
#[derive(Clone, Debug, Default)]
pub(crate) struct InUse {
    /// Sorted by name.
    before: Vec<(GuestId, Bytes)>,
}

impl InUse {
    /// Gives everybody what `want` says or, where that is nothing because `what` is not known, what it
    /// uses and `reserve`; or a part of it.
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
