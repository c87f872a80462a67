//! A replay as one self-contained page.

use std::cmp::Reverse;

use ballast_model::{Bytes, GuestId};
use ballast_replay::{ASSUMPTIONS, ReplayReport, ReplayTotals};
use maud::{Markup, PreEscaped, html};

use super::plot::{self, DEMAND, RECORDED};
use super::series::{GUESTS_MAX, Series};
use super::{MEANINGS, Replayed, cells, extent};
use ballast_chart::page::document;
use ballast_chart::{PALETTE, colour_name};
use ballast_report::harmless_line;

const STYLE: &str = include_str!("page.css");
/// The greatest number of guests that are drawn.
const DRAWN_MAX: usize = 8;

/// The whole page; `command` is the command line that produced it.
///
/// # Errors
/// A plot cannot be drawn.
pub(crate) fn render(
    replayed: Replayed<'_>,
    series: &Series,
    command: &str,
) -> anyhow::Result<String> {
    let Replayed { journal, reports } = replayed;
    let name = harmless_line(&journal.display().to_string());
    let Some(first) = reports.first() else { return Ok(String::new()) };
    let drawn = drawn(reports, series);
    let plots: Vec<Markup> =
        drawn.iter().map(|id| guest(id, reports, series)).collect::<anyhow::Result<_>>()?;
    let body = html! {
        header {
            p.over { "Ballast · replay" }
            h1 { (name) }
            p { (extent(first)) ". The recorded decisions stand beside those that other policies would \
                have made. All figures of those policies are simulated, under these assumptions:" }
            ul { @for text in ASSUMPTIONS { li { (text) } } }
        }
        section {
            h2 { "All guests" }
            (comparison("all", first.recorded, reports.iter().map(|it| (it, it.imagined))))
            dl class="columns" { @for (name, meaning) in MEANINGS { dt { (name) } dd { (meaning) } } }
        }
        section {
            h2 { "What guests held" }
            @if drawn.len() < first.guests.len() {
                p { "The " (drawn.len()) " of " (first.guests.len()) " guests that lacked or moved most \
                    memory, of the first " (GUESTS_MAX) "." }
            }
            @if reports.len() > PALETTE.len() {
                p { "Lines are drawn of the first " (PALETTE.len()) " policies." }
            }
            (legend(reports))
            @for plot in plots { (plot) }
        }
        (ballast_chart::page::what_was_run(command))
    };
    Ok(document(&format!("{name} (replayed)"), STYLE, "", &body))
}

/// The guests to draw: first those that lacked most memory, then those whose allocations changed
/// most, under any policy.
fn drawn(reports: &[ReplayReport], series: &Series) -> Vec<GuestId> {
    let mut worst: Vec<(Reverse<(u64, Bytes)>, &GuestId)> = Vec::new();
    for (place, (id, recorded, _)) in reports.iter().take(1).flat_map(|it| &it.guests).enumerate() {
        if !series.guests.contains_key(id) {
            continue;
        }
        let imagined = reports.iter().filter_map(|it| it.guests.get(place)).map(|it| it.2);
        let key = |totals: ReplayTotals| (totals.lacked_mib_s, totals.moved);
        let most = imagined.chain([*recorded]).map(key).max().unwrap_or_default();
        worst.push((Reverse(most), id));
    }
    worst.sort();
    let mut drawn: Vec<GuestId> =
        worst.into_iter().take(DRAWN_MAX).map(|(_, id)| id.clone()).collect();
    drawn.sort();
    drawn
}

fn comparison<'a>(
    whose: &str,
    recorded: ReplayTotals,
    imagined: impl Iterator<Item = (&'a ReplayReport, ReplayTotals)>,
) -> Markup {
    html! {
        div class="wide" { table {
            thead { tr {
                th { "policy" }
                @for (name, meaning) in MEANINGS { th.number title=(meaning) { (name) } }
                th.number title="plans that the checker refused; 0 unless something is wrong" {
                    @if whose == "all" { "REFUSED" }
                }
            } }
            tbody {
                tr {
                    th scope="row" { "as recorded" }
                    @for cell in cells(recorded) { td.number { (cell) } }
                    td {}
                }
                @for (report, totals) in imagined { tr {
                    th scope="row" { (report.policy) }
                    @for cell in cells(totals) { td.number { (cell) } }
                    td.number { @if whose == "all" { (report.plans_refused) } }
                } }
            }
        } }
    }
}

fn legend(reports: &[ReplayReport]) -> Markup {
    let policies = reports.iter().zip(PALETTE).map(|(report, colour)| (report.policy, colour));
    html! {
        p class="legend" {
            span { i style=(format!("background:{}", colour_name(DEMAND))) {} "demand" }
            span { i style=(format!("background:{}", colour_name(RECORDED))) {} "held, as recorded" }
            @for (policy, colour) in policies {
                span { i style=(format!("background:{}", colour_name(colour))) {} (policy) }
            }
        }
    }
}

fn guest(id: &GuestId, reports: &[ReplayReport], series: &Series) -> anyhow::Result<Markup> {
    let Some(points) = series.guests.get(id) else { return Ok(html! {}) };
    let svg = plot::chart(points).svg()?;
    let of = |report: &ReplayReport| {
        let place = report.guests.binary_search_by(|(known, ..)| known.cmp(id)).ok()?;
        report.guests.get(place).map(|(_, recorded, imagined)| (*recorded, *imagined))
    };
    let recorded = reports.first().and_then(of).map(|(recorded, _)| recorded).unwrap_or_default();
    let imagined = reports.iter().filter_map(|it| Some((it, of(it)?.1)));
    Ok(html! {
        article {
            h3 { (id) }
            (PreEscaped(svg))
            (comparison(id.as_str(), recorded, imagined))
        }
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use ballast_model::PolicyName;
    use ballast_replay::ReplayRow;

    use super::*;

    fn report(policy: PolicyName, lacked_mib_s: u64) -> ReplayReport {
        let totals = |lacked_mib_s| ReplayTotals {
            lacked_mib_s,
            lacking: Duration::from_secs(9),
            moved: Bytes::mib(lacked_mib_s),
            allocation_mean: Bytes::mib(512),
        };
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        let guests = names.iter().zip(0..).map(|(name, at)| {
            (name.parse().unwrap(), totals(7 * at), totals(if at == 3 { 0 } else { 5 * at }))
        });
        ReplayReport {
            policy,
            ticks: 60,
            span: Duration::from_secs(59),
            recorded: totals(1180),
            imagined: totals(lacked_mib_s),
            plans_refused: 0,
            guests: guests.collect(),
        }
    }

    #[test]
    fn the_page_marks_simulated_figures_and_is_self_contained() {
        let reports = [report(PolicyName::Global, 200), report(PolicyName::Custom("mom"), 900)];
        let mut series = Series::default();
        for tick in 0..60 {
            let row = |(id, ..): &(GuestId, ReplayTotals, ReplayTotals)| ReplayRow {
                id: id.clone(),
                demand: Bytes::mib(300 + tick),
                recorded: Bytes::mib(512),
                imagined: Bytes::mib(512 + tick),
                recorded_swap_in: Bytes::ZERO,
                imagined_swap_in: Bytes::ZERO,
                is_predictable: true,
                recorded_target: None,
                imagined_target: None,
            };
            let rows = |report: &ReplayReport| report.guests.iter().map(row).collect();
            series.add(tick as i64 * 1000, &reports.iter().map(rows).collect::<Vec<_>>());
        }
        let replayed = Replayed { journal: Path::new("<j>.db"), reports: &reports };
        let page = render(replayed, &series, "ballast replay '<j>.db'").unwrap();
        for mark in ["http:", "https:", "//", "@import", "url(", "src=", "<link", "NaN"] {
            assert!(!page.contains(mark), "{mark} in the page");
        }
        assert_eq!(page.matches("<svg").count(), DRAWN_MAX);
        for text in ["&lt;j&gt;.db", "simulated", "as recorded", "global", "mom", ASSUMPTIONS[0]] {
            assert!(page.contains(text), "{text} is missing");
        }
        for (name, is_drawn) in [("a", false), ("b", false), ("d", true), ("j", true)] {
            assert_eq!(page.contains(&format!("<h3>{name}</h3>")), is_drawn, "{name}");
        }
        for colour in [DEMAND, RECORDED, PALETTE[0], PALETTE[1]] {
            assert!(page.matches(&colour_name(colour)).count() > DRAWN_MAX, "{colour:?}");
        }
    }

    #[test]
    fn a_journal_of_one_tick_has_a_page() {
        let reports = [report(PolicyName::Static, 0)];
        let mut series = Series::default();
        series.add(0, &[Vec::new()]);
        let replayed = Replayed { journal: Path::new("j.db"), reports: &reports };
        assert!(render(replayed, &series, "").unwrap().contains("as recorded"));
    }
}
