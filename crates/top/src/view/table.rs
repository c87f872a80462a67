//! Draws the table of guests.
//!
//! Idea: columns have an order of importance; as many are shown as fit, and the text in the last
//! column takes the rest. The two memory lines of a guest share one scale, from zero to the largest
//! figure of both, so that they can be compared; the line of swap-in has its own scale.

use ballast_api::GuestView;
use ballast_report::format::{UNKNOWN, size, size_or_unknown};
use ballast_report::harmless_line;
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row as TableRow, Table};

use super::style::Theme;
use crate::guests::{Column, Doing, Resting, Row, doing};
use crate::history::{HISTORY_TICKS, History, largest, sparkline};
use crate::state::State;

/// Least width of the column of names: its head and the mark of the sort direction.
const NAME_WIDTH_MIN: usize = 6;
/// Names get one part in this many of the width before other columns get any.
const NAME_PART: usize = 5;
/// Least width of the last column: that of the longest code of a reason.
const DOING_WIDTH_MIN: usize = 15;
/// From this width on, the last column holds sentences instead of codes.
const DOING_SENTENCE_WIDTH: usize = 40;
/// Least and greatest width of a line of the last ticks; a wider one could not be read at a glance.
const SPARK_WIDTH_MIN: usize = 8;
const SPARK_WIDTH_MAX: usize = 20;
const _: () = assert!(SPARK_WIDTH_MAX <= HISTORY_TICKS);
/// Spaces between two columns.
const GAP: usize = 1;

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Name,
    Allocation,
    Demand,
    /// What the policy wants it to have: shown while plans are not carried out.
    Wanted,
    Target,
    SwapIn,
    Bounds,
    AllocationLine,
    DemandLine,
    SwapInLine,
    Doing,
}

/// The columns from left to right, each with its rank: the lowest ranks are shown first.
const COLUMNS: [(Shown, u8); 11] = [
    (Shown::Name, 0),
    (Shown::Allocation, 1),
    (Shown::AllocationLine, 7),
    (Shown::Demand, 3),
    (Shown::DemandLine, 9),
    (Shown::Wanted, 4),
    (Shown::Target, 5),
    (Shown::Bounds, 8),
    (Shown::SwapIn, 6),
    (Shown::SwapInLine, 10),
    (Shown::Doing, 2),
];

impl Shown {
    fn head(self) -> &'static str {
        match self {
            Shown::Name => column_name(Column::Name),
            Shown::Allocation => column_name(Column::Allocation),
            Shown::Demand => column_name(Column::Demand),
            Shown::Target => column_name(Column::Target),
            Shown::SwapIn => column_name(Column::SwapIn),
            Shown::Doing => column_name(Column::Doing),
            Shown::Wanted => "WANTED",
            Shown::Bounds => "FLOOR–CEILING",
            Shown::AllocationLine => "~ALLOC",
            Shown::DemandLine => "~DEMAND",
            Shown::SwapInLine => "~SWAP-IN",
        }
    }

    /// Whether guests can be sorted by it.
    fn is_of(self, column: Column) -> bool {
        self.head() == column_name(column)
    }

    fn width_min(self, name: usize) -> usize {
        match self {
            Shown::Name => name,
            // "1023.9MiB"
            Shown::Allocation | Shown::Demand | Shown::Wanted | Shown::Target => 9,
            Shown::SwapIn => 11,
            Shown::Bounds => 19,
            Shown::AllocationLine | Shown::DemandLine | Shown::SwapInLine => SPARK_WIDTH_MIN,
            Shown::Doing => DOING_WIDTH_MIN,
        }
    }

    fn is_line(self) -> bool {
        matches!(self, Shown::AllocationLine | Shown::DemandLine | Shown::SwapInLine)
    }

    fn is_figure(self) -> bool {
        use Shown::{Allocation, Demand, SwapIn, Target, Wanted};
        matches!(self, Allocation | Demand | Wanted | Target | SwapIn)
    }
}

/// Columns that fit into `width`, with their widths. The longest name has `longest` characters;
/// `is_inactive`: plans are not carried out.
fn fitting(width: usize, longest: usize, is_inactive: bool) -> Vec<(Shown, usize)> {
    let name = longest.min(width / NAME_PART).max(NAME_WIDTH_MIN);
    let of_rank = |wanted: u8| COLUMNS.into_iter().find(|(_, rank)| *rank == wanted);
    let mut left = width;
    let mut taken = Vec::new();
    for (column, _) in (0..).map_while(of_rank) {
        if column == Shown::Wanted && !is_inactive {
            continue;
        }
        let needed = column.width_min(name) + if taken.is_empty() { 0 } else { GAP };
        if needed > left && !taken.is_empty() {
            break;
        }
        left = left.saturating_sub(needed);
        taken.push(column);
    }
    let mut columns: Vec<(Shown, usize)> = Vec::new();
    for (column, _) in COLUMNS {
        if taken.contains(&column) {
            columns.push((column, column.width_min(name)));
        }
    }
    let longer = longest.saturating_sub(name).min(left);
    left -= longer;
    for (_, width) in columns.iter_mut().filter(|(column, _)| *column == Shown::Name) {
        *width += longer;
    }
    // Once the last column has room for a sentence, half of the rest goes to longer lines.
    let lines = columns.iter().filter(|(column, _)| column.is_line()).count();
    let beyond = left.saturating_sub(DOING_SENTENCE_WIDTH - DOING_WIDTH_MIN);
    if let Some(each) = (beyond / 2).checked_div(lines) {
        let each = each.min(SPARK_WIDTH_MAX - SPARK_WIDTH_MIN);
        for (_, width) in columns.iter_mut().filter(|(column, _)| column.is_line()) {
            *width += each;
        }
        left -= each * lines;
    }
    if let Some((Shown::Doing, width)) = columns.last_mut() {
        *width += left;
    }
    columns
}

/// Draws the table.
pub(super) fn draw(state: &State, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let rows = state.rows();
    if rows.is_empty() {
        let why = match &state.status {
            None => "",
            Some(status) if status.guests.is_empty() => {
                "no guest was found: `ballast doctor host` says where Ballast looks"
            }
            Some(_) => "no guest's name contains the filter's text",
        };
        frame.render_widget(Paragraph::new(Line::styled(why, theme.quiet())), area);
        return;
    }
    let names = rows.iter().map(|row| match row {
        Row::Guest(guest) => guest.guest.chars().count(),
        Row::Rest(resting) => rest(resting).chars().count(),
    });
    let tick = state.status.as_ref().map(|status| &status.tick);
    let is_inactive = tick.is_some_and(|tick| tick.paused || tick.observing);
    let columns = fitting(area.width.into(), names.max().unwrap_or(0), is_inactive);
    let height = usize::from(area.height.saturating_sub(1));
    let selected = state.position(&rows);
    // The selected line is in the middle if there are enough lines around it.
    let first = selected.unwrap_or(0).saturating_sub(height / 2);
    let first = first.min(rows.len().saturating_sub(height));
    let shown = rows.iter().enumerate().skip(first).take(height).map(|(at, row)| {
        let (cells, style) = match row {
            Row::Guest(guest) => cells(guest, &state.history, &columns, theme),
            Row::Rest(resting) => {
                let text = rest(resting);
                let cells = columns.iter().map(|(column, width)| match column {
                    Shown::Name => cut(&text, *width),
                    Shown::Allocation => format!("{:>width$}", size(resting.allocation_bytes)),
                    Shown::Doing => cut("f unfolds", *width),
                    _ => String::new(),
                });
                (cells.collect(), theme.quiet())
            }
        };
        let style = if selected == Some(at) { style.patch(theme.selected()) } else { style };
        TableRow::new(cells).style(style)
    });
    let head = columns.iter().map(|(column, width)| {
        let text = match column.is_of(state.options.column) {
            true => sorted_by(state),
            false => column.head().to_owned(),
        };
        match column.is_figure() {
            true => format!("{text:>width$}"),
            false => text,
        }
    });
    let head = TableRow::new(head.collect::<Vec<_>>()).style(theme.head());
    let widths = columns
        .iter()
        .map(|(_, width)| Constraint::Length(u16::try_from(*width).unwrap_or(u16::MAX)));
    let table = Table::new(shown, widths).header(head).column_spacing(GAP as u16);
    frame.render_widget(table, area);
}

fn cells(
    guest: &GuestView,
    history: &History,
    columns: &[(Shown, usize)],
    theme: Theme,
) -> (Vec<String>, Style) {
    let last = history.guest(&guest.guest);
    let rate = last.and_then(|last| last.swap_in_rate());
    let style = match doing(guest, rate) {
        Doing::Held => theme.trouble(),
        Doing::Resting => Style::new(),
        Doing::Moving => match guest.change.as_ref().map(|change| change.code.as_str()) {
            Some("grow") => theme.growing(),
            Some("shrink") => theme.shrinking(),
            _ => Style::new(),
        },
    };
    let memory = last.map_or(0, |last| largest([&last.allocation, &last.demand]));
    let cells = columns.iter().map(|(column, width)| {
        let width = *width;
        match column {
            Shown::Name => cut(&harmless_line(&guest.guest), width),
            Shown::Allocation => right(size_or_unknown(guest.allocation_bytes), width),
            Shown::Demand => right(size_or_unknown(guest.demand_bytes), width),
            Shown::Wanted => right(size_or_unknown(guest.wanted_bytes), width),
            Shown::Target => {
                right(guest.target_bytes.map_or_else(|| "none".to_owned(), size), width)
            }
            Shown::SwapIn => {
                let rate = rate.map(|rate| format!("{}/s", size(rate)));
                right(rate.unwrap_or_else(|| UNKNOWN.to_owned()), width)
            }
            Shown::Bounds => match guest.floor_bytes.zip(guest.ceiling_bytes) {
                Some((floor, ceiling)) => format!("{}–{}", size(floor), size(ceiling)),
                None => UNKNOWN.to_owned(),
            },
            Shown::AllocationLine => {
                last.map_or_else(String::new, |last| sparkline(&last.allocation, memory, width))
            }
            Shown::DemandLine => {
                last.map_or_else(String::new, |last| sparkline(&last.demand, memory, width))
            }
            Shown::SwapInLine => last.map_or_else(String::new, |last| {
                sparkline(&last.swap_in, largest([&last.swap_in]), width)
            }),
            Shown::Doing => cut(&doing_text(guest, width), width),
        }
    });
    (cells.collect(), style)
}

/// What happens to a guest: a sentence if there is room, else a code.
fn doing_text(guest: &GuestView, width: usize) -> String {
    let Some(change) = &guest.change else { return UNKNOWN.to_owned() };
    if width >= DOING_SENTENCE_WIDTH {
        return harmless_line(&change.text);
    }
    let by = || size_or_unknown(change.by_bytes);
    match change.code.as_str() {
        "grow" => format!("grow {}", by()),
        "shrink" => format!("shrink {}", by()),
        code => change.why.as_ref().map_or(code, |why| why.code.as_str()).to_owned(),
    }
}

/// The text for the guests at rest, in place of a name.
fn rest(resting: &Resting) -> String {
    format!("▸ {} at rest", resting.guests)
}

fn right(text: String, width: usize) -> String {
    format!("{text:>width$}")
}

/// `text`, with `…` in place of what does not fit.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// The name of the column sorted by, with the mark of the direction.
pub(super) fn sorted_by(state: &State) -> String {
    let mark = if state.options.is_descending() { '▼' } else { '▲' };
    format!("{}{mark}", column_name(state.options.column))
}

fn column_name(column: Column) -> &'static str {
    match column {
        Column::Name => "GUEST",
        Column::Allocation => "ALLOC",
        Column::Demand => "DEMAND",
        Column::Target => "TARGET",
        Column::SwapIn => "SWAP-IN",
        Column::Doing => "DOING",
    }
}
