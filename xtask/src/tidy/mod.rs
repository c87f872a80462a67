//! The tidy check: those rules of `CONTRIBUTING.md` that a program can check.
//!
//! Idea: the workspace is loaded once into a [`Tree`]. Every check is a pure function from the tree
//! to findings, in a file of its own, tested on small trees made up for it. Limits: it reads
//! tokens, not types; clippy checks what needs types.

mod arrows;
mod comments;
mod decisions;
mod dependencies;
mod finding;
mod headers;
mod leftovers;
mod lengths;
mod map;
mod markdown;
mod names;
mod paths;
mod purity;
mod records;
mod riddles;
mod rust;
mod tree;
mod unsafe_code;

pub use finding::Finding;
pub use tree::{Dependency, DependencyKind, Package, Tree};

/// All checks, sorted by the place of each finding.
pub fn check(tree: &Tree) -> Vec<Finding> {
    const CHECKS: [fn(&Tree) -> Vec<Finding>; 14] = [
        arrows::check,
        comments::check,
        decisions::check,
        dependencies::check,
        headers::check,
        leftovers::check,
        lengths::check,
        map::check,
        names::check,
        paths::check,
        purity::check,
        records::check,
        riddles::check,
        unsafe_code::check,
    ];
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(tree)).collect();
    findings.sort_by(|a, b| (&a.place, &a.what).cmp(&(&b.place, &b.what)));
    findings
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_workspace_is_tidy() {
        let tree = Tree::load(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert!(tree.packages.len() > 10, "the walk found too little: {:?}", tree.packages);
        assert!(tree.files.contains_key("xtask/src/tidy/mod.rs"), "the walk missed this file");
        let findings: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }
}
