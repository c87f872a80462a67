//! The figures of a comparison as text for people.
//!
//! Limits: three significant digits; the raw data has the exact figures.

use super::compare::{Figure, Ratio, Spread};
pub(super) use ballast_report::figures::{NONE, count, or_none, size, times};

/// A figure's value, with its range if there are several.
pub(super) fn value(figure: Figure, value: Option<Spread>) -> String {
    let Some(spread) = value else { return NONE.to_owned() };
    let one = |n: f64| one_value(figure, n);
    match spread.count {
        1 => one(spread.median),
        _ => format!("{} ({}…{})", one(spread.median), one(spread.min), one(spread.max)),
    }
}

pub(super) fn one_value(figure: Figure, n: f64) -> String {
    match figure {
        Figure::Touches | Figure::Iterations | Figure::MajorFaults => count(n),
        Figure::RunTime
        | Figure::WorkTime
        | Figure::Settled
        | Figure::NearNeed
        | Figure::FullSpeed => {
            format!("{n:.1} s")
        }
        Figure::OfBest
        | Figure::OfBestBefore
        | Figure::OfBestAfter
        | Figure::OfNeed
        | Figure::UpRatio => format!("{:.0} %", 100.0 * n),
        Figure::TrackingCost => format!("{:.2} %", 100.0 * n),
        _ => size(n),
    }
}

/// A ratio, with its range if there are several.
pub(super) fn ratio(ratio: Option<Ratio>) -> String {
    match ratio {
        None => NONE.to_owned(),
        Some(Ratio::BothZero) => "both 0".to_owned(),
        Some(Ratio::FromZero) => "from 0".to_owned(),
        Some(Ratio::Times(spread)) if spread.count == 1 => times(spread.median),
        Some(Ratio::Times(spread)) => {
            format!("{} ({}…{})", times(spread.median), times(spread.min), times(spread.max))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_repetitions_show_their_range() {
        let spread = Spread::of([1.0, 2.0, 4.0]);
        assert_eq!(value(Figure::RunTime, spread), "2.0 s (1.0 s…4.0 s)");
        assert_eq!(ratio(spread.map(Ratio::Times)), "2.00× (1.00×…4.00×)");
        assert_eq!(value(Figure::RunTime, None), NONE);
    }
}
