//! Rust sources as tokens.
//!
//! Idea: text in comments and string literals may look like code, so the checks look at tokens.
//! Limits: a file that is not valid Rust, such as a half-written one, has no tokens; the compiler
//! reports it.

use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The tokens of one file, flattened.
pub(crate) struct Source {
    tokens: Vec<Token>,
    /// Lines of modules under `#[cfg(test)]`.
    test_lines: usize,
}

/// A word or a punctuation mark: its line from 1, whether something stands left of it on the line,
/// whether it is inside `#[…]`, and whether it is inside a module under `#[cfg(test)]`.
struct Token {
    text: String,
    line: usize,
    is_indented: bool,
    in_attribute: bool,
    in_test: bool,
}

/// A name that a file defines, and its line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Definition<'a> {
    pub(crate) name: &'a str,
    pub(crate) line: usize,
}

impl Source {
    pub(crate) fn parse(text: &str) -> Source {
        let stream = TokenStream::from_str(text).unwrap_or_default();
        let test_lines = test_lines(&stream);
        let mut tokens = Vec::new();
        flatten(stream, false, false, &mut tokens);
        Source { tokens, test_lines }
    }

    /// Whether `word` occurs.
    pub(crate) fn names(&self, word: &str) -> bool {
        self.tokens.iter().any(|token| token.text == word)
    }

    /// Lines that contain `word`.
    pub(crate) fn lines_of(&self, word: &str) -> Vec<usize> {
        self.tokens.iter().filter(|token| token.text == word).map(|token| token.line).collect()
    }

    /// Lines with a call of the macro `name`.
    pub(crate) fn lines_of_macro(&self, name: &str) -> Vec<usize> {
        let pairs = self.tokens.windows(2);
        pairs
            .filter(|pair| pair[0].text == name && pair[1].text == "!")
            .map(|p| p[0].line)
            .collect()
    }

    /// Lines with `word` in an attribute.
    pub(crate) fn lines_of_attribute(&self, word: &str) -> Vec<usize> {
        let attributes = self.tokens.iter().filter(|token| token.in_attribute);
        attributes.filter(|token| token.text == word).map(|token| token.line).collect()
    }

    /// Types and traits defined outside of tests, without the associated types of an
    /// implementation: their names are those of the trait.
    pub(crate) fn types(&self) -> Vec<Definition<'_>> {
        let is_type = |word: &str| ["struct", "enum", "union", "trait", "type"].contains(&word);
        let mut found = Vec::new();
        for (at, pair) in self.tokens.windows(2).enumerate() {
            let (keyword, name) = (&pair[0], &pair[1]);
            let is_name = name.text.starts_with(char::is_uppercase);
            let is_first = at == 0 || self.tokens[at - 1].line < keyword.line;
            let is_given = keyword.text == "type"
                && keyword.is_indented
                && is_first
                && self.tokens.get(at + 2).is_some_and(|next| next.text == "=");
            let is_ours = is_name && !is_given && !keyword.in_test && !keyword.in_attribute;
            if is_type(&keyword.text) && is_ours {
                found.push(Definition { name: &name.text, line: name.line });
            }
        }
        found
    }

    /// Functions under `#[test]`.
    pub(crate) fn tests(&self) -> Vec<Definition<'_>> {
        let mut found = Vec::new();
        let mut is_next = false;
        for pair in self.tokens.windows(2) {
            is_next |= pair[0].in_attribute && pair[0].text == "test" && !pair[1].in_attribute;
            if is_next && pair[0].text == "fn" {
                found.push(Definition { name: &pair[1].text, line: pair[1].line });
                is_next = false;
            }
        }
        found
    }

    /// Lines of modules under `#[cfg(test)]`.
    pub(crate) fn test_lines(&self) -> usize {
        self.test_lines
    }
}

fn flatten(stream: TokenStream, in_attribute: bool, in_test: bool, tokens: &mut Vec<Token>) {
    let mut after_hash = false;
    let mut after_cfg_test = false;
    for tree in stream {
        let start = tree.span().start();
        let (line, is_indented) = (start.line, start.column > 0);
        let mut push = |text: String| {
            tokens.push(Token { text, line, is_indented, in_attribute, in_test });
        };
        match tree {
            TokenTree::Ident(word) => push(word.to_string()),
            TokenTree::Punct(mark) => {
                push(mark.to_string());
                // In `#![…]` the exclamation mark keeps the state of the hash.
                after_hash = mark.as_char() == '#' || (after_hash && mark.as_char() == '!');
                continue;
            }
            TokenTree::Group(group) => {
                let attribute = after_hash && group.delimiter() == Delimiter::Bracket;
                let is_body = group.delimiter() == Delimiter::Brace;
                let test = in_test || (is_body && std::mem::take(&mut after_cfg_test));
                after_cfg_test |= attribute && is_cfg_test(&group.stream());
                flatten(group.stream(), in_attribute || attribute, test, tokens);
            }
            TokenTree::Literal(_) => {}
        }
        after_hash = false;
    }
}

fn is_cfg_test(attribute: &TokenStream) -> bool {
    attribute.to_string().replace(' ', "") == "cfg(test)"
}

/// Lines of `#[cfg(test)] mod … { … }` and `#[cfg(test)] impl … { … }` at the top level.
fn test_lines(stream: &TokenStream) -> usize {
    let mut lines = 0;
    let mut test_since = None;
    for tree in stream.clone() {
        let TokenTree::Group(group) = tree else { continue };
        match group.delimiter() {
            Delimiter::Bracket if is_cfg_test(&group.stream()) => {
                test_since = Some(group.span().start().line);
            }
            Delimiter::Brace => {
                if let Some(since) = test_since.take() {
                    lines += group.span().end().line + 1 - since;
                }
            }
            _ => {}
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_texts_are_no_code() {
        let source = Source::parse("// panic!()\nfn f() { g(\"panic!()\"); }\n/* unsafe */ h!{}");
        assert!(source.lines_of_macro("panic").is_empty());
        assert!(!source.names("unsafe"));
        assert_eq!(source.lines_of_macro("h"), [3]);
    }

    #[test]
    fn attributes_are_distinguished_from_words() {
        let source =
            Source::parse("#![allow(x)]\n#[cfg_attr(a, skip)]\nfn skip() {}\nlet a = [skip];");
        assert_eq!(source.lines_of_attribute("skip"), [2]);
        assert_eq!(source.lines_of_attribute("x"), [1]);
        assert_eq!(source.lines_of("skip"), [2, 3, 4]);
    }

    #[test]
    fn lines_of_tests_are_counted() {
        let source = Source::parse("fn f() {}\n\n#[cfg(test)]\nmod tests {\n\n}\nfn g() {}\n");
        assert_eq!(source.test_lines(), 4);
    }

    #[test]
    fn types_and_tests_are_found() {
        let source = Source::parse(
            "struct A;\npub(crate) enum B {}\n#[cfg(test)]\nmod tests {\nstruct C;\n#[test]\n\
             #[ignore]\nfn d() {}\nfn e() {}\n}\ntrait F { type G; }\n\
             impl F for A {\n    type G = B;\n}\npub type H = A;\n",
        );
        let names = |found: Vec<Definition<'_>>| {
            found.iter().map(|it| format!("{} {}", it.name, it.line)).collect::<Vec<_>>()
        };
        assert_eq!(names(source.types()), ["A 1", "B 2", "F 11", "G 11", "H 15"]);
        assert_eq!(names(source.tests()), ["d 8"]);
    }
}
