//! One plot: two axes, and lines, areas, shades and dots between them.
//!
//! Idea: a chart is data until it is drawn, either into a page or on a [sheet](crate::Sheet), which
//! is a file of its own. Colours are fixed; a page's style sheet recognises and replaces them, and
//! without a style sheet they suit a white background.
//! Limits: one scale for each axis; the only labels are those of the axes.

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::axis::Axis;
use crate::coordinates::UnitCoordinate;

/// A colour in red, green and blue.
pub type Colour = RGBColor;

/// A colour from its red, green and blue parts.
pub const fn rgb(red: u8, green: u8, blue: u8) -> Colour {
    RGBColor(red, green, blue)
}

/// The colour of axes and their labels; style sheets have the same value.
pub(crate) const INK: Colour = rgb(0x5b, 0x64, 0x70);
/// The colour of grid lines; style sheets have the same value.
const GRID: Colour = rgb(0xe3, 0xe6, 0xea);
/// Height of the labels below a plot.
const BOTTOM: u32 = 24;

/// Colours of guests and policies; a page lightens them on a dark background.
pub const PALETTE: [Colour; 8] = [
    rgb(0x1f, 0x4e, 0x8c),
    rgb(0xe0, 0x7b, 0x1a),
    rgb(0x2a, 0x8a, 0x5f),
    rgb(0xb3, 0x3a, 0x3a),
    rgb(0x8e, 0x4a, 0xa8),
    rgb(0x6b, 0x9b, 0xd1),
    rgb(0x9a, 0x7d, 0x0a),
    rgb(0x4d, 0x4d, 0x4d),
];

/// The canvas of a drawing.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// The drawing library's error.
pub(crate) type Failure<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

/// The size of a plot, its margins and its font size, in units of the picture.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Width and height, including the labels of the axes.
    pub size: (u32, u32),
    /// Width of the labels on the left.
    pub left: u32,
    /// Margin on the right; half of the last label below the plot may need it.
    pub right: u32,
    /// Margin above.
    pub top: u32,
    /// Font size; the drawing library draws letters a fifth smaller.
    pub letters: u32,
}

impl Frame {
    /// The number of columns between the axes.
    pub const fn columns(&self) -> u32 {
        self.size.0 - self.left - self.right
    }

    /// `units` as a percentage of the width, for a page's script.
    pub fn percent_of_width(&self, units: u32) -> String {
        format!("{:.3}", 100.0 * f64::from(units) / f64::from(self.size.0))
    }
}

/// A point on the plot: from 0 to 1 along each axis.
type PlotPoint = (f64, f64);

#[derive(Clone, Debug)]
enum Element {
    Line { places: Vec<PlotPoint>, colour: Colour, width: u32 },
    Area { places: Vec<PlotPoint>, colour: Colour, opacity: f64, border: u32 },
    Shade { from: f64, to: f64, colour: Colour, opacity: f64 },
    Dot { at: PlotPoint, colour: Colour },
}

/// A plot; later elements cover earlier ones.
#[derive(Clone, Debug)]
pub struct Chart {
    frame: Frame,
    across: Axis,
    up: Axis,
    has_columns: bool,
    elements: Vec<Element>,
}

impl Chart {
    /// An empty plot with grid lines at the marks of the axis `up`.
    pub fn new(frame: Frame, across: Axis, up: Axis) -> Self {
        Self { frame, across, up, has_columns: false, elements: Vec::new() }
    }

    /// The plot with grid lines at the marks of the other axis, too.
    #[must_use]
    pub fn with_columns(self) -> Self {
        Self { has_columns: true, ..self }
    }

    /// The axes: horizontal, and vertical.
    pub fn axes(&self) -> (&Axis, &Axis) {
        (&self.across, &self.up)
    }

    /// A line through `points`.
    pub fn line(
        &mut self,
        points: impl IntoIterator<Item = (f64, f64)>,
        colour: Colour,
        width: u32,
    ) {
        let places = self.places(points);
        self.line_at(places, colour, width);
    }

    /// A line through `places`, from 0 to 1 along each axis.
    pub fn line_at(&mut self, places: Vec<(f64, f64)>, colour: Colour, width: u32) {
        self.elements.push(Element::Line { places, colour, width });
    }

    /// The area between `points` and the lower axis, with a line of `border` on top.
    pub fn area(
        &mut self,
        points: impl IntoIterator<Item = (f64, f64)>,
        colour: Colour,
        opacity: f64,
        border: u32,
    ) {
        let places = self.places(points);
        self.elements.push(Element::Area { places, colour, opacity, border });
    }

    /// A shade over the whole height, between two values of the horizontal axis.
    pub fn shade(&mut self, (from, to): (f64, f64), colour: Colour, opacity: f64) {
        let (from, to) = (self.across.place(from), self.across.place(to));
        self.elements.push(Element::Shade { from, to, colour, opacity });
    }

    /// A dot.
    pub fn dot(&mut self, (x, y): (f64, f64), colour: Colour) {
        let at = (self.across.place(x), self.up.place(y));
        self.elements.push(Element::Dot { at, colour });
    }

    fn places(&self, points: impl IntoIterator<Item = (f64, f64)>) -> Vec<PlotPoint> {
        points.into_iter().map(|(x, y)| (self.across.place(x), self.up.place(y))).collect()
    }

    /// The plot as SVG for a page, without namespace and size, which the page adds.
    ///
    /// # Errors
    /// The drawing library fails, which is not expected.
    pub fn svg(&self) -> anyhow::Result<String> {
        let (width, height) = self.frame.size;
        let svg = draw_svg(self.frame.size, |area| self.draw(area))?;
        let size = format!("width=\"{width}\" height=\"{height}\" ");
        Ok(svg.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1).replacen(&size, "", 1))
    }

    /// Draws on `area`.
    pub(crate) fn draw<'a>(&self, area: &Area<'a>) -> Result<(), Failure<'a>> {
        let frame = &self.frame;
        let mut chart = ChartBuilder::on(area)
            .margin_top(frame.top)
            .margin_right(frame.right)
            .x_label_area_size(BOTTOM)
            .y_label_area_size(frame.left)
            .build_cartesian_2d(UnitCoordinate::of(&self.across), UnitCoordinate::of(&self.up))?;
        let mut mesh = chart.configure_mesh();
        if !self.has_columns {
            mesh.disable_x_mesh();
        }
        mesh.light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .x_label_formatter(&|place| self.across.label(*place))
            .y_label_formatter(&|place| self.up.label(*place))
            .label_style(("sans-serif", frame.letters).into_font().color(&INK))
            .draw()?;
        for element in &self.elements {
            match element {
                Element::Line { places, colour, width } => {
                    let style = colour.stroke_width(*width);
                    chart.draw_series(LineSeries::new(places.iter().copied(), style))?;
                }
                Element::Area { places, colour, opacity, border } => {
                    let area = AreaSeries::new(places.iter().copied(), 0.0, colour.mix(*opacity));
                    chart.draw_series(match border {
                        0 => area,
                        width => area.border_style(colour.stroke_width(*width)),
                    })?;
                }
                Element::Shade { from, to, colour, opacity } => {
                    let corners = [(*from, 0.0), (*to, 1.0)];
                    chart.draw_series([Rectangle::new(corners, colour.mix(*opacity).filled())])?;
                }
                Element::Dot { at, colour } => {
                    chart.draw_series([Circle::new(*at, 5, colour.filled())])?;
                }
            }
        }
        Ok(())
    }
}

/// The SVG of what `draw` draws, with the given width and height.
pub(crate) fn draw_svg(
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

/// A colour in the notation of SVG and style sheets.
pub fn colour_name(RGBColor(r, g, b): Colour) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_coloured_elements_and_no_address() {
        let frame = Frame { size: (600, 130), left: 58, right: 14, top: 8, letters: 12 };
        let mut chart = Chart::new(frame, Axis::time(10.0), Axis::bytes(4 << 20));
        let points = [(0.0, 1e6), (5.0, 3e6), (9.0, 2e6)];
        chart.shade((2.0, 4.0), PALETTE[0], 0.2);
        chart.area(points, PALETTE[1], 0.25, 1);
        chart.line(points, PALETTE[2], 2);
        chart.dot(points[1], PALETTE[3]);
        let svg = chart.svg().unwrap();
        for colour in &PALETTE[..4] {
            assert!(svg.contains(&colour_name(*colour)), "{colour:?} in {svg}");
        }
        assert!(svg.starts_with("<svg viewBox=") && !svg.contains("http"), "{svg}");
        for label in ["0 s", "8 s", "2MiB"] {
            assert!(svg.contains(label), "{label} in {svg}");
        }
    }
}
