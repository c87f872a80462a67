//! The answer: the line that the program writes.

use std::collections::BTreeMap;

use ballast_model::{AnswerFault, Bytes, GuestId, GuestTarget};
use serde::Deserialize;

/// Longest answer, in bytes without its end of line: targets of some ten thousand guests.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The answer of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The number of the question.
    pub question: u64,
    /// The targets, sorted by name; each guest is named once.
    pub targets: Vec<GuestTarget>,
}

/// The line as serde reads it; unknown fields are ignored.
#[derive(Deserialize)]
struct AnswerLine {
    question: u64,
    targets: BTreeMap<GuestId, u64>,
}

/// Reads a line, without its end. If a guest is named twice, its last target counts.
///
/// # Errors
/// The line is too long or is not an answer; the fault says what was expected.
pub fn parse_answer(line: &[u8]) -> Result<Answer, AnswerFault> {
    if line.len() > ANSWER_BYTES_MAX {
        return Err(AnswerFault::TooLong { line_max: Bytes::new(ANSWER_BYTES_MAX as u64) });
    }
    let AnswerLine { question, targets } = serde_json::from_slice(line).map_err(|error| {
        let why = format!(
            "{error}; expected {{\"question\": number, \"targets\": {{guest: bytes}}}}, whole numbers"
        );
        AnswerFault::Malformed { why: AnswerFault::text(&why) }
    })?;
    let target = |(guest, target)| GuestTarget { guest, target: Bytes::new(target) };
    Ok(Answer { question, targets: targets.into_iter().map(target).collect() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_answer_is_read_in_the_order_of_names() {
        let line =
            br#" {"targets": {"b": 1, "a": 18446744073709551615}, "question": 7, "x": [] } "#;
        let answer = parse_answer(line).unwrap();
        let targets: Vec<(&str, u64)> =
            answer.targets.iter().map(|it| (it.guest.as_str(), it.target.get())).collect();
        assert_eq!((answer.question, targets), (7, vec![("a", u64::MAX), ("b", 1)]));
    }

    #[test]
    fn what_is_no_answer_says_what_was_expected() {
        for (line, needle) in [
            ("", "EOF"),
            ("hello", "expected"),
            ("{\"question\": 1}", "targets"),
            ("{\"question\": -1, \"targets\": {}}", "-1"),
            ("{\"question\": 1, \"targets\": {\"a\": -5}}", "-5"),
            ("{\"question\": 1, \"targets\": {\"a\": 1.5}}", "1.5"),
            ("{\"question\": 1, \"targets\": {\"a\": 1e300}}", "1e+300"),
            ("{\"question\": 1, \"targets\": {\"../a\": 5}}", "not a guest name"),
            ("{\"question\": 1, \"targets\": [[\"a\", 5]]}", "sequence"),
            ("{\"question\": 1, \"targets\": {}} {}", "trailing"),
        ] {
            let Err(AnswerFault::Malformed { why }) = parse_answer(line.as_bytes()) else {
                panic!("{line} was read");
            };
            assert!(why.contains(needle), "{line}: {why}");
        }
        let long = vec![b' '; ANSWER_BYTES_MAX + 1];
        assert_eq!(parse_answer(&long).unwrap_err().code(), "too-long");
        let deep = "[".repeat(100_000);
        assert_eq!(parse_answer(deep.as_bytes()).unwrap_err().code(), "malformed");
    }

    proptest! {
        #[test]
        fn any_bytes_give_an_answer_or_a_short_fault(
            line in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..200),
                "\\{\"question\": -?[0-9]{1,22}, \"targets\": \\{(\"[a-c./]{1,2}\": -?[0-9.e]{1,25},? ?){0,4}\\}\\}"
                    .prop_map(String::into_bytes),
            ],
        ) {
            match parse_answer(&line) {
                Ok(answer) => {
                    prop_assert!(answer.targets.is_sorted_by(|a, b| a.guest < b.guest));
                }
                Err(fault) => {
                    let text = fault.to_string();
                    prop_assert!(text.chars().count() <= AnswerFault::TEXT_CHARS_MAX + 100);
                    prop_assert!(!text.chars().any(char::is_control), "{text:?}");
                }
            }
        }
    }
}
