//! Counts integration test programs: linking one costs more than running most of its tests.

use crate::tidy::Tree;

/// The roots of all integration test programs.
pub(super) fn programs(tree: &Tree) -> Vec<String> {
    let mut programs = Vec::new();
    for package in &tree.packages {
        let folder = format!("{}/tests/", package.dir);
        for (path, _) in tree.rust_files() {
            let Some(rest) = path.strip_prefix(&folder) else { continue };
            // Cargo's rule: `tests/NAME.rs` and `tests/NAME/main.rs`.
            let is_root = match rest.split_once('/') {
                None => true,
                Some((_, below)) => below == "main.rs",
            };
            if is_root {
                programs.push(path.to_owned());
            }
        }
    }
    programs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_cargo_finds_them() {
        let tree = Tree::of([
            ("crates/a/tests/it/main.rs", ""),
            ("crates/a/tests/it/b.rs", ""),
            ("crates/a/tests/harness/mod.rs", ""),
            ("crates/a/tests/c.rs", ""),
            ("crates/a/src/tests/d.rs", ""),
        ])
        .with_package("ballast-a", &[]);
        assert_eq!(programs(&tree), ["crates/a/tests/c.rs", "crates/a/tests/it/main.rs"]);
    }
}
