//! A simulation as one self-contained page.

use ballast_sim::{ComparisonReport, PolicyReport};
use maud::{Markup, PreEscaped, html};

use super::paper::PaperFigure;
use super::paper_comparison::compare_with_papers;
use super::plot::{self, GUESTS_MAX};
use super::table::{MEANINGS, columns, paper_columns};
use ballast_chart::page::{document, table};
use ballast_report::figures;

const STYLE: &str = include_str!("page.css");

/// The whole page.
///
/// # Errors
/// A plot cannot be drawn.
pub fn render(report: &ComparisonReport, papers: &[PaperFigure]) -> anyhow::Result<String> {
    let guests = report.policies.first().map_or(0, |policy| policy.guests.len());
    let duration =
        humantime::format_duration(std::time::Duration::from_secs(report.duration.as_secs()));
    let plots: Vec<Markup> = report
        .policies
        .iter()
        .map(|policy| allocations(policy, report))
        .collect::<Result<_, _>>()?;
    let body = html! {
        h1 { (report.scenario) }
        p { (guests) " guests share " (report.budget) " for " (duration)
            ". Every figure of ours on this page is simulated, with seed " (report.seed) "." }
        h2 { "Policies side by side" }
        (comparison(report))
        dl class="columns" {
            @for (name, meaning) in MEANINGS { dt { (name) } dd { (meaning) } }
        }
        @if !papers.is_empty() {
            h2 { "Beside the paper" }
            p { "The paper measured real guests on machines of its time; ours are simulated." }
            (table(&paper_columns(), compare_with_papers(papers, report)))
        }
        h2 { "Allocations over time" }
        @if guests > GUESTS_MAX {
            p { "The " (GUESTS_MAX) " guests whose memory moved most under each policy." }
        }
        @for plot in plots { (plot) }
    };
    Ok(document(&format!("{} (simulated)", report.scenario), STYLE, "", &body))
}

fn comparison(report: &ComparisonReport) -> Markup {
    let columns = columns();
    let best = report.policies.iter().filter_map(|it| it.work_ratio).fold(0.0, f64::max);
    html! {
        div class="wide" { table {
            thead { tr {
                th title="who decided" { "policy" }
                @for (name, meaning) in MEANINGS { th title=(meaning) { (name) } }
            } }
            tbody { @for policy in &report.policies {
                @let cells = columns.cells(policy);
                tr {
                    th scope="row" { (cells[0]) }
                    td class="bar" {
                        @if let Some(ratio) = policy.work_ratio {
                            @let width = if best > 0.0 { ratio / best * 100.0 } else { 0.0 };
                            span style=(format!("width:{width:.1}%")) {}
                        }
                        (cells[1])
                    }
                    @for cell in &cells[2..] { td { (cell) } }
                }
            } }
        } }
    }
}

fn allocations(policy: &PolicyReport, report: &ComparisonReport) -> anyhow::Result<Markup> {
    let drawn = plot::drawn(policy);
    // One scale for the plots of all policies, so that they can be compared.
    let highest =
        report.policies.iter().flat_map(|it| &it.guests).map(|it| it.allocation_max).max();
    let svg = plot::chart(&drawn, highest.unwrap_or_default()).svg()?;
    Ok(html! {
        section {
            h3 { (policy.policy) }
            (PreEscaped(svg))
            p class="legend" { @for one in &drawn {
                span { i style=(format!("background:{}", one.colour)) {} (one.guest.id) " "
                    small { (figures::size(one.guest.allocation_mean.get() as f64)) " mean" } }
            } }
        }
    })
}
