//! Decisions are numbered from 0001, without gaps or repeats, so that a lost one is noticed.

use super::{Finding, Tree};

const FOLDER: &str = "docs/decisions/";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut expected = 1;
    for path in tree.files.keys().filter(|path| path.starts_with(FOLDER)) {
        let name = &path[FOLDER.len()..];
        let number = name.split_once('-').filter(|(digits, _)| digits.len() == 4);
        let Some(number) = number.and_then(|(digits, _)| digits.parse::<u32>().ok()) else {
            findings.push(Finding::new(path, "expected a name such as `0007-title.md`"));
            continue;
        };
        if number != expected {
            let what = format!("expected number {expected:04}: decisions have no gaps or doubles");
            findings.push(Finding::new(path, what));
        }
        expected = number + 1;
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_and_doubles_are_found() {
        for (names, found) in [
            (["0001-a.md", "0002-b.md"], None),
            (["0001-a.md", "0003-b.md"], Some("docs/decisions/0003-b.md")),
            (["0001-a.md", "0001-b.md"], Some("docs/decisions/0001-b.md")),
            (["0001-a.md", "notes.md"], Some("docs/decisions/notes.md")),
        ] {
            let paths = names.map(|name| format!("{FOLDER}{name}"));
            let tree = Tree::of([(&*paths[0], ""), (&*paths[1], "")]);
            assert_eq!(check(&tree).first().map(|finding| finding.place.as_str()), found);
        }
    }
}
