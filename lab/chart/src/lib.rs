//! Plots and pages: one kind of chart, its axes, and self-contained documents.
//!
//! Begin reading at `chart.rs`.

#![forbid(unsafe_code)]

mod axis;
mod chart;
mod coordinates;
pub mod page;
mod sheet;

pub use axis::{Axis, Scale, percent, percent_exactly};
pub use chart::{Chart, Colour, Frame, PALETTE, colour_name, rgb};
pub use sheet::{Key, Panel, Sheet, Sign};
