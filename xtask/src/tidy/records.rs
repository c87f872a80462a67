//! A measured figure names the record that it comes from, and a record the commit that it is of.
//!
//! Idea: a figure with a unit, in the readme or a guide, is *measured* if a verb in its sentence
//! says so ("took", "cost", "reached" …), or if it is a ratio, a rate or a time with no word of a
//! limit before it ("at most 3 s", "every 10 s", "after 2 s"). Its block, or the paragraph that
//! introduces its list or table, must then link to a record in `docs/benchmarks/` or to
//! `docs/evaluation.md`. A sentence that names the place in a paper has named its record.
//!
//! Other figures get a marker with a reason, such as `<!-- no record: settings -->`, before their
//! block, or below a heading for the whole section: `settings` for settings and limits;
//! `transcript` for the output of a program; `arithmetic` for figures that follow from others;
//! `rules` for what other programs do by their own rules.
//!
//! Limits: it sees words, not meaning: it finds figures without a record, but not records that say
//! something else. It does not see figures in words ("a third"). Code, records, decisions and the
//! glossary are not checked.

use super::markdown::{self, Block, BlockKind};
use super::{Finding, Tree};

const FOLDER: &str = "docs/benchmarks/";
/// The beginning of every record's path: its name begins with a date.
const RECORDS: &str = "docs/benchmarks/20";
const EVALUATION: &str = "docs/evaluation.md";
const NOT_GUIDES: [&str; 4] = [FOLDER, "docs/decisions/", "docs/GLOSSARY.md", EVALUATION];

/// Units of ratios and times.
const RATES: [&str; 13] = [
    "%", "×", "times", "cent", "ns", "µs", "ms", "s", "second", "seconds", "minute", "minutes",
    "million",
];
const SIZES: [&str; 6] = ["KiB", "MiB", "GiB", "KB", "MB", "GB"];
/// Words that, just before a figure or shortly before it, make it a limit or a setting.
const LIMITING: [&str; 20] = [
    "most", "least", "up", "than", "under", "below", "above", "beyond", "every", "within", "after",
    "for", "until", "default", "over", "exceeds", "if", "when", "once", "plus",
];
/// Words that do so behind a figure.
const LIMITING_AFTER: [&str; 4] = ["or more", "at most", "at a time", "by default"];
/// Number of words before a figure that are looked at.
const BEFORE: usize = 4;
/// Words that show a measurement.
const EVIDENCE: [&str; 19] = [
    "measured", "took", "cost", "costs", "seen", "saw", "showed", "wrote", "shrank", "grew", "did",
    "lost", "gained", "reached", "erred", "missed", "agree", "agrees", "stayed",
];
const PAPERS: [&str; 5] = ["MEB", "IMT", "TWS", "Global", "flexmemd"];
const MARKER: &str = "no record:";
const REASONS: [&str; 4] = ["settings", "transcript", "arithmetic", "rules"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in &tree.files {
        if path.starts_with(RECORDS) && !names_commit(text) {
            findings.push(Finding::new(path, "name the commit that was measured"));
        }
    }
    for (path, text) in tree.files.iter().filter(|(path, _)| is_guide(path)) {
        // Whether a marker or a link to a record covers the section, the next block, and the list
        // or table behind a paragraph.
        let (mut section, mut next, mut behind) = (false, false, false);
        let mut after_heading = false;
        for block in markdown::blocks(text) {
            match block.kind {
                BlockKind::Heading => (section, next, behind) = (false, false, false),
                BlockKind::Comment => match marker(&block.text) {
                    Some(Ok(())) if after_heading => section = true,
                    Some(Ok(())) => next = true,
                    Some(Err(what)) => {
                        findings.push(Finding::new(format!("{path}:{}", block.line), what));
                    }
                    None => {}
                },
                BlockKind::Paragraph | BlockKind::Entry => {
                    let is_entry = block.kind == BlockKind::Entry;
                    let named = names_record(path, &block.text);
                    if !(named || section || next || is_entry && behind) {
                        findings.extend(unrecorded(path, &block));
                    }
                    behind = next || if is_entry { behind } else { named };
                    next = false;
                }
            }
            after_heading = block.kind == BlockKind::Heading;
        }
    }
    findings
}

fn is_guide(path: &str) -> bool {
    let is_document = path.ends_with(".md") && path.starts_with("docs/") || path == "README.md";
    is_document && !NOT_GUIDES.iter().any(|other| path.starts_with(other))
}

/// Whether `record` says "commit" or has a hash of one.
fn names_commit(record: &str) -> bool {
    let is_hash = |word: &str| {
        (7..=8).contains(&word.len())
            && word.chars().all(|c| c.is_ascii_hexdigit())
            && word.contains(|c: char| c.is_ascii_digit())
            && word.contains(|c: char| c.is_ascii_alphabetic())
    };
    let mut words = record.split(|c: char| !c.is_alphanumeric());
    words.any(|word| word.eq_ignore_ascii_case("commit") || is_hash(word))
}

/// Whether `comment` is a marker, and whether its reason is a known one.
fn marker(comment: &str) -> Option<Result<(), String>> {
    let text = comment.trim_start_matches("<!--").trim_end_matches("-->").trim();
    let reason = text.strip_prefix(MARKER)?.trim();
    let wrong = || format!("`{reason}`: expected one of {}", REASONS.join(", "));
    Some(if REASONS.contains(&reason) { Ok(()) } else { Err(wrong()) })
}

/// Whether `text` links to a record; the check of paths checks that the record exists.
fn names_record(document: &str, text: &str) -> bool {
    markdown::links(text).any(|(path, _)| {
        let path = markdown::resolve(document, path);
        path == EVALUATION || path.starts_with(RECORDS)
    })
}

fn unrecorded(path: &str, block: &Block) -> Option<Finding> {
    let figures: Vec<String> = sentences(&block.text).iter().flat_map(|it| measured(it)).collect();
    let what = format!(
        "{} looks measured: link its record in {FOLDER}, or mark it (xtask/src/tidy/records.rs)",
        figures.join(", ")
    );
    (!figures.is_empty()).then(|| Finding::new(format!("{path}:{}", block.line), what))
}

/// The sentences and table cells of `text`, as words. Text in backquotes becomes one word without
/// letters; the targets of links are left out.
fn sentences(text: &str) -> Vec<Vec<String>> {
    let mut plain = String::new();
    for (index, part) in text.split('`').enumerate() {
        plain.push_str(if index % 2 == 0 { part } else { "`" });
    }
    let mut unlinked = String::new();
    for (index, part) in plain.split("](").enumerate() {
        unlinked.push_str(if index == 0 {
            part
        } else {
            part.split_once(')').map_or("", |it| it.1)
        });
    }
    let mut sentences = vec![Vec::new()];
    let mut ends = false;
    for word in unlinked.split_whitespace() {
        let begins = word.starts_with(|c: char| c.is_uppercase() || matches!(c, '`' | '*' | '('));
        if word == "|" || ends && begins {
            sentences.push(Vec::new());
        }
        ends = word.ends_with(['.', ':', ';']);
        if word != "|"
            && let Some(sentence) = sentences.last_mut()
        {
            sentence.push(word.to_owned());
        }
    }
    sentences
}

/// The figures of a sentence that look measured, each with its unit.
fn measured(words: &[String]) -> Vec<String> {
    let bare = |word: &String| word.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
    let plain: Vec<String> = words.iter().map(bare).collect();
    let has_evidence = plain.iter().any(|word| EVIDENCE.contains(&word.to_lowercase().as_str()));
    if names_place_in_paper(words, &plain) {
        return Vec::new();
    }
    let mut figures = Vec::new();
    for index in 0..words.len() {
        let Some((number, unit, behind)) = figure(words, index) else { continue };
        let rest = plain[behind..].join(" ");
        let is_rate = RATES.contains(&unit.as_str())
            || rest.starts_with("a second")
            || rest.starts_with("per second");
        let is_size = SIZES.contains(&unit.as_str());
        let before = &plain[index.saturating_sub(BEFORE)..index];
        let in_brackets = words[index].starts_with('(')
            && index > 0
            && words[index - 1].trim_end_matches(['*', ',']).ends_with('`');
        let is_limit = in_brackets
            || before.iter().any(|word| LIMITING.contains(&word.to_lowercase().as_str()))
            || LIMITING_AFTER.iter().any(|after| rest.starts_with(after));
        if has_evidence && (is_rate || is_size) || is_rate && !is_limit {
            figures.push(format!("\"{number} {unit}\""));
        }
    }
    figures
}

/// Number and unit of the figure that begins with word `index`, and the index of the word behind
/// it.
fn figure(words: &[String], index: usize) -> Option<(String, String, usize)> {
    let word = words[index].trim_start_matches(['(', '*', '~', '−', '±', '≈', '"', '[']);
    let digits = word.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | ','));
    let number = word[..word.len() - digits.len()].trim_end_matches(['.', ',']);
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let ending = |text: &str| {
        text.trim_end_matches(['.', ',', ';', ':', ')', '*', ']', '"', '/']).to_owned()
    };
    let own = ending(digits);
    if !own.is_empty() {
        return Some((number.to_owned(), own, index + 1));
    }
    // "6 s", "30,013 touches a second".
    let next = ending(words.get(index + 1)?);
    Some((number.to_owned(), next, index + 2))
}

fn names_place_in_paper(words: &[String], plain: &[String]) -> bool {
    let paper = plain.iter().position(|word| PAPERS.contains(&word.as_str()));
    paper.is_some_and(|at| {
        words[at + 1..].iter().zip(&plain[at + 1..]).take(2).any(|(word, bare)| {
            word.contains('§') || ["Table", "Tables", "Fig", "Figs"].contains(&bare.as_str())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_found(text: &str) -> bool {
        let tree = Tree::of([("docs/a.md", text)]);
        !check(&tree).is_empty()
    }

    #[test]
    fn measured_figures_without_a_record_are_found() {
        for text in [
            "It did 6.3 and 8.9 times the work.",
            "An aging took 0.3 to 0.5 s of a core.",
            "It processes 20 million references on one core.",
            "The error is 4.2 %, the slowdown **0.9 %**.",
            "A guest shrank from 256 to 160 MiB.",
            "A balloon takes 80 MB a second.",
            "It sees 30,013 touches a second.",
            "- Up to 13 % was lost: measured once.",
            "| loop | 1.5 × |",
            "Text ([figures](gone/2026.md)): 3 ms each.",
            "See [all](benchmarks/README.md): 3 ms each.",
            "<!-- no record: settings -->\nA.\n\nIt is 4.2 % off.",
            "## A\n<!-- no record: settings -->\n## B\nIt is 4.2 % off.",
            "<!-- no record: settings -->\n| a | 4 % |\n\nIt is 4.2 % off.",
            "- ([figures](benchmarks/2026-11-21-a.md))\n- It is 4.2 % off.",
        ] {
            assert!(is_found(text), "{text}");
        }
    }

    #[test]
    fn settings_links_papers_and_code_are_left_alone() {
        for text in [
            "It waits at most 3 s, every 10 s, and after 20 seconds again.",
            "`timeout` (2 s) ends it; 5 s or more is an error, 1 MiB at a time.",
            "A guest of 512 MiB on a budget of 1 GiB.",
            "It did 6.3 times the work ([figures](benchmarks/2026-11-21-a.md)).",
            "It did 6.3 times the work ([table](evaluation.md#meb)).",
            "Seen ([figures](benchmarks/2026-11-21-a.md)):\n\n| loop | 1.5 × |\n| zipf | 4 % |",
            "The paper errs by 13.46 % (MEB Fig. 9a).",
            "TWS §4.1 has 10 s.",
            "    took 3 ms\n\n```\ntook 3 ms\n```",
            "`took 3 ms` is printed.",
            "<!-- no record: transcript -->\nIt prints 4.2 %.",
            "<!-- no record: settings -->\n| a | 20 % |\n| b | 40 % |",
            "## A\n<!-- no record: settings -->\nIt is 4 %.\n\nIt is 5 %.",
            "Version 6.12 of 2026-11-25, in 3 of 4 runs, took part.",
        ] {
            let tree = Tree::of([("docs/a.md", text)]);
            assert_eq!(check(&tree), [], "{text}");
        }
    }

    #[test]
    fn a_reason_nobody_knows_is_refused() {
        assert!(is_found("<!-- no record: because -->\nNothing."));
        assert!(!is_found("<!-- a comment -->\nNothing."));
    }

    #[test]
    fn a_record_without_its_commit_is_found() {
        for (text, found) in [
            ("At 1a2b3c4d.", false),
            ("Commit: the one that adds this file.", false),
            ("At noon: 1482376 ticks of a defaced face.", true),
        ] {
            let tree = Tree::of([("docs/benchmarks/2026-11-21-a.md", text)]);
            assert_eq!(!check(&tree).is_empty(), found, "{text}");
        }
    }

    #[test]
    fn figures_of_records_decisions_and_the_glossary_need_no_link() {
        let text = "It took 3 ms at this commit.";
        let tree = Tree::of([
            ("docs/benchmarks/2026-11-21-a.md", text),
            ("docs/decisions/0001-a.md", text),
            ("docs/GLOSSARY.md", text),
            ("lab/a.md", text),
        ]);
        assert_eq!(check(&tree), []);
        assert_eq!(check(&Tree::of([("README.md", text)])).len(), 1);
    }
}
