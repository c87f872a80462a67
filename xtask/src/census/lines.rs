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
    sources(tree, package).map(of_text).sum()
}

/// The texts of a package's files under `src/`, without those that are compiled only for tests.
pub(super) fn sources<'a>(tree: &'a Tree, package: &Package) -> impl Iterator<Item = &'a str> {
    let folder = format!("{}/src/", package.dir);
    let files = tree.rust_files();
    files.filter(move |(path, _)| path.starts_with(&folder) && !is_test(path)).map(|(_, text)| text)
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
    let code = without_tests(text).into_iter().map(str::trim);
    code.filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

/// The lines before the tests, which by custom end a file: `#[cfg(test)] mod tests {`.
pub(super) fn without_tests(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    let mut end = lines.len();
    let mut attribute = None;
    for (index, line) in lines.iter().enumerate() {
        if *line == "#[cfg(test)]" {
            attribute = Some(index);
        } else if line.starts_with(char::is_alphabetic)
            && let Some(begin) = attribute.take()
            && line.ends_with('{')
            && line.contains("mod ")
        {
            end = begin;
            break;
        }
    }
    lines.truncate(end);
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
