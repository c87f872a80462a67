//! Non-test lines of each crate, without blank lines and comments.
//!
//! Tests, benchmarks, examples and fixtures do not count, nor do modules under `#[cfg(test)]`.

use crate::tidy::{Package, Tree};

/// Every crate's folder with its lines, the largest first.
pub(super) fn by_crate(tree: &Tree) -> Vec<(String, usize)> {
    let mut counted: Vec<(String, usize)> = tree
        .packages
        .iter()
        .map(|package| (package.dir.clone(), of_package(tree, package)))
        .collect();
    counted.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    counted
}

fn of_package(tree: &Tree, package: &Package) -> usize {
    let sources = format!("{}/src/", package.dir);
    let files = tree.rust_files().filter(|(path, _)| path.starts_with(&sources));
    files.filter(|(path, _)| !is_test(path)).map(|(_, text)| of_text(text)).sum()
}

/// Whether a file under `src/` is compiled only for tests.
pub(super) fn is_test(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name == "tests.rs"
        || name.ends_with("_tests.rs")
        || name == "fixture.rs"
        || path.contains("/tests/")
}

fn of_text(text: &str) -> usize {
    let mut lines = 0;
    let mut is_test_next = false;
    for line in text.lines() {
        let code = line.trim();
        if is_test_next && line.starts_with(|c: char| c.is_alphabetic()) {
            // By custom the tests are at the end of a file: `#[cfg(test)] mod tests {`.
            if code.ends_with('{') && code.contains("mod ") {
                return lines - 1;
            }
            is_test_next = false;
        }
        if line == "#[cfg(test)]" {
            is_test_next = true;
        }
        if !code.is_empty() && !code.starts_with("//") {
            lines += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blanks_and_tests_do_not_count() {
        let text = "//! A.\n\n/// B.\nfn b() {\n    // c\n    c();\n}\n\n#[cfg(test)]\nmod tests {\n    fn d() {}\n}\n";
        assert_eq!(of_text(text), 3);
        assert_eq!(of_text("#[cfg(test)]\nmod fixture;\nfn a() {}\n"), 3);
    }

    #[test]
    fn crates_are_counted_by_their_sources() {
        let tree = Tree::of([
            ("crates/a/src/lib.rs", "fn a() {}\n"),
            ("crates/a/src/tests.rs", "fn t() {}\n"),
            ("crates/a/tests/it/main.rs", "fn t() {}\n"),
            ("crates/b/src/lib.rs", "fn a() {}\nfn b() {}\n"),
        ])
        .with_package("ballast-a", &[])
        .with_package("ballast-b", &[]);
        assert_eq!(by_crate(&tree), [("crates/b".to_owned(), 2), ("crates/a".to_owned(), 1)]);
    }
}
