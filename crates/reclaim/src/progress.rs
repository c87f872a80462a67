//! How far paging has come.

use ballast_model::{Bytes, Timestamp};

use crate::Refusal;

/// What came of all steps so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is to be done next.
    pub state: State,
    /// What the kernel was asked to move.
    pub tried: Bytes,
    /// What it really moved: looked up afterwards, page by page. Paged out, the guest's process has no longer what
    /// it had; paged in, it is in memory and was not.
    pub moved: Bytes,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Take the next step whenever it suits.
    Going,
    /// Take the next step at that time; before it would do nothing. `None`: a bound is zero, and nothing ever happens.
    Waiting {
        /// When enough may be moved again.
        until: Option<Timestamp>,
    },
    /// Nothing more will be done.
    Finished(Finish),
    /// This step did nothing, or not all; the next one may be tried if the refusal is not
    /// [lasting](Refusal::is_lasting).
    Refused(Refusal),
}

/// Why nothing more will be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The amount was moved.
    Reached,
    /// Every page was looked at, and nothing is left to be moved.
    Exhausted,
    /// The kernel was asked again and again, and moved nothing: a group's bound on swap, say.
    Stuck,
    /// A group gave the amount, and not all of it was the process's: page cache, or copies of what is in swap already.
    GaveOther,
}

impl Finish {
    /// Stable word for machines.
    pub const fn code(self) -> &'static str {
        match self {
            Finish::Reached => "reached",
            Finish::Exhausted => "exhausted",
            Finish::Stuck => "stuck",
            Finish::GaveOther => "gave-other",
        }
    }
}
