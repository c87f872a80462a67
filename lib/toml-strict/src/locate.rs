//! Finds places in a document: from bytes to lines, from spans to keys, and from keys to spans.
//!
//! Idea: it walks the parser's own tree with its spans, so that the places are the parser's. Cost:
//! O(document) per error. Limits: the recursion is as deep as the parser lets a document nest.

use std::fmt;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Longest key quoted in a message, in characters; longer ones are cut.
const KEY_CHARS_MAX: usize = 64;

/// A place in a file, counted from 1; columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// One step from a value to a value inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PathStep {
    Key(String),
    Index(usize),
}

/// The path from the root of a document to a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyPath(Vec<PathStep>);

impl KeyPath {
    pub(crate) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// This path with one more key.
    pub(crate) fn join(mut self, key: &str) -> KeyPath {
        self.0.push(PathStep::Key(key.to_owned()));
        self
    }

    /// Removes the last step if it is `key`.
    pub(crate) fn pop_if_last_is(&mut self, key: &str) {
        self.0.pop_if(|step| matches!(step, PathStep::Key(name) if name == key));
    }
}

/// The path in TOML's syntax, with array positions in brackets: `guest[2]."a b".floor`.
impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, step) in self.0.iter().enumerate() {
            match step {
                PathStep::Key(key) if depth == 0 => f.write_str(&quote(key))?,
                PathStep::Key(key) => write!(f, ".{}", quote(key))?,
                PathStep::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// A key in TOML's syntax, cut to a printable length.
pub(crate) fn quote(key: &str) -> String {
    let bare = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    let cut: String = key.chars().take(KEY_CHARS_MAX).collect();
    let more = if cut.len() < key.len() { "…" } else { "" };
    if !key.is_empty() && key.bytes().all(bare) {
        format!("{cut}{more}")
    } else {
        format!("\"{}{more}\"", cut.escape_debug())
    }
}

/// The line and column of byte `offset`; those of the end if it is beyond.
pub(crate) fn position(text: &str, offset: usize) -> Position {
    let before = &text[..text.floor_char_boundary(offset)];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    Position {
        line: 1 + before.bytes().filter(|&b| b == b'\n').count(),
        column: 1 + before[line_start..].chars().count(),
    }
}

/// The key whose name or value is at `span`, or the innermost one around it.
pub(crate) fn path_at(text: &str, span: &Range<usize>) -> KeyPath {
    // The tree has what could be parsed, even if the document as a whole is malformed.
    let (root, _) = DeTable::parse_recoverable(text);
    let mut path = Vec::new();
    descend_table(root.get_ref(), span, &mut path);
    KeyPath(path)
}

/// Extends `path` by the steps to `span`; whether there were any.
fn descend_table(table: &DeTable<'_>, span: &Range<usize>, path: &mut Vec<PathStep>) -> bool {
    for (key, value) in table {
        path.push(PathStep::Key(key.get_ref().to_string()));
        if covers(&key.span(), span) || descend_value(value, span, path) {
            return true;
        }
        path.pop();
    }
    false
}

fn descend_value(
    value: &Spanned<DeValue<'_>>,
    span: &Range<usize>,
    path: &mut Vec<PathStep>,
) -> bool {
    let found_inside = match value.get_ref() {
        DeValue::Table(table) => descend_table(table, span, path),
        DeValue::Array(items) => items.iter().enumerate().any(|(index, item)| {
            path.push(PathStep::Index(index));
            let found = descend_value(item, span, path);
            if !found {
                path.pop();
            }
            found
        }),
        _ => false,
    };
    found_inside || covers(&value.span(), span)
}

fn covers(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end && !outer.is_empty()
}

/// The place of a key in a document.
pub(crate) struct KeyLocation {
    /// The whole path searched for, present or not.
    pub(crate) path: KeyPath,
    /// The place of its value, or of the innermost enclosing value that is present.
    pub(crate) position: Option<Position>,
}

/// Finds `key`; a number selects an item of an array.
pub(crate) fn find(text: &str, key: &[&str]) -> KeyLocation {
    let (root, _) = DeTable::parse_recoverable(text);
    let mut steps = Vec::with_capacity(key.len());
    let mut start = None;
    let mut table = Some(root.get_ref());
    let mut value: Option<&Spanned<DeValue<'_>>> = None;
    for &name in key {
        let items = value.and_then(|value| value.get_ref().as_array());
        let index = items.and_then(|items| Some((items, name.parse::<usize>().ok()?)));
        let step;
        (step, value) = match index {
            Some((items, index)) => (PathStep::Index(index), items.get(index)),
            None => (PathStep::Key(name.to_owned()), table.and_then(|table| table.get(name))),
        };
        steps.push(step);
        table = value.and_then(|value| value.get_ref().as_table());
        start = value.map(|value| value.span().start).or(start);
    }
    KeyLocation { path: KeyPath(steps), position: start.map(|start| position(text, start)) }
}
