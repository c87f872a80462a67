//! The columns of an evaluation, for terminal, text and page.

use ballast_report::Report;
use ballast_report::figures::{NONE, or_none};

use super::findings::{FigureFindings, RowFindings};

/// One line for each row.
pub(crate) fn rows() -> Report<'static, RowFindings> {
    Report::<RowFindings>::new()
        .text("row", |it| it.id.clone())
        .text("place", |it| it.place.clone())
        .text("what", |it| it.what.clone())
        .text("seen", |it| or_none(it.seen.as_deref()))
        .figure("figures", RowFindings::tally)
        .text("verdict", |it| it.verdict.shown())
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
        .text("verdict", |it| it.verdict.shown())
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
        "what a figure of ours has to be within to count as reproduced, argued before it was measured; and \
         what it has to show to agree in kind",
    ),
    (
        "reproduced, met",
        "every repetition is within the band; a goal of ours that no paper has is met",
    ),
    ("in kind", "every repetition shows what is asked for in kind"),
    (
        "not, because",
        "neither; or a parameter of the model was fitted to this very place of the paper, so that agreement \
         proves nothing; or nothing of ours is there to compare. A row is as good as its weakest figure.",
    ),
    ("figures", "how many are reproduced or met + how many agree in kind, of how many there are"),
];
