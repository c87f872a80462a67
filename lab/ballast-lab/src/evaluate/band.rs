//! How close our figure has to be to a paper's.
//!
//! Idea: for each measure the catalogue argues beforehand within which bound a figure counts as
//! reproduced, and which weaker bound it must meet to agree at least in kind. Both bounds are on
//! the same figure; verdicts follow from them and are never entered by hand.

use serde::{Deserialize, Serialize};

use super::measure::Measure;

/// Ratios this close to 1 count as neither gain nor loss.
const EVEN_WITHIN: f64 = 0.05;

/// A bound on a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    /// At most this many times the paper's figure, and at least the paper's figure divided by it;
    /// above 1.
    Times(f64),
    /// At most this far from the paper's figure, in the figure's unit; above 0.
    Apart(f64),
    /// At least this, whatever the paper's figure.
    AtLeast(f64),
    /// At most this, whatever the paper's figure.
    AtMost(f64),
    /// A ratio on the same side of 1 as the paper's, or both within 5 % of 1.
    Direction,
}

impl Bound {
    /// Whether `ours` is within the bound; `paper` is the paper's figure.
    ///
    /// A bound that refers to the paper's figure never holds if there is none.
    pub(crate) fn holds(self, paper: Option<f64>, ours: f64) -> bool {
        match (self, paper) {
            (Bound::AtLeast(least), _) => ours >= least,
            (Bound::AtMost(most), _) => ours <= most,
            (Bound::Times(times), Some(paper)) => ours <= paper * times && ours * times >= paper,
            (Bound::Apart(apart), Some(paper)) => (ours - paper).abs() <= apart,
            (Bound::Direction, Some(paper)) => side(paper) == side(ours),
            (_, None) => false,
        }
    }

    /// Whether the bound's own number makes sense.
    pub(crate) fn is_sound(self) -> bool {
        match self {
            Bound::Times(times) => times.is_finite() && times > 1.0,
            Bound::Apart(apart) => apart.is_finite() && apart > 0.0,
            Bound::AtLeast(bound) | Bound::AtMost(bound) => bound.is_finite() && bound >= 0.0,
            Bound::Direction => true,
        }
    }

    /// Whether the bound refers to a paper's figure.
    pub(crate) const fn needs_paper(self) -> bool {
        matches!(self, Bound::Times(_) | Bound::Apart(_) | Bound::Direction)
    }

    /// The bound in words, for a figure of `measure`.
    pub(crate) fn shown(self, measure: Measure) -> String {
        match self {
            Bound::Times(times) => format!("within {times} times"),
            Bound::Apart(apart) if measure.is_share() => {
                format!("within {:.1} points", apart * 100.0)
            }
            Bound::Apart(apart) => format!("at most {} apart", measure.shown(apart)),
            Bound::AtLeast(least) => format!("≥ {}", measure.shown(least)),
            Bound::AtMost(most) => format!("≤ {}", measure.shown(most)),
            Bound::Direction => "the same direction".to_owned(),
        }
    }
}

/// −1: a loss, 0: neither, 1: a gain.
fn side(ratio: f64) -> i8 {
    match ratio {
        _ if ratio > 1.0 + EVEN_WITHIN => 1,
        _ if ratio < 1.0 - EVEN_WITHIN => -1,
        _ => 0,
    }
}

/// The band for the figures of one measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Band {
    /// The measure that it applies to.
    pub(crate) metric: Measure,
    /// The guests that it applies to; empty: all guests, and all guests together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) guests: Vec<String>,
    /// A figure within this bound is reproduced. `None`: no figure is, as where a paper has no
    /// numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) within: Option<Bound>,
    /// Why the bounds are neither narrower nor wider.
    pub(crate) because: String,
    /// A figure within this bound agrees in kind. `None`: no figure does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<Bound>,
}

impl Band {
    /// Whether the band applies to figures of `measure` of `guest`.
    pub(crate) fn is_about(&self, measure: Measure, guest: Option<&str>) -> bool {
        let is_of = |guest: &str| self.guests.iter().any(|it| it == guest);
        self.metric == measure && (self.guests.is_empty() || guest.is_some_and(is_of))
    }

    /// Both bounds in words.
    pub(crate) fn shown(&self) -> String {
        let kind = self.kind.map(|kind| format!("in kind: {}", kind.shown(self.metric)));
        let within = self.within.map(|within| within.shown(self.metric));
        within.into_iter().chain(kind).collect::<Vec<_>>().join("; ")
    }

    /// The weakest requirement where the paper has no number, in words.
    pub(crate) fn asked(&self) -> String {
        let bound = self.within.or(self.kind);
        bound.map_or_else(String::new, |bound| bound.shown(self.metric))
    }

    /// Whether there is a bound, all bounds make sense, and there is a reason.
    pub(crate) fn is_sound(&self) -> bool {
        let mut bounds = self.within.into_iter().chain(self.kind).peekable();
        !self.because.is_empty() && bounds.peek().is_some() && bounds.all(Bound::is_sound)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_bound_holds_up_to_its_edge() {
        for (bound, paper, ours, expected) in [
            (Bound::Times(1.25), Some(4.0), 5.0, true),
            (Bound::Times(1.25), Some(4.0), 5.01, false),
            (Bound::Times(1.25), Some(4.0), 3.2, true),
            (Bound::Times(1.25), Some(4.0), 3.19, false),
            (Bound::Apart(0.05), Some(0.90), 0.86, true),
            (Bound::Apart(0.05), Some(0.90), 0.84, false),
            (Bound::AtLeast(5.0), Some(9.3), 5.0, true),
            (Bound::AtLeast(5.0), None, 4.9, false),
            (Bound::AtMost(0.0), None, 0.0, true),
            (Bound::AtMost(0.0), None, 1.0, false),
            (Bound::Direction, Some(9.3), 1.06, true),
            (Bound::Direction, Some(9.3), 1.04, false),
            (Bound::Direction, Some(0.5), 0.94, true),
            (Bound::Direction, Some(0.98), 1.03, true),
            (Bound::Times(2.0), None, 1.0, false),
        ] {
            assert_eq!(bound.holds(paper, ours), expected, "{bound:?} {paper:?} {ours}");
        }
    }

    #[test]
    fn bounds_are_shown_in_the_unit_of_their_measure() {
        let shares = Bound::Apart(0.05).shown(Measure::WorkRatio);
        assert_eq!(shares, "within 5.0 points");
        let times = Bound::Apart(0.05).shown(Measure::TouchesAgainst);
        assert_eq!(times, "at most 0.05× apart");
        assert_eq!(Bound::AtLeast(5.0).shown(Measure::SpeedupVsStatic), "≥ 5.00×");
    }

    #[test]
    fn bounds_that_mean_nothing_are_unsound() {
        for bound in [
            Bound::Times(1.0),
            Bound::Times(f64::NAN),
            Bound::Apart(0.0),
            Bound::AtLeast(f64::INFINITY),
            Bound::AtMost(-1.0),
        ] {
            assert!(!bound.is_sound(), "{bound:?}");
        }
        assert!(Bound::Times(1.1).is_sound() && Bound::Direction.is_sound());
    }

    proptest! {
        #[test]
        fn a_wider_band_holds_whatever_a_narrower_does(
            paper in 0.001..1e6f64, ours in 0.0..1e6f64, narrow in 1.01..10f64, more in 0.0..10f64,
        ) {
            let holds = |bound: Bound| bound.holds(Some(paper), ours);
            prop_assert!(!holds(Bound::Times(narrow)) || holds(Bound::Times(narrow + more)));
            prop_assert!(!holds(Bound::Apart(narrow)) || holds(Bound::Apart(narrow + more)));
        }

        #[test]
        fn the_papers_own_figure_is_within_every_band(paper in 0.001..1e6f64, width in 1.01..10f64) {
            for bound in [Bound::Times(width), Bound::Apart(width), Bound::Direction] {
                prop_assert!(bound.holds(Some(paper), paper));
            }
        }

        #[test]
        fn times_treats_both_directions_alike(a in 0.001..1e6f64, b in 0.001..1e6f64, t in 1.01..10f64) {
            prop_assert_eq!(Bound::Times(t).holds(Some(a), b), Bound::Times(t).holds(Some(b), a));
        }
    }
}
