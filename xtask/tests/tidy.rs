//! The workspace itself is tidy.

use std::path::Path;

use xtask::tidy::{self, Severity, Tree};

#[test]
fn the_workspace_is_tidy() {
    let tree = Tree::load(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
    assert!(tree.packages.len() > 10, "the walk found too little: {:?}", tree.packages);
    assert!(tree.files.contains_key("xtask/tests/tidy.rs"), "the walk missed this file");
    let findings = tidy::check(&tree);
    let failures: Vec<String> = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Failure)
        .map(ToString::to_string)
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
