//! Names: every word of a type's name is in the glossary, and a test's name is a short statement.
//!
//! Idea: a reader looks up an unknown word in one place. If the name of a test needs more than ten
//! words, it states more than one thing. The last paragraph of the glossary lists plain words that
//! need no explanation; each must be in use. Limits: a word is known if it is anywhere in the
//! glossary, in singular or plural.

use std::collections::BTreeSet;

use super::rust::Source;
use super::{Finding, Tree};

const GLOSSARY: &str = "docs/GLOSSARY.md";
/// The heading, in lower case, above the words that are not explained.
const PLAIN_WORDS: &str = "## plain words";
/// Most words of a test's name.
const TEST_WORDS_MAX: usize = 10;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let glossary = tree.files.get(GLOSSARY).map_or(String::new(), |text| text.to_lowercase());
    let is_separator = |c: char| !c.is_ascii_alphanumeric();
    let known: BTreeSet<&str> = glossary.split(is_separator).collect();
    let mut used: BTreeSet<String> = BTreeSet::new();
    let mut findings = Vec::new();
    for (path, text) in tree.rust_files() {
        let source = Source::parse(text);
        for test in source.tests() {
            let words = test.name.split('_').count();
            if words > TEST_WORDS_MAX {
                let what = format!(
                    "test {} has {words} words, at most {TEST_WORDS_MAX}: state one property",
                    test.name
                );
                findings.push(Finding::new(format!("{path}:{}", test.line), what));
            }
        }
        if !has_glossary(path) {
            continue;
        }
        for defined in source.types() {
            for word in words(defined.name) {
                let forms = forms(&word);
                if !forms.iter().any(|form| known.contains(form.as_str())) {
                    let what = format!(
                        "\"{word}\" of {} is not in {GLOSSARY}: explain it there, or use a known word",
                        defined.name
                    );
                    findings.push(Finding::new(format!("{path}:{}", defined.line), what));
                }
                used.extend(forms);
            }
        }
    }
    let list = glossary.split_once(PLAIN_WORDS).and_then(|(_, rest)| rest.rsplit("\n\n").next());
    for word in list.unwrap_or_default().split(is_separator).filter(|word| !word.is_empty()) {
        if !used.contains(word) {
            let what = format!("plain word \"{word}\" is in no name of a type: remove it");
            findings.push(Finding::new(GLOSSARY, what));
        }
    }
    findings
}

/// Whether the glossary covers the file: tests and developers' commands may use other names.
fn has_glossary(path: &str) -> bool {
    let is_ours = ["crates/", "lab/", "lib/"].iter().any(|folder| path.starts_with(folder));
    let is_test = path.split('/').any(|part| ["tests", "benches", "tests.rs"].contains(&part))
        || path.ends_with("_tests.rs");
    is_ours && !is_test
}

/// The words of a camel-case name, in lower case.
fn words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut words: Vec<String> = Vec::new();
    for (at, letter) in letters.iter().enumerate() {
        let after_small = at > 0 && !letters[at - 1].is_uppercase();
        let before_small = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        let begins = letter.is_uppercase() && (after_small || before_small);
        match words.last_mut() {
            Some(word) if !begins => word.extend(letter.to_lowercase()),
            _ => words.push(letter.to_lowercase().collect()),
        }
    }
    words
}

/// The word in singular and plural, and what only looks like one of these.
fn forms(word: &str) -> Vec<String> {
    let singular = word.strip_suffix('s').unwrap_or(word).to_owned();
    let mut forms = vec![word.to_owned(), singular, format!("{word}s"), format!("{word}es")];
    forms.extend(word.strip_suffix('y').map(|stem| format!("{stem}ies")));
    forms.extend(word.strip_suffix("ies").map(|stem| format!("{stem}y")));
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let tree = Tree::of([(path, text), (GLOSSARY, "**guest** A machine. **policies**")]);
        check(&tree).iter().map(|finding| finding.what.clone()).collect()
    }

    #[test]
    fn words_of_types_are_looked_up() {
        assert_eq!(found("crates/a/src/b.rs", "struct GuestPolicy; enum Machines {}"), [""; 0]);
        let missing = found("lab/a/src/b.rs", "struct GuestRung;");
        assert!(matches!(&missing[..], [what] if what.starts_with("\"rung\" of GuestRung")));
        assert_eq!(found("lab/a/tests/b.rs", "struct GuestRung;"), [""; 0]);
    }

    #[test]
    fn plain_words_that_no_type_uses_are_found() {
        let glossary = "**guest**\n\n## Plain words\n\nThese are plain.\n\nfate, entry,\nrow.\n";
        let tree = Tree::of([
            (GLOSSARY, glossary),
            ("lab/a/src/a.rs", "struct GuestRows; enum Entries {}"),
            ("lab/a/tests/it/a.rs", "struct Fate;"),
        ]);
        let found: Vec<String> = check(&tree).into_iter().map(|it| it.what).collect();
        assert_eq!(found, ["plain word \"fate\" is in no name of a type: remove it"]);
    }

    #[test]
    fn long_test_names_are_found() {
        let ten = "a_b_c_d_e_f_g_h_i_j";
        assert_eq!(found("x/a.rs", &format!("#[test] fn {ten}() {{}}")), [""; 0]);
        assert_eq!(found("x/a.rs", &format!("#[test] fn {ten}_k() {{}}")).len(), 1);
    }

    #[test]
    fn camel_case_is_split() {
        assert_eq!(words("HyperVRule"), ["hyper", "v", "rule"]);
        assert_eq!(words("QMPError"), ["qmp", "error"]);
        assert_eq!(words("Line16"), ["line16"]);
    }
}
