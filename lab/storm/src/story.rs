//! A seed's failure, reduced to as few faults as it needs.
//!
//! Idea (delta debugging): the run is repeated without some of its strikes. As long as a promise of
//! the same kind is broken, those strikes stay out. First whole kinds of fault are removed, then
//! smaller and smaller groups of strikes, last single ones. What remains is what an engineer has to
//! understand.
//!
//! Cost: at most [`TRIES_MAX`] runs. Limits: the result is not the smallest set of strikes, only
//! one from which no single strike can be removed.

use std::mem::discriminant;

use crate::drawn::Drawn;
use crate::fault::Fault;
use crate::sabotage::Sabotage;
use crate::seed::{Judged, judge};
use crate::strike::Strike;
use crate::violation::Violation;

/// The greatest number of runs to reduce one seed.
const TRIES_MAX: usize = 500;

/// A reduced failure.
#[derive(Clone, Debug)]
pub struct Story {
    /// Host and guests, one line each.
    pub scene: Vec<String>,
    /// The strikes that suffice, in their order.
    pub strikes: Vec<Strike>,
    /// The promise that they break, and in which tick.
    pub violation: (u64, Violation),
    /// The true state and the decisions in each tick until then, some lines each.
    pub trace: Vec<String>,
    /// The same for the run without lies, if that run broke the promise or is compared.
    pub honest_trace: Vec<String>,
}

/// The reduced failure of a seed; `None`: it breaks no promise.
pub fn story_of(seed: u64, sabotage: Option<Sabotage>) -> Option<Story> {
    let can_show = |drawn: &Drawn| sabotage.is_none_or(|it| it.can_show_in(drawn));
    let all = Drawn::all_of(seed).into_iter().filter(can_show);
    let mut broken = all.filter_map(|drawn| {
        let Judged { struck, violation, .. } = judge(&drawn, &drawn.strikes, sabotage, false);
        Some((drawn, struck, violation?))
    });
    let (drawn, strikes, violation) = broken.next()?;
    let mut shrinking = Shrinking { drawn: &drawn, sabotage, violation, strikes, tries: 0 };
    shrinking.without_kinds();
    shrinking.without_groups();
    let Shrinking { violation, strikes, .. } = shrinking;
    let Judged { trace, honest_trace, .. } = judge(&drawn, &strikes, sabotage, true);
    Some(Story { scene: drawn.scene(), strikes, violation, trace, honest_trace })
}

struct Shrinking<'a> {
    drawn: &'a Drawn,
    sabotage: Option<Sabotage>,
    violation: (u64, Violation),
    strikes: Vec<Strike>,
    tries: usize,
}

impl Shrinking<'_> {
    fn without_kinds(&mut self) {
        for &fault in Fault::ALL {
            let rest = self.strikes.iter().filter(|strike| strike.fault != fault);
            let rest: Vec<Strike> = rest.cloned().collect();
            if rest.len() < self.strikes.len() {
                self.try_with(rest);
            }
        }
    }

    fn without_groups(&mut self) {
        let mut size = self.strikes.len().div_ceil(2);
        while size > 0 {
            let mut at = 0;
            while at < self.strikes.len() {
                let mut rest = self.strikes.clone();
                rest.drain(at..(at + size).min(rest.len()));
                if !self.try_with(rest) {
                    at += size;
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
    }

    /// Tries only `strikes`; keeps them if they suffice. Returns whether they do.
    fn try_with(&mut self, strikes: Vec<Strike>) -> bool {
        self.tries += 1;
        if self.tries > TRIES_MAX {
            return false;
        }
        let judged = judge(self.drawn, &strikes, self.sabotage, false);
        let is_same =
            |found: &(u64, Violation)| discriminant(&found.1) == discriminant(&self.violation.1);
        let Some(violation) = judged.violation.filter(is_same) else { return false };
        (self.violation, self.strikes) = (violation, strikes);
        true
    }
}
