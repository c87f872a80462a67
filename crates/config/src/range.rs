//! Range checks of configured values.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Basis points in a whole.
pub(crate) const BASIS_POINTS: f64 = 10_000.0;

/// A key of a table and its mistake.
pub(crate) type Mistake = (&'static str, String);

/// Converts a fraction to basis points; this is the only place where it is rounded.
pub(crate) fn basis_points(
    key: &'static str,
    part: f64,
    range: RangeInclusive<f64>,
) -> Result<u32, Mistake> {
    if !range.contains(&part) {
        return Err((key, format!("{part}: expected {} to {}", range.start(), range.end())));
    }
    Ok((part * BASIS_POINTS).round() as u32)
}

/// Checks that a duration is within bounds.
///
/// # Errors
/// It is not; names the expected range.
pub(crate) fn in_range(value: Duration, low: Duration, high: Duration) -> Result<(), String> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(format!("{value:?} is out of range: expected {low:?} to {high:?}"))
}
