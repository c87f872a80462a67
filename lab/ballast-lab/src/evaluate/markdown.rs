//! An evaluation as a page of the documentation.

use ballast_report::figures::or_none;

use super::findings::{Findings, RowFindings};
use super::origins::{self, OriginRow};
use super::tables;

/// The whole text; `command` is the command line that produced it.
pub(crate) fn render(findings: &Findings, origins: &[OriginRow], command: &str) -> String {
    let mut out = format!(
        "# The papers' tables and figures, and ours\n\n\
         For researchers: how Ballast compares with each table and figure of the papers. A command writes this page \
         ([how to run it](evaluating.md)) and computes every verdict.\n\n\
         Written on {}, commit `{}`, {}; {} repetitions where a row says nothing else:\n\n    {command}\n\n\
         {}.\n\n",
        findings.ended_at,
        or_none(findings.commit.as_deref()),
        or_none(findings.cpu.as_deref()),
        findings.repetitions,
        findings.counts.shown(),
    );
    for (name, meaning) in tables::MEANINGS {
        out.push_str(&format!("- **{name}**: {meaning}\n"));
    }
    for paper in &findings.papers {
        out.push_str(&format!("\n## {}\n\n{}\n\n", paper.paper, paper.title));
        out.push_str(&tables::rows(linked).markdown(&paper.rows));
    }
    out.push_str("\n## Figures\n");
    let with_figures = |row: &&RowFindings| !row.figures.is_empty();
    for row in findings.papers.iter().flat_map(|paper| &paper.rows).filter(with_figures) {
        details(row, &mut out);
    }
    out.push_str(
        "\n## Where the simulator's figures come from\n\n\
         From the scenarios' own `[[parameters]]` and the simulator's defaults. Agreement with a \
         place that a parameter was fitted to never counts.\n\n",
    );
    out.push_str(&origins::columns().markdown(origins));
    out
}

/// The name of a row, linked to its figures.
fn linked(row: &RowFindings) -> String {
    let id = &row.id;
    if row.figures.is_empty() {
        return id.clone();
    }
    let anchor: String = id.to_lowercase().chars().filter(|c| *c != '.').collect();
    format!("[{id}](#{anchor})")
}

fn details(row: &RowFindings, out: &mut String) {
    out.push_str(&format!("\n### {}\n\n{}: {}.\n\n", row.id, row.place, row.what));
    let how: Vec<String> = row.how.iter().map(|how| format!("`{how}`")).collect();
    out.push_str(&format!("Seen {}, by {}.\n\n", or_none(row.seen.as_deref()), how.join(", ")));
    for sentence in row.run_sentences() {
        out.push_str(&format!("{sentence}\n\n"));
    }
    out.push_str(&tables::figures().markdown(&row.figures));
    out.push('\n');
    for band in row.bands() {
        let metric = band.metric.name();
        out.push_str(&format!("- `{metric}`: {}, because {}\n", band.shown(), band.because));
    }
}
