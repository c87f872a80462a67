//! Passes an axis to the drawing library, as places from 0 to 1 with the marks among them.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::prelude::Ranged;

use crate::axis::Axis;

/// Places from 0 to 1, with the places of the marks.
pub(crate) struct UnitCoordinate {
    marks: Vec<f64>,
}

impl UnitCoordinate {
    /// The places of `axis`.
    pub(crate) fn of(axis: &Axis) -> Self {
        Self { marks: axis.marks().map(|(place, _)| place).collect() }
    }
}

impl Ranged for UnitCoordinate {
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
