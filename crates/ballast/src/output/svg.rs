//! What every plot has: a ground to draw on, the colours of axes, and places instead of values.
//!
//! Idea: colours are fixed; a page's style sheet recognises and replaces them, and by themselves they
//! are right for a white ground.

use std::ops::Range;

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::prelude::*;

use super::axis::Axis;

/// Axes and letters, and the lines behind the curves; style sheets know these.
pub(crate) const INK: RGBColor = RGBColor(0x5b, 0x64, 0x70);
pub(crate) const GRID: RGBColor = RGBColor(0xe3, 0xe6, 0xea);
/// The library makes letters a fifth smaller than it is told.
pub(crate) const FONT_SIZE: u32 = 15;
pub(crate) const TITLE_FONT_SIZE: u32 = 19;

/// Lines of guests or policies; a page lightens them for dark ground.
pub(crate) const COLOURS: [RGBColor; 8] = [
    RGBColor(0x1f, 0x4e, 0x8c),
    RGBColor(0xe0, 0x7b, 0x1a),
    RGBColor(0x2a, 0x8a, 0x5f),
    RGBColor(0xb3, 0x3a, 0x3a),
    RGBColor(0x8e, 0x4a, 0xa8),
    RGBColor(0x6b, 0x9b, 0xd1),
    RGBColor(0x9a, 0x7d, 0x0a),
    RGBColor(0x4d, 0x4d, 0x4d),
];

/// What is drawn on.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// What the drawing library refuses with.
pub(crate) type Failure<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

/// What `draw` draws, as a file of its own, `size` wide and high.
///
/// # Errors
/// When the drawing library refuses, which it has no reason to.
pub(crate) fn alone(
    size: (u32, u32),
    draw: impl for<'a> FnOnce(&Area<'a>) -> Result<(), Failure<'a>>,
) -> anyhow::Result<String> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    draw(&area)
        .and_then(|()| area.present())
        .map_err(|error| anyhow!("cannot draw the plot: {error}"))?;
    drop(area);
    Ok(svg)
}

/// What `draw` draws, for a page, which wants neither the namespace nor a size of the plot's own.
///
/// # Errors
/// When the drawing library refuses, which it has no reason to.
pub(crate) fn inside(
    size: (u32, u32),
    draw: impl for<'a> FnOnce(&Area<'a>) -> Result<(), Failure<'a>>,
) -> anyhow::Result<String> {
    let svg = alone(size, draw)?;
    let own_size = format!("width=\"{}\" height=\"{}\" ", size.0, size.1);
    Ok(svg.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1).replacen(&own_size, "", 1))
}

/// A colour as a style sheet writes it.
pub(crate) fn colour_name(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// Places from 0 to 1, as the drawing library wants a coordinate.
pub(crate) struct Places {
    marks: Vec<f64>,
}

impl Places {
    /// The places of `axis`.
    pub(crate) fn of(axis: &Axis) -> Self {
        Self { marks: axis.marks.iter().map(|(place, _)| *place).collect() }
    }
}

impl Ranged for Places {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (from, to): (i32, i32)) -> i32 {
        from + (place * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.marks.clone() }
    }

    fn range(&self) -> Range<f64> {
        0.0..1.0
    }
}

/// What stands beside the mark at `place` of `axis`.
pub(crate) fn label(axis: &Axis, place: f64) -> String {
    let mark = axis.marks.iter().find(|(at, _)| (at - place).abs() < 1e-9);
    mark.map(|(_, label)| label.clone()).unwrap_or_default()
}
