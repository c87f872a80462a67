//! Every dependency in a manifest is used.
//!
//! Idea: a dependency is dead if no token of its package names it, and an entry of
//! `[workspace.dependencies]` is dead if no package names it. Every member must also inherit the
//! workspace's lints. Limits: a dependency used only for its features has no token; there is none
//! yet.

use super::rust::Source;
use super::{Finding, Package, Tree};

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> =
        tree.packages.iter().flat_map(|package| check_package(tree, package)).collect();
    for name in &tree.workspace_dependencies {
        let named = tree.packages.iter().flat_map(|package| &package.dependencies);
        if !named.into_iter().any(|dependency| dependency.name == *name) {
            let what = format!("no package depends on `{name}`: remove it");
            findings.push(Finding::new("Cargo.toml", what));
        }
    }
    findings
}

fn check_package(tree: &Tree, package: &Package) -> Vec<Finding> {
    let place = format!("{}/Cargo.toml", package.dir);
    let texts: Vec<&str> = tree.rust_files_of(package).map(|(_, text)| text).collect();
    let sources: Vec<Source> = texts.iter().map(|text| Source::parse(text)).collect();
    let mut findings = Vec::new();
    for dependency in &package.dependencies {
        let name = dependency.name.replace('-', "_");
        // serde takes paths as text: `#[serde(with = "name::module")]`.
        let in_text = format!("\"{name}::");
        let is_named = sources.iter().any(|source| source.names(&name));
        if !is_named && !texts.iter().any(|text| text.contains(&in_text)) {
            let what = format!("`{}` is not used: remove it", dependency.name);
            findings.push(Finding::new(&place, what));
        }
    }
    let manifest = tree.files.get(&place).map_or("", String::as_str);
    if !manifest.contains("[lints]\nworkspace = true") {
        findings.push(Finding::new(&place, "add `[lints]` with `workspace = true`"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::DependencyKind::Normal;
    use super::*;

    const MANIFEST: &str = "[lints]\nworkspace = true\n";

    #[test]
    fn dead_dependencies_are_found() {
        let tree = Tree::of([
            ("crates/a/Cargo.toml", MANIFEST),
            ("crates/a/src/lib.rs", "use serde_json::Value; // not toml"),
        ])
        .with_package("ballast-a", &[("serde-json", Normal), ("toml", Normal)]);
        let findings = check(&tree);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].what.contains("`toml`"));
    }

    #[test]
    fn dead_workspace_dependencies_are_found() {
        let mut tree = Tree::of([
            ("crates/a/Cargo.toml", MANIFEST),
            ("crates/a/src/lib.rs", "use serde::De;"),
        ])
        .with_package("ballast-a", &[("serde", Normal)]);
        tree.workspace_dependencies = vec!["serde".to_owned(), "toml".to_owned()];
        let findings = check(&tree);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].what.contains("`toml`"));
    }

    #[test]
    fn a_package_outside_the_lints_is_found() {
        let tree =
            Tree::of([("crates/a/Cargo.toml", "[package]\n")]).with_package("ballast-a", &[]);
        assert!(check(&tree)[0].what.contains("[lints]"));
    }
}
