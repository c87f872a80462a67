//! The plots of the page: both forms, on every combination of axes, with the points for the script.

use std::collections::BTreeMap;

use ballast_mrc::{Curve, Form};
use maud::{Markup, PreEscaped, html};

use super::super::outcome::Outcome;
use super::super::plot::{self, ON_A_PAGE, View};
use super::super::words;
use ballast_chart::{Axis, Chart, Scale};

/// The number of points for the script that are spread by logarithm of size; as many more are
/// spread by the curve's falls.
const READ_POINTS: usize = 250;

/// The forms and their headings.
const FORMS: [(Form, &str); 2] =
    [(Form::Warm, "Warm references: miss ratio"), (Form::Total, "All references: miss ratio")];
const SCALES: [(Scale, &str); 2] = [(Scale::Log, "log"), (Scale::Linear, "linear")];

/// The CSS classes of the key of the trace at `index`.
pub(super) fn key(index: usize) -> String {
    format!("key curve-{}", plot::colour_number(index))
}

/// The section with the plots.
///
/// # Errors
/// A plot cannot be drawn.
pub(super) fn curves(
    outcomes: &[Outcome],
    names: &[String],
    epsilon: f64,
) -> anyhow::Result<Markup> {
    let mut plots = Vec::new();
    for (form, heading) in FORMS {
        plots.push(one_form(outcomes, names, form, heading, epsilon)?);
    }
    let page_bytes = outcomes.first().and_then(|outcome| outcome.units.page_bytes);
    Ok(html! {
        section.curves data-page-bytes=[page_bytes] {
            div.choices {
                (choice("Memory", "memory", Scale::Log))
                (choice("Miss ratio", "ratio", Scale::Log))
            }
            div.plots { @for plot in plots { (plot) } }
        }
    })
}

/// The controls that select the scale of one axis.
fn choice(legend: &str, axis: &str, preset: Scale) -> Markup {
    html! {
        fieldset {
            legend { (legend) }
            @for (scale, name) in SCALES { label {
                input type="radio" name=(axis) value=(format!("{axis}-{name}"))
                    checked[scale == preset];
                (name)
            } }
        }
    }
}

fn one_form(
    outcomes: &[Outcome],
    names: &[String],
    form: Form,
    heading: &str,
    epsilon: f64,
) -> anyhow::Result<Markup> {
    let mut drawn = Vec::new();
    for (memory, memory_name) in SCALES {
        for (ratio, ratio_name) in SCALES {
            let view = View { form, memory, ratio, epsilon };
            let Some(chart) = plot::chart(outcomes, view) else { continue };
            let class = format!("drawn memory-{memory_name} ratio-{ratio_name}");
            drawn.push(drawn_plot(&class, memory_name, &chart)?);
        }
    }
    let part = |units| ON_A_PAGE.percent_of_width(units);
    Ok(html! {
        figure.plot data-left=(part(ON_A_PAGE.left)) data-right=(part(ON_A_PAGE.right)) {
            figcaption {
                (heading) output.at {}
                span.keys {
                    @for (index, (outcome, name)) in outcomes.iter().zip(names).enumerate() {
                        @if let Some(curve) = &outcome.curve {
                            span.entry data-points=(read_points(outcome, curve, form)) {
                                span class=(key(index)) {} (name) output {}
                            }
                        }
                    }
                }
            }
            @if drawn.is_empty() { p.empty { (words::NO_CURVE) } } @else {
                div.canvas {
                    @for plot in drawn { (plot) }
                    div.cursor {}
                }
            }
        }
    })
}

/// A plot, with the ends of its memory axis for the script.
fn drawn_plot(class: &str, scale: &str, chart: &Chart) -> anyhow::Result<Markup> {
    let (from, to) = chart.axes().0.ends();
    let svg = PreEscaped(chart.svg()?);
    Ok(html! { div class=(class) data-scale=(scale) data-from=(from) data-to=(to) { (svg) } })
}

/// The points as the script reads them: `pages,ratio` pairs separated by spaces; each holds until
/// the next.
fn read_points(outcome: &Outcome, curve: &Curve, form: Form) -> String {
    if curve.warm() + curve.cold() == 0.0 || (form == Form::Warm && curve.warm() == 0.0) {
        return String::new();
    }
    let units = outcome.units;
    let tag = units.granularity.pages();
    let axis = Axis::memory(Scale::Log, tag, curve.pages_max(), None);
    let spread = (0..=READ_POINTS)
        .map(|column| axis.value(column as f64 / READ_POINTS as f64).floor() as u64);
    let falls = curve.resampled(READ_POINTS).into_iter().map(|step| step.pages);
    let at = |pages: u64| (pages, curve.miss_ratio(pages, form));
    let points: BTreeMap<u64, f64> =
        spread.chain(falls).filter(|pages| *pages <= curve.pages_max()).map(at).collect();
    let mut pairs: Vec<(u64, f64)> = points.into_iter().collect();
    pairs.dedup_by(|next, before| next.1 == before.1);
    let pair = |(pages, ratio): &(u64, f64)| format!("{pages},{}", short(*ratio));
    pairs.iter().map(pair).collect::<Vec<_>>().join(" ")
}

/// A ratio with four significant digits.
fn short(ratio: f64) -> String {
    let text = format!("{ratio:.3e}");
    match text.parse::<f64>() {
        Ok(rounded) => rounded.to_string(),
        Err(_) => text,
    }
}
