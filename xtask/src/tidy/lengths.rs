//! Files stay short enough to understand. Tests do not count: tables of cases may be long.

use super::rust::Source;
use super::{Finding, Tree};

/// Number of lines above which a file should be split.
const LINES_WARN: usize = 500;
/// Number of lines above which it must be split.
const LINES_MAX: usize = 700;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust_files().filter(|(path, _)| !is_test(path)) {
        let lines = text.lines().count();
        if lines <= LINES_WARN {
            continue;
        }
        let lines = lines - Source::parse(text).test_lines();
        let what = format!("{lines} lines without tests, at most {LINES_WARN}: split it by ideas");
        if lines > LINES_MAX {
            findings.push(Finding::failure(path, what));
        } else if lines > LINES_WARN {
            findings.push(Finding::warning(path, what));
        }
    }
    findings
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.split('/').any(|folder| folder == "tests")
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn length_counts_without_tests() {
        let code = |lines: usize| "fn f() {}\n".repeat(lines);
        let tests = |lines: usize| format!("#[cfg(test)]\nmod tests {{\n{}}}\n", code(lines));
        for (text, severity) in [
            (code(500), None),
            (code(501), Some(Severity::Warning)),
            (code(700), Some(Severity::Warning)),
            (code(701), Some(Severity::Failure)),
            (code(500) + &tests(900), None),
            (code(501) + &tests(900), Some(Severity::Warning)),
        ] {
            let tree =
                Tree::of([("crates/a/src/b.rs", &text), ("crates/a/tests/c.rs", &code(900))]);
            assert_eq!(check(&tree).first().map(|finding| finding.severity), severity);
        }
    }
}
