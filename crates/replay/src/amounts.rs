//! How an amount of memory was spread over time.
//!
//! Idea: a histogram of pages weighted by milliseconds, and a mean for every hour of the clock. So
//! memory hardly depends on the length of the record. An operator relies on the lowest amounts, so
//! [`Amounts::p95`] is the amount that was reached in 95 % of the time.
//!
//! Cost: O(1) a tick. Limits: percentiles are at most a thousandth too high; amounts are whole
//! pages; an hour that was recorded for less than half does not count as the worst, unless there is
//! no other.

use std::collections::BTreeMap;
use std::time::Duration;

use ballast_model::Bytes;
use hdrhistogram::Histogram;

use crate::totals::bytes;

/// An hour.
const HOUR_MS: i64 = 3_600_000;
/// Significant digits of a host's percentiles.
const DIGITS: u8 = 3;

/// An amount of memory over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// On average.
    pub mean: Bytes,
    /// At least this in half of the time.
    pub p50: Bytes,
    /// At least this in 95 % of the time.
    pub p95: Bytes,
    /// The mean of the hour of the clock in which it was lowest.
    pub worst_hour: Bytes,
    /// When that hour began, in milliseconds since 1970.
    pub worst_hour_ms: i64,
}

/// Percentiles of sizes.
#[derive(Clone, Debug)]
pub(crate) struct Percentiles(Histogram<u64>);

impl Percentiles {
    /// Percentiles with `digits` significant digits; `None`: the library refuses that.
    pub(crate) fn new(digits: u8) -> Option<Percentiles> {
        Histogram::new(digits).ok().map(Percentiles)
    }

    pub(crate) fn add(&mut self, size: Bytes, passed: Duration) {
        let ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        // The histogram resizes itself, so no value is out of its range.
        let _ = self.0.record_n(size.to_pages(), ms);
    }

    /// The size that was not exceeded in `percent` of the time.
    pub(crate) fn at_most(&self, percent: u8) -> Bytes {
        Bytes::pages(self.0.value_at_quantile(f64::from(percent) / 100.0))
    }
}

/// Sums of one hour.
#[derive(Clone, Copy, Debug, Default)]
struct Hour {
    byte_ms: u128,
    ms: u128,
}

/// Sums of an amount, taken in tick by tick.
#[derive(Clone, Debug)]
pub(crate) struct AmountSums {
    percentiles: Percentiles,
    hours: BTreeMap<i64, Hour>,
}

impl AmountSums {
    pub(crate) fn new() -> Option<AmountSums> {
        Some(AmountSums { percentiles: Percentiles::new(DIGITS)?, hours: BTreeMap::new() })
    }

    /// Adds `amount` for the time `passed`, which ended at `wall_ms`.
    pub(crate) fn add(&mut self, wall_ms: i64, amount: Bytes, passed: Duration) {
        self.percentiles.add(amount, passed);
        let hour = self.hours.entry(wall_ms.div_euclid(HOUR_MS)).or_default();
        hour.byte_ms += u128::from(amount.get()) * passed.as_millis();
        hour.ms += passed.as_millis();
    }

    pub(crate) fn amounts(&self) -> Amounts {
        let (byte_ms, ms) = self
            .hours
            .values()
            .fold((0, 0), |(byte_ms, ms), hour| (byte_ms + hour.byte_ms, ms + hour.ms));
        let mean_of = |hour: &Hour| bytes(hour.byte_ms / hour.ms.max(1));
        let is_covered = |hour: &Hour| hour.ms * 2 >= HOUR_MS.unsigned_abs().into();
        let has_covered = self.hours.values().any(is_covered);
        let counted = self.hours.iter().filter(|(_, hour)| match has_covered {
            true => is_covered(hour),
            false => hour.ms > 0,
        });
        let worst = counted.min_by_key(|(_, hour)| mean_of(hour));
        Amounts {
            mean: bytes(byte_ms / ms.max(1)),
            p50: self.percentiles.at_most(50),
            p95: self.percentiles.at_most(5),
            worst_hour: worst.map(|(_, hour)| mean_of(hour)).unwrap_or_default(),
            worst_hour_ms: worst.map_or(0, |(number, _)| number * HOUR_MS),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The amounts, computed from a list of all values.
    fn naive(series: &[(i64, Bytes, Duration)]) -> (Bytes, Bytes, Bytes, Bytes) {
        let mut seconds: Vec<Bytes> = Vec::new();
        let mut hours: BTreeMap<i64, Vec<Bytes>> = BTreeMap::new();
        for (wall_ms, amount, passed) in series {
            for _ in 0..passed.as_secs() {
                seconds.push(*amount);
                hours.entry(wall_ms.div_euclid(HOUR_MS)).or_default().push(*amount);
            }
        }
        let mean = |all: &[Bytes]| {
            let sum: u128 = all.iter().map(|it| u128::from(it.get())).sum();
            bytes(sum / all.len().max(1) as u128)
        };
        seconds.sort_unstable();
        // Nearest rank.
        let at_most = |percent: usize| {
            let rank = (seconds.len() * percent).div_ceil(100).max(1);
            seconds.get(rank - 1).copied().unwrap_or_default()
        };
        let is_covered = |all: &&Vec<Bytes>| all.len() >= 1800;
        let covered: Vec<&Vec<Bytes>> = hours.values().filter(is_covered).collect();
        let counted = if covered.is_empty() { hours.values().collect() } else { covered };
        let worst = counted.into_iter().map(|all| mean(all)).min().unwrap_or_default();
        (mean(&seconds), at_most(50), at_most(5), worst)
    }

    fn is_near(found: Bytes, exact: Bytes) -> bool {
        found >= exact && found.get() - exact.get() <= exact.get() / 1000 + 4096
    }

    proptest! {
        #[test]
        fn amounts_are_those_of_the_whole_list(
            series in prop::collection::vec((0u64..1 << 24, 1u64..900), 1..60),
        ) {
            let mut sums = AmountSums::new().unwrap();
            let (mut wall_ms, mut all) = (-5_000_000i64, Vec::new());
            for (pages, seconds) in series {
                wall_ms += i64::try_from(seconds).unwrap() * 1000;
                let (amount, passed) = (Bytes::pages(pages), Duration::from_secs(seconds));
                sums.add(wall_ms, amount, passed);
                all.push((wall_ms, amount, passed));
            }
            let found = sums.amounts();
            let (mean, p50, p95, worst) = naive(&all);
            prop_assert_eq!(found.mean, mean);
            prop_assert_eq!(found.worst_hour, worst);
            prop_assert!(is_near(found.p50, p50), "{found:?} {p50:?}");
            prop_assert!(is_near(found.p95, p95), "{found:?} {p95:?}");
            prop_assert!(found.p95 <= found.p50);
        }
    }

    #[test]
    fn a_short_beginning_is_no_worst_hour() {
        let mut sums = AmountSums::new().unwrap();
        sums.add(HOUR_MS - 1, Bytes::mib(1), Duration::from_secs(60));
        sums.add(HOUR_MS * 3 / 2, Bytes::mib(50), Duration::from_secs(1800));
        sums.add(HOUR_MS * 5 / 2, Bytes::mib(40), Duration::from_secs(1800));
        let found = sums.amounts();
        assert_eq!((found.worst_hour, found.worst_hour_ms), (Bytes::mib(40), 2 * HOUR_MS));
    }
}
