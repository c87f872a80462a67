//! Every policy with any settings on any sequence of problems: bounds, whole pages, conservation.
#![no_main]

use ballast_fuzz::Source;
use ballast_model::{Bytes, Timestamp};
use ballast_policy::{Problem, build};

/// Most problems in a row.
const PROBLEMS_MAX: usize = 6;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut from = Source::new(bytes);
    let mut policy = build(from.policy(), from.policy_settings());
    let mut now = Timestamp::ZERO;
    for _ in 0..PROBLEMS_MAX {
        if from.is_empty() {
            break;
        }
        now = now.max(from.moment(now));
        let problem = Problem::new(from.size(), from.contenders()).at(now);
        let division = policy.divide(&problem);
        let _ = format!("{division:?} {:?}", policy.pacing());
        assert_eq!(division.wanted.len(), problem.contenders().len());
        for (wanted, contender) in division.wanted.iter().zip(problem.contenders()) {
            let target = wanted.target;
            assert!(target >= contender.floor, "{target} below {contender:?}");
            assert!(target <= contender.ceiling, "{target} above {contender:?}");
            assert_eq!(target.page_floor(), target);
            // Any reason can be printed.
            let _ = wanted.reason.to_string();
        }
        assert_eq!(division.shortfall, problem.shortfall());
        let total: u128 = division.wanted.iter().map(|it| u128::from(it.target.get())).sum();
        if division.shortfall == Bytes::ZERO {
            assert!(total <= u128::from(problem.budget().get()), "{total} of {}", problem.budget());
        }
    }
});
