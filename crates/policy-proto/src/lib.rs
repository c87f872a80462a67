//! The protocol between the daemon and the program of the policy `external`.
//!
//! Idea: for each decision the daemon writes one line of JSON with the problem to the program's
//! standard input ([`question_line`]), and the program writes one line with targets back
//! ([`parse_answer`]). Sizes are whole numbers of bytes. The answer repeats the number of its
//! question, so that it is never taken for the answer to another one. `docs/policies.md` describes
//! both lines.
//!
//! Begin with `answer.rs`. Limits: no clock, no I/O. The reader has to bound a line to
//! [`ANSWER_BYTES_MAX`]. `ballast_policy::External` judges whether targets fit the problem.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod answer;
mod question;

pub use answer::{ANSWER_BYTES_MAX, Answer, parse_answer};
pub use question::{CURVE_POINTS_MAX, PROTOCOL_VERSION, question_line};
