//! Files stay short enough to understand. Tests do not count: tables of cases may be long.

use super::rust::Source;
use super::{Finding, Tree};

/// Most lines of a file without its tests.
const LINES_MAX: usize = 500;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust_files().filter(|(path, _)| !is_test(path)) {
        let lines = text.lines().count();
        if lines <= LINES_MAX {
            continue;
        }
        let lines = lines - Source::parse(text).test_lines();
        if lines > LINES_MAX {
            let what =
                format!("{lines} lines without tests, at most {LINES_MAX}: split it by ideas");
            findings.push(Finding::new(path, what));
        }
    }
    findings
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.split('/').any(|folder| folder == "tests")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_counts_without_tests() {
        let code = |lines: usize| "fn f() {}\n".repeat(lines);
        let tests = |lines: usize| format!("#[cfg(test)]\nmod tests {{\n{}}}\n", code(lines));
        for (text, found) in [
            (code(500), false),
            (code(501), true),
            (code(500) + &tests(900), false),
            (code(501) + &tests(900), true),
        ] {
            let tree =
                Tree::of([("crates/a/src/b.rs", &text), ("crates/a/tests/c.rs", &code(900))]);
            assert_eq!(!check(&tree).is_empty(), found);
        }
    }
}
