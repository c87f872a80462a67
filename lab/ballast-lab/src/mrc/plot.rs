//! Miss-ratio curves as plots.
//!
//! Idea: a curve is a staircase. It is evaluated at every column of the plot, so the drawing is
//! exact to a column however many steps there are.
//! Cost: a binary search for each column and curve; 5 to 20 KB for each curve.
//! Limits: eight colours, which then repeat.

use ballast_chart::{
    Axis, Chart, Colour, Frame, Key, Panel, Scale, Sheet, Sign, percent_exactly, rgb,
};
use ballast_mrc::{Curve, Form};

use super::outcome::Outcome;
use super::words;

/// Colours of curves, distinguishable with weak colour vision, too; the style sheet has the same
/// list.
const COLOURS: [Colour; 8] = [
    rgb(0x1f, 0x4e, 0x8c),
    rgb(0xe0, 0x7b, 0x1a),
    rgb(0x2a, 0x8a, 0x5f),
    rgb(0xb3, 0x3a, 0x3a),
    rgb(0x8e, 0x4a, 0xa8),
    rgb(0x0f, 0x8f, 0x9e),
    rgb(0x8a, 0x6d, 0x1f),
    rgb(0xc2, 0x47, 0x8f),
];
/// The frame of a plot on a sheet, and that of a plot on a page.
const ON_A_SHEET: Frame = Frame { size: (900, 398), left: 64, right: 16, top: 10, letters: 15 };
pub(super) const ON_A_PAGE: Frame = Frame { size: (600, 330), ..ON_A_SHEET };
/// The greatest number of curves in the legend; the legend says how many more there are.
const LEGEND_MAX: usize = 24;

/// What a plot shows, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct View {
    /// The references that count for the miss ratio.
    pub(crate) form: Form,
    /// The scale of sizes.
    pub(crate) memory: Scale,
    /// The scale of miss ratios.
    pub(crate) ratio: Scale,
    /// The miss ratio of the marked working set.
    pub(crate) epsilon: f64,
}

/// One curve to draw.
struct CurveLine<'a> {
    name: String,
    outcome: &'a Outcome,
    curve: &'a Curve,
    colour: Colour,
}

/// The curves as a separate file, with title and legend; if there are no curves, it says so.
///
/// # Errors
/// The drawing library fails, which is not expected.
pub(crate) fn sheet(outcomes: &[Outcome], view: View) -> anyhow::Result<String> {
    let lines = lines(outcomes, view);
    let chart = draw(&lines, view, ON_A_SHEET);
    let sheet = Sheet {
        frame: ON_A_SHEET,
        title: words::form(view.form).to_owned(),
        legend: legend(&lines, view),
        panels: chart.into_iter().map(|chart| Panel { heading: None, chart }).collect(),
        otherwise: words::NO_CURVE,
    };
    sheet.svg()
}

/// The curves for a page, without title and legend; `None` if there are none.
pub(super) fn chart(outcomes: &[Outcome], view: View) -> Option<Chart> {
    draw(&lines(outcomes, view), view, ON_A_PAGE)
}

/// The number of the colour of the curve at `index`.
pub(super) fn colour_number(index: usize) -> usize {
    index % COLOURS.len()
}

/// The curves that exist in the requested form, in the colours of their traces.
fn lines<'a>(outcomes: &'a [Outcome], view: View) -> Vec<CurveLine<'a>> {
    let line = |(index, (name, outcome)): (usize, (String, &'a Outcome))| {
        let curve = outcome.curve.as_ref()?;
        let weight = match view.form {
            Form::Warm => curve.warm(),
            Form::Total => curve.warm() + curve.cold(),
        };
        let colour = COLOURS[colour_number(index)];
        (weight > 0.0).then_some(CurveLine { name, outcome, curve, colour })
    };
    words::names(outcomes).into_iter().zip(outcomes).enumerate().filter_map(line).collect()
}

/// The axes that hold all curves; `None` if there are no curves.
fn axes(lines: &[CurveLine<'_>], view: View) -> Option<(Axis, Axis)> {
    let units = lines.first()?.outcome.units;
    let largest = lines.iter().map(|line| line.curve.pages_max()).max()?;
    let tag = units.granularity.pages();
    let memory = Axis::memory(view.memory, tag, largest, units.page_bytes);
    let (mut least, mut greatest) = (f64::INFINITY, 0f64);
    for line in lines {
        // The miss ratio with one tag of memory. With none at all everything misses, which says
        // nothing.
        greatest = greatest.max(line.curve.miss_ratio(tag, view.form));
        let steps = line.curve.steps().map(|step| match view.form {
            Form::Warm => step.miss_ratio_warm,
            Form::Total => step.miss_ratio_total,
        });
        least = steps.filter(|ratio| *ratio > 0.0).fold(least, f64::min);
    }
    // The last steps of a curve are single references; the plot need not show each of them.
    let least = least.max(view.epsilon / 1000.0);
    Some((memory, Axis::ratio(view.ratio, least, greatest)))
}

fn draw(lines: &[CurveLine<'_>], view: View, frame: Frame) -> Option<Chart> {
    let (memory, ratio) = axes(lines, view)?;
    let mut chart = Chart::new(frame, memory.clone(), ratio.clone()).with_columns();
    for line in lines {
        let corners = staircase(line.curve, view.form, frame.columns(), &memory, &ratio);
        chart.line_at(corners, line.colour, 2);
    }
    for line in lines {
        if let Some(set) = working_set(line, view) {
            chart.dot((set as f64, line.curve.miss_ratio(set, view.form)), line.colour);
        }
    }
    Some(chart)
}

/// The working set to mark. It is defined by warm references, so the other form has none.
fn working_set(line: &CurveLine<'_>, view: View) -> Option<u64> {
    (view.form == Form::Warm).then(|| line.outcome.working_set(view.epsilon))?.map(|set| set.pages)
}

/// The corners of a curve, as places on the plot, from its value at every column.
fn staircase(
    curve: &Curve,
    form: Form,
    columns: u32,
    memory: &Axis,
    ratio: &Axis,
) -> Vec<(f64, f64)> {
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for column in 0..=columns {
        let x = f64::from(column) / f64::from(columns);
        // Rounding must not turn an exact size into the size below it.
        let pages = (memory.value(x) * (1.0 + 1e-12)).floor() as u64;
        let y = ratio.place(curve.miss_ratio(pages, form));
        match corners.as_slice() {
            // The last corner is within a level stretch and can go: the stretch goes on.
            [.., (_, before), (_, last)] if *before == y && *last == y => corners.pop(),
            _ => None,
        };
        corners.push((x, y));
    }
    corners
}

/// The names of the curves with their working sets, for the legend.
fn legend(lines: &[CurveLine<'_>], view: View) -> Vec<Key> {
    let key = |line: &CurveLine<'_>| {
        let set = working_set(line, view).map(|pages| {
            let size = words::size(pages, line.outcome.units.page_bytes);
            format!(" · WSS({}) {size}", percent_exactly(view.epsilon))
        });
        let text = format!("{}{}", line.name, set.unwrap_or_default());
        Key { sign: Sign::Line(line.colour), text }
    };
    let mut keys: Vec<Key> = lines.iter().take(LEGEND_MAX).map(key).collect();
    if lines.len() > LEGEND_MAX {
        let text = format!("and {} more", lines.len() - LEGEND_MAX);
        keys.push(Key { sign: Sign::Remark, text });
    }
    keys
}

#[cfg(test)]
mod tests {
    use ballast_chart::colour_name;

    use super::*;
    use crate::mrc::fixture::{self, PAGES};
    use crate::mrc::settings::Units;

    const VIEW: View =
        View { form: Form::Warm, memory: Scale::Log, ratio: Scale::Linear, epsilon: 0.01 };

    #[test]
    fn a_sheet_names_curves_and_marks_working_sets() {
        let outcomes = [
            fixture::scan("a/loop.u64", 300, 9, PAGES),
            fixture::falling("b/<web>.pg", 900, PAGES),
        ];
        let svg = sheet(&outcomes, VIEW).unwrap();
        assert!(svg.contains("loop.u64 · WSS(1 %) 1.2MiB"), "{svg}");
        assert!(svg.contains("&lt;web&gt;.pg"), "{svg}");
        assert!(svg.contains(&colour_name(COLOURS[0])) && svg.contains(&colour_name(COLOURS[1])));
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
    }

    #[test]
    fn every_view_of_every_shape_can_be_drawn() {
        let coarse = Units { page_bytes: None, ..PAGES };
        let shapes: [&[u64]; 6] = [&[], &[0], &[7], &[1, 9], &[2, 0, 5], &[0, 1, 0, 0, 3]];
        for counts in shapes {
            for units in [PAGES, coarse] {
                let outcomes = [fixture::outcome("x", counts, units)];
                for form in [Form::Warm, Form::Total] {
                    for memory in [Scale::Log, Scale::Linear] {
                        for ratio in [Scale::Log, Scale::Linear] {
                            let view = View { form, memory, ratio, epsilon: 0.01 };
                            let svg = sheet(&outcomes, view).unwrap();
                            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{counts:?}");
                            let nothing = match form {
                                Form::Warm => counts.iter().skip(1).sum::<u64>() == 0,
                                Form::Total => counts.iter().sum::<u64>() == 0,
                            };
                            assert_eq!(svg.contains(words::NO_CURVE), nothing, "{counts:?}");
                        }
                    }
                }
            }
        }
        assert!(sheet(&[], VIEW).unwrap().contains(words::NO_CURVE));
    }

    #[test]
    fn a_fall_is_drawn_at_its_size() {
        let outcome = fixture::scan("loop", 1000, 9, PAGES);
        let curve = outcome.curve.as_ref().unwrap();
        let memory = Axis::memory(Scale::Linear, 1, 1000, None);
        let ratio = Axis::ratio(Scale::Linear, 1.0, 1.0);
        let corners = staircase(curve, Form::Warm, 520, &memory, &ratio);
        // Level at 100 %, one column in which it falls, level at 0.
        let [(0.0, 1.0), (before, 1.0), (after, 0.0), (1.0, 0.0)] = corners[..] else {
            panic!("{corners:?}")
        };
        assert!(memory.value(before) < 1000.0 && memory.value(after) >= 1000.0, "{corners:?}");
        assert!(after - before < 0.002);
    }

    #[test]
    fn ambiguous_names_keep_their_folders() {
        let two = ["a/x.pg", "b/x.pg"].map(|name| fixture::scan(name, 3, 2, PAGES));
        assert_eq!(words::names(&two), ["a/x.pg", "b/x.pg"]);
    }
}
