//! The most guests with which a fleet meets its service objective.
//!
//! Idea: of guests' time, at most a part may have more misses than the guests' limit, and of no
//! guest's day more than another part. The largest fleet that is so is found by bisection
//! over whole steps, each a day played anew.
//! Limits: more guests are taken to be never better. Near the edge a day of another seed decides
//! otherwise: figures are for several seeds.

use crate::Figures;

/// Part of all guests' time that may be slow, in parts of a million.
pub const SLOW_PPM_MAX: u64 = 10_000;
/// Part of one guest's day that may be slow, in parts of a million.
pub const WORST_PPM_MAX: u64 = 50_000;

/// What the search found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Most guests; 0 if not even one step of them meets the objective.
    pub guests: usize,
    /// The day with as many.
    pub figures: Figures,
}

impl Figures {
    /// Whether the service objective was met.
    pub fn meets_objective(&self) -> bool {
        self.slow_ppm() <= SLOW_PPM_MAX && self.worst_ppm <= WORST_PPM_MAX
    }
}

/// The most guests, in whole steps up to `most`, whose day meets the objective. `day` is `None`
/// where so many cannot be placed at all.
pub fn most_guests(step: usize, most: usize, day: impl Fn(usize) -> Option<Figures>) -> Found {
    let (mut meets, mut fails) = (0, most / step + 1);
    let mut found = Found::default();
    while fails - meets > 1 {
        let middle = meets + (fails - meets) / 2;
        match day(middle * step).filter(Figures::meets_objective) {
            Some(figures) => {
                meets = middle;
                found = Found { guests: middle * step, figures };
            }
            None => fails = middle,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_finds_the_edge() {
        for edge in 0..50 {
            let day = |guests: usize| {
                let slow_seconds = if guests <= edge { 0 } else { 50 };
                (guests < 40).then_some(Figures {
                    slow_seconds,
                    guest_seconds: 100,
                    ..Figures::default()
                })
            };
            assert_eq!(most_guests(3, 45, day).guests, edge.min(39) / 3 * 3, "edge {edge}");
        }
    }
}
