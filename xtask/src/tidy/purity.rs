//! Pure crates touch nothing: they forbid `unsafe`, share one list of forbidden calls, and depend
//! only on outside crates known to do no I/O.

use super::arrows::{self, Layer};
use super::{DependencyKind, Finding, Package, Tree};

/// Where the link in each pure crate leads: the list of calls clippy refuses.
const CLIPPY_LINK: &str = "../../pure.clippy.toml";

/// Outside crates a pure crate may use: none of them reads a clock, a file, a socket or randomness.
/// Its tests and benchmarks may use others. `fastrand` without its default features has generators
/// that are given a seed and no others; `libm` computes the same on every machine; `crc32fast` asks
/// the processor what it can.
const WITHOUT_IO: [&str; 10] = [
    "crc32fast",
    "fastrand",
    "hashbrown",
    "humantime",
    "libm",
    "serde",
    "serde_json",
    "strsim",
    "thiserror",
    "toml",
];

/// Pure crates that may use `unsafe` where a module allows it: vector instructions and prefetching
/// (decision 7). What they compute is the same without.
const MAY_ALLOW_UNSAFE: [&str; 1] = ["ballast-mrc"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let is_pure = |package: &&Package| arrows::layer(&package.name) == Some(Layer::Pure);
    tree.packages.iter().filter(is_pure).flat_map(|package| check_package(tree, package)).collect()
}

fn check_package(tree: &Tree, package: &Package) -> Vec<Finding> {
    let dir = &package.dir;
    let mut findings = Vec::new();
    let link = format!("{dir}/clippy.toml");
    if tree.links.get(&link).map(String::as_str) != Some(CLIPPY_LINK) {
        let what = format!("make it a symbolic link to `{CLIPPY_LINK}`");
        findings.push(Finding::failure(link, what));
    }
    let lib = format!("{dir}/src/lib.rs");
    let level = if MAY_ALLOW_UNSAFE.contains(&package.name.as_str()) { "deny" } else { "forbid" };
    let attribute = format!("#![{level}(unsafe_code)]");
    if !tree.files.get(&lib).is_some_and(|text| text.contains(&format!("\n{attribute}\n"))) {
        findings.push(Finding::failure(lib, format!("add `{attribute}`")));
    }
    for dependency in &package.dependencies {
        let name = dependency.name.as_str();
        let outside = arrows::layer(name).is_none();
        if outside && dependency.kind != DependencyKind::Development && !WITHOUT_IO.contains(&name)
        {
            let what = format!(
                "`{name}` in a pure crate: use one of {}, or argue it in xtask/src/tidy/purity.rs",
                WITHOUT_IO.join(", ")
            );
            findings.push(Finding::failure(format!("{dir}/Cargo.toml"), what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::DependencyKind::{Development, Normal};
    use super::*;

    fn pure_tree(dependencies: &[(&str, DependencyKind)]) -> Tree {
        let lib = "//! A policy.\n\n#![forbid(unsafe_code)]\n\nmod a;\n";
        let mut tree = Tree::of([("crates/policy/src/lib.rs", lib)])
            .with_package("ballast-policy", dependencies);
        tree.links.insert("crates/policy/clippy.toml".into(), CLIPPY_LINK.into());
        tree
    }

    #[test]
    fn outside_crates_are_let_in_by_name() {
        for (name, kind, allowed) in [
            ("serde", Normal, true),
            ("tokio", Normal, false),
            ("rustix", Normal, false),
            ("rusqlite", Normal, false),
            ("libc", Normal, false),
            ("proptest", Development, true),
            ("ballast-model", Normal, true),
        ] {
            assert_eq!(check(&pure_tree(&[(name, kind)])).is_empty(), allowed, "{name}");
        }
    }

    #[test]
    fn the_list_of_forbidden_calls_is_linked() {
        let mut tree = pure_tree(&[]);
        tree.links.clear();
        assert_eq!(check(&tree)[0].place, "crates/policy/clippy.toml");
    }

    #[test]
    fn unsafe_code_is_forbidden() {
        let mut tree = pure_tree(&[]);
        tree.files.insert("crates/policy/src/lib.rs".into(), "//! A policy.\n".into());
        assert_eq!(check(&tree)[0].place, "crates/policy/src/lib.rs");
    }
}
