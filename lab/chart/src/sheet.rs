//! Plots one below the other in one SVG file, with a title and a legend.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::chart::{Area, Chart, Colour, Failure, Frame, INK, draw_svg};

/// Height of the title, and its font size.
const TITLE: u32 = 34;
const TITLE_LETTERS: u32 = 19;
/// Height of a line of the legend, and the number of entries in a line.
const LEGEND_LINE: u32 = 20;
const LEGEND_COLUMNS: usize = 3;
/// Width of an entry's symbol.
const SIGN: i32 = 20;
/// Height of the line above a plot.
const HEADING: u32 = 26;
/// Margin at the bottom.
const BELOW: u32 = 8;

/// The symbol of an entry in the legend.
#[derive(Clone, Copy, Debug)]
pub enum Sign {
    /// A line of this colour.
    Line(Colour),
    /// Shaded background, with its opacity.
    Shade(Colour, f64),
    /// No symbol: the entry is a remark.
    Remark,
}

/// An entry of the legend.
#[derive(Clone, Debug)]
pub struct Key {
    /// The symbol.
    pub sign: Sign,
    /// Its text.
    pub text: String,
}

/// A plot on a sheet.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The line above it.
    pub heading: Option<String>,
    /// The plot.
    pub chart: Chart,
}

/// Plots of one size, from top to bottom.
#[derive(Clone, Debug)]
pub struct Sheet {
    /// The size of every plot.
    pub frame: Frame,
    /// The title.
    pub title: String,
    /// The entries of the legend, below the title.
    pub legend: Vec<Key>,
    /// The plots.
    pub panels: Vec<Panel>,
    /// The text to show if there are no plots.
    pub otherwise: &'static str,
}

impl Sheet {
    /// The sheet as SVG.
    ///
    /// # Errors
    /// The drawing library fails, which is not expected.
    pub fn svg(&self) -> anyhow::Result<String> {
        let plots = match self.panels.as_slice() {
            [] => self.frame.size.1,
            panels => panels.iter().map(|panel| panel.heading_height() + self.frame.size.1).sum(),
        };
        let size = (self.frame.size.0, TITLE + self.legend_height() + plots + BELOW);
        Ok(draw_svg(size, |area| self.draw(area, size))? + "\n")
    }

    fn legend_height(&self) -> u32 {
        self.legend.len().div_ceil(LEGEND_COLUMNS) as u32 * LEGEND_LINE
    }

    fn draw<'a>(&self, area: &Area<'a>, (width, height): (u32, u32)) -> Result<(), Failure<'a>> {
        area.fill(&WHITE)?;
        let title = ("sans-serif", TITLE_LETTERS).into_font().color(&BLACK);
        let left = self.frame.left as i32;
        area.draw_text(&self.title, &title, (left, 12))?;
        let letters = ("sans-serif", self.frame.letters).into_font();
        if self.panels.is_empty() {
            let middle = letters.color(&INK).pos(Pos::new(HPos::Center, VPos::Center));
            return area.draw_text(self.otherwise, &middle, (width as i32 / 2, height as i32 / 2));
        }
        let mut top = (TITLE + self.legend_height()) as i32;
        for Panel { heading, chart } in &self.panels {
            if let Some(heading) = heading {
                area.draw_text(heading, &letters.color(&BLACK), (left, top + 8))?;
                top += HEADING as i32;
            }
            chart.draw(&area.clone().shrink((0, top), self.frame.size))?;
            top += self.frame.size.1 as i32;
        }
        self.draw_legend(area)
    }

    fn draw_legend<'a>(&self, area: &Area<'a>) -> Result<(), Failure<'a>> {
        let style = ("sans-serif", self.frame.letters).into_font().color(&BLACK);
        let style = style.pos(Pos::new(HPos::Left, VPos::Center));
        let width = self.frame.columns() as usize / LEGEND_COLUMNS;
        for (index, Key { sign, text }) in self.legend.iter().enumerate() {
            let (row, column) = (index / LEGEND_COLUMNS, index % LEGEND_COLUMNS);
            let x = (self.frame.left as usize + column * width) as i32;
            let y = (TITLE + row as u32 * LEGEND_LINE + LEGEND_LINE / 2) as i32;
            let text_x = match sign {
                Sign::Line(colour) => {
                    let ends = [(x, y), (x + SIGN, y)];
                    area.draw(&PathElement::new(ends, colour.stroke_width(3)))?;
                    x + SIGN + 6
                }
                Sign::Shade(colour, opacity) => {
                    let corners = [(x, y - 7), (x + SIGN, y + 7)];
                    area.draw(&Rectangle::new(corners, colour.mix(*opacity).filled()))?;
                    x + SIGN + 6
                }
                Sign::Remark => x,
            };
            area.draw_text(text, &style, (text_x, y))?;
        }
        Ok(())
    }
}

impl Panel {
    fn heading_height(&self) -> u32 {
        if self.heading.is_some() { HEADING } else { 0 }
    }
}
