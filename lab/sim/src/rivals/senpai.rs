//! `senpai`: Facebook's probing of `memory.high` by pressure, applied to guests instead of cgroups.
//!
//! Properties: takes at most 1 % of a guest every six seconds while the guest does not wait for
//! memory; once it waits, the guest can grow by up to 100 % at a time. Has no budget and regards
//! each guest alone: memory that one guest gives reaches another only when the guard finds it free.
//!
//! Algorithm, every second, with `p` the time that the guest waited for memory since the last
//! change, in µs:
//!
//! ```text
//! p > 10 ms:                 grow by min(100 %, p / 10 ms / 20), and begin anew
//! else after six seconds:    shrink by min(1 %, 10 ms / max(p, 1 µs) / 10), and begin anew
//! ```
//!
//! Source: facebookincubator/senpai, `senpai.py` (`interval`, `pressure`, `coeff_probe`,
//! `coeff_backoff`, `max_probe`, `max_backoff`).
//!
//! Not reproduced: oomd's later modes; the limits on disk writes. Forced deviations: a guest's
//! pressure is not known, so each page that it swaps in or out counts as a wait of 100 µs, as with
//! an SSD. If swapping is not reported, the guest never waits.

use std::collections::BTreeMap;
use std::time::Duration;

use ballast_model::{Bytes, GuestId, PolicyName, Timestamp};
use ballast_policy::{Contender, Division, Pacing, Policy, Problem};

use super::rule::{division, wanted};

pub(super) const NAME: PolicyName = PolicyName::Custom("senpai");

/// Time between two samples.
const EVERY: Duration = Duration::from_secs(1);
/// Quiet samples before memory is taken (`interval`).
const QUIET_SAMPLES: u64 = 6;
/// The wait that the rule aims at, in µs (`pressure`).
const PRESSURE_US: u64 = 10_000;
/// Divisors that make steps smaller than proportional (`coeff_probe`, `coeff_backoff`).
const PROBE_COEFFICIENT: u64 = 10;
const BACKOFF_COEFFICIENT: u64 = 20;
/// Least divisor of a step down, so at most 1 % is taken at once (`max_probe`).
const PROBE_DIVISOR_MIN: u64 = 100;
/// Assumed wait for each swapped page, in µs; see the header.
const PAGE_WAIT_US: u64 = 100;
/// Most samples that count at once after a gap; older ones say nothing.
const SAMPLES_MAX: u64 = 60;

/// The policy; see the file's header.
#[derive(Clone, Debug, Default)]
pub struct Senpai {
    looked_at: Option<Timestamp>,
    guests: BTreeMap<GuestId, SenpaiGuest>,
}

/// What a guest waited since its last change.
#[derive(Clone, Copy, Debug, Default)]
struct SenpaiGuest {
    waited_us: u64,
    samples: u64,
    /// The last decision; `None`: nothing was decided yet.
    target: Option<Bytes>,
}

impl Policy for Senpai {
    fn name(&self) -> PolicyName {
        NAME
    }

    fn pacing(&self) -> Pacing {
        Pacing::every(EVERY, Bytes::ZERO)
    }

    fn divide(&mut self, problem: &Problem) -> Division {
        let since = self.looked_at.map_or(EVERY, |at| problem.now().saturating_since(at));
        let samples = since.as_secs().min(SAMPLES_MAX);
        if samples > 0 {
            self.looked_at = Some(problem.now());
        }
        self.guests.retain(|id, _| {
            problem.contenders().binary_search_by(|contender| contender.id.cmp(id)).is_ok()
        });
        let decided = problem.contenders().iter().map(|contender| {
            let guest = self.guests.entry(contender.id.clone()).or_default();
            let (target, rule) = guest.observe(contender, samples);
            wanted(contender, target, contender.used, rule)
        });
        let decided = decided.collect();
        division(problem, decided)
    }
}

impl SenpaiGuest {
    /// Counts `samples` samples with the state of `contender`; returns its target and the rule that
    /// applied.
    fn observe(&mut self, contender: &Contender, samples: u64) -> (Bytes, &'static str) {
        let now = self.target.unwrap_or(contender.allocation);
        let swapped = contender.signals.swapped_pages_per_s.unwrap_or(0);
        let waited = swapped.saturating_mul(PAGE_WAIT_US).saturating_mul(samples);
        self.waited_us = self.waited_us.saturating_add(waited);
        self.samples = self.samples.saturating_add(samples);
        let (target, rule) = if self.waited_us > PRESSURE_US {
            let whole = PRESSURE_US * BACKOFF_COEFFICIENT;
            let part = self.waited_us.min(whole);
            (now.saturating_add(now.fraction(part, whole)), "waits for memory: grow")
        } else if self.samples >= QUIET_SAMPLES {
            // A step of less than 1 % has a larger divisor.
            let divisor =
                (self.waited_us.max(1) * PROBE_COEFFICIENT / PRESSURE_US).max(PROBE_DIVISOR_MIN);
            (now.saturating_sub(now.fraction(1, divisor)), "quiet for six seconds: shrink by 1%")
        } else {
            return (now, "quiet, and not for long enough");
        };
        let target = target.clamp(contender.floor, contender.ceiling);
        *self = SenpaiGuest { target: Some(target), ..SenpaiGuest::default() };
        (target, rule)
    }
}

#[cfg(test)]
mod tests {
    use ballast_model::Signals;

    use super::*;
    use crate::rivals::tests::{guest, mib, targets};

    fn problem(second: u64, swapped: Option<u64>) -> Problem {
        let mut contender = guest("a", 300, 1000, 100, (200, 4000));
        contender.signals = Signals { swapped_pages_per_s: swapped, ..contender.signals };
        Problem::new(mib(4000), vec![contender]).at(Timestamp::from_millis(second * 1000))
    }

    fn target(senpai: &mut Senpai, second: u64, swapped: u64) -> Bytes {
        targets(&senpai.divide(&problem(second, Some(swapped))))[0]
    }

    #[test]
    fn a_quiet_guest_gives_one_percent_every_six_seconds() {
        let mut senpai = Senpai::default();
        for second in 0..5 {
            assert_eq!(target(&mut senpai, second, 0), mib(1000), "{second}");
        }
        assert_eq!(target(&mut senpai, 5, 0), mib(990));
        for second in 6..11 {
            assert_eq!(target(&mut senpai, second, 0), mib(990), "{second}");
        }
        assert!(target(&mut senpai, 11, 0) < mib(981));
    }

    #[test]
    fn a_guest_that_waits_grows_with_its_wait() {
        // 1,000 pages count as 100 ms, ten times the aim: grow by a half.
        assert_eq!(target(&mut Senpai::default(), 0, 1000), mib(1500));
        assert_eq!(target(&mut Senpai::default(), 0, 1_000_000), mib(2000));
        // 10 ms is exactly the aim.
        assert_eq!(target(&mut Senpai::default(), 0, 100), mib(1000));
    }

    #[test]
    fn what_is_not_reported_is_no_wait() {
        let mut senpai = Senpai::default();
        let target = targets(&senpai.divide(&problem(0, None)))[0];
        assert_eq!(target, mib(1000));
    }

    #[test]
    fn two_samples_in_one_second_count_as_one() {
        let mut senpai = Senpai::default();
        for _ in 0..20 {
            assert_eq!(target(&mut senpai, 0, 0), mib(1000));
        }
    }
}
