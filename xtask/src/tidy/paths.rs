//! Documents refer only to paths that exist.
//!
//! Idea: a word in backquotes that begins with a folder of the workspace is a path, and so is the
//! target of a Markdown link. Both must exist, and so must the heading that a link's anchor names.
//! Limits: a path with a placeholder (`NNNN`, `…`, `*`) is not checked; only anchors of headings
//! are known.

use super::markdown::{self, anchors};
use super::{Finding, Tree};

const FOLDERS: [&str; 8] =
    ["crates/", "lab/", "lib/", "docs/", "scripts/", "xtask/", "fuzz/", "scenarios/"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (index, line) in text.lines().enumerate() {
            let quoted = line.split('`').skip(1).step_by(2);
            let named = quoted
                .filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)))
                .map(str::to_owned);
            let linked = markdown::links(line).filter(|(target, _)| !target.is_empty());
            let linked = linked.map(|(target, _)| markdown::resolve(path, target));
            let place = format!("{path}:{}", index + 1);
            for target in named.chain(linked).filter(|target| !exists(tree, target)) {
                findings.push(Finding::new(&place, format!("`{target}` does not exist")));
            }
            for (target, anchor) in markdown::links(line) {
                let (Some(anchor), false) = (anchor, line.starts_with("    ")) else { continue };
                let target = match target {
                    "" => path.clone(),
                    target => markdown::resolve(path, target),
                };
                let document = tree.files.get(&target).filter(|_| target.ends_with(".md"));
                if document.is_some_and(|text| !anchors(text).iter().any(|it| it == anchor)) {
                    let what = format!("`{target}` has no heading `#{anchor}`");
                    findings.push(Finding::new(&place, what));
                }
            }
        }
    }
    findings
}

fn exists(tree: &Tree, target: &str) -> bool {
    let path = target.trim_end_matches('/');
    let pattern = |c: char| matches!(c, '*' | '…' | '<' | '{' | ' ') || c.is_ascii_uppercase();
    let name = path.rsplit('/').next().unwrap_or(path);
    let placeholder = !name.ends_with(".md") && name.contains(pattern) || name.starts_with("NNNN");
    let folder = format!("{path}/");
    placeholder
        || tree.files.contains_key(path)
        || tree.files.keys().any(|file| file.starts_with(&folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_nowhere_are_found() {
        for (line, found) in [
            ("see `lab/lab-host/src/lib.rs` and `lab/lab-host/`", false),
            ("see `lab/lab-host/src/gone.rs`", true),
            ("see [the map](ARCHITECTURE.md#arrows-of-it)", false),
            ("see [the map](ARCHITECTURE.md#gone)", true),
            ("see [the readme](../README.md)", false),
            ("see [the map](gone.md)", true),
            ("see [elsewhere](https://example.com/x.md) or [below](#below)\n# Below", false),
            ("see [below](#below)", true),
            ("`docs/decisions/NNNN-title.md` and `crates/*` are patterns", false),
            ("`cargo test` is no path", false),
        ] {
            let tree = Tree::of([
                ("docs/a.md", line),
                ("docs/ARCHITECTURE.md", "## Arrows of it"),
                ("README.md", ""),
                ("lab/lab-host/src/lib.rs", ""),
            ]);
            assert_eq!(!check(&tree).is_empty(), found, "{line}");
        }
    }
}
