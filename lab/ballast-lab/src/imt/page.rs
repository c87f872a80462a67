//! Intermittent tracking of a series as one page.
//!
//! Idea: first the figures, then the plot of the adaptive threshold, which is the one to use, then
//! those of the fixed thresholds for comparison.
//! Cost: some 100 KB.

use ballast_chart::page;
use maud::{Markup, PreEscaped, html};

use super::plot::{self, KEYS, Panel};
use super::runs::Run;
use super::summary::{Trace, columns};
use ballast_report::harmless_line;

const STYLE: &str = include_str!("page.css");

/// The page of `runs`, the result of `command`.
///
/// # Errors
/// A plot cannot be drawn.
pub(crate) fn render(trace: Trace<'_>, runs: &[Run], command: &str) -> anyhow::Result<String> {
    let name = harmless_line(trace.name);
    let mut plots = Vec::new();
    // The adaptive run is the last; its plot and that of the events belong together.
    let adaptive_first = runs.iter().rev().take(1).map(Panel::Run).chain([Panel::Events]);
    let fixed = runs.iter().rev().skip(1).rev().map(Panel::Run);
    for panel in adaptive_first.chain(fixed) {
        plots.push(figure(trace, panel)?);
    }
    let body = html! {
        header {
            p.over { "Ballast · intermittent tracking" }
            h1 { (name) }
            p { (trace.extent()) }
        }
        section { (page::table(&columns("mean relative error"), runs)) }
        section.plots { @for plot in plots { (plot) } }
        (how_to_read())
        (page::what_was_run(command))
    };
    Ok(page::document(&name, STYLE, "", &body))
}

fn figure(trace: Trace<'_>, panel: Panel<'_>) -> anyhow::Result<Markup> {
    let svg = plot::chart(trace, panel).svg()?;
    Ok(html! {
        figure {
            figcaption {
                (plot::heading(panel))
                @if matches!(panel, Panel::Run(_)) {
                    span.keys { @for (key, _, text) in KEYS {
                        span.entry { span class=(format!("key {key}")) {} (text) }
                    } }
                }
            }
            (PreEscaped(svg))
        }
    })
}

fn how_to_read() -> Markup {
    let terms = [
        (
            "up ratio",
            "the share of intervals in which the working set is tracked, which costs the guest time.",
        ),
        (
            "mean relative error",
            "how far the estimate is off, as a share of what was recorded, over all intervals. While \
             tracking rests, the estimate is the last one tracked.",
        ),
        (
            "threshold",
            "how far events may deviate from their recent mean before a new phase is assumed and tracking \
             goes on. An adaptive one is moved until events say of stability what working sets say.",
        ),
    ];
    page::how_to_read(&terms)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ballast_estimate::phase::{IntermittentSettings, RecordedInterval};
    use ballast_model::Bytes;

    use super::*;
    use crate::imt::runs::runs;

    #[test]
    fn the_page_has_every_plot_and_no_address() {
        let series = vec![RecordedInterval { wss: Bytes::mib(100), events: 1000 }; 40];
        let runs = runs(&series, IntermittentSettings::default());
        let trace = Trace { name: "<a>.csv", series: &series, interval: Duration::from_secs(5) };
        let page = render(trace, &runs, "ballast imt '<a>.csv'").unwrap();
        for mark in ["http:", "https:", "//", "@import", "url(", "src=", "<link"] {
            assert!(!page.contains(mark), "{mark} in the page");
        }
        assert_eq!(page.matches("<svg").count(), 8);
        let adaptive = page.find("T adaptive, 0.20 at last").unwrap();
        assert!(adaptive < page.find("T = 0.05").unwrap());
        for text in ["&lt;a&gt;.csv", "40 intervals of 5.0s, 3m 20s in all", "color-scheme"] {
            assert!(page.contains(text), "{text} is missing");
        }
    }
}
