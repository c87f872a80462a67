//! Draws help, the form and questions over the middle of the screen.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::style::Theme;
use crate::dialog::{Dialog, Question};
use crate::form::Form;

/// Width of the keys' column in the help.
const KEYS_WIDTH: usize = 10;
/// Width of the widest dialog; a longer command line in it is wrapped.
const WIDTH_MAX: u16 = 72;

/// All keys with what they do, for the help.
const HELP: &[(&str, &str)] = &[
    ("j k ↓ ↑", "select a guest; g G the first, the last"),
    ("PgUp PgDn", "a page of guests; in a journal a minute"),
    ("Enter", "explain the guest, or unfold; Esc back"),
    ("/", "show guests whose name contains a text; Esc all"),
    ("< > r", "sort by another column; turn around"),
    ("f", "fold guests at rest into one line"),
    ("p", "pause or resume, after a question"),
    ("s", "set floor, ceiling, shares, after a question"),
    ("← →", "in a journal: a tick back, a tick ahead"),
    ("Home End", "first and last guest; in a journal tick"),
    ("Space", "in a journal: play, stop"),
    ("? q", "this help; quit"),
];

pub(super) fn draw(dialog: &Dialog, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let (title, lines) = match dialog {
        Dialog::Help => (" Keys ".to_owned(), help(theme)),
        Dialog::Form(form) => (format!(" Bounds of {} ", form.guest), form_lines(form, theme)),
        Dialog::Question(question) => (" Sure? ".to_owned(), question_lines(question, theme)),
    };
    let width = area.width.min(WIDTH_MAX);
    let inner = usize::from(width.saturating_sub(2)).max(1);
    let rows: usize = lines.iter().map(|line| line.width().div_ceil(inner).max(1)).sum();
    // Wrapping between words may need one line more.
    let rows = u16::try_from(rows + 3).unwrap_or(u16::MAX);
    let height = rows.min(area.height);
    let over = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    let block = Block::bordered().title(title).title_style(theme.head());
    frame.render_widget(Clear, over);
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), over);
}

fn help(theme: Theme) -> Vec<Line<'static>> {
    let line = |(keys, what): &(&'static str, &'static str)| {
        Line::from(vec![
            Span::styled(format!("{keys:<KEYS_WIDTH$} "), theme.head()),
            Span::raw(*what),
        ])
    };
    HELP.iter().map(line).collect()
}

fn form_lines(form: &Form, theme: Theme) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for (at, field) in form.fields.iter().enumerate() {
        let (mark, style) = match at == form.at {
            true => ("_", theme.selected()),
            false => ("", ratatui::style::Style::new()),
        };
        lines.push(Line::from(vec![
            Span::styled(format!("{:<8} ", field.name), theme.head()),
            Span::styled(format!("{}{mark}", field.text), style),
        ]));
    }
    lines.push(match &form.error {
        Some(error) => Line::styled(error.clone(), theme.trouble()),
        None => Line::raw(""),
    });
    lines.push(Line::styled("Tab next field  Enter go on  Esc back", theme.quiet()));
    lines
}

fn question_lines(question: &Question, theme: Theme) -> Vec<Line<'static>> {
    vec![
        Line::raw(question.text.clone()),
        Line::raw("This is the same as:"),
        Line::styled(question.command.clone(), theme.head()),
        Line::raw(""),
        Line::styled("y yes  n no", theme.quiet()),
    ]
}
