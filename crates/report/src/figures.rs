//! Figures for people: counts, ratios, sizes, axis labels.
//!
//! Limits: three significant digits; the JSON output has the exact figures.

use ballast_model::Bytes;

/// Placeholder for a missing figure.
pub const NONE: &str = "–";

/// A figure, or the placeholder.
pub fn or_none(figure: Option<impl ToString>) -> String {
    figure.map_or_else(|| NONE.to_owned(), |figure| figure.to_string())
}

/// A ratio.
pub fn times(n: f64) -> String {
    match n {
        _ if n != 0.0 && n < 0.01 => "<0.01×".to_owned(),
        _ if n < 10.0 => format!("{n:.2}×"),
        _ if n < 100.0 => format!("{n:.1}×"),
        _ => format!("{n:.0}×"),
    }
}

/// A count, in thousands, millions or billions if large.
pub fn count(n: f64) -> String {
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

/// A short axis label.
pub fn axis(n: f64) -> String {
    let (scaled, unit) = match n {
        _ if n >= 1e6 => (n / 1e6, " M"),
        _ if n >= 1e4 => (n / 1e3, " k"),
        _ => (n, ""),
    };
    let text = format!("{scaled:.2}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// An amount of memory in bytes.
pub fn size(bytes: f64) -> String {
    let rounded = Bytes::new(bytes.round() as u64);
    // Tenths of a MiB do not matter for a guest of hundreds of MiB.
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
    fn axis_labels_are_short() {
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
}
