//! The axes of plots: sizes of memory, miss ratios, counts, time.
//!
//! Idea: an axis maps values to places from 0 to 1, linearly or by logarithm; the drawing library
//! sees only places. Marks are at round figures; for sizes in bytes at powers of two.
//! Limits: a value beyond an end of the axis, including zero on a logarithmic axis, is placed at
//! that end.

use ballast_model::Bytes;

use ballast_report::figures;

/// How values are spread over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scale {
    /// Logarithmic: every octave has the same width
    Log,
    /// Linear, from zero
    Linear,
}

/// Units of time: the greatest number of seconds for which a unit is used, its symbol, and its
/// length in seconds.
const TIME_UNITS: [(f64, &str, f64); 4] = [
    (300.0, "s", 1.0),
    (18_000.0, "min", 60.0),
    (432_000.0, "h", 3600.0),
    (f64::INFINITY, "d", 86_400.0),
];
/// The greatest number of marks on an axis.
const MARKS_MAX: usize = 9;
/// The greatest number of marks on a linear axis, and on one of time.
const MARKS_WANTED: f64 = 6.5;
const MARKS_WANTED_OF_TIME: f64 = 9.5;
/// The smallest miss ratio that a logarithmic axis shows.
const RATIO_MIN: f64 = 1e-6;

/// An axis with its marks.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    scale: Scale,
    from: f64,
    to: f64,
    /// Places of the marks, with their labels.
    marks: Vec<(f64, String)>,
}

impl Axis {
    /// An axis of time up to exactly `seconds`, with marks in a suitable unit.
    pub fn time(seconds: f64) -> Self {
        let to = seconds.max(1e-3);
        let suits = |unit: &&(f64, &str, f64)| to < unit.0;
        let (_, name, unit) = TIME_UNITS.iter().find(suits).unwrap_or(&TIME_UNITS[3]);
        let marks = multiples(10.0, to / unit, MARKS_WANTED_OF_TIME);
        let label = |moment: f64| format!("{} {name}", figures::axis(moment));
        let marks = marks.into_iter().map(|moment| (moment * unit, label(moment)));
        Self::marked(Scale::Linear, (0.0, to), marks)
    }

    /// An axis of sizes in bytes from zero, with a little room above `greatest`.
    pub fn bytes(greatest: u64) -> Self {
        Self::memory(Scale::Linear, 1, greatest, Some(1))
    }

    /// An axis of counts from zero, with a little room above `greatest`.
    pub fn counts(greatest: f64) -> Self {
        let to = greatest.max(RATIO_MIN) * 1.04;
        let marks = multiples(10.0, to, MARKS_WANTED);
        let marks = marks.into_iter().map(|value| (value, figures::axis(value)));
        Self::marked(Scale::Linear, (0.0, to), marks)
    }

    /// An axis of sizes from `pages_min` to `pages_max` pages of `page_bytes` bytes; `None`: the
    /// labels are numbers of pages.
    pub fn memory(scale: Scale, pages_min: u64, pages_max: u64, page_bytes: Option<u64>) -> Self {
        let unit = page_bytes.unwrap_or(1) as f64;
        let least = pages_min.max(1) as f64;
        let most = (pages_max as f64).max(2.0 * least);
        // A little room, so that a fall at the very end is visible.
        let (from, to) = match scale {
            Scale::Log => (least, most * (most / least).powf(0.03)),
            Scale::Linear => (0.0, most * 1.04),
        };
        let marks = match (scale, page_bytes) {
            (Scale::Log, Some(_)) => powers(2.0, from * unit, to * unit),
            (Scale::Log, None) => powers(10.0, from, to),
            (Scale::Linear, Some(_)) => multiples(2.0, to * unit, MARKS_WANTED),
            (Scale::Linear, None) => multiples(10.0, to, MARKS_WANTED),
        };
        let label = |size: f64| match page_bytes {
            Some(_) => Bytes::new(size.round() as u64).to_string(),
            None => figures::axis(size),
        };
        let marks = marks.into_iter().map(|size| (size / unit, label(size)));
        Self::marked(scale, (from, to), marks)
    }

    /// An axis of miss ratios from `least`, the smallest one above zero, to `greatest`.
    pub fn ratio(scale: Scale, least: f64, greatest: f64) -> Self {
        let (from, to) = match scale {
            Scale::Log => {
                let to = greatest.clamp(RATIO_MIN * 10.0, 1.0).log10().ceil();
                let from = least.clamp(RATIO_MIN, 0.1).log10().floor().min(to - 1.0);
                (10f64.powf(from), 10f64.powf(to))
            }
            Scale::Linear if greatest > 0.5 => (0.0, 1.0),
            Scale::Linear => (0.0, greatest.max(RATIO_MIN) * 1.05),
        };
        let marks = match scale {
            Scale::Log => powers(10.0, from, to),
            Scale::Linear => multiples(10.0, to, MARKS_WANTED),
        };
        let marks = marks.into_iter().map(|ratio| (ratio, percent(ratio)));
        Self::marked(scale, (from, to), marks)
    }

    /// An axis with those of `marks` that are between its ends.
    fn marked(
        scale: Scale,
        (from, to): (f64, f64),
        marks: impl Iterator<Item = (f64, String)>,
    ) -> Self {
        let mut axis = Self { scale, from, to, marks: Vec::new() };
        // The ends of an axis are computed, so a mark at an end may come out slightly beyond it.
        let slack = |value: f64| value * 1e-9;
        let within = |value: f64| value >= from - slack(value) && value <= to + slack(value);
        let marks = marks.filter(|(value, _)| within(*value));
        axis.marks = marks.map(|(value, label)| (axis.place(value), label)).collect();
        axis
    }

    /// The place of `value`.
    pub fn place(&self, value: f64) -> f64 {
        let place = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Log if value <= self.from => 0.0,
            Scale::Log => (value / self.from).ln() / (self.to / self.from).ln(),
        };
        place.clamp(0.0, 1.0)
    }

    /// The value at `place`.
    pub fn value(&self, place: f64) -> f64 {
        match self.scale {
            Scale::Linear => self.from + place * (self.to - self.from),
            Scale::Log => self.from * (self.to / self.from).powf(place),
        }
    }

    /// The values at both ends.
    pub fn ends(&self) -> (f64, f64) {
        (self.from, self.to)
    }

    /// The places of its marks, with their labels.
    pub(crate) fn marks(&self) -> impl Iterator<Item = (f64, &str)> {
        self.marks.iter().map(|(place, label)| (*place, label.as_str()))
    }

    /// The label of the mark at `place`; empty if there is no mark.
    pub(crate) fn label(&self, place: f64) -> String {
        let mark = self.marks().find(|(at, _)| (at - place).abs() < 1e-9);
        mark.map_or_else(String::new, |(_, label)| label.to_owned())
    }
}

/// A miss ratio in per cent, with two significant digits; with more if those would round to 100 %.
pub fn percent(ratio: f64) -> String {
    const DIGITS_MAX: usize = 6;
    let percent = ratio * 100.0;
    let digits = if percent > 0.0 { (1.0 - percent.log10().floor()).clamp(0.0, 6.0) } else { 0.0 };
    let rounded = (digits as usize..=DIGITS_MAX).map(|digits| format!("{percent:.digits$}"));
    let is_all = |text: &String| ratio < 1.0 && text.starts_with("100");
    let Some(text) = rounded.into_iter().find(|text| !is_all(text)) else {
        return "99.999999 %".to_owned();
    };
    let short = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{short} %")
}

/// A ratio in per cent with all its digits.
pub fn percent_exactly(ratio: f64) -> String {
    // The product may be off in the last of its 17 digits.
    let text = format!("{:.14e}", ratio * 100.0);
    format!("{} %", text.parse().unwrap_or(ratio * 100.0))
}

/// The powers of `base` in the range; if there are many, every second, third, … of them.
fn powers(base: f64, from: f64, to: f64) -> Vec<f64> {
    let first = (from.ln() / base.ln() - 1e-9).ceil() as i32;
    let last = (to.ln() / base.ln() + 1e-9).floor() as i32;
    let count = (last - first + 1).max(1) as usize;
    let stride = count.div_ceil(MARKS_MAX).max(1);
    (first..=last).step_by(stride).map(|power| base.powi(power)).collect()
}

/// About as many marks as wanted, on a linear axis up to `to`. The step between them is a power of
/// two, or 1, 2 or 5 times a power of ten.
fn multiples(base: f64, to: f64, wanted: f64) -> Vec<f64> {
    let magnitude = base.powf((to / wanted.floor()).log(base).floor());
    let steps: &[f64] = if base == 2.0 { &[1.0, 2.0] } else { &[1.0, 2.0, 5.0, 10.0] };
    let fits = |step: &&f64| to / (**step * magnitude) <= wanted;
    let step = steps.iter().find(fits).unwrap_or(&base) * magnitude;
    (0..=MARKS_MAX).map(|n| n as f64 * step).take_while(|value| *value <= to * 1.000_001).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.marks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn sizes_are_marked_at_round_figures() {
        let axis = Axis::memory(Scale::Log, 1, 1 << 18, Some(4096));
        let marks = ["4KiB", "32KiB", "256KiB", "2MiB", "16MiB", "128MiB", "1GiB"];
        assert_eq!(labels(&axis), marks);
        let axis = Axis::memory(Scale::Linear, 1, 300_000, Some(4096));
        assert_eq!(labels(&axis), ["0B", "256MiB", "512MiB", "768MiB", "1GiB"]);
        let axis = Axis::memory(Scale::Log, 1, 1_000_000, None);
        assert_eq!(labels(&axis), ["1", "10", "100", "1000", "10 k", "100 k", "1 M"]);
        let axis = Axis::memory(Scale::Linear, 1, 300_000, None);
        assert_eq!(labels(&axis), ["0", "50 k", "100 k", "150 k", "200 k", "250 k", "300 k"]);
    }

    #[test]
    fn ratios_are_marked_in_per_cent() {
        let axis = Axis::ratio(Scale::Linear, 0.001, 1.0);
        assert_eq!(labels(&axis), ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]);
        let axis = Axis::ratio(Scale::Linear, 0.001, 0.04);
        assert_eq!(labels(&axis), ["0 %", "1 %", "2 %", "3 %", "4 %"]);
        let axis = Axis::ratio(Scale::Log, 0.002, 0.7);
        assert_eq!(labels(&axis), ["0.1 %", "1 %", "10 %", "100 %"]);
    }

    #[test]
    fn time_is_marked_in_the_unit_that_suits_it() {
        let ends = |seconds: f64| {
            let axis = Axis::time(seconds);
            let labels = labels(&axis);
            (labels[1].to_owned(), (*labels.last().unwrap()).to_owned())
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(ends(60.0), pair("10 s", "60 s"));
        assert_eq!(ends(450.0), pair("1 min", "7 min"));
        assert_eq!(ends(36_000.0), pair("2 h", "10 h"));
        assert_eq!(ends(1e6), pair("2 d", "10 d"));
        assert_eq!(Axis::time(60.0).place(60.0), 1.0);
        assert!(!Axis::time(0.0).marks.is_empty() && !Axis::counts(0.0).marks.is_empty());
    }

    #[test]
    fn place_and_value_are_inverse() {
        for scale in [Scale::Log, Scale::Linear] {
            let axis = Axis::memory(scale, 8, 100_000, None);
            for value in [8.0, 100.0, 99_999.0] {
                assert!((axis.value(axis.place(value)) - value).abs() < 1e-6 * value, "{scale:?}");
            }
            assert_eq!((axis.place(-1.0), axis.place(1e12)), (0.0, 1.0));
        }
    }

    #[test]
    fn axes_exist_for_the_smallest_and_largest_traces() {
        for pages in [0, 1, 2, 1 << 40, u64::MAX] {
            for scale in [Scale::Log, Scale::Linear] {
                for page_bytes in [None, Some(4096)] {
                    let axis = Axis::memory(scale, 1, pages, page_bytes);
                    assert!((1..=MARKS_MAX + 1).contains(&axis.marks.len()), "{pages} {axis:?}");
                    assert!(axis.marks.windows(2).all(|pair| pair[0].0 < pair[1].0), "{axis:?}");
                }
            }
        }
        for (least, greatest) in [(0.0, 0.0), (1.0, 1.0), (1e-9, 1e-8)] {
            for scale in [Scale::Log, Scale::Linear] {
                assert!(!Axis::ratio(scale, least, greatest).marks.is_empty(), "{greatest}");
            }
        }
    }

    #[test]
    fn per_cent_keeps_two_digits() {
        let all = [0.0, 1.0, 0.05, 0.123, 0.001, 0.00012345].map(percent);
        assert_eq!(all, ["0 %", "100 %", "5 %", "12 %", "0.1 %", "0.012 %"]);
    }

    #[test]
    fn only_the_whole_is_a_hundred_per_cent() {
        let all = [0.99, 0.994, 0.996, 0.9996, 0.999_999_999_9, 1.0].map(percent);
        assert_eq!(all, ["99 %", "99 %", "99.6 %", "99.96 %", "99.999999 %", "100 %"]);
    }

    #[test]
    fn a_ratio_given_is_shown_exactly() {
        for (text, expected) in [
            ("0", "0 %"),
            ("0.0125", "1.25 %"),
            ("0.125", "12.5 %"),
            ("0.996", "99.6 %"),
            ("0.07", "7 %"),
            ("0.29", "29 %"),
            ("0.000000123456789", "0.0000123456789 %"),
            ("1", "100 %"),
        ] {
            assert_eq!(percent_exactly(text.parse().unwrap()), expected);
        }
    }
}
