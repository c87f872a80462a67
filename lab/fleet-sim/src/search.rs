//! The greatest number of guests with which a fleet meets its service objective.
//!
//! Idea: at most a given part of all guests' time may be slow (more misses than the guests'
//! objective), and at most another part of any single guest's day. The largest such fleet is found
//! by bisection in whole steps; each try plays a day anew.
//! Limits: more guests are assumed to be never better. Near the limit the result depends on the
//! seed, so published figures use several seeds.

use crate::Figures;

/// The part of all guests' time that may be slow, in parts of a million.
pub const SLOW_PPM_MAX: u64 = 10_000;
/// The part of a single guest's day that may be slow, in parts of a million.
pub const WORST_PPM_MAX: u64 = 50_000;

/// The result of the search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchResult {
    /// The greatest number of guests; 0 if not even one step of them meets the objective.
    pub guests: usize,
    /// The figures of the day with that many guests.
    pub figures: Figures,
}

impl Figures {
    /// Whether the service objective was met.
    pub fn meets_objective(&self) -> bool {
        self.slow_ppm() <= SLOW_PPM_MAX && self.worst_ppm <= WORST_PPM_MAX
    }
}

/// The greatest number of guests, in whole steps up to `most`, whose day meets the objective. `day`
/// is `None` if that many guests cannot be placed.
pub fn most_guests(
    step: usize,
    most: usize,
    day: impl Fn(usize) -> Option<Figures>,
) -> SearchResult {
    let (mut meets, mut fails) = (0, most / step + 1);
    let mut found = SearchResult::default();
    while fails - meets > 1 {
        let middle = meets + (fails - meets) / 2;
        match day(middle * step).filter(Figures::meets_objective) {
            Some(figures) => {
                meets = middle;
                found = SearchResult { guests: middle * step, figures };
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
