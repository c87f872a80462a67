//! Errors of miss curves, and their goals.

use ballast_report::Report;
use ballast_report::figures::{self, or_none};
use serde::Serialize;

use super::super::native::program::Subject;
use crate::goal::Goal;
use crate::machine::Machine;
use crate::scaffold::{Findings, Text, name_of};
use crate::timing::mean;

/// Goal for the mean absolute error of normalised misses.
const ERROR_MAX: f64 = 0.03;

/// All figures of one run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CurveFindings {
    pub(super) machine: Machine,
    pub(super) is_quick: bool,
    /// Intervals compared.
    pub(super) intervals: u32,
    pub(super) figures: Vec<Figures>,
}

/// One program tracked in one way.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) program: Subject,
    /// The number of intervals for which both had a curve.
    pub(super) intervals: u32,
    /// The mean absolute error of normalised misses; `None` if nothing could be compared.
    pub(super) error: Option<f64>,
    /// The error of the worst interval.
    pub(super) error_most: f64,
    /// Touches in an interval: seen by the tracker, seen by a tracker of every page, and all.
    pub(super) seen: f64,
    pub(super) seen_of_all_pages: f64,
    pub(super) touches: f64,
    /// Share of pages watched at the end.
    pub(super) share: f64,
    /// Size of the hot set in bytes, from which on curves are compared; 0: there is none.
    pub(super) hot_bytes: u64,
    #[serde(skip)]
    sum: f64,
    #[serde(skip)]
    entered: u32,
}

impl Figures {
    pub(super) fn new(program: Subject) -> Figures {
        Figures {
            program,
            intervals: 0,
            error: None,
            error_most: 0.0,
            seen: 0.0,
            seen_of_all_pages: 0.0,
            touches: 0.0,
            share: 0.0,
            hot_bytes: 0,
            sum: 0.0,
            entered: 0,
        }
    }

    /// Adds an interval: how far its curves are apart, its touches (seen, seen by a tracker of
    /// every page, all), the share of pages watched, and the size from which on it was compared.
    pub(super) fn enter(
        &mut self,
        apart: Option<f64>,
        touches: (u64, u64, u64),
        (share, hot_bytes): (f64, u64),
    ) {
        self.entered += 1;
        let step = |mean: &mut f64, value: u64| {
            *mean += (value as f64 - *mean) / f64::from(self.entered);
        };
        step(&mut self.seen, touches.0);
        step(&mut self.seen_of_all_pages, touches.1);
        step(&mut self.touches, touches.2);
        (self.share, self.hot_bytes) = (share, hot_bytes);
        if let Some(apart) = apart {
            self.intervals += 1;
            self.sum += apart;
            self.error = Some(self.sum / f64::from(self.intervals));
            self.error_most = self.error_most.max(apart);
        }
    }
}

impl Findings for CurveFindings {
    fn is_quick(&self) -> bool {
        self.is_quick
    }

    fn goals(&self) -> Vec<Goal> {
        goals(&self.figures)
    }

    fn show(&self, text: &mut Text) {
        text.line(format_args!(
            "Miss curves of a sample against the exact trace behind the same hot set and revocations;\n\
             {}, {} intervals of a second\n",
            self.machine.processor.as_deref().unwrap_or("an unknown processor"),
            self.intervals
        ));
        let columns = Report::<Figures>::new()
            .text("PROGRAM", |it| name_of(it.program))
            .figure("HOT SET", |it| match it.hot_bytes {
                0 => "none".to_owned(),
                bytes => figures::size(bytes as f64),
            })
            .figure("WATCHED", |it| format!("{:.2} %", it.share * 100.0))
            .figure("TOUCHES", |it| format!("{:.0}", it.touches))
            .figure("SEEN OF ALL", |it| format!("{:.0}", it.seen_of_all_pages))
            .figure("SEEN", |it| format!("{:.0}", it.seen))
            .figure("ERROR", |it| or_none(it.error.map(|error| format!("{error:.4}"))))
            .figure("WORST", |it| or_none(it.error.map(|_| format!("{:.4}", it.error_most))));
        text.table(&columns, &self.figures);
        text.line(
            "\nERROR: mean over all sizes from the hot set on of how far the normalised misses are apart. TOUCHES:\n\
             of an interval. SEEN OF ALL: by a tracker of every page; SEEN: by this one.\n\
             What no tracker of intervals sees: touches of a page that is accessible, until it leaves the hot set or\n\
             the interval ends. Without a hot set that is every touch but the first of each page and interval, so\n\
             the curve is one of first touches, and says how often memory is needed in an interval, not how often\n\
             it is used in it.",
        );
    }
}

fn goals(figures: &[Figures]) -> Vec<Goal> {
    let of = |has_hot_set: bool, what: &str| {
        let errors: Vec<f64> = (figures.iter().filter(|it| (it.hot_bytes > 0) == has_hot_set))
            .filter_map(|it| it.error)
            .collect();
        let mean = mean(errors.iter().copied());
        let most = errors.iter().copied().fold(0.0, f64::max);
        let goal = |which: &str, found| {
            Goal::at_most(format!("error of the curve, {what}, {which}"), "", found, ERROR_MAX)
        };
        (!errors.is_empty())
            .then(|| [goal("mean of all programs", mean), goal("the worst program", most)])
    };
    let both = [of(false, "once an interval"), of(true, "with a hot set")];
    both.into_iter().flatten().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_of_the_intervals_that_could_be_compared() {
        let mut figures = Figures::new(Subject::Scan);
        figures.enter(Some(0.01), (10, 100, 1000), (0.5, 0));
        figures.enter(None, (20, 200, 2000), (0.25, 4096));
        figures.enter(Some(0.04), (30, 300, 3000), (0.25, 4096));
        assert!((figures.error.unwrap() - 0.025).abs() < 1e-9);
        assert_eq!((figures.error_most, figures.intervals), (0.04, 2));
        assert!((figures.seen - 20.0).abs() < 1e-9 && (figures.touches - 2000.0).abs() < 1e-9);
        let none = Figures::new(Subject::Zipf);
        let met: Vec<bool> = goals(&[figures, none]).iter().map(|goal| goal.is_met).collect();
        assert_eq!(met, [true, true]);
    }
}
