//! No text has a phrase that makes its sentence a riddle.
//!
//! Idea: every text is looked at: code with its comments and messages, documents, scenarios, units
//! and scripts. "Which guests a tick samples" is clearer than "whom a tick samples". A phrase is
//! found across the end of a line, too.
//! Limits: it sees words, not meaning. Records stay as they were written, as do others' texts.

use super::{Finding, Tree};

/// The phrases, of one or two words.
const RIDDLES: [&str; 4] = ["whom", "of which", "is told", "so much"];
/// Beginnings of paths: records, others' texts, and this list.
const NOT_CHECKED: [&str; 4] =
    ["docs/benchmarks/", "LICENSE", "crates/page/web/uplot", "xtask/src/tidy/riddles.rs"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in &tree.files {
        if NOT_CHECKED.iter().any(|other| path.starts_with(other)) {
            continue;
        }
        let mut before = "";
        for (index, line) in text.lines().enumerate() {
            for word in line.split_whitespace() {
                // The beginning of a comment, or the end of a line in a string.
                if word.trim_matches(['/', '!', '#', '\\']).is_empty() {
                    continue;
                }
                if let Some(riddle) = riddle(before, word) {
                    let what = format!("`{riddle}`: say it as subject, verb, object");
                    findings.push(Finding::new(format!("{path}:{}", index + 1), what));
                }
                before = word;
            }
        }
    }
    findings
}

/// The phrase that `word` is, or that it ends together with the word before it.
fn riddle(before: &str, word: &str) -> Option<&'static str> {
    let is_mark = |c: char| !c.is_alphanumeric();
    let begin = before.trim_start_matches(is_mark);
    let end = word.trim_end_matches(is_mark);
    RIDDLES.into_iter().find(|riddle| match riddle.split_once(' ') {
        Some((first, second)) => {
            begin.eq_ignore_ascii_case(first) && end.eq_ignore_ascii_case(second)
        }
        None => end.trim_start_matches(is_mark).eq_ignore_ascii_case(riddle),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn riddles_are_found_in_every_text() {
        for (path, text, line) in [
            ("a.rs", "\n    /// Whom a tick asks.", Some(2)),
            ("a.rs", "// All of\n// which it has.", Some(2)),
            ("a.rs", "f(\"a guest (of which nothing is known)\");", Some(1)),
            ("a.rs", "f(\"it is \\\n   told\");", Some(2)),
            ("docs/a.md", "| not so much, | b |", Some(1)),
            ("packaging/a.service", "# It is told.", Some(1)),
            ("a.rs", "// The whomever.", None),
            ("a.rs", "format!(\"a guest of {}, which is told_off\")", None),
            ("a.rs", "// What it is made of. Which guests: so, much.", None),
            ("docs/benchmarks/a.md", "Of whom?", None),
        ] {
            let places: Vec<String> =
                check(&Tree::of([(path, text)])).into_iter().map(|it| it.place).collect();
            let expected = line.map(|line| format!("{path}:{line}"));
            assert_eq!(places, Vec::from_iter(expected), "{text}");
        }
    }
}
