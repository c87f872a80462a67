//! Draws the host: policy, budget, the host's own memory, and warnings.
//!
//! Idea: facts flow into as many lines as the width requires, so a narrow screen shows the same
//! facts in more lines.

use ballast_api::{DaemonView, StatusReply};
use ballast_model::PressureLevel;
use ballast_report::format::{UNKNOWN, size, size_or_unknown, span};
use ballast_report::harmless_line;
use jiff::Timestamp;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::style::Theme;
use crate::state::{JournalCursor, Source, State};

/// Width of the budget's bar, in columns.
const BAR_CELLS: u64 = 12;
/// Width from which there is room for that bar.
const BAR_WIDTH_MIN: u16 = 60;
/// Most warnings that are shown; `ballast status` shows all.
const WARNINGS_MAX: usize = 2;
/// Between facts on a line.
const GAP: &str = "  ";

/// A fact, and how it looks.
type Fact = (String, Style);

/// The host's lines, for a screen of `width` columns.
pub(super) fn lines(state: &State, theme: Theme, width: u16) -> Vec<Line<'static>> {
    let plain = Style::new();
    let Some(status) = &state.status else {
        let what = match &state.source {
            Source::Daemon { .. } => "no daemon answered yet".to_owned(),
            Source::Journal(cursor) => format!("journal {}", cursor.file),
        };
        return flow(vec![("Ballast".to_owned(), theme.head()), (what, plain)], width);
    };
    let mut lines = flow(first(state, status, theme), width);
    lines.extend(flow(budget(status, theme, width), width));
    lines.extend(flow(host(status, theme), width));
    let warnings = warnings(status);
    let more = warnings.len().saturating_sub(WARNINGS_MAX);
    for (nth, warning) in warnings.into_iter().take(WARNINGS_MAX).enumerate() {
        let more = match more {
            more if more > 0 && nth + 1 == WARNINGS_MAX => format!(" (+{more}: ballast status)"),
            _ => String::new(),
        };
        lines.push(Line::styled(format!("! {}{more}", harmless_line(&warning)), theme.trouble()));
    }
    lines
}

/// Fills lines of at most `width` columns with facts; a wider fact gets a line of its own.
fn flow(facts: Vec<Fact>, width: u16) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut line = Line::default();
    for (text, style) in facts {
        let fact = Span::styled(text, style);
        let is_first = line.spans.is_empty();
        if !is_first && line.width() + GAP.len() + fact.width() > usize::from(width) {
            lines.push(std::mem::take(&mut line));
        }
        if !line.spans.is_empty() {
            line.push_span(GAP);
        }
        line.push_span(fact);
    }
    lines.push(line);
    lines
}

/// The first line: which policy decides, whether Ballast acts, and how old the figures are.
fn first(state: &State, status: &StatusReply, theme: Theme) -> Vec<Fact> {
    let plain = Style::new();
    let number = format!("#{}", status.tick.generation);
    let mut facts = match &state.source {
        Source::Daemon { .. } => vec![("Ballast".to_owned(), theme.head())],
        Source::Journal(cursor) => journal_facts(state, cursor, status, theme),
    };
    let policy = status.daemon.as_ref().map_or(&status.tick.policy, |daemon| &daemon.policy);
    facts.push((format!("policy {policy}"), plain));
    if status.tick.observing {
        facts.push(("OBSERVING".to_owned(), theme.head()));
    }
    if status.tick.paused {
        facts.push(("PAUSED".to_owned(), theme.trouble()));
    }
    if !status.tick.observing && !status.tick.paused {
        facts.push(("acting".to_owned(), plain));
    }
    if let Some(daemon) = &status.daemon {
        facts.push((format!("tick {}", span(daemon.tick_ms)), plain));
    }
    match state.age() {
        Some(age) => {
            let age_ms = age.as_millis().try_into().unwrap_or(u64::MAX);
            let style = if state.trouble.is_some() { theme.trouble() } else { plain };
            facts.push((format!("{number}, {} old", span(age_ms)), style));
        }
        None => facts.push((number, plain)),
    }
    facts
}

/// The journal, the moment shown, and its place in the journal.
fn journal_facts(
    state: &State,
    cursor: &JournalCursor,
    status: &StatusReply,
    theme: Theme,
) -> Vec<Fact> {
    let plain = Style::new();
    let at = i64::try_from(status.tick.seen_at_unix_ms).unwrap_or(i64::MAX);
    let at = Timestamp::from_millisecond(at).map_or_else(
        |_| UNKNOWN.to_owned(),
        |at| at.to_zoned(state.zone.clone()).strftime("%F %T %:z").to_string(),
    );
    let mut facts = vec![(format!("journal {}", cursor.file), theme.head()), (at, theme.head())];
    if let Some([first, at, last]) = cursor.places {
        let (passed, whole) = (at.id.saturating_sub(first.id), last.id.saturating_sub(first.id));
        let percent = i128::from(passed) * 100 / i128::from(whole.max(1));
        facts.push((format!("at {percent} % of it"), plain));
    }
    if cursor.playing {
        facts.push(("PLAYING".to_owned(), theme.head()));
    }
    facts
}

fn budget(status: &StatusReply, theme: Theme, width: u16) -> Vec<Fact> {
    let plain = Style::new();
    let budget = &status.budget;
    let (all, committed) = (budget.distributable_bytes, budget.committed_bytes);
    let allocated = status.guests.iter().filter_map(|guest| guest.allocation_bytes);
    let allocated = allocated.fold(0_u64, u64::saturating_add);
    let mut facts = vec![(format!("budget {}", size(all)), theme.head())];
    if width >= BAR_WIDTH_MIN {
        facts.push((bar(committed, all), plain));
    }
    facts.push((format!("{} committed", size(committed)), plain));
    facts.push((format!("{} allocated", size(allocated)), plain));
    facts.push((format!("{} grantable", size(budget.grantable_bytes)), plain));
    let reserved = status.reservations.iter().map(|it| it.size_bytes);
    if !status.reservations.is_empty() {
        let reserved = reserved.fold(0_u64, u64::saturating_add);
        facts.push((format!("{} reserved", size(reserved)), plain));
    }
    facts
}

/// A bar of `part` in `whole`.
fn bar(part: u64, whole: u64) -> String {
    let cells = u128::from(part) * u128::from(BAR_CELLS) / u128::from(whole.max(1));
    let full = usize::try_from(cells.min(BAR_CELLS.into())).unwrap_or(0);
    format!("[{}{}]", "█".repeat(full), "░".repeat(BAR_CELLS as usize - full))
}

fn host(status: &StatusReply, theme: Theme) -> Vec<Fact> {
    let plain = Style::new();
    let host = &status.host;
    let available = size_or_unknown(host.memory_available_bytes);
    let mut facts = vec![(
        format!("host {available} of {} available", size_or_unknown(host.memory_total_bytes)),
        theme.head(),
    )];
    if let Some(reserve) = status.daemon.as_ref().and_then(|daemon| daemon.host_reserve_bytes) {
        facts.push((format!("reserve {}", size(reserve)), plain));
    }
    if let (Some(free), Some(all)) = (host.swap_free_bytes, host.swap_total_bytes) {
        facts.push(match all {
            0 => ("no swap".to_owned(), plain),
            _ => (format!("swap {} of {} free", size(free), size(all)), plain),
        });
    }
    let percent = |points: Option<u32>| match points {
        Some(points) => format!("{}.{:02}%", points / 100, points % 100),
        None => UNKNOWN.to_owned(),
    };
    let (some, full) = (host.pressure_some_basis_points, host.pressure_full_basis_points);
    facts.push((format!("pressure some {} full {}", percent(some), percent(full)), plain));
    facts
}

/// What the operator should know, the most serious first.
fn warnings(status: &StatusReply) -> Vec<String> {
    let mut warnings: Vec<String> = Vec::new();
    if status.host_pressure.code != PressureLevel::Normal.code() {
        warnings.push(status.host_pressure.text.clone());
    }
    warnings.extend(status.daemon.iter().flat_map(of_daemon));
    warnings.extend(status.notes.iter().map(|note| note.text.clone()));
    warnings
}

fn of_daemon(daemon: &DaemonView) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(error) = &daemon.journal_error {
        warnings.push(format!("the journal does not record: {error}"));
    }
    if let Some(error) = &daemon.reload_error {
        warnings.push(format!("the last reload was refused: {error}"));
    }
    if let Some(error) = &daemon.page_error {
        warnings.push(format!("the page is not served on its port: {error}"));
    }
    if daemon.guests_refused > 0 {
        warnings.push(format!(
            "{} guests are left out: raise the daemon's limit of open files",
            daemon.guests_refused
        ));
    }
    if daemon.plans_refused > 0 {
        let (refused, ticks) = (daemon.plans_refused, daemon.ticks);
        warnings.push(format!("{refused} of {ticks} plans were refused by the checker"));
    }
    warnings
}
