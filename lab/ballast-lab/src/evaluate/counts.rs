//! The number of rows with each verdict, and why the others have none.

use serde::Serialize;

use super::verdict::{Cause, Verdict};

/// The number of rows with each verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    pub(crate) rows: usize,
    pub(crate) reproduced: usize,
    pub(crate) met: usize,
    pub(crate) in_kind: usize,
    pub(crate) outside: usize,
    pub(crate) fitted: usize,
    pub(crate) no_figure: usize,
    pub(crate) no_counterpart: usize,
    pub(crate) cannot_run: usize,
    pub(crate) not_run: usize,
}

impl Counts {
    /// Counts a row with this `verdict`.
    pub(crate) fn add(&mut self, verdict: &Verdict) {
        self.rows += 1;
        let place = match verdict {
            Verdict::Reproduced => &mut self.reproduced,
            Verdict::Met => &mut self.met,
            Verdict::InKind => &mut self.in_kind,
            Verdict::NotReproduced(Cause::Outside(_)) => &mut self.outside,
            Verdict::NotReproduced(Cause::Fitted(_)) => &mut self.fitted,
            Verdict::NotReproduced(Cause::NoFigure(_)) => &mut self.no_figure,
            Verdict::NotReproduced(Cause::NoCounterpart(_)) => &mut self.no_counterpart,
            Verdict::NotReproduced(Cause::CannotRun(_)) => &mut self.cannot_run,
            Verdict::NotReproduced(Cause::NotRun(_)) => &mut self.not_run,
        };
        *place += 1;
    }

    /// In words.
    pub(crate) fn shown(&self) -> String {
        let not = [
            (self.outside, "outside the band"),
            (self.fitted, "fitted"),
            (self.no_figure, "without such a figure of ours"),
            (self.no_counterpart, "without a counterpart"),
            (self.cannot_run, "cannot run here"),
            (self.not_run, "not run"),
        ];
        let Counts { rows, reproduced, in_kind, met, .. } = self;
        let mut shown = format!(
            "{rows} rows: {reproduced} reproduced, {in_kind} in kind, {met} met (goals of ours)"
        );
        for (count, why) in not {
            if count > 0 {
                shown.push_str(&format!(", {count} {why}"));
            }
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_counted_once() {
        let mut counts = Counts::default();
        let text = || "t".to_owned();
        for verdict in [
            Verdict::Reproduced,
            Verdict::Met,
            Verdict::InKind,
            Verdict::NotReproduced(Cause::Outside(text())),
            Verdict::NotReproduced(Cause::Fitted(text())),
            Verdict::NotReproduced(Cause::NoFigure(text())),
            Verdict::NotReproduced(Cause::NoCounterpart(text())),
            Verdict::NotReproduced(Cause::CannotRun(text())),
            Verdict::NotReproduced(Cause::NotRun(text())),
            Verdict::NotReproduced(Cause::NotRun(text())),
        ] {
            counts.add(&verdict);
        }
        let Counts { rows, not_run, met, .. } = counts;
        assert_eq!((rows, not_run, met), (10, 2, 1));
        let shown = counts.shown();
        assert!(
            shown.starts_with(
                "10 rows: 1 reproduced, 1 in kind, 1 met (goals of ours), 1 outside the band"
            ),
            "{shown}"
        );
        assert!(shown.ends_with(", 2 not run"), "{shown}");
    }
}
