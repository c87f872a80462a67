//! No work is left for later: no unfinished code, no ignored tests, no notes to oneself.

use super::rust::Source;
use super::{Finding, Tree};

/// Macros that stand in for missing code.
const UNFINISHED: [&str; 2] = [concat!("to", "do"), concat!("unimple", "mented")];
/// Notes to oneself, split so that this file does not contain them.
const NOTES: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust_files() {
        let source = Source::parse(text);
        for name in UNFINISHED {
            for line in source.lines_of_macro(name) {
                let what = format!("`{name}!` is unfinished code: write it, or leave it out");
                findings.push(Finding::new(format!("{path}:{line}"), what));
            }
        }
        for line in source.lines_of_attribute("ignore") {
            let what = "an ignored test tells nothing: mend it, delete it or bound it";
            findings.push(Finding::new(format!("{path}:{line}"), what));
        }
    }
    for (path, text) in &tree.files {
        if path == "Cargo.lock" || path == "LICENSE" {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            if let Some(note) = NOTES.iter().find(|note| has_word(line, note)) {
                let what = format!("`{note}` is a note to oneself: do it, or open an issue");
                findings.push(Finding::new(format!("{path}:{}", index + 1), what));
            }
        }
    }
    findings
}

/// Whether `line` has `word` as a whole word, not as a part of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_are_found_on_their_line() {
        let [todo, unimplemented] = UNFINISHED;
        let note = NOTES[0];
        for (text, place) in [
            (format!("fn f() {{\n    {todo}!()\n}}"), Some("a.rs:2")),
            (format!("fn f() {{ {unimplemented}!(\"x\") }}"), Some("a.rs:1")),
            ("#[test]\n#[ignore = \"slow\"]\nfn t() {}".to_owned(), Some("a.rs:2")),
            ("#[cfg_attr(x, ignore)]\nfn t() {}".to_owned(), Some("a.rs:1")),
            (format!("// {note}: later"), Some("a.rs:1")),
            (format!("let s = \"{todo}!()\"; // {}S", note), None),
            ("fn ignore() {}".to_owned(), None),
        ] {
            let findings = check(&Tree::of([("a.rs", &text)]));
            assert_eq!(findings.first().map(|finding| finding.place.as_str()), place, "{text}");
        }
    }
}
