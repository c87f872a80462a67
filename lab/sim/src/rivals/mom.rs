//! `mom`: oVirt's Memory Overcommitment Manager with its default rules.
//!
//! Properties: shrinks every guest by at most 5 % per decision and grows it without limit up to its
//! goal of free memory; averages over 50 s damp demand. Has no budget: while the host has memory it
//! grows every guest towards its maximum, so targets exceed the budget as soon as the maxima do,
//! and the guard limits them. (With two real guests that shared 1 GiB, MOM alone exceeded it for
//! 194 of 300 s.)
//!
//! Algorithm, every 10 s, with means of the last ten samples taken every 5 s and `h` the free part
//! of the host's memory:
//!
//! ```text
//! used = mean(allocation) − mean(free)                       page cache counts as used
//! h < 20 %:  shrink: g = h, or h − 5 % where h ≤ 5 %         (20 % · h / 20 %)
//!            max(95 % · cur, min, used + g · cur), if not above cur
//! else:      grow, where cur is below the maximum:
//!            least(max, greatest(105 % · cur, min, used + 20 % · cur))
//! ```
//!
//! A change of at most 0.25 % of `cur` is not made.
//! Source: oVirt/mom, `doc/balloon.rules`.
//!
//! Not reproduced: KSM and the rules for processors and I/O; the choice of another rule file.
//! Forced deviations: `cur` is the current target, not the balloon's size; while a balloon lags
//! behind, `used` is at least the guest's known use. If free memory is unknown, available memory
//! replaces it, so page cache then counts as free. If the host's memory is unknown, the budget and
//! its rest replace it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ballast_model::{Bytes, GuestId, PolicyName, Timestamp};
use ballast_policy::{Contender, Division, Pacing, Policy, Problem};

use super::rule::{division, free, host_free_and_total, signed, unsigned, wanted};

pub(super) const NAME: PolicyName = PolicyName::Custom("mom");

/// Time between two samples (`interval` of its monitors).
const SAMPLE_EVERY: Duration = Duration::from_secs(5);
/// Time between two decisions (`policy-engine-interval`).
const DECIDE_EVERY: Duration = Duration::from_secs(10);
/// Samples per average (`sample-history-length`).
const SAMPLES: usize = 10;

/// The policy; see the file's header.
#[derive(Clone, Debug, Default)]
pub struct Mom {
    sampled_at: Option<Timestamp>,
    decided_at: Option<Timestamp>,
    host: VecDeque<(Bytes, Bytes)>,
    guests: BTreeMap<GuestId, MomGuest>,
}

/// The history of a guest.
#[derive(Clone, Debug, Default)]
struct MomGuest {
    /// Memory held and free, at most [`SAMPLES`].
    samples: VecDeque<(Bytes, Bytes)>,
    /// The last decision.
    target: Option<(Bytes, &'static str)>,
}

impl Policy for Mom {
    fn name(&self) -> PolicyName {
        NAME
    }

    fn pacing(&self) -> Pacing {
        Pacing::every(SAMPLE_EVERY, Bytes::ZERO)
    }

    fn divide(&mut self, problem: &Problem) -> Division {
        let due =
            |last: Option<Timestamp>, every| last.is_none_or(|at| problem.now() >= at + every);
        self.guests.retain(|id, _| {
            problem.contenders().binary_search_by(|contender| contender.id.cmp(id)).is_ok()
        });
        if due(self.sampled_at, SAMPLE_EVERY) {
            self.sampled_at = Some(problem.now());
            self.sample(problem);
        }
        if due(self.decided_at, DECIDE_EVERY) {
            self.decided_at = Some(problem.now());
            let host = mean(&self.host);
            for contender in problem.contenders() {
                let guest = self.guests.entry(contender.id.clone()).or_default();
                let (held, free) = mean(&guest.samples);
                let used = unsigned(held - free).max(contender.used);
                guest.target = Some(target(contender, used, host));
            }
        }
        let decided = problem.contenders().iter().map(|contender| {
            let target = self.guests.get(&contender.id).and_then(|guest| guest.target);
            let (target, rule) = target.unwrap_or((contender.allocation, "not sampled yet"));
            wanted(contender, target, contender.used, rule)
        });
        division(problem, decided.collect())
    }
}

impl Mom {
    fn sample(&mut self, problem: &Problem) {
        push(&mut self.host, host_free_and_total(problem));
        for contender in problem.contenders() {
            let guest = self.guests.entry(contender.id.clone()).or_default();
            push(&mut guest.samples, (contender.allocation, free(contender)));
        }
    }
}

fn push(samples: &mut VecDeque<(Bytes, Bytes)>, sample: (Bytes, Bytes)) {
    if samples.len() == SAMPLES {
        samples.pop_front();
    }
    samples.push_back(sample);
}

/// The means of both figures; zero without samples.
fn mean(samples: &VecDeque<(Bytes, Bytes)>) -> (i128, i128) {
    let n = samples.len().max(1) as i128;
    let sum = |figure: fn(&(Bytes, Bytes)) -> Bytes| -> i128 {
        samples.iter().map(|sample| signed(figure(sample))).sum()
    };
    (sum(|sample| sample.0) / n, sum(|sample| sample.1) / n)
}

/// Applies the header's rules to one guest; `host` has the host's free and total memory.
fn target(contender: &Contender, used: Bytes, host: (i128, i128)) -> (Bytes, &'static str) {
    let (host_free, host_total) = (host.0, host.1.max(1));
    let cur = signed(contender.allocation);
    let (min, max) = (signed(contender.floor), signed(contender.ceiling));
    let used = signed(used);
    let unchanged = |rule| (contender.allocation, rule);
    let enough = |target: i128| 400 * (target - cur).abs() > cur;
    if 5 * host_free < host_total {
        let critical = 20 * host_free <= host_total;
        let guest_free = if critical {
            cur * (20 * host_free - host_total) / (20 * host_total)
        } else {
            cur * host_free / host_total
        };
        let target = (95 * cur / 100).max(min).max(used + guest_free);
        if target > cur {
            return unchanged("host short of memory, and nothing to take");
        }
        if !enough(target) {
            return unchanged("change of at most 0.25%");
        }
        let rule = match critical {
            true => "host at most 5% free: shrink below what is used, by at most 5%",
            false => "host under 20% free: shrink to as much free as the host, by at most 5%",
        };
        return (unsigned(target), rule);
    }
    if cur >= max {
        return unchanged("at its maximum");
    }
    let target = max.min((105 * cur / 100).max(min).max(used + cur / 5));
    if !enough(target) {
        return unchanged("change of at most 0.25%");
    }
    (unsigned(target), "host at least 20% free: grow to 20% free, by at least 5%")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::tests::{guest, host_mib, mib, targets};

    #[test]
    fn each_rule_equals_that_by_hand() {
        // Guest of 400 to 2,000 MiB that holds 1,000; free memory and the host's differ.
        for (name, free, host_free, expected) in [
            // h = 50 %: used 900 + 200 = 1,100 is more than 1,050.
            ("grow to 20% free", 100, 5_000, 1_100),
            // used 500 + 200 = 700 is less than 1,050.
            ("grow by 5% at least", 500, 5_000, 1_050),
            ("20% is not short", 500, 2_000, 1_050),
            // h = 10 %: used 500 + 100 = 600 is less than 950.
            ("shrink by 5% at most", 500, 1_000, 950),
            // used 880 + 100 = 980.
            ("shrink to as much free as the host", 120, 1_000, 980),
            // used 950 + 100 = 1,050 is above what it holds.
            ("nothing to take", 50, 1_000, 1_000),
            // h = 5 %: used 1,000 + 0 is not a change; h = 1 %: used 1,000 − 4 % = 960.
            ("critical at 5%", 0, 500, 1_000),
            ("critical takes what is used", 0, 100, 960),
            // h = 1 %: used 900 − 40 = 860 is less than 950.
            ("critical by 5% at most", 100, 100, 950),
        ] {
            let mut mom = Mom::default();
            let contender = guest("a", 0, 1_000, free, (400, 2_000));
            let problem =
                Problem::new(mib(10_000), vec![contender]).on(host_mib(host_free, 10_000));
            assert_eq!(mom.divide(&problem).wanted[0].target, mib(expected), "{name}");
        }
    }

    #[test]
    fn limits_hold_and_small_changes_are_skipped() {
        let at = |contender, host_free| {
            let problem =
                Problem::new(mib(10_000), vec![contender]).on(host_mib(host_free, 10_000));
            targets(&Mom::default().divide(&problem))
        };
        // 95 % of 1,000 is under the minimum of 970.
        assert_eq!(at(guest("a", 0, 1_000, 900, (970, 2_000)), 1_000), [mib(970)]);
        // 105 % of 1,000 is over the maximum of 1,020.
        assert_eq!(at(guest("a", 0, 1_000, 900, (400, 1_020)), 5_000), [mib(1_020)]);
        assert_eq!(at(guest("a", 0, 1_000, 900, (400, 1_000)), 5_000), [mib(1_000)]);
        // 1,002 MiB is 0.2 % more, 1,003 is 0.3 %.
        assert_eq!(at(guest("a", 0, 1_000, 900, (400, 1_002)), 5_000), [mib(1_000)]);
        assert_eq!(at(guest("a", 0, 1_000, 900, (400, 1_003)), 5_000), [mib(1_003)]);
    }

    #[test]
    fn decisions_use_ten_samples_and_follow_every_second() {
        let mut mom = Mom::default();
        let mut at = |seconds: u64, free: u64| {
            let contender = guest("a", 0, 1_000, free, (400, 2_000));
            let problem = Problem::new(mib(10_000), vec![contender])
                .on(host_mib(5_000, 10_000))
                .at(Timestamp::from_millis(seconds * 1_000));
            mom.divide(&problem).wanted[0].target
        };
        assert_eq!(at(0, 0), mib(1_200));
        // A sample without a decision; then the mean of 0, 60 and 60 is 40: used 960 + 200.
        assert_eq!(at(5, 60), mib(1_200));
        assert_eq!(at(10, 60), mib(1_160));
        // Eight more of 60: the eleventh sample replaces the first, 940 + 200.
        for step in 3..=9 {
            at(step * 5, 60);
        }
        assert_eq!(at(50, 60), mib(1_140));
        // A call within 5 s takes no new sample.
        assert_eq!(at(51, 500), mib(1_140));
    }

    #[test]
    fn all_guests_grow_past_the_budget() {
        let guests =
            vec![guest("a", 0, 1_000, 10, (100, 4_000)), guest("b", 0, 1_000, 900, (100, 4_000))];
        let problem = Problem::new(mib(2_000), guests).on(host_mib(5_000, 10_000));
        // a: used 990 + 200; b: 105 %.
        assert_eq!(targets(&Mom::default().divide(&problem)), [mib(1_190), mib(1_050)]);
    }
}
