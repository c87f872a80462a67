//! Inputs of policies besides the memory that a guest uses.
//!
//! Idea: not every guest provides every input. Each has a name here, so that a plan can say which
//! input is missing for how many guests.

use std::fmt;

/// An observation of a guest that some guests lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "kebab-case")
)]
pub enum Input {
    /// Memory promised to processes: `Signals::committed`.
    Committed,
    /// A working set found by probing: `Signals::probed`.
    Probed,
    /// Misses at every size: `Contender::curve` of a policy's problem.
    MissCurve,
    /// Pages swapped in a second: `Signals::swapped_pages_per_s`.
    SwapRate,
    /// Unused memory: `Signals::free`.
    Free,
    /// Requests of the guest: `Signals::request`.
    Requests,
}

impl Input {
    /// Every input.
    pub const ALL: [Input; 6] = [
        Input::Committed,
        Input::Probed,
        Input::MissCurve,
        Input::SwapRate,
        Input::Free,
        Input::Requests,
    ];

    /// Stable word for machines.
    pub const fn code(self) -> &'static str {
        match self {
            Input::Committed => "committed",
            Input::Probed => "probed",
            Input::MissCurve => "miss-curve",
            Input::SwapRate => "swap-rate",
            Input::Free => "free",
            Input::Requests => "requests",
        }
    }

    /// What provides it.
    pub const fn provider(self) -> &'static str {
        match self {
            Input::Committed | Input::Requests => "a program in the guest",
            Input::Probed => "the prober, from Committed_AS and counts of swap-ins and refaults",
            Input::MissCurve => "a tracker of page touches",
            Input::SwapRate | Input::Free => "the statistics of the guest's balloon",
        }
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Input::Committed => "Committed_AS",
            Input::Probed => "probed working set",
            Input::MissCurve => "miss curve",
            Input::SwapRate => "rate of swapping",
            Input::Free => "free memory",
            Input::Requests => "request",
        })
    }
}
