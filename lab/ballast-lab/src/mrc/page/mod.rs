//! Miss-ratio curves as one page.
//!
//! Idea: both forms of the miss ratio side by side, on every combination of axes. The reader
//! selects the axes by CSS alone; a short script shows the values under the pointer.
//! Cost: some 50 KB, and 20 to 100 KB for each trace.

mod curves;

use ballast_mrc::Form;
use maud::{Markup, html};

use self::curves::curves;
use super::outcome::Outcome;
use super::{summary, words};
use ballast_chart::{percent, percent_exactly};
use ballast_report::figures::{self, NONE};
use ballast_report::format;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// The greatest number of traces with a card of their own; the tables have all of them.
const CARDS_MAX: usize = 6;
/// The greatest number of rows in the table of sizes.
const SIZES_MAX: usize = 24;

/// The page of `outcomes`, the result of `command`; `epsilon` defines the marked working set.
///
/// # Errors
/// A plot cannot be drawn.
pub(crate) fn render(outcomes: &[Outcome], command: &str, epsilon: f64) -> anyhow::Result<String> {
    let names = words::names(outcomes);
    let title = match names.as_slice() {
        [] => "no trace".to_owned(),
        names if names.len() <= CARDS_MAX => names.join(", "),
        names => format!("{} traces", names.len()),
    };
    let body = html! {
        header {
            p.over { "Ballast · miss-ratio curves" }
            h1 { (title) }
        }
        (cards(outcomes, &names, epsilon))
        (curves(outcomes, &names, epsilon)?)
        section {
            h2 { "Figures" }
            (table(outcomes, &names))
            (remarks(outcomes, &names))
        }
        (by_size(outcomes, &names))
        (how_to_read(outcomes, epsilon))
        (ballast_chart::page::what_was_run(command))
    };
    Ok(ballast_chart::page::document(&title, STYLE, SCRIPT, &body))
}

/// The working sets, at the top of the page.
fn cards(outcomes: &[Outcome], names: &[String], epsilon: f64) -> Markup {
    if outcomes.len() > CARDS_MAX {
        return html! {};
    }
    html! {
        div.cards {
            @for (index, (outcome, name)) in outcomes.iter().zip(names).enumerate() {
                div.card {
                    span.figure {
                        @match (outcome.working_set(epsilon), outcome.active_pages) {
                            (Some(set), _) => (words::size(set.pages, outcome.units.page_bytes)),
                            (None, Some(pages)) => (words::size(pages, outcome.units.page_bytes)),
                            (None, None) => (NONE),
                        }
                    }
                    span.what {
                        span class=(curves::key(index)) {}
                        (name) ": "
                        @match (outcome.accesses, outcome.active_pages) {
                            (0, _) => "no references",
                            (_, Some(_)) => "touched in a period, as sampling estimates",
                            _ => { "enough for all but " (percent_exactly(epsilon)) " of warm references" }
                        }
                    }
                }
            }
        }
    }
}

fn table(outcomes: &[Outcome], names: &[String]) -> Markup {
    let sets = outcomes.first().map_or(&[][..], |first| &first.working_sets);
    html! {
        div.wide {
            table {
                thead { tr {
                    th { "trace" }
                    th.number { "references" }
                    th.number { "distinct" }
                    th.number { "cold" }
                    @for set in sets { th.number { "WSS " (percent_exactly(set.epsilon)) } }
                    th { "engine" }
                    th.number { "memory" }
                    th.number { "references/s" }
                } }
                tbody { @for (index, (outcome, name)) in outcomes.iter().zip(names).enumerate() {
                    tr {
                        th { span class=(curves::key(index)) {} (name) }
                        td.number { (outcome.accesses) }
                        td.number {
                            (outcome.distinct.map_or(NONE.to_owned(), |tags| tags.to_string()))
                        }
                        td.number {
                            (outcome.cold().map_or(NONE.to_owned(), |cold| format!("{cold:.0}")))
                        }
                        @for set in &outcome.working_sets { td.number {
                            (words::size(set.pages, outcome.units.page_bytes))
                            @if outcome.units.page_bytes.is_some() {
                                span.soft { (words::exactly(set.pages)) }
                            }
                        } }
                        td { (outcome.used.engine) }
                        td.number { (format::size(outcome.used.memory_bytes)) }
                        td.number { (outcome.speed().map_or(NONE.to_owned(), figures::count)) }
                    }
                } }
            }
        }
    }
}

/// Remarks on the figures.
fn remarks(outcomes: &[Outcome], names: &[String]) -> Markup {
    let of_one = |(outcome, name): (&Outcome, &String)| {
        let all = summary::sampled(outcome).into_iter().chain(summary::notes(outcome));
        all.map(|(what, text)| format!("{name}: {what}: {text}.")).collect::<Vec<_>>()
    };
    let all: Vec<String> = outcomes.iter().zip(names).flat_map(of_one).collect();
    html! { @for remark in all { p.small { (remark) } } }
}

/// The curves as a table, at sizes that double.
fn by_size(outcomes: &[Outcome], names: &[String]) -> Markup {
    let curves: Vec<_> = outcomes
        .iter()
        .zip(names)
        .enumerate()
        .filter_map(|(index, (outcome, name))| Some((index, name, outcome.curve.as_ref()?)))
        .filter(|(_, _, curve)| curve.warm() > 0.0)
        .collect();
    let largest = curves.iter().map(|(_, _, curve)| curve.pages_max()).max();
    let (Some(largest), Some(units)) = (largest, outcomes.first().map(|one| one.units)) else {
        return html! {};
    };
    let last = largest.checked_next_power_of_two().map_or(u64::BITS - 1, u64::ilog2);
    let first = units.granularity.pages().ilog2().max((last + 1).saturating_sub(SIZES_MAX as u32));
    html! {
        section {
            h2 { "Miss ratio by memory" }
            div.wide {
                table.sizes {
                    thead { tr {
                        th { "memory" }
                        @for (index, name, _) in &curves {
                            th.number { span class=(curves::key(*index)) {} (name) }
                        }
                    } }
                    tbody { @for pages in (first..=last).map(|power| 1u64 << power) { tr {
                        th { (words::size(pages, units.page_bytes)) }
                        @for (_, _, curve) in &curves { td.number {
                            (percent(curve.miss_ratio(pages, Form::Warm)))
                            span.of-all { (percent(curve.miss_ratio(pages, Form::Total))) }
                        } }
                    } } }
                }
            }
            p.small { "Of warm references; in grey, of all." }
        }
    }
}

fn how_to_read(outcomes: &[Outcome], epsilon: f64) -> Markup {
    let grouped = outcomes.iter().any(|outcome| outcome.units.granularity.pages() > 1);
    let working_set = format!(
        "WSS: the least memory in which at most a given share of the warm references misses. The dot \
         marks that for {}.",
        percent_exactly(epsilon)
    );
    let terms = [
        (
            "miss ratio",
            "the share of references whose page is not in a memory of the given size, if memory keeps \
             the pages referenced last (LRU).",
        ),
        (
            "warm",
            "without cold references, above and below the line: what more memory could have saved. \
             Sizing goes by it.",
        ),
        ("total", "with cold references, which miss however much memory there is."),
        ("cold", "the first reference to a page: nothing could have held it yet."),
        ("working set", &working_set),
        (
            "distinct",
            "different pages referenced; with all of them in memory no warm reference misses.",
        ),
    ];
    html! {
        section.explain {
            h2 { "How to read this" }
            dl {
                @for (term, text) in terms { dt { (term) } dd { (text) } }
                dt { "logarithmic axes" }
                dd { "show every octave or decade as wide; a miss ratio of zero lies on the bottom." }
                @if grouped {
                    dt { "tag" }
                    dd { "pages side by side that are tracked as one; distinct and cold count tags." }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ballast_mrc::{Curve, Granularity, Histogram, Layout};

    use super::*;
    use crate::mrc::fixture::{self, PAGES};

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = render(&[fixture::falling("web.pg", 500, PAGES)], "ballast mrc", 0.01).unwrap();
        for mark in ["http:", "https:", "//", "@import", "url(", "src=", "<link"] {
            assert!(!page.contains(mark), "{mark} in the page");
        }
    }

    #[test]
    fn the_page_shows_both_forms_on_every_axis() {
        let outcomes =
            [fixture::falling("<web>", 500, PAGES), fixture::scan("loop", 300, 9, PAGES)];
        let page = render(&outcomes, "ballast mrc '<web>'", 0.01).unwrap();
        assert_eq!(page.matches("<svg").count(), 2 * 2 * 2);
        for text in ["&lt;web&gt;, loop", "1.2MiB", "ballast mrc '&lt;web&gt;'", "color-scheme"] {
            assert!(page.contains(text), "{text} is missing");
        }
        assert_eq!(page.matches("data-points=\"0,1 300,0\"").count(), 1, "the loop's warm curve");
    }

    #[test]
    fn the_largest_sizes_there_are_have_a_row() {
        let mut histogram = Histogram::new(Layout::LogLinear);
        histogram.add(u64::MAX, 1.0);
        let curve = Some(Curve::new(&histogram, Granularity::PAGE));
        let outcome = Outcome { curve, ..fixture::outcome("x", &[1, 1], PAGES) };
        let page = render(&[outcome], "", 0.01).unwrap();
        assert!(page.contains(&words::size(1 << 63, PAGES.page_bytes)), "{page}");
    }

    #[test]
    fn traces_without_a_curve_have_a_page_that_says_so() {
        for counts in [&[][..], &[0], &[5]] {
            let page = render(&[fixture::outcome("x", counts, PAGES)], "", 0.01).unwrap();
            assert!(page.contains(words::NO_CURVE), "{counts:?}");
        }
        assert!(render(&[], "", 0.01).unwrap().contains(words::NO_CURVE));
    }
}
