//! Miss-ratio curves as SVG.
//!
//! Idea: a curve is a staircase, so it is asked for its value at every column of the plot, and what is
//! drawn is right to a column however many steps there are. Colours are fixed; the page's style sheet
//! recognises and replaces them, and by themselves they are right for a white ground.
//! Cost: a binary search for each column and curve; 5 to 20 KB for each curve.
//! Limits: eight colours, which then repeat.

use ballast_mrc::{Curve, Form};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::outcome::Outcome;
use super::words;
use crate::output::axis::{Axis, Scale, percent_exactly};
use crate::output::svg::{
    self, Area, FONT_SIZE, Failure, GRID, INK, Places, TITLE_FONT_SIZE, label,
};

/// Colours of curves, told apart with weak colour vision too; the style sheet knows them.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x1f, 0x4e, 0x8c),
    RGBColor(0xe0, 0x7b, 0x1a),
    RGBColor(0x2a, 0x8a, 0x5f),
    RGBColor(0xb3, 0x3a, 0x3a),
    RGBColor(0x8e, 0x4a, 0xa8),
    RGBColor(0x0f, 0x8f, 0x9e),
    RGBColor(0x8a, 0x6d, 0x1f),
    RGBColor(0xc2, 0x47, 0x8f),
];
/// How many colours there are.
pub(super) const COLOURS_COUNT: usize = COLOURS.len();
/// A plot by itself: its width, and its height without the legend.
const WIDTH: u32 = 900;
const HEIGHT: u32 = 440;
/// Room for the title.
const TITLE: u32 = 34;
/// Room for the figures of the axes, at the left and below, in the units of the plot.
pub(super) const LEFT: u32 = 64;
const BOTTOM: u32 = 24;
/// Room at the right and above.
pub(super) const RIGHT: u32 = 16;
const TOP: u32 = 10;
/// Height of a line of the legend, and curves beside each other in it.
const LEGEND_LINE: u32 = 20;
const LEGEND_COLUMNS: usize = 3;
/// Most curves in the legend; it says how many more there are.
const LEGEND_MAX: usize = 24;

/// What a plot shows of the curves, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct View {
    /// Which references the miss ratio is of.
    pub(crate) form: Form,
    /// How sizes are spread.
    pub(crate) memory: Scale,
    /// How miss ratios are spread.
    pub(crate) ratio: Scale,
    /// The miss ratio that defines the working set marked.
    pub(crate) epsilon: f64,
}

/// One curve to draw.
struct Line<'a> {
    name: String,
    outcome: &'a Outcome,
    curve: &'a Curve,
    colour: RGBColor,
}

/// A plot that was drawn, with what reading figures off it takes.
pub(super) struct Drawn {
    /// The plot.
    pub(super) svg: String,
    /// The sizes at both ends of the axis, in pages.
    pub(super) ends: (f64, f64),
}

/// A plot by itself, with title and legend; it says so where there is nothing to draw.
///
/// # Errors
/// When the drawing library refuses, which it has no reason to.
pub(crate) fn alone(outcomes: &[Outcome], view: View) -> anyhow::Result<String> {
    let lines = lines(outcomes, view);
    let entries = lines.len().min(LEGEND_MAX + 1);
    let legend = entries.div_ceil(LEGEND_COLUMNS) as u32 * LEGEND_LINE;
    let size = (WIDTH, HEIGHT + legend);
    Ok(svg::alone(size, |area| draw_alone(area, &lines, view, legend))? + "\n")
}

/// A plot for a page, `size` wide and high, without title and legend; `None`: nothing to draw.
///
/// # Errors
/// When the drawing library refuses, which it has no reason to.
pub(super) fn inside(
    outcomes: &[Outcome],
    view: View,
    size: (u32, u32),
) -> anyhow::Result<Option<Drawn>> {
    let lines = lines(outcomes, view);
    let Some((memory, ratio)) = axes(&lines, view) else { return Ok(None) };
    let svg = svg::inside(size, |area| draw_curves(area, &lines, view, &memory, &ratio))?;
    Ok(Some(Drawn { svg, ends: memory.ends() }))
}

/// The number of the colour of the curve at `index`.
pub(super) fn colour_number(index: usize) -> usize {
    index % COLOURS_COUNT
}

/// The curves there are in the form that is wanted, in the colours of their traces.
fn lines<'a>(outcomes: &'a [Outcome], view: View) -> Vec<Line<'a>> {
    let line = |(index, (name, outcome)): (usize, (String, &'a Outcome))| {
        let curve = outcome.curve.as_ref()?;
        let weight = match view.form {
            Form::Warm => curve.warm(),
            Form::Total => curve.warm() + curve.cold(),
        };
        let colour = COLOURS[colour_number(index)];
        (weight > 0.0).then_some(Line { name, outcome, curve, colour })
    };
    words::names(outcomes).into_iter().zip(outcomes).enumerate().filter_map(line).collect()
}

/// The axes that hold all curves; `None` without any.
fn axes(lines: &[Line<'_>], view: View) -> Option<(Axis, Axis)> {
    let units = lines.first()?.outcome.units;
    let largest = lines.iter().map(|line| line.curve.pages_max()).max()?;
    let tag = units.granularity.pages();
    let memory = Axis::memory(view.memory, tag, largest, units.page_bytes);
    let (mut least, mut greatest) = (f64::INFINITY, 0f64);
    for line in lines {
        // In one tag of memory; in none at all everything misses, which tells nothing.
        greatest = greatest.max(line.curve.miss_ratio(tag, view.form));
        let steps = line.curve.steps().map(|step| match view.form {
            Form::Warm => step.miss_ratio_warm,
            Form::Total => step.miss_ratio_total,
        });
        least = steps.filter(|ratio| *ratio > 0.0).fold(least, f64::min);
    }
    // The end of a curve is where single references are; the plot need not show each of them.
    let least = least.max(view.epsilon / 1000.0);
    Some((memory, Axis::ratio(view.ratio, least, greatest)))
}

fn draw_alone<'a>(
    area: &Area<'a>,
    lines: &[Line<'_>],
    view: View,
    legend: u32,
) -> Result<(), Failure<'a>> {
    area.fill(&WHITE)?;
    let title = ("sans-serif", TITLE_FONT_SIZE).into_font().color(&BLACK);
    area.draw_text(words::form(view.form), &title, (LEFT as i32, 12))?;
    match axes(lines, view) {
        None => {
            let style = ("sans-serif", FONT_SIZE).into_font().color(&INK);
            let middle = style.pos(Pos::new(HPos::Center, VPos::Center));
            area.draw_text(words::NO_CURVE, &middle, (WIDTH as i32 / 2, HEIGHT as i32 / 2))?;
        }
        Some((memory, ratio)) => {
            let below = area.margin(TITLE + legend, 8, 0, 0);
            draw_curves(&below, lines, view, &memory, &ratio)?;
            draw_legend(area, lines, view)?;
        }
    }
    Ok(())
}

fn draw_curves<'a>(
    area: &Area<'a>,
    lines: &[Line<'_>],
    view: View,
    memory: &Axis,
    ratio: &Axis,
) -> Result<(), Failure<'a>> {
    let mut chart = ChartBuilder::on(area)
        .margin_top(TOP)
        .margin_right(RIGHT)
        .x_label_area_size(BOTTOM)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(Places::of(memory), Places::of(ratio))?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .x_label_formatter(&|place| label(memory, *place))
        .y_label_formatter(&|place| label(ratio, *place))
        .label_style(("sans-serif", FONT_SIZE).into_font().color(&INK))
        .draw()?;
    let columns = chart.plotting_area().dim_in_pixel().0;
    for line in lines {
        let points = staircase(line.curve, view.form, columns, memory, ratio);
        chart.draw_series(LineSeries::new(points, line.colour.stroke_width(2)))?;
    }
    let marks = lines.iter().filter_map(|line| {
        let set = working_set(line, view)?;
        let value = line.curve.miss_ratio(set, view.form);
        let at = (memory.place(set as f64), ratio.place(value));
        Some(Circle::new(at, 5, line.colour.filled()))
    });
    chart.draw_series(marks)?;
    Ok(())
}

/// The working set to mark: that of warm references, so nothing in the other form.
fn working_set(line: &Line<'_>, view: View) -> Option<u64> {
    (view.form == Form::Warm).then(|| line.outcome.working_set(view.epsilon))?.map(|set| set.pages)
}

/// The corners of a curve, asked for at every column.
fn staircase(
    curve: &Curve,
    form: Form,
    columns: u32,
    memory: &Axis,
    ratio: &Axis,
) -> Vec<(f64, f64)> {
    let columns = columns.max(1);
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for column in 0..=columns {
        let x = f64::from(column) / f64::from(columns);
        // Just below a size is not yet that size.
        let pages = (memory.value(x) * (1.0 + 1e-12)).floor() as u64;
        let y = ratio.place(curve.miss_ratio(pages, form));
        match corners.as_slice() {
            // In the middle of a level stretch: the stretch goes on.
            [.., (_, before), (_, last)] if *before == y && *last == y => corners.pop(),
            _ => None,
        };
        corners.push((x, y));
    }
    corners
}

/// Names of the curves with their working sets, between title and plot.
fn draw_legend<'a>(area: &Area<'a>, lines: &[Line<'_>], view: View) -> Result<(), Failure<'a>> {
    const KEY: i32 = 20;
    let style = ("sans-serif", FONT_SIZE).into_font().color(&BLACK);
    let style = style.pos(Pos::new(HPos::Left, VPos::Center));
    let width = (WIDTH - LEFT - RIGHT) as usize / LEGEND_COLUMNS;
    let place = |index: usize| {
        let (row, column) = (index / LEGEND_COLUMNS, index % LEGEND_COLUMNS);
        let y = TITLE + row as u32 * LEGEND_LINE + LEGEND_LINE / 2;
        ((LEFT as usize + column * width) as i32, y as i32)
    };
    for (index, line) in lines.iter().take(LEGEND_MAX).enumerate() {
        let (x, y) = place(index);
        area.draw(&PathElement::new([(x, y), (x + KEY, y)], line.colour.stroke_width(3)))?;
        let set = working_set(line, view).map(|pages| {
            let size = words::size(pages, line.outcome.units.page_bytes);
            format!(" · WSS({}) {size}", percent_exactly(view.epsilon))
        });
        let text = format!("{}{}", line.name, set.unwrap_or_default());
        area.draw_text(&text, &style, (x + KEY + 6, y))?;
    }
    if lines.len() > LEGEND_MAX {
        let more = format!("and {} more", lines.len() - LEGEND_MAX);
        area.draw_text(&more, &style, place(LEGEND_MAX))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mrc::fixture::{self, PAGES};
    use crate::mrc::outcome::Units;

    const VIEW: View =
        View { form: Form::Warm, memory: Scale::Log, ratio: Scale::Linear, epsilon: 0.01 };

    #[test]
    fn a_plot_by_itself_names_its_curves_and_marks_their_working_sets() {
        let outcomes = [
            fixture::scan("a/loop.u64", 300, 9, PAGES),
            fixture::falling("b/<web>.pg", 900, PAGES),
        ];
        let svg = alone(&outcomes, VIEW).unwrap();
        assert!(svg.contains("loop.u64 · WSS(1 %) 1.2MiB"), "{svg}");
        assert!(svg.contains("&lt;web&gt;.pg"), "{svg}");
        assert!(
            svg.contains(&svg::colour_name(COLOURS[0]))
                && svg.contains(&svg::colour_name(COLOURS[1]))
        );
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
                            let svg = alone(&outcomes, view).unwrap();
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
        assert!(alone(&[], VIEW).unwrap().contains(words::NO_CURVE));
    }

    #[test]
    fn a_fall_is_drawn_at_its_size_and_level_stretches_are_short() {
        let outcome = fixture::scan("loop", 1000, 9, PAGES);
        let curve = outcome.curve.as_ref().unwrap();
        let memory = Axis::memory(Scale::Linear, 1, 1000, None);
        let ratio = Axis::ratio(Scale::Linear, 1.0, 1.0);
        let corners = staircase(curve, Form::Warm, 520, &memory, &ratio);
        // Level at 100 %, one column of falling, level at 0.
        let [(0.0, 1.0), (before, 1.0), (after, 0.0), (1.0, 0.0)] = corners[..] else {
            panic!("{corners:?}")
        };
        assert!(memory.value(before) < 1000.0 && memory.value(after) >= 1000.0, "{corners:?}");
        assert!(after - before < 0.002);
    }

    #[test]
    fn names_that_would_be_mixed_up_keep_their_folders() {
        let two = ["a/x.pg", "b/x.pg"].map(|name| fixture::scan(name, 3, 2, PAGES));
        assert_eq!(words::names(&two), ["a/x.pg", "b/x.pg"]);
    }
}
