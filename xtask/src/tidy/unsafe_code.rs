//! `unsafe` is confined to code that talks to the kernel. Clippy checks that each block argues its
//! safety.

use super::rust::Source;
use super::{Finding, Tree};

/// Paths that may contain `unsafe`: mechanisms that need a call for which no safe library exists,
/// and the vector instructions of one pure crate (decision 7).
const ALLOWED: [&str; 12] = [
    "crates/host/",
    "lab/faulty-disk/",
    "lab/lab-host/",
    "lab/lab-guest/",
    "lab/lab-truth/",
    "lab/xenstore-shim/",
    "crates/tracker-preload/",
    "lab/track-subject/",
    "crates/tracker/",
    "crates/reclaim/",
    "lib/mrc/src/exact/",
    "lib/mrc/src/shards/filter.rs",
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust_files() {
        if ALLOWED.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        for line in Source::parse(text).lines_of("unsafe") {
            let what = "`unsafe` belongs in a mechanism crate, behind a safe function";
            findings.push(Finding::new(format!("{path}:{line}"), what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_code_is_found_outside_of_mechanisms() {
        let text = "// unsafe\n#![forbid(unsafe_code)]\nfn f() { unsafe { g() } }";
        for (path, place) in [
            ("crates/policy/src/a.rs", Some("crates/policy/src/a.rs:3")),
            ("crates/ballast/tests/a.rs", Some("crates/ballast/tests/a.rs:3")),
            ("crates/host/src/a.rs", None),
            ("lib/mrc/src/a.rs", Some("lib/mrc/src/a.rs:3")),
            ("lib/mrc/src/exact/run.rs", None),
        ] {
            let findings = check(&Tree::of([(path, text)]));
            assert_eq!(findings.first().map(|finding| finding.place.as_str()), place);
        }
    }
}
