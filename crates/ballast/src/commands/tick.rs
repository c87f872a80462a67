//! Text about a tick that several commands share: its source, budget and notes.

use ballast_api::{BudgetView, Coded, Source, TickView};
use ballast_model::HoldReason;
use ballast_report::format::{size, span};

/// The first line of output that comes from a journal: it warns that nothing acts on it. Empty if
/// the output comes from a daemon.
pub(super) fn journal_warning(tick: &TickView) -> String {
    if tick.source != Source::Journal {
        return String::new();
    }
    let age = span(tick.age_ms);
    format!(
        "No daemon answered: this is the last tick of a journal, {age} old; nothing acts on it.\n"
    )
}

/// Why plans are not carried out, if they are not: lines of a name and a sentence.
pub(super) fn inactivity(tick: &TickView) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if tick.observing {
        lines.push(("mode", HoldReason::Observing.to_string()));
    }
    if tick.paused {
        lines.push(("paused", "nothing is acted on: `ballast resume` acts again".to_owned()));
    }
    lines
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

/// Lines with the notes about the whole host.
pub(super) fn notes(notes: &[Coded]) -> String {
    notes.iter().map(|note| format!("note     {}\n", note.text)).collect()
}
