//! Names that are given to several types: a reader has to find out which of them is meant.
//!
//! Idea: rustfmt begins the items of a file at the first column, so the line has the name. Types in
//! tests, in functions and in modules within a file do not count.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::lines;
use crate::tidy::Tree;

/// Number of types from which on a name counts as repeated.
pub(super) const REPEATED_MIN: usize = 3;
const KEYWORDS: [&str; 5] = ["struct", "enum", "union", "trait", "type"];

/// The repeated names, each with its number of types; the most frequent first.
pub(super) fn repeated(tree: &Tree) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for text in tree.packages.iter().flat_map(|package| lines::sources(tree, package)) {
        for name in lines::without_tests(text).into_iter().filter_map(type_name) {
            *counts.entry(name).or_default() += 1;
        }
    }
    let repeated = counts.into_iter().filter(|(_, count)| *count >= REPEATED_MIN);
    let mut names: Vec<_> = repeated.map(|(name, count)| (name.to_owned(), count)).collect();
    names.sort_by_key(|(_, count)| Reverse(*count));
    names
}

/// The name of the type that `line` defines at the top of a file.
fn type_name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let is_item = line.starts_with(char::is_alphabetic);
    words.find(|word| is_item && KEYWORDS.contains(word))?;
    let name = words.next()?.split(|c: char| !c.is_alphanumeric()).next()?;
    name.starts_with(char::is_uppercase).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_three_types_are_repeated() {
        let tree = Tree::of([
            (
                "crates/a/src/lib.rs",
                "struct Row;\npub enum Table<T> {}\npub(crate) type Row2 = Row;",
            ),
            ("crates/a/src/b.rs", "pub struct Row(u8);\nmod c {\n    struct Row;\n}\n"),
            ("crates/a/src/tests.rs", "struct Row;\n"),
            ("crates/a/tests/it/main.rs", "struct Row;\n"),
            (
                "crates/b/src/lib.rs",
                "// struct Row\nfn f() {}\n#[cfg(test)]\nmod t {\nstruct Row;\n}",
            ),
            ("crates/b/src/c.rs", "pub trait Row: Sized {}\npub(super) struct Table {}"),
        ])
        .with_package("ballast-a", &[])
        .with_package("ballast-b", &[]);
        assert_eq!(repeated(&tree), [("Row".to_owned(), 3)]);
    }
}
