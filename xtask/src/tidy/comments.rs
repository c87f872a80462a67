//! Comments keep to the width of the code.
//!
//! Limits: only lines that begin with `//`; rustfmt sees a comment behind code.

use super::{Finding, Tree};

/// The width that rustfmt keeps code to, in characters.
const WIDTH: usize = 100;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust_files() {
        let mut is_drawing = false;
        for (index, line) in text.lines().enumerate() {
            if !line.trim_start().starts_with("//") {
                continue;
            }
            is_drawing ^= line.contains("```");
            let width = line.chars().count();
            // Drawings, rows of tables and links cannot be wrapped.
            let is_whole = is_drawing || line.contains("://") || line.trim_end().ends_with('|');
            if width > WIDTH && !is_whole {
                let what = format!("a comment of {width} characters, at most {WIDTH}: wrap it");
                findings.push(Finding::new(format!("{path}:{}", index + 1), what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_comments_are_found() {
        let wide = "x ".repeat(60);
        for (text, found) in [
            (format!("// {wide}"), true),
            (format!("// | {wide}|"), false),
            (format!("// https://{wide}"), false),
            (format!("//! ```text\n//! {wide}\n//! ```"), false),
            (format!("//! ```text\n//! ```\n//! {wide}"), true),
            (format!("let {wide}; // {wide}"), false),
        ] {
            let findings = check(&Tree::of([("a.rs", &text)]));
            assert_eq!(!findings.is_empty(), found, "{text}");
        }
    }
}
