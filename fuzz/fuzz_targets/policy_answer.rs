//! A line from a policy's program: it gives targets or a one-line fault, and the division made of
//! any targets keeps the bounds and the budget.
#![no_main]

use ballast_fuzz::assert_harmless;
use ballast_model::{AnswerFault, Bytes, PolicyAnswer, PolicyName};
use ballast_policy::{Contender, PolicySettings, Problem, build};
use ballast_policy_proto::parse_answer;

/// Longest fault, in characters: its text, and the fixed words around it.
const FAULT_CHARS_MAX: usize = AnswerFault::TEXT_CHARS_MAX + 100;

libfuzzer_sys::fuzz_target!(|line: &[u8]| {
    let answer = match parse_answer(line) {
        Ok(answer) => {
            assert!(answer.targets.is_sorted_by(|a, b| a.guest < b.guest));
            PolicyAnswer::Targets(answer.targets)
        }
        Err(fault) => {
            assert_harmless(&fault.to_string(), FAULT_CHARS_MAX);
            PolicyAnswer::Fault(fault)
        }
    };
    let guest = |name: &str| Contender {
        floor: Bytes::mib(64),
        ceiling: Bytes::mib(900),
        ..Contender::new(name.parse().expect("a name"), Bytes::mib(300))
    };
    let problem = Problem::new(Bytes::gib(1), vec![guest("a"), guest("b")]);
    let mut policy = build(PolicyName::External, PolicySettings::default());
    policy.take_answer(answer);
    let division = policy.divide(&problem);
    let total: Bytes = division.wanted.iter().map(|it| it.target).sum();
    assert!(total <= problem.budget());
    for wanted in &division.wanted {
        assert!((Bytes::mib(64)..=Bytes::mib(900)).contains(&wanted.target));
        assert_eq!(wanted.target.page_floor(), wanted.target);
    }
});
