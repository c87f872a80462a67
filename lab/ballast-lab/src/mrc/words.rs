//! Names and sizes in the words that table, plots and page share.

use std::collections::BTreeSet;
use std::path::Path;

use ballast_model::Bytes;
use ballast_mrc::Form;

use super::outcome::Outcome;
use ballast_report::figures;
use ballast_report::harmless_line;

/// The text of a plot without any curve.
pub(super) const NO_CURVE: &str = "No curve: no page was referenced twice.";

/// The references that the miss ratio of `form` counts, in words.
pub(super) fn form(form: Form) -> &'static str {
    match form {
        Form::Warm => "Miss ratio of warm references, by memory",
        Form::Total => "Miss ratio of all references, by memory",
    }
}

/// A number of pages as text; in bytes if the page size is known.
pub(super) fn size(pages: u64, page_bytes: Option<u64>) -> String {
    match page_bytes {
        Some(bytes) => Bytes::new(pages.saturating_mul(bytes)).to_string(),
        None if pages == 1 => "1 page".to_owned(),
        None => format!("{} pages", figures::count(pages as f64)),
    }
}

/// A number of pages with all its digits.
pub(super) fn exactly(pages: u64) -> String {
    if pages == 1 { "1 page".to_owned() } else { format!("{pages} pages") }
}

/// A number of tags with all its digits.
pub(super) fn tags(tags: u64) -> String {
    if tags == 1 { "1 tag".to_owned() } else { format!("{tags} tags") }
}

/// A number of pages with all its digits, and in bytes if the page size is known.
pub(super) fn size_and_pages(pages: u64, page_bytes: Option<u64>) -> String {
    match page_bytes {
        Some(_) => format!("{} ({})", size(pages, page_bytes), exactly(pages)),
        None => exactly(pages),
    }
}

/// The traces' names to show: without their folders, unless two names would then be the same.
pub(super) fn names(outcomes: &[Outcome]) -> Vec<String> {
    let short = |outcome: &Outcome| {
        let name = Path::new(&outcome.trace).file_name().and_then(|name| name.to_str());
        harmless_line(name.unwrap_or(&outcome.trace))
    };
    let names: Vec<String> = outcomes.iter().map(short).collect();
    let different: BTreeSet<&String> = names.iter().collect();
    if different.len() == names.len() {
        return names;
    }
    outcomes.iter().map(|outcome| harmless_line(&outcome.trace)).collect()
}

/// The speed of a trace, in references a second.
pub(super) fn speed(outcome: &Outcome) -> String {
    let Some(millions) = outcome.speed().map(|speed| speed / 1e6) else {
        return figures::NONE.to_owned();
    };
    let digits = match millions {
        _ if millions < 0.1 => 3,
        _ if millions < 10.0 => 2,
        _ => 1,
    };
    format!("{millions:.digits$} M references/s")
}
