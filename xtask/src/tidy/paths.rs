//! Documents point at what exists.
//!
//! Idea: a word in backquotes that begins with a folder of the workspace is a path, and so is the
//! target of a Markdown link; both must be there.
//! Limits: anchors are not followed; a path with a placeholder (`NNNN`, `…`, `*`) is not one.

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
            let linked = links(line).map(|target| resolve(path, target));
            for target in named.chain(linked).filter(|target| !exists(tree, target)) {
                let what = format!("`{target}` does not exist");
                findings.push(Finding::failure(format!("{path}:{}", index + 1), what));
            }
        }
    }
    findings
}

/// Targets of the Markdown links in a line that lead into the workspace.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .map(|target| target.split('#').next().unwrap_or(target))
        .filter(|target| !target.is_empty() && !target.contains(':'))
}

/// `target` as seen from the folder of `document`, as a path from the root.
fn resolve(document: &str, target: &str) -> String {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
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
            ("see [the map](ARCHITECTURE.md#arrows)", false),
            ("see [the readme](../README.md)", false),
            ("see [the map](gone.md)", true),
            ("see [elsewhere](https://example.com/x.md) or [below](#below)", false),
            ("`docs/decisions/NNNN-title.md` and `crates/*` are patterns", false),
            ("`cargo test` is no path", false),
        ] {
            let tree = Tree::of([
                ("docs/a.md", line),
                ("docs/ARCHITECTURE.md", ""),
                ("README.md", ""),
                ("lab/lab-host/src/lib.rs", ""),
            ]);
            assert_eq!(!check(&tree).is_empty(), found, "{line}");
        }
    }
}
