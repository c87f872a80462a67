//! Every source file begins with its purpose: a `//!` header with words in it.

use super::{Finding, Tree};

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let headless = tree.rust_files().filter(|(_, text)| !has_header(text));
    headless
        .map(|(path, _)| {
            Finding::new(
                format!("{path}:1"),
                "add a `//!` header that says the idea, and its cost, source and limits",
            )
        })
        .collect()
}

fn has_header(text: &str) -> bool {
    // A program may begin with `#!/…`; attributes such as `#![no_main]` come after the header.
    let mut lines = text.lines().skip_while(|line| line.starts_with("#!/"));
    lines.next().and_then(|line| line.strip_prefix("//!")).is_some_and(|words| {
        let words = words.trim();
        words.contains(' ') && !words.eq_ignore_ascii_case("placeholder")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_found_and_missed() {
        for (text, ok) in [
            ("//! What it is.\nfn f() {}", true),
            ("#!/usr/bin/env run\n//! What it is.", true),
            ("", false),
            ("//! ", false),
            ("//! placeholder", false),
            ("// What it is.", false),
            ("#![no_main]\n//! What it is.", false),
        ] {
            let tree = Tree::of([("fuzz/fuzz_targets/a.rs", text), ("docs/a.md", "")]);
            assert_eq!(check(&tree).is_empty(), ok, "{text:?}");
        }
    }
}
