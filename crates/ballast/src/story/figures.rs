//! Figures of a comparison for people.
//!
//! Limits: three significant digits; the exact figures are in the raw data.

use ballast_model::Bytes;

use super::compare::{Figure, Ratio, Spread};

/// What stands for a figure that there is not.
pub(super) const NONE: &str = "–";

/// A figure's name over a column.
pub(super) const fn name(figure: Figure) -> &'static str {
    match figure {
        Figure::Touches => "page touches",
        Figure::Iterations => "passes",
        Figure::RunTime => "run time",
        Figure::MajorFaults => "major faults",
        Figure::SwapIn => "swap-in",
        Figure::SwapOut => "swap-out",
        Figure::AllocationMean => "memory, mean",
        Figure::AllocationLast => "memory, end",
    }
}

/// A figure's value, with its range where there are several.
pub(super) fn value(figure: Figure, value: Option<Spread>) -> String {
    let Some(spread) = value else { return NONE.to_owned() };
    let one = |n: f64| one_value(figure, n);
    match spread.count {
        1 => one(spread.median),
        _ => format!("{} ({}…{})", one(spread.median), one(spread.min), one(spread.max)),
    }
}

fn one_value(figure: Figure, n: f64) -> String {
    match figure {
        Figure::Touches | Figure::Iterations | Figure::MajorFaults => count(n),
        Figure::RunTime => format!("{n:.1} s"),
        _ => size(n),
    }
}

/// A ratio, with its range where there are several.
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

/// So many times.
pub(super) fn times(n: f64) -> String {
    match n {
        _ if n != 0.0 && n < 0.01 => "<0.01×".to_owned(),
        _ if n < 10.0 => format!("{n:.2}×"),
        _ if n < 100.0 => format!("{n:.1}×"),
        _ => format!("{n:.0}×"),
    }
}

/// A count, in thousands or millions where it is large.
pub(super) fn count(n: f64) -> String {
    const UNITS: [(f64, &str); 3] = [(1e9, " G"), (1e6, " M"), (1e4, " k")];
    for (from, unit) in UNITS {
        if n >= from {
            let scaled = if unit == " k" { n / 1e3 } else { n / from };
            return match scaled {
                _ if scaled < 10.0 => format!("{scaled:.2}{unit}"),
                _ if scaled < 100.0 => format!("{scaled:.1}{unit}"),
                _ => format!("{scaled:.0}{unit}"),
            };
        }
    }
    format!("{n:.0}")
}

/// A figure beside an axis, short.
pub(super) fn axis(n: f64) -> String {
    let (scaled, unit) = match n {
        _ if n >= 1e6 => (n / 1e6, " M"),
        _ if n >= 1e4 => (n / 1e3, " k"),
        _ => (n, ""),
    };
    let text = format!("{scaled:.2}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// An amount of memory in bytes.
pub(super) fn size(bytes: f64) -> String {
    let rounded = Bytes::new(bytes.round() as u64);
    // Tenths of a MiB say nothing about a guest of hundreds.
    let whole_mib = rounded >= Bytes::mib(100) && rounded < Bytes::gib(1);
    if whole_mib { format!("{:.0}MiB", rounded.as_mib_f64()) } else { rounded.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_keep_three_digits() {
        for (n, text) in [
            (0.0, "0"),
            (9999.0, "9999"),
            (12_345.0, "12.3 k"),
            (999_400.0, "999 k"),
            (1_234_567.0, "1.23 M"),
            (98_700_000.0, "98.7 M"),
            (4e9, "4.00 G"),
        ] {
            assert_eq!(count(n), text);
        }
    }

    #[test]
    fn figures_beside_an_axis_are_short() {
        let all = [0.0, 0.25, 400.0, 12_500.0, 2_500_000.0].map(axis);
        assert_eq!(all, ["0", "0.25", "400", "12.5 k", "2.5 M"]);
    }

    #[test]
    fn sizes_and_times_are_short() {
        assert_eq!(size((512.04 * 1048576.0_f64).round()), "512MiB");
        assert_eq!(size(0.0), "0B");
        assert_eq!(size(1.5 * 1024.0 * 1048576.0), "1.5GiB");
        let all = [0.0, 0.001, 0.5, 2.345, 23.45, 234.5].map(times);
        assert_eq!(all, ["0.00×", "<0.01×", "0.50×", "2.35×", "23.4×", "234×"]);
    }

    #[test]
    fn several_repetitions_show_their_range() {
        let spread = Spread::of([1.0, 2.0, 4.0]);
        assert_eq!(value(Figure::RunTime, spread), "2.0 s (1.0 s…4.0 s)");
        assert_eq!(ratio(spread.map(Ratio::Times)), "2.00× (1.00×…4.00×)");
        assert_eq!(value(Figure::RunTime, None), NONE);
    }
}
