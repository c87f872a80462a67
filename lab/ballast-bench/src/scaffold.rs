//! The frame of every benchmark: findings, their goals, JSON, and text.
//!
//! Idea: a benchmark measures and implements [`Findings`]; the frame adds version and goals, leaves
//! the goals out of quick runs, and prints.

use std::fmt::Display;
use std::io::{self, Write};

use ballast_report::{Output, Report};
use clap::ValueEnum;
use serde::Serialize;

use crate::goal::{self, Goal};

/// The version of the program, to go with the figures.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Receives a line about a benchmark's progress.
pub(crate) type Say<'a> = &'a dyn Fn(&str);

/// Prints the line on standard error.
pub(crate) fn say(line: &str) {
    // Errors are ignored: a closed standard error changes no figure.
    let _ = writeln!(io::stderr(), "{line}");
}

/// The figures of one run of a benchmark.
pub(crate) trait Findings: Serialize {
    /// A remark for quick runs; empty if they need none.
    const QUICK_REMARK: &'static str = "";

    /// Whether the run was too short for its figures to mean anything.
    fn is_quick(&self) -> bool;

    /// The goals, with the measured figures.
    fn goals(&self) -> Vec<Goal>;

    /// Writes the figures as text.
    fn show(&self, text: &mut Text);
}

/// Findings with their goals.
#[derive(Debug, Serialize)]
pub(crate) struct WithGoals<F> {
    #[serde(flatten)]
    pub(crate) findings: F,
    pub(crate) goals: Vec<Goal>,
}

impl<F: Findings> WithGoals<F> {
    /// Compares `findings` with their goals, unless the run was quick.
    pub(crate) fn new(findings: F) -> Self {
        let goals = if findings.is_quick() { Vec::new() } else { findings.goals() };
        Self { findings, goals }
    }

    /// The text, with tables wrapped to `width` columns if given.
    pub(crate) fn render(&self, width: Option<u16>) -> String {
        let mut text = Text::new(width);
        self.findings.show(&mut text);
        if self.findings.is_quick() && !F::QUICK_REMARK.is_empty() {
            text.line(format_args!("\n{}", F::QUICK_REMARK));
        }
        text.out + &goal::table(&self.goals, width)
    }
}

/// Text that is being written.
pub(crate) struct Text {
    out: String,
    width: Option<u16>,
}

impl Text {
    /// Empty text; tables will be wrapped to `width` columns if given.
    pub(crate) fn new(width: Option<u16>) -> Self {
        Self { out: String::new(), width }
    }

    /// The text.
    pub(crate) fn finish(self) -> String {
        self.out
    }

    /// Adds a line.
    pub(crate) fn line(&mut self, line: impl Display) {
        self.out.push_str(&format!("{line}\n"));
    }

    /// Adds a table of `rows`.
    pub(crate) fn table<'r, Row: 'r>(
        &mut self,
        columns: &Report<'_, Row>,
        rows: impl IntoIterator<Item = &'r Row>,
    ) {
        self.out.push_str(&columns.table(rows, self.width));
    }
}

/// The values that were named, each once, or all; in the order in which they are declared.
pub(crate) fn chosen<T: ValueEnum + Ord>(named: &[T]) -> Vec<T> {
    let mut chosen = if named.is_empty() { T::value_variants().to_vec() } else { named.to_vec() };
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

/// The name of a value as users type it.
pub(crate) fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |it| it.get_name().to_owned())
}

/// Prints `found` as JSON with the version, or as the text that `render` makes.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print<T: Serialize>(
    output: Output,
    found: &T,
    render: impl FnOnce(&T, Option<u16>) -> String,
) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Versioned<'a, T> {
        version: &'static str,
        #[serde(flatten)]
        found: &'a T,
    }
    output.print(&Versioned { version: VERSION, found }, |it, width| render(it.found, width))
}

/// The arguments that `words` give; `None`: the command line is refused.
#[cfg(test)]
pub(crate) fn parsed<A: clap::Args>(words: &str) -> Option<A> {
    let command = A::augment_args(clap::Command::new("bench").no_binary_name(true));
    let matches = command.try_get_matches_from(words.split_whitespace()).ok()?;
    A::from_arg_matches(&matches).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Measured {
        is_quick: bool,
        figure: f64,
    }

    impl Findings for Measured {
        const QUICK_REMARK: &'static str = "too quick";

        fn is_quick(&self) -> bool {
            self.is_quick
        }

        fn goals(&self) -> Vec<Goal> {
            vec![Goal::at_most("figure", "ms", self.figure, 1.0)]
        }

        fn show(&self, text: &mut Text) {
            text.line(self.figure);
        }
    }

    #[test]
    fn only_whole_runs_are_held_against_goals() {
        let text = |is_quick| WithGoals::new(Measured { is_quick, figure: 2.0 }).render(None);
        assert_eq!(text(true), "2\n\ntoo quick\n");
        let expected = "2\n\nGOAL       WANTED    FOUND\nfigure  ≤ 1.00 ms  2.00 ms  NOT MET\n";
        assert_eq!(text(false), expected);
    }

    #[test]
    fn the_json_is_flat() {
        let held = WithGoals::new(Measured { is_quick: true, figure: 2.0 });
        let json = serde_json::to_string(&held).unwrap();
        assert_eq!(json, r#"{"is_quick":true,"figure":2.0,"goals":[]}"#);
    }
}
