//! Figures, spans and tables for people.

use ballast_api::{BudgetView, Coded, Source, TickView};
use ballast_model::Bytes;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

/// What stands for a figure that is not known.
pub(super) const UNKNOWN: &str = "?";

/// A size in the largest fitting unit.
pub(crate) fn size(bytes: u64) -> String {
    Bytes::new(bytes).to_string()
}

/// A size that may not be known.
pub(super) fn size_or_unknown(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| UNKNOWN.to_owned(), size)
}

/// A span in its two largest units.
pub(crate) fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{}.{}s", seconds, ms % 1000 / 100),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// The first line of everything read from a journal: nobody acts on it.
pub(super) fn journal_warning(tick: &TickView) -> Option<String> {
    let line = || {
        format!(
            "No daemon answered: this is the last tick of a journal, {} old; nothing acts on it.\n",
            span(tick.age_ms)
        )
    };
    (tick.source == Source::Journal).then(line)
}

/// The memory a plan divides.
pub(super) fn budget(budget: &BudgetView) -> String {
    format!(
        "{} for all guests: {} committed, {} grantable",
        size(budget.distributable_bytes),
        size(budget.committed_bytes),
        size(budget.grantable_bytes)
    )
}

/// Lines of what concerns the host as a whole.
pub(super) fn notes(notes: &[Coded]) -> String {
    notes.iter().map(|note| format!("note     {}\n", note.text)).collect()
}

/// A table without lines, `columns` of text or figures (figures are aligned to the right), wrapped
/// to `width` if one is given.
pub(crate) fn table(
    columns: &[(&str, CellAlignment)],
    rows: impl IntoIterator<Item = Vec<String>>,
    width: Option<u16>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    match width {
        Some(width) => table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    let aligned = |texts: Vec<String>| {
        let cells = texts.into_iter().zip(columns);
        cells
            .map(|(text, (_, alignment))| Cell::new(text).set_alignment(*alignment))
            .collect::<Vec<_>>()
    };
    table.set_header(aligned(columns.iter().map(|(name, _)| (*name).to_owned()).collect()));
    for row in rows {
        table.add_row(aligned(row));
    }
    // The first column begins at the margin.
    for column in table.column_iter_mut().take(1) {
        column.set_padding((0, 1));
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_show_their_two_largest_units() {
        for (ms, text) in [
            (0, "0.0s"),
            (850, "0.8s"),
            (59_999, "59.9s"),
            (61_000, "1m 1s"),
            (3_600_000, "1h 0m"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(span(ms), text);
        }
    }
}
