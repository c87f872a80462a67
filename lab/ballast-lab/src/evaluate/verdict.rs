//! The verdict on our figures, compared with a paper's.
//!
//! Idea: a verdict follows from the band that was argued beforehand, from the figures of all
//! repetitions, and from whether a parameter of the model was fitted to these very figures. Every
//! repetition has to be within the band, so more repetitions can only make a verdict weaker. A
//! row's verdict is that of its weakest figure.
//! Limits: repetitions of a simulation differ only in their seeds; their spread says nothing about
//! the model.

use ballast_scenario_run::compare::Spread;
use serde::Serialize;

use super::band::Band;

/// A verdict, from the strongest to the weakest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// Within the band in every repetition.
    Reproduced,
    /// The same for a goal of ours, for which no paper has a figure.
    Met,
    /// Not reproduced, but within the weaker bound of the band in every repetition.
    InKind,
    /// None of these.
    #[serde(rename = "not")]
    NotReproduced(Cause),
}

/// Why a figure is not reproduced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "cause", content = "because", rename_all = "kebab-case")]
pub(crate) enum Cause {
    /// Outside the band; the text says how.
    Outside(String),
    /// It agrees, but parameters of the model were fitted to the figures that it is compared with.
    Fitted(String),
    /// It ran but has no such figure; the text says why.
    NoFigure(String),
    /// We have nothing to compare; the text says why.
    NoCounterpart(String),
    /// It could not run here; the text says why.
    CannotRun(String),
    /// It was not requested; the text says how to request it.
    NotRun(String),
}

impl Verdict {
    /// Its rank: the higher, the weaker.
    const fn weakness(&self) -> u8 {
        match self {
            Verdict::Reproduced | Verdict::Met => 0,
            Verdict::InKind => 1,
            Verdict::NotReproduced(Cause::Fitted(_)) => 2,
            Verdict::NotReproduced(Cause::Outside(_)) => 3,
            Verdict::NotReproduced(Cause::NoFigure(_)) => 4,
            Verdict::NotReproduced(Cause::CannotRun(_)) => 5,
            Verdict::NotReproduced(Cause::NotRun(_)) => 6,
            Verdict::NotReproduced(Cause::NoCounterpart(_)) => 7,
        }
    }

    /// In a word or two.
    pub(crate) const fn shown(&self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::Met => "met",
            Verdict::InKind => "in kind",
            Verdict::NotReproduced(_) => "not",
        }
    }

    /// Why not, in words; `None`: it is better than that.
    pub(crate) fn because(&self) -> Option<&str> {
        match self {
            Verdict::NotReproduced(cause) => Some(cause.because()),
            Verdict::Reproduced | Verdict::Met | Verdict::InKind => None,
        }
    }
}

impl Cause {
    /// The reason in words, to follow "because".
    pub(crate) fn because(&self) -> &str {
        match self {
            Cause::Outside(text)
            | Cause::Fitted(text)
            | Cause::NoFigure(text)
            | Cause::NoCounterpart(text)
            | Cause::CannotRun(text)
            | Cause::NotRun(text) => text,
        }
    }
}

/// The verdict on `ours` against the paper's figure, over `repetitions`. `fitted`: the parameters
/// that were fitted to that place of the paper, in words.
pub(crate) fn judge(
    paper: Option<f64>,
    band: &Band,
    ours: Option<Spread>,
    repetitions: usize,
    fitted: Option<&str>,
) -> Verdict {
    let Some(ours) = ours else {
        let text = "no repetition has this figure".to_owned();
        return Verdict::NotReproduced(Cause::NoFigure(text));
    };
    if ours.count < repetitions {
        let missing = repetitions - ours.count;
        let text = format!("{missing} of {repetitions} repetitions have no such figure");
        return Verdict::NotReproduced(Cause::NoFigure(text));
    }
    let all = |holds: &dyn Fn(f64) -> bool| holds(ours.min) && holds(ours.max);
    let within = all(&|value| band.within.is_some_and(|within| within.holds(paper, value)));
    let in_kind = all(&|value| {
        let bounds = [band.within, band.kind];
        bounds.into_iter().flatten().any(|bound| bound.holds(paper, value))
    });
    match (within, in_kind, fitted) {
        (_, true, Some(parameters)) => {
            let text = format!("{parameters} fitted to it, so agreement proves nothing");
            Verdict::NotReproduced(Cause::Fitted(text))
        }
        (true, _, None) if paper.is_none() => Verdict::Met,
        (true, _, None) => Verdict::Reproduced,
        (false, true, None) => Verdict::InKind,
        (_, false, _) => {
            let shown = |value| band.metric.shown(value);
            let ours = spread_shown(ours, &shown);
            let text = match paper {
                Some(paper) => format!("ours {ours}, the paper {}", shown(paper)),
                None => format!("ours {ours}, asked for {}", band.asked()),
            };
            Verdict::NotReproduced(Cause::Outside(text))
        }
    }
}

/// The median, and the range if there are several repetitions that differ.
pub(crate) fn spread_shown(spread: Spread, shown: &dyn Fn(f64) -> String) -> String {
    let (median, min, max) = (shown(spread.median), shown(spread.min), shown(spread.max));
    match spread.count {
        0 | 1 => median,
        count if min == max => format!("{median} ({count} equal runs)"),
        count => format!("{median} ({min} to {max} in {count})"),
    }
}

/// The verdict on a row: that of its weakest figure, with the figure's name. Of equally weak
/// figures the first counts.
pub(crate) fn of_row<'a>(figures: impl Iterator<Item = (String, &'a Verdict)>) -> Verdict {
    let all: Vec<(String, &Verdict)> = figures.collect();
    let weakest = all.iter().map(|(_, verdict)| verdict.weakness()).max();
    let alike = || all.iter().filter(|(_, verdict)| Some(verdict.weakness()) == weakest);
    let Some((name, first)) = alike().next() else {
        return Verdict::NotReproduced(Cause::NoFigure("the row has no figure".to_owned()));
    };
    let of_figures =
        |text: &str| format!("{} of {} figures: {name}: {text}", alike().count(), all.len());
    match first {
        Verdict::NotReproduced(Cause::Outside(text)) => {
            Verdict::NotReproduced(Cause::Outside(of_figures(text)))
        }
        Verdict::NotReproduced(Cause::NoFigure(text)) => {
            Verdict::NotReproduced(Cause::NoFigure(of_figures(text)))
        }
        Verdict::NotReproduced(Cause::Fitted(text)) => {
            Verdict::NotReproduced(Cause::Fitted(of_figures(text)))
        }
        same => (*same).clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::band::Bound;
    use super::super::measure::Measure;
    use super::*;

    fn band(within: Bound, kind: Option<Bound>) -> Band {
        Band {
            metric: Measure::SpeedupVsStatic,
            guests: Vec::new(),
            within: Some(within),
            because: "argued".to_owned(),
            kind,
        }
    }

    fn spread(values: &[f64]) -> Option<Spread> {
        Spread::of(values.iter().copied())
    }

    fn narrow() -> Band {
        band(Bound::Times(1.25), Some(Bound::AtLeast(5.0)))
    }

    #[test]
    fn every_repetition_has_to_be_within_the_band() {
        let judged =
            |values: &[f64]| judge(Some(9.3), &narrow(), spread(values), values.len(), None);
        assert_eq!(judged(&[9.0, 10.0, 8.0]), Verdict::Reproduced);
        assert_eq!(judged(&[9.0, 10.0, 6.0]), Verdict::InKind);
        let Verdict::NotReproduced(Cause::Outside(text)) = judged(&[9.0, 10.0, 1.9]) else {
            panic!()
        };
        assert_eq!(text, "ours 9.00× (1.90× to 10.0× in 3), the paper 9.30×");
    }

    #[test]
    fn one_repetition_without_the_figure_is_none() {
        let verdict = judge(Some(9.3), &narrow(), spread(&[9.0, 9.1]), 3, None);
        let Verdict::NotReproduced(Cause::NoFigure(text)) = verdict else { panic!() };
        assert_eq!(text, "1 of 3 repetitions have no such figure");
        assert!(matches!(
            judge(Some(9.3), &narrow(), None, 3, None),
            Verdict::NotReproduced(Cause::NoFigure(_))
        ));
    }

    #[test]
    fn a_fitted_figure_never_agrees() {
        let judged = |value| judge(Some(9.3), &narrow(), spread(&[value]), 1, Some("`touch` is"));
        for value in [9.3, 6.0] {
            assert!(matches!(judged(value), Verdict::NotReproduced(Cause::Fitted(_))), "{value}");
        }
        assert!(matches!(judged(1.0), Verdict::NotReproduced(Cause::Outside(_))));
    }

    #[test]
    fn a_goal_is_judged_without_a_papers_figure() {
        let goal = band(Bound::AtLeast(2.0), None);
        assert_eq!(judge(None, &goal, spread(&[2.0]), 1, None), Verdict::Met);
        let Verdict::NotReproduced(cause) = judge(None, &goal, spread(&[1.5]), 1, None) else {
            panic!()
        };
        assert_eq!(cause.because(), "ours 1.50×, asked for ≥ 2.00×");
    }

    #[test]
    fn a_row_is_as_good_as_its_weakest_figure() {
        let outside = Verdict::NotReproduced(Cause::Outside("ours 1×, the paper 9×".to_owned()));
        let row = |verdicts: &[&Verdict]| of_row(verdicts.iter().map(|it| ("f".to_owned(), *it)));
        let (good, kind) = (&Verdict::Reproduced, &Verdict::InKind);
        assert_eq!(row(&[good, good]), Verdict::Reproduced);
        assert_eq!(row(&[good, kind]), Verdict::InKind);
        let Verdict::NotReproduced(cause) = row(&[good, &outside, kind, &outside]) else {
            panic!()
        };
        assert_eq!(cause.because(), "2 of 4 figures: f: ours 1×, the paper 9×");
        assert!(matches!(row(&[]), Verdict::NotReproduced(Cause::NoFigure(_))));
    }

    fn any_verdict() -> impl Strategy<Value = Verdict> {
        prop_oneof![
            Just(Verdict::Reproduced),
            Just(Verdict::InKind),
            Just(Verdict::NotReproduced(Cause::Fitted("f".to_owned()))),
            Just(Verdict::NotReproduced(Cause::Outside("o".to_owned()))),
            Just(Verdict::NotReproduced(Cause::NoFigure("n".to_owned()))),
            Just(Verdict::NotReproduced(Cause::CannotRun("c".to_owned()))),
        ]
    }

    proptest! {
        #[test]
        fn more_repetitions_never_make_a_verdict_stronger(
            values in prop::collection::vec(0.1..20f64, 1..8), more in 0.1..20f64,
        ) {
            let judged = |values: &[f64]| {
                judge(Some(9.3), &narrow(), spread(values), values.len(), None).weakness()
            };
            let mut longer = values.clone();
            longer.push(more);
            prop_assert!(judged(&longer) >= judged(&values));
        }

        #[test]
        fn another_figure_never_makes_a_row_stronger(
            verdicts in prop::collection::vec(any_verdict(), 1..8), more in any_verdict(),
        ) {
            let row = |verdicts: &[Verdict]| {
                of_row(verdicts.iter().map(|it| ("f".to_owned(), it))).weakness()
            };
            let before = row(&verdicts);
            let longer: Vec<Verdict> = verdicts.into_iter().chain([more]).collect();
            prop_assert!(row(&longer) >= before);
        }

        #[test]
        fn a_figure_that_was_fitted_to_never_agrees(
            paper in 0.1..20f64, ours in 0.1..20f64,
        ) {
            let verdict = judge(Some(paper), &narrow(), spread(&[ours]), 1, Some("it is"));
            prop_assert!(matches!(verdict, Verdict::NotReproduced(_)));
        }
    }
}
