//! Pure crates do no I/O: they forbid `unsafe`, share one list of forbidden calls, and depend only
//! on outside crates that are known to do no I/O.

use super::arrows::{self, Layer};
use super::{DependencyKind, Finding, Package, Tree};

/// With this attribute clippy refuses, in a pure crate, the calls listed in the workspace's
/// `clippy.toml`.
const DENY_DISALLOWED: &str =
    "#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]";

/// Outside crates that a pure crate may use: none of them reads a clock, a file, a socket or
/// randomness. Tests and benchmarks may use others. `fastrand` without its default features has
/// only generators that are given a seed. `futures-util` joins futures on which others wait. `libm`
/// computes the same on every machine. `crc32fast` asks the processor for its features. `schemars`
/// describes types, in tests.
const WITHOUT_IO: [&str; 13] = [
    "crc32fast",
    "fastrand",
    "futures-util",
    "hashbrown",
    "hdrhistogram",
    "humantime",
    "libm",
    "schemars",
    "serde",
    "serde_json",
    "strsim",
    "thiserror",
    "toml",
];

/// Pure crates that may use `unsafe` in modules that allow it: vector instructions and prefetching
/// (decision 7). Their results are the same without these.
const MAY_ALLOW_UNSAFE: [&str; 1] = ["ballast-mrc"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let is_pure = |package: &&Package| arrows::layer(&package.name) == Some(Layer::Pure);
    tree.packages.iter().filter(is_pure).flat_map(|package| check_package(tree, package)).collect()
}

fn check_package(tree: &Tree, package: &Package) -> Vec<Finding> {
    let dir = &package.dir;
    let mut findings = Vec::new();
    let lib = format!("{dir}/src/lib.rs");
    let level = if MAY_ALLOW_UNSAFE.contains(&package.name.as_str()) { "deny" } else { "forbid" };
    for attribute in [&format!("#![{level}(unsafe_code)]"), DENY_DISALLOWED] {
        if !tree.files.get(&lib).is_some_and(|text| text.contains(&format!("\n{attribute}\n"))) {
            findings.push(Finding::new(lib.clone(), format!("add `{attribute}`")));
        }
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
            findings.push(Finding::new(format!("{dir}/Cargo.toml"), what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::DependencyKind::{Development, Normal};
    use super::*;

    fn pure_tree(dependencies: &[(&str, DependencyKind)]) -> Tree {
        let lib =
            format!("//! A policy.\n\n#![forbid(unsafe_code)]\n{DENY_DISALLOWED}\n\nmod a;\n");
        Tree::of([("crates/policy/src/lib.rs", lib.as_str())])
            .with_package("ballast-policy", dependencies)
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
    fn both_attributes_are_required() {
        for attribute in ["#![forbid(unsafe_code)]", DENY_DISALLOWED] {
            let mut tree = pure_tree(&[]);
            for text in tree.files.values_mut() {
                *text = text.replace(attribute, "");
            }
            let findings = check(&tree);
            assert_eq!(findings.len(), 1, "{attribute}");
            assert_eq!(findings[0].place, "crates/policy/src/lib.rs");
        }
    }
}
