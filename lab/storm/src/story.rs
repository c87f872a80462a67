//! A seed's failure with as few faults as it needs.
//!
//! Idea (delta debugging): a run is made again without some of its strikes; as long as a promise of
//! the same kind is broken, they stay out. First whole kinds of fault go, then ever smaller groups
//! of strikes, last single ones. What remains is what an engineer has to understand.
//!
//! Cost: at most [`TRIES_MAX`] runs. Limits: the least set of strikes is not looked for, only one
//! from which nothing more can be left out one by one.

use std::mem::discriminant;

use crate::drawn::Drawn;
use crate::fault::Fault;
use crate::sabotage::Sabotage;
use crate::seed::{Judged, judge};
use crate::strike::Strike;
use crate::violation::Violation;

/// Most runs to shrink one seed.
const TRIES_MAX: usize = 500;

/// What is left of a seed that breaks a promise.
#[derive(Clone, Debug)]
pub struct Story {
    /// Host and guests, a line each.
    pub scene: Vec<String>,
    /// The strikes that suffice, in order.
    pub strikes: Vec<Strike>,
    /// At which tick which promise is broken then.
    pub violation: (u64, Violation),
    /// What was so and what was decided in each tick until then, some lines each.
    pub trace: Vec<String>,
    /// The same of the run without lies, if that broke the promise or is compared.
    pub honest_trace: Vec<String>,
}

/// The story of a seed; `None`: it breaks no promise.
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

    /// Keeps to `strikes` if they suffice; whether they do.
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
