//! A tracked guest as one page.
//!
//! Idea: first the figures, then everything over time, then the last miss curve.
//! Cost: some 100 KB.

mod plot;

use maud::{Markup, PreEscaped, html};

use ballast_daemon::track::Row;

use self::plot::{PANELS, Panel};
use ballast_chart::PALETTE;
use ballast_report::{format, harmless_line};

const STYLE: &str = include_str!("page.css");

/// The page of the guest `name`, with the `rows` that `command` collected.
///
/// # Errors
/// A plot cannot be drawn.
pub(crate) fn render(name: &str, rows: &[Row], command: &str) -> anyhow::Result<String> {
    let name = harmless_line(name);
    let mut plots = Vec::new();
    for panel in PANELS.iter().filter(|panel| panel.has_any(rows)) {
        plots.push(figure(panel, rows)?);
    }
    let curve = rows.iter().rev().find_map(|row| row.seen.as_ref()?.curve.as_ref());
    let curve = curve.map(|curve| plot::curve(curve).svg()).transpose()?;
    let body = html! {
        header {
            p.over { "Ballast · working set" }
            h1 { (name) }
            (cards(rows))
        }
        section.plots {
            @for plot in plots { (plot) }
            @if let Some(curve) = curve {
                figure {
                    figcaption { "misses in an interval, by memory (the last curve)" }
                    (PreEscaped(curve))
                }
            }
        }
        (how_to_read())
        (ballast_chart::page::what_was_run(command))
    };
    Ok(ballast_chart::page::document(&name, STYLE, "", &body))
}

fn cards(rows: &[Row]) -> Markup {
    let seen: Vec<u64> =
        rows.iter().filter_map(|row| Some(row.seen.as_ref()?.working_set.get())).collect();
    let mean = |sum: f64, count: usize| sum / count.max(1) as f64;
    let size = |bytes: f64| format::size(bytes as u64);
    let cost = rows.iter().map(Row::cost_share).sum::<f64>();
    let up = rows.last().map_or(0.0, |row| row.up_ratio);
    let cards = [
        (size(mean(seen.iter().sum::<u64>() as f64, seen.len())), "working set, mean"),
        (size(seen.iter().copied().max().unwrap_or(0) as f64), "working set, largest"),
        (
            size(rows.last().map_or(0.0, |row| row.tracked.get() as f64)),
            "memory of the guest that is tracked",
        ),
        (
            format!("{:.2} %", mean(cost, rows.len()) * 100.0),
            "of one core: what tracking cost, mean",
        ),
        (format!("{} of {}", seen.len(), rows.len()), "intervals were watched"),
        (format!("{:.1} %", up * 100.0), "up ratio"),
    ];
    html! {
        div.cards { @for (figure, what) in cards {
            div.card { span.figure { (figure) } span.what { (what) } }
        } }
    }
}

fn figure(panel: &Panel, rows: &[Row]) -> anyhow::Result<Markup> {
    let svg = panel.chart(rows).svg()?;
    let key = |colour| PALETTE.iter().position(|other| *other == colour).unwrap_or(0);
    Ok(html! {
        figure {
            figcaption {
                (panel.heading)
                span.keys {
                    @for line in panel.lines {
                        span.entry { span class=(format!("key c{}", key(line.colour))) {} (line.name) }
                    }
                    span.entry { span.key.watched {} "watched" }
                }
            }
            (PreEscaped(svg))
        }
    })
}

fn how_to_read() -> Markup {
    let terms = [
        (
            "working set",
            "the least memory in which at most 1 % of the touches seen miss, and never less than what was \
             touched in the interval. While tracking rests (ground not shaded) it is what it was before.",
        ),
        (
            "events",
            "what tells a new phase while tracking rests: misses of the data TLB where the machine counts \
             them, else touches of some hundred pages, scaled to all. When they move, tracking goes on.",
        ),
        ("up ratio", "the share of intervals that were watched."),
        (
            "cost",
            "processor time of the tracker and time that touches which were seen stopped the guest, as a \
             share of one core. A part of it is in both.",
        ),
        (
            "misses",
            "touches in an interval whose page would not have been in a memory of the given size, kept in \
             LRU order. A page is seen once while it stays accessible.",
        ),
    ];
    ballast_chart::page::how_to_read(&terms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ballast_daemon::track::fixture::row;

    #[test]
    fn a_page_has_its_figures_and_forges_nothing() {
        let rows: Vec<Row> = (1..=5).map(|second| row(second, second != 3)).collect();
        let page = render("<b>web\n1</b>", &rows, "ballast track web-1 --page a.html").unwrap();
        assert!(page.contains("4 of 5") && page.contains("200MiB"), "{page}");
        assert!(page.contains("&lt;b&gt;web") && !page.contains("<b>web"), "{page}");
        assert!(page.contains("the last curve") && !page.contains("hot set, in"), "{page}");
        assert!(render("a", &[], "").is_ok());
    }
}
