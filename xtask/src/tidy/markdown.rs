//! Parses Markdown for the checks of documents: blocks, links and anchors.
//!
//! Idea: one pass over the lines. Code, fenced or indented, is left out: it shows the output of a
//! program, not a claim of the author. Limits: the Markdown of this project: headings with `#`,
//! lists with `-` or numbers, tables with `|`. An indented line after an empty one is code.

/// A part of a document that is checked on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Its first line, from 1.
    pub(crate) line: usize,
    pub(crate) kind: BlockKind,
    /// Its lines, joined with spaces; a heading without its `#`.
    pub(crate) text: String,
}

/// The kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    Heading,
    Paragraph,
    /// An item of a list, or a row of a table.
    Entry,
    /// An HTML comment on lines of its own.
    Comment,
}

/// The blocks of `document`, in order.
pub(crate) fn blocks(document: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut in_fence, mut is_open) = (false, false);
    for (index, line) in document.lines().enumerate() {
        let text = line.trim();
        if text.starts_with("```") {
            (in_fence, is_open) = (!in_fence, false);
            continue;
        }
        if in_fence || text.is_empty() {
            is_open = false;
            continue;
        }
        if !is_open && line.starts_with("    ") {
            continue;
        }
        let kind = kind_of(text);
        match blocks.last_mut() {
            Some(last) if is_open && kind == BlockKind::Paragraph => {
                last.text.push(' ');
                last.text.push_str(text);
            }
            _ => {
                let text = text.trim_start_matches('#').trim_start().to_owned();
                blocks.push(Block { line: index + 1, kind, text });
            }
        }
        is_open = !matches!(kind, BlockKind::Heading | BlockKind::Comment);
    }
    blocks
}

fn kind_of(line: &str) -> BlockKind {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_numbered = number.len() < line.len() && number.starts_with(". ");
    if line.starts_with('#') {
        BlockKind::Heading
    } else if line.starts_with("<!--") && line.ends_with("-->") {
        BlockKind::Comment
    } else if line.starts_with("- ") || line.starts_with('|') || is_numbered {
        BlockKind::Entry
    } else {
        BlockKind::Paragraph
    }
}

/// Targets of the links in `text` that lead into the workspace: path and anchor. The path is empty
/// for the document itself.
pub(crate) fn links(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| !target.is_empty() && !target.contains(':'))
        .map(|target| match target.split_once('#') {
            Some((path, anchor)) => (path, Some(anchor)),
            None => (target, None),
        })
}

/// `target`, relative to the folder of `document`, as a path from the root.
pub(crate) fn resolve(document: &str, target: &str) -> String {
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

/// The anchors of the headings of `document`, by GitHub's rules.
pub(crate) fn anchors(document: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for block in blocks(document).iter().filter(|block| block.kind == BlockKind::Heading) {
        let plain = anchor(&block.text);
        let mut name = plain.clone();
        let mut copies = 0;
        while anchors.contains(&name) {
            copies += 1;
            name = format!("{plain}-{copies}");
        }
        anchors.push(name);
    }
    anchors
}

fn anchor(heading: &str) -> String {
    let lower = heading.to_lowercase();
    let kept = lower.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_no_block_and_lines_are_joined() {
        let document = "# A `b`\nOne\ntwo.\n- an item\n  goes on\n1. first\n\n    code 1 %\n\n\
                        ```\nmore code\n```\n| a |\n|---|\n<!-- c -->\nEnd.\n";
        let found: Vec<(usize, BlockKind, String)> =
            blocks(document).into_iter().map(|it| (it.line, it.kind, it.text)).collect();
        let expected = [
            (1, BlockKind::Heading, "A `b`"),
            (2, BlockKind::Paragraph, "One two."),
            (4, BlockKind::Entry, "- an item goes on"),
            (6, BlockKind::Entry, "1. first"),
            (13, BlockKind::Entry, "| a |"),
            (14, BlockKind::Entry, "|---|"),
            (15, BlockKind::Comment, "<!-- c -->"),
            (16, BlockKind::Paragraph, "End."),
        ];
        assert_eq!(found, expected.map(|(line, kind, text)| (line, kind, text.to_owned())));
    }

    #[test]
    fn anchors_are_those_of_github() {
        let document = "# Figures of `meb`, again (2)\n## A–b_c\n## Same\n## Same\n";
        assert_eq!(anchors(document), ["figures-of-meb-again-2", "ab_c", "same", "same-1"]);
    }

    #[test]
    fn links_that_leave_the_workspace_are_left_out() {
        let text = "[a](b.md#c) [d](https://e) [f](#g) [h](../i.md) ![j](k.png)";
        let found: Vec<_> = links(text).collect();
        let expected = [("b.md", Some("c")), ("", Some("g")), ("../i.md", None), ("k.png", None)];
        assert_eq!(found, expected);
    }
}
