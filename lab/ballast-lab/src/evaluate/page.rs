//! An evaluation as one self-contained page.

use ballast_chart::page::{document, how_to_read, table, what_was_run};
use ballast_report::figures::or_none;
use maud::{Markup, html};

use super::findings::{Findings, RowFindings};
use super::origins::{self, OriginRow};
use super::tables;

const STYLE: &str = include_str!("page.css");

/// The whole page; `command` is the command line that produced it.
pub(crate) fn render(findings: &Findings, origins: &[OriginRow], command: &str) -> String {
    let body = html! {
        header {
            p.over { "Ballast · evaluation" }
            h1 { "The papers' tables and figures, and ours" }
            p { (findings.counts.shown()) "." }
            p { "Commit " (or_none(findings.commit.as_deref())) ", " (findings.ended_at) ", "
                (or_none(findings.cpu.as_deref())) ", " (findings.repetitions) " repetitions where a row says nothing else." }
        }
        @for paper in &findings.papers {
            section {
                h2 { (paper.paper) }
                p { (paper.title) }
                (table(&tables::rows(RowFindings::name), &paper.rows))
                @for row in paper.rows.iter().filter(|row| !row.figures.is_empty()) {
                    (details(row))
                }
            }
        }
        section {
            h2 { "Where the simulator's figures come from" }
            p { "Agreement with a place that a parameter was fitted to never counts." }
            (table(&origins::columns(), origins))
        }
        (how_to_read(&tables::MEANINGS))
        (what_was_run(command))
    };
    document("evaluation", STYLE, "", &body)
}

fn details(row: &RowFindings) -> Markup {
    html! {
        details {
            summary { (row.id) ": " (row.place) ", " (row.what) }
            p { "Seen " (or_none(row.seen.as_deref())) ", by "
                @for (place, how) in row.how.iter().enumerate() {
                    @if place > 0 { ", " }
                    code { (how) }
                }
                "." }
            @for sentence in row.run_sentences() { p { (sentence) } }
            (table(&tables::figures(), &row.figures))
            ul { @for band in row.bands() {
                li { (band.metric.name()) ": " (band.shown()) ", because " (band.because) }
            } }
        }
    }
}
