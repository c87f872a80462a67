//! Comments keep to the width of the code and to plain words.
//!
//! Limits: only lines that begin with `//`; rustfmt sees a comment behind code.

use super::{Finding, Tree};

/// The width that rustfmt keeps code to, in characters.
const WIDTH: usize = 100;
/// Phrases that make a sentence a riddle. "Which guests a tick samples" is clearer.
const RIDDLES: [&str; 4] = ["whom", "of which", "is told", "so much"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust_files() {
        let mut is_drawing = false;
        for (index, line) in text.lines().enumerate() {
            if !line.trim_start().starts_with("//") {
                continue;
            }
            is_drawing ^= line.contains("```");
            let place = format!("{path}:{}", index + 1);
            let width = line.chars().count();
            // Drawings, rows of tables and links cannot be wrapped.
            let is_whole = is_drawing || line.contains("://") || line.trim_end().ends_with('|');
            if width > WIDTH && !is_whole {
                let what = format!("a comment of {width} characters, at most {WIDTH}: wrap it");
                findings.push(Finding::failure(&place, what));
            }
            if let Some(riddle) = RIDDLES.iter().find(|riddle| has_phrase(line, riddle)) {
                let what = format!("`{riddle}`: say it as subject, verb, object");
                findings.push(Finding::failure(&place, what));
            }
        }
    }
    findings
}

/// Whether `phrase` stands in `line` between ends of words.
fn has_phrase(line: &str, phrase: &str) -> bool {
    let line = line.to_lowercase();
    line.match_indices(phrase).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let behind = line[at + phrase.len()..].chars().next();
        ![before, behind].into_iter().flatten().any(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_comments_and_riddles_are_found() {
        let wide = "x ".repeat(60);
        for (text, found) in [
            (format!("// {wide}"), true),
            (format!("// | {wide}|"), false),
            (format!("// https://{wide}"), false),
            (format!("//! ```text\n//! {wide}\n//! ```"), false),
            (format!("//! ```text\n//! ```\n//! {wide}"), true),
            (format!("let {wide}; // {wide}"), false),
            ("    /// Whom a tick asks.".to_owned(), true),
            ("// All of whom, and so much more.".to_owned(), true),
            ("// The whomever.".to_owned(), false),
            ("let a = \"of which\";".to_owned(), false),
        ] {
            let findings = check(&Tree::of([("a.rs", &text)]));
            assert_eq!(!findings.is_empty(), found, "{text}");
        }
    }
}
