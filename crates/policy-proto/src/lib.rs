//! What the daemon and the program of the policy `external` say to each other.
//!
//! Idea: for each decision one line of JSON with the problem goes to the program's standard input
//! ([`question_line`]), and one line with targets comes back ([`parse_answer`]). Sizes are whole
//! numbers of bytes. The number of the question comes back in the answer, so that one side never
//! takes an answer for that to another question. `docs/policies.md` describes both lines.
//!
//! Begin with `answer.rs`. Limits: no clock, no I/O; whoever reads bounds a line to
//! [`ANSWER_BYTES_MAX`]; whether targets fit the problem is judged by `ballast_policy::External`.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod answer;
mod question;

pub use answer::{ANSWER_BYTES_MAX, Answer, parse_answer};
pub use question::{CURVE_POINTS_MAX, PROTOCOL_VERSION, question_line};
