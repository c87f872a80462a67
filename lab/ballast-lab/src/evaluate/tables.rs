//! The columns of an evaluation, for terminal, text and page.

use ballast_report::Report;
use ballast_report::figures::{NONE, or_none};

use super::findings::{FigureFindings, RowFindings};

/// One line for each row, which is named by `name`.
pub(crate) fn rows(name: fn(&RowFindings) -> String) -> Report<'static, RowFindings> {
    Report::<RowFindings>::new()
        .text("row", name)
        .text("place", |it| it.place.clone())
        .text("what", |it| it.what.clone())
        .text("seen", |it| or_none(it.seen.as_deref()))
        .figure("figures", RowFindings::tally)
        .text("verdict", |it| it.verdict.shown().to_owned())
        .text("why not", |it| or_none(it.verdict.because()))
}

/// One line for each figure.
pub(crate) fn figures() -> Report<'static, FigureFindings> {
    Report::<FigureFindings>::new()
        .text("what", |it| it.what.clone())
        .text("scenario", |it| it.subject.clone())
        .text("guest", |it| it.guest.clone().unwrap_or_else(|| NONE.to_owned()))
        .text("under", |it| it.policy.clone())
        .figure("paper", FigureFindings::paper_shown)
        .figure("ours", FigureFindings::ours_shown)
        .text("band", |it| it.band.shown())
        .text("verdict", FigureFindings::verdict_shown)
}

/// The meaning of columns and words, for the reader.
pub(crate) const MEANINGS: [(&str, &str); 6] = [
    (
        "ours",
        "the median over repetitions, and the least and the most of them. Repetitions of a simulation \
         differ in their seeds, those on real guests in everything.",
    ),
    (
        "band",
        "the range in which a figure of ours counts as reproduced, argued before it was measured; and what \
         it must show to agree in kind",
    ),
    (
        "reproduced, met",
        "every repetition is within the band; *met* if the figure is a goal of ours",
    ),
    ("in kind", "every repetition shows what the band asks for in kind"),
    (
        "not",
        "ours is outside the band, a parameter was fitted to this place of the paper, or there is nothing to \
         compare. A row's verdict is that of its weakest figure.",
    ),
    ("figures", "reproduced or met + in kind, of all figures of the row"),
];
