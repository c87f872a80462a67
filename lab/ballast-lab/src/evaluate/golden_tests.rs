//! Tests that the figures of the goldens in `scenarios/golden` keep their verdicts.
//!
//! Idea: a golden freezes the output of a simulation, but `UPDATE_GOLDEN=1` freezes any other
//! output in its place, however far that moves a paper's figure. So each golden counts here as the
//! only repetition of its scenario, and the verdicts that `evaluate` would give are compared with
//! those in `scenarios/golden/verdicts.txt`, which nothing but an editor changes.
//! Limits: one seed, so a verdict may be stronger than that of several repetitions. Rows with
//! policies of their own have no goldens. What is outside its band already may move further away.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::catalogue::Catalogue;
use super::findings::{findings, jobs};
use super::job::{Task, read_bounded};
use super::results::ResultsFile;
use super::verdict::{Cause, Verdict};
use super::work::{JobOutcome, JobOutcomes, JobResult};

/// The words for verdicts, from the strongest to the weakest.
const WORDS: [&str; 6] = ["reproduced", "met", "in kind", "fitted", "outside", "no figure"];

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::NotReproduced(Cause::Fitted(_)) => "fitted",
        Verdict::NotReproduced(Cause::Outside(_)) => "outside",
        Verdict::NotReproduced(_) => "no figure",
        agreeing => agreeing.shown(),
    }
}

fn weakness(word: &str) -> Option<usize> {
    WORDS.iter().position(|it| *it == word)
}

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

/// By the name of each figure of a golden: the word for its verdict, and what the verdict rests on.
fn judged() -> BTreeMap<String, (&'static str, String)> {
    let scenarios = scenarios();
    let catalogue = Catalogue::read(&scenarios).unwrap_or_else(|error| panic!("{error:#}"));
    let mut outcomes = JobOutcomes::new();
    for job in jobs(&catalogue, 1, &scenarios) {
        if !matches!(job.task, Task::Simulate { policies: None, .. }) {
            continue;
        }
        let path = scenarios.join(format!("golden/{}.json", job.task.subject()));
        let text = read_bounded(&path).unwrap_or_else(|error| panic!("{error:#}"));
        let result = serde_json::from_str(&text).unwrap();
        let done = JobResult { result, ended_at: String::new(), ran: false };
        outcomes.insert(job.name(), JobOutcome::Done(done));
    }
    let files = std::fs::read_dir(scenarios.join("golden")).unwrap().flatten();
    let goldens = files.filter(|file| file.path().extension().is_some_and(|it| it == "json"));
    assert_eq!(outcomes.len(), goldens.count(), "a golden is in no row of the catalogue");

    let mut nothing_kept = ResultsFile::read(&scenarios.join("no such file")).unwrap();
    let found = findings(&catalogue, &scenarios, 1, &outcomes, &mut nothing_kept);
    let found = found.unwrap_or_else(|error| panic!("{error:#}"));
    let mut judged = BTreeMap::new();
    for row in found.papers.iter().flat_map(|paper| &paper.rows) {
        for figure in &row.figures {
            let name = format!("{}: {}", row.id, figure.name());
            let (ours, band) = (figure.ours_shown(), figure.band.shown());
            let paper = match figure.paper {
                Some(_) => format!("the paper {}", figure.paper_shown()),
                None => "no figure in the paper".to_owned(),
            };
            let rests_on = format!("ours {ours}, {paper}, band: {band}");
            let other = judged.insert(name.clone(), (word(&figure.verdict), rests_on));
            assert_eq!(other, None, "two figures have the name {name}");
        }
    }
    judged
}

/// What differs between the lines of `kept` and the verdicts of today, in words.
fn differences(kept: &str, today: &BTreeMap<String, (&'static str, String)>) -> Vec<String> {
    let mut differences = Vec::new();
    let mut words: BTreeMap<&str, &str> = BTreeMap::new();
    for line in kept.lines().filter(|line| !line.starts_with('#')) {
        let read = line.split_once(": ").filter(|(word, _)| weakness(word).is_some());
        let is_first = read.is_some_and(|(word, name)| words.insert(name, word).is_none());
        if !is_first {
            differences.push(format!("`{line}`: expected VERDICT: FIGURE, each figure once"));
        }
    }
    for (name, (word, rests_on)) in today {
        let line = format!("{word}: {name}");
        match words.remove(name.as_str()) {
            Some(before) if weakness(before) < weakness(word) => {
                differences.push(format!("WEAKER: {name} was {before}, is {word}: {rests_on}"));
            }
            Some(before) if before != *word => {
                differences.push(format!("stronger ({rests_on}), write `{line}`"));
            }
            Some(_) => {}
            None => differences.push(format!("new ({rests_on}), write `{line}`")),
        }
    }
    for name in words.keys() {
        differences.push(format!("gone, delete the line of {name}"));
    }
    differences
}

/// A figure that became weaker is a regression, unless the commit says why it had to.
#[test]
fn figures_of_goldens_keep_their_verdicts() {
    let path = scenarios().join("golden/verdicts.txt");
    let kept = read_bounded(&path).unwrap_or_else(|error| panic!("{error:#}"));
    let differences = differences(&kept, &judged());
    assert!(differences.is_empty(), "{}:\n{}", path.display(), differences.join("\n"));
}

#[test]
fn a_weaker_verdict_is_reported_with_figures_and_band() {
    const NAME: &str = "meb.V: time (meb, graph)";
    let rests_on = "ours 2.00×, the paper 9.29×, band: within 1.25 times";
    let found = |kept: &str, word: &'static str| {
        let today = BTreeMap::from([(NAME.to_owned(), (word, rests_on.to_owned()))]);
        differences(&kept.replace("NAME", NAME), &today)
    };
    assert_eq!(found("# a comment\nin kind: NAME\n", "in kind"), [""; 0]);
    for (before, after) in [("reproduced", "in kind"), ("in kind", "outside"), ("met", "fitted")] {
        let weaker = found(&format!("{before}: NAME"), after);
        assert_eq!(weaker, [format!("WEAKER: {NAME} was {before}, is {after}: {rests_on}")]);
        let stronger = found(&format!("{after}: NAME"), before);
        assert_eq!(stronger, [format!("stronger ({rests_on}), write `{before}: {NAME}`")]);
    }
}

#[test]
fn every_figure_has_one_line() {
    let today = BTreeMap::from([("a.1: b".to_owned(), ("outside", "ours 1".to_owned()))]);
    for (kept, expected) in [
        ("", "new (ours 1), write `outside: a.1: b`"),
        ("outside: a.1: b\noutside: a.1: c", "gone, delete the line of a.1: c"),
        ("outside: a.1: b\noutside: a.1: b", "each figure once"),
        ("outside: a.1: b\nalmost: a.1: c", "expected VERDICT: FIGURE"),
        ("outside: a.1: b\n\n", "expected VERDICT: FIGURE"),
    ] {
        let found = differences(kept, &today);
        assert!(found.len() == 1 && found[0].contains(expected), "{kept}: {found:?}");
    }
}
