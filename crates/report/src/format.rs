//! Sizes, durations, tables and lines for people.

use ballast_model::Bytes;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

/// Placeholder for an unknown figure.
pub const UNKNOWN: &str = "?";

/// A size in the largest unit that fits.
pub fn size(bytes: u64) -> String {
    Bytes::new(bytes).to_string()
}

/// A size, or the placeholder if unknown.
pub fn size_or_unknown(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| UNKNOWN.to_owned(), size)
}

/// A duration in its two largest units.
pub fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{}.{}s", seconds, ms % 1000 / 100),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// A borderless table, wrapped to `width` if given. `columns` hold text or figures; figures are
/// aligned to the right.
pub fn table(
    columns: &[(&str, CellAlignment)],
    rows: Vec<Vec<String>>,
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
    // The first column starts at the margin.
    for column in table.column_iter_mut().take(1) {
        column.set_padding((0, 1));
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Breaks lines of text between words at `width` columns, if given. Continuation lines are indented
/// by `indent` columns. A word that is wider than a line stays whole.
pub fn wrapped(text: &str, width: Option<u16>, indent: usize) -> String {
    let Some(width) = width.map(usize::from) else { return text.to_owned() };
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let (mut column, mut is_first) = (0, true);
        // Each word keeps the space after it, so that spaces within a line stay as they are.
        for word in line.split_inclusive(' ') {
            let length = word.trim_end().chars().count();
            if !is_first && column + length > width {
                out.truncate(out.trim_end_matches(' ').len());
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', indent));
                column = indent;
            }
            out.push_str(word);
            column += word.chars().count();
            is_first = false;
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_break_between_words() {
        let text = "host     16GiB in all, 9.2GiB available\nshort\n";
        assert_eq!(wrapped(text, None, 9), text);
        assert_eq!(wrapped(text, Some(40), 9), text);
        let narrow = "host     16GiB in all,\n         9.2GiB\n         available\nshort\n";
        assert_eq!(wrapped(text, Some(24), 9), narrow);
        assert_eq!(wrapped("a wordthatistoowide b\n", Some(8), 2), "a\n  wordthatistoowide\n  b\n");
    }

    #[test]
    fn durations_show_their_two_largest_units() {
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
