//! The answer of the policy program (policy `external`) to one decision.
//!
//! Idea: the answer is an input of the decision, like a sample, so it is data: with it, a replay
//! too decides the same without the program. If there is none, an [`AnswerFault`] says why, with
//! its figures; it is rendered only here.
//!
//! Limits: texts from a program or the host have at most [`AnswerFault::TEXT_CHARS_MAX`] characters
//! and no control characters ([`AnswerFault::text`]).

use std::fmt;
use std::time::Duration;

#[cfg(feature = "serde")]
use crate::unit;
use crate::{Bytes, GuestId};

/// The answer to one decision.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "kebab-case")
)]
pub enum PolicyAnswer {
    /// A target for each guest that the answer names, sorted by name, each once.
    Targets(Vec<GuestTarget>),
    /// No answer could be read.
    Fault(AnswerFault),
}

/// The target that a program answered for one guest.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GuestTarget {
    /// The guest.
    pub guest: GuestId,
    /// The allocation it should have; not yet in whole pages.
    #[cfg_attr(feature = "serde", serde(rename = "target_bytes", with = "unit"))]
    pub target: Bytes,
}

/// Why an answer is not used, as the end of a sentence that begins with `the policy's program`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "code", content = "figures", rename_all = "kebab-case")
)]
pub enum AnswerFault {
    /// The program was not asked: a dry run before its first answer, or a replay of another
    /// journal.
    NotAsked,
    /// It could not be started.
    NotStarted {
        /// The error of the kernel or the configuration.
        why: String,
    },
    /// It ended, or closed its input or output.
    Ended {
        /// How, where that is known.
        how: String,
    },
    /// It did not answer in time.
    Late {
        /// The time it had.
        #[cfg_attr(feature = "serde", serde(rename = "deadline_ns", with = "unit"))]
        deadline: Duration,
    },
    /// Its line is longer than the longest that is read.
    TooLong {
        /// Most bytes that are read of a line.
        #[cfg_attr(feature = "serde", serde(rename = "line_max_bytes", with = "unit"))]
        line_max: Bytes,
    },
    /// Its line is no answer.
    Malformed {
        /// What is wrong with it.
        why: String,
    },
    /// It answered another question than the last one.
    OutOfStep {
        /// The number of the last question.
        asked: u64,
        /// The number in the answer.
        answered: u64,
    },
    /// It gave a target to a guest that does not compete.
    UnknownGuest {
        /// The first of them.
        guest: GuestId,
    },
    /// It gave no target to a guest that competes.
    MissingGuest {
        /// The first of them.
        guest: GuestId,
    },
    /// Its targets, within the guests' bounds, add up to more than there is.
    OverBudget {
        /// By this much.
        #[cfg_attr(feature = "serde", serde(rename = "by_bytes", with = "unit"))]
        by: Bytes,
    },
}

impl AnswerFault {
    /// Longest text in a fault, in characters.
    pub const TEXT_CHARS_MAX: usize = 200;

    /// `text` as a fault may contain it: one line, cut to the longest that is shown.
    pub fn text(text: &str) -> String {
        let shown = text.chars().map(|c| if c.is_control() { ' ' } else { c });
        shown.take(AnswerFault::TEXT_CHARS_MAX).collect()
    }

    /// Stable word for machines.
    pub const fn code(&self) -> &'static str {
        match self {
            AnswerFault::NotAsked => "not-asked",
            AnswerFault::NotStarted { .. } => "not-started",
            AnswerFault::Ended { .. } => "ended",
            AnswerFault::Late { .. } => "late",
            AnswerFault::TooLong { .. } => "too-long",
            AnswerFault::Malformed { .. } => "malformed",
            AnswerFault::OutOfStep { .. } => "out-of-step",
            AnswerFault::UnknownGuest { .. } => "unknown-guest",
            AnswerFault::MissingGuest { .. } => "missing-guest",
            AnswerFault::OverBudget { .. } => "over-budget",
        }
    }
}

impl fmt::Display for AnswerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnswerFault::NotAsked => f.write_str("was not asked"),
            AnswerFault::NotStarted { why } => write!(f, "could not be started: {why}"),
            AnswerFault::Ended { how } => write!(f, "ended: {how}"),
            AnswerFault::Late { deadline } => {
                write!(f, "did not answer within {} ms", deadline.as_millis())
            }
            AnswerFault::TooLong { line_max } => {
                write!(f, "answered with a line longer than {line_max}")
            }
            AnswerFault::Malformed { why } => write!(f, "gave no answer that can be read: {why}"),
            AnswerFault::OutOfStep { asked, answered } => {
                write!(f, "answered question {answered} when asked question {asked}")
            }
            AnswerFault::UnknownGuest { guest } => {
                write!(f, "gave a target to {guest}, which is not in the question")
            }
            AnswerFault::MissingGuest { guest } => write!(f, "gave no target to {guest}"),
            AnswerFault::OverBudget { by } => {
                write!(f, "gave targets that exceed the budget by {by} within the guests' bounds")
            }
        }
    }
}
