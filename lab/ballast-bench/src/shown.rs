//! Figures as short text.

use ballast_report::figures::NONE;

/// Three significant digits, or five decimal places if those would be zeros.
pub(crate) fn figure(n: f64) -> String {
    match n {
        _ if n >= 100.0 => format!("{n:.0}"),
        _ if n >= 10.0 => format!("{n:.1}"),
        _ if n >= 0.1 => format!("{n:.2}"),
        _ => format!("{n:.5}"),
    }
}

/// A share in per cent, with three significant digits.
pub(crate) fn percent(share: f64) -> String {
    match share.abs() {
        _ if !share.is_finite() => NONE.to_owned(),
        it if it >= 1.0 => format!("{:.0} %", share * 100.0),
        it if it >= 0.1 => format!("{:.1} %", share * 100.0),
        _ => format!("{:.2} %", share * 100.0),
    }
}

/// A time given in nanoseconds, shown in microseconds.
pub(crate) fn micros(ns: f64) -> String {
    format!("{:.1} us", ns / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_readable() {
        for (n, text) in [(0.00043, "0.00043"), (0.25, "0.25"), (18.04, "18.0"), (122.4, "122")] {
            assert_eq!(figure(n), text);
        }
    }
}
