//! Draws the state.
//!
//! Idea: from top to bottom: the host, a table or an explanation, the keys. Where room is short,
//! the least important is left out; figures are never cut off, because they would look like smaller
//! figures. Without colours, bold, dim and reversed text say the same. Cost: only rows on the
//! screen are rendered. Limits: below 20 columns or 8 rows little is shown, but nothing breaks.

mod dialogs;
mod host;
mod style;
mod table;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use ballast_report::format::span;
use ballast_report::{harmless, harmless_line};

use crate::state::{Source, State};
use style::Theme;
use table::sorted_by;

/// The column at which the texts of an explanation begin, and to which they are indented.
const EXPLANATION_INDENT: usize = 11;

/// Most lines of an error or a message.
const MESSAGE_LINES_MAX: usize = 3;

/// Draws the state.
pub(crate) fn draw(state: &State, frame: &mut Frame<'_>) {
    let area = frame.area();
    let theme = Theme { colour: state.colour };
    let host = host::lines(state, theme, area.width);
    // The guests matter most, so on a small screen the host gets a third at most.
    let most = (area.height / 3).max(1);
    let host_rows = u16::try_from(host.len()).unwrap_or(u16::MAX).min(most);
    let foot = foot(state, theme, area.width.into());
    let foot_rows = u16::try_from(foot.len()).unwrap_or(u16::MAX);
    let foot_rows = foot_rows.min(area.height.saturating_sub(host_rows));
    let middle_rows = area.height - host_rows - foot_rows;
    let part = |y: u16, height: u16| Rect { x: area.x, y: area.y + y, width: area.width, height };
    frame.render_widget(Paragraph::new(host), part(0, host_rows));
    let middle = part(host_rows, middle_rows);
    match &state.explanation {
        Some(_) => explanation(state, theme, frame, middle),
        None => table::draw(state, theme, frame, middle),
    }
    frame.render_widget(Paragraph::new(foot), part(host_rows + middle_rows, foot_rows));
    if let Some(dialog) = &state.dialog {
        dialogs::draw(dialog, theme, frame, area);
    }
}

/// The lines of the open explanation as they are shown; none if none is open.
pub(crate) fn explanation_lines(state: &State) -> Vec<String> {
    let Some(explanation) = &state.explanation else { return vec![] };
    let text = match &explanation.text {
        Some(text) => harmless(text),
        None => format!("explanation of {} …", explanation.guest),
    };
    let error = explanation.error.iter().map(|error| format!("error      {}", harmless(error)));
    let width = usize::from(state.size.0);
    let lines: Vec<String> = error.chain(text.lines().map(str::to_owned)).collect();
    lines.iter().flat_map(|line| wrapped(line, width, EXPLANATION_INDENT)).collect()
}

fn explanation(state: &State, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let scroll = state.explanation.as_ref().map_or(0, |explanation| explanation.scroll);
    let lines = explanation_lines(state);
    let shown = lines.into_iter().skip(scroll).take(area.height.into()).map(|line| {
        // Every step of the chain begins with its name; other lines continue it.
        let is_step = line.is_char_boundary(EXPLANATION_INDENT) && !line.starts_with(' ');
        match is_step {
            true => {
                let (name, text) = line.split_at(EXPLANATION_INDENT);
                Line::from(vec![
                    Span::styled(name.to_owned(), theme.head()),
                    Span::raw(text.to_owned()),
                ])
            }
            false => Line::raw(line),
        }
    });
    frame.render_widget(Paragraph::new(shown.collect::<Vec<_>>()), area);
}

/// `line` in pieces of at most `width` characters, broken at spaces where possible; all but the
/// first are indented.
fn wrapped(line: &str, width: usize, indent: usize) -> Vec<String> {
    // Too narrow to indent.
    let indent = if width >= 3 * indent { indent } else { 0 };
    let width = width.max(indent + 1);
    let mut lines = Vec::new();
    let mut left: Vec<char> = line.chars().collect();
    while left.len() > width {
        let first = if lines.is_empty() { 0 } else { indent };
        let space = (first + 1..=width).rev().find(|at| left[*at] == ' ' && left[at - 1] != ' ');
        let cut = space.filter(|at| *at > first).unwrap_or(width);
        let rest: String = left[cut..].iter().collect();
        lines.push(left[..cut].iter().collect::<String>().trim_end().to_owned());
        left = " ".repeat(indent).chars().chain(rest.trim_start().chars()).collect();
        if rest.trim_start().is_empty() {
            return lines;
        }
    }
    lines.push(left.into_iter().collect());
    lines
}

/// The last lines: an error, and below it a message, the filter, or the keys.
fn foot(state: &State, theme: Theme, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if let Some(trouble) = &state.trouble {
        let since = state.now.saturating_sub(trouble.since).as_millis();
        let since = span(since.try_into().unwrap_or(u64::MAX));
        let again = match &state.source {
            Source::Daemon { .. } => format!("no status for {since}, asking again: "),
            Source::Journal(_) => String::new(),
        };
        lines.extend(message_lines(&format!("{again}{}", trouble.text), width, theme.trouble()));
    }
    match &state.message {
        _ if state.filtering => {
            let text = format!("/{}_  Enter keeps it, Esc ends it", state.options.filter);
            lines.push(Line::styled(text, theme.head()));
        }
        Some(message) => {
            let style = if message.is_failure { theme.trouble() } else { theme.head() };
            lines.extend(message_lines(&message.text, width, style));
        }
        None => lines.push(Line::styled(keys(state, width), theme.quiet())),
    }
    lines
}

/// A sentence in at most `MESSAGE_LINES_MAX` lines.
fn message_lines(text: &str, width: usize, style: Style) -> Vec<Line<'static>> {
    let lines = wrapped(&harmless_line(text), width, 0);
    lines.into_iter().take(MESSAGE_LINES_MAX).map(|line| Line::styled(line, style)).collect()
}

/// The keys that can be pressed now, the most useful first, as many as fit.
fn keys(state: &State, width: usize) -> String {
    let mut keys = vec!["q quit".to_owned(), "? help".to_owned()];
    if let Source::Journal(cursor) = &state.source {
        keys.push("←→ tick  PgUp PgDn minute".to_owned());
        keys.push(format!("Space {}", if cursor.playing { "stop" } else { "play" }));
    }
    if state.explanation.is_some() {
        keys.extend(["Esc back", "j k scroll"].map(str::to_owned));
    } else {
        let filter = match state.options.filter.as_str() {
            "" => "/ filter".to_owned(),
            filter => format!("/{filter}: Esc shows all"),
        };
        keys.push(filter);
        keys.push(format!("<>r {}", sorted_by(state)));
        keys.push(if state.options.folded { "f unfold" } else { "f fold" }.to_owned());
        keys.push("Enter explain".to_owned());
    }
    if state.is_live() {
        keys.extend(["p pause", "s set"].map(str::to_owned));
    }
    let mut line = String::new();
    for key in keys {
        let gap = if line.is_empty() { "" } else { "  " };
        if (line.chars().count() + gap.len() + key.chars().count()) > width {
            break;
        }
        line.push_str(gap);
        line.push_str(&key);
    }
    line
}

#[cfg(test)]
mod tests;
