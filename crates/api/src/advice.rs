//! Advice: what balancing would have been worth, from a journal by replay.
//!
//! `ballast advise --json` prints it, and the daemon answers it about its own journal. Sizes are
//! means over time unless their name says otherwise; *imagined* figures are those of the replay
//! under the policy.

use serde::{Deserialize, Serialize};

use crate::tick::version;

/// Answer to `GET /v1/what-if`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WhatIfReply {
    /// [`API_VERSION`](crate::API_VERSION).
    pub api_version: u32,
    /// What the policy would have been worth.
    pub advice: AdviceView,
}

impl WhatIfReply {
    /// The reply with `advice`.
    pub fn new(advice: AdviceView) -> Self {
        WhatIfReply { api_version: version(), advice }
    }
}

/// An advice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AdviceView {
    /// The journal's file.
    pub journal: String,
    /// The policy it was replayed under.
    pub policy: String,
    /// Always true: what is imagined was not measured.
    pub simulated: bool,
    /// What the replay rests on, a sentence each.
    pub assumptions: Vec<String>,
    /// What was replayed.
    pub window: AdviceWindowView,
    /// What all guests held.
    pub held_mean_bytes: u64,
    /// What they would have held.
    pub imagined_mean_bytes: u64,
    /// What they used, or needed of their swap.
    pub needed_mean_bytes: u64,
    /// Memory that guests have and did not hold.
    pub given_already_mean_bytes: u64,
    /// Memory that could have been given back beyond that.
    pub returnable: AmountsView,
    /// The same, and what was free for guests anyway.
    pub room: AmountsView,
    /// How many more guests would have fitted.
    pub more_guests: MoreGuestsView,
    /// What guests read back from swap, in all.
    pub swap_in_bytes: u64,
    /// What they would have read back; `None`: not known, as some would have had to reclaim what
    /// they had room for.
    pub imagined_swap_in_bytes: Option<u64>,
    /// What guests would have read back less while they lacked nothing.
    pub swap_in_avoided_bytes: u64,
    /// Guests whose need is a lower bound, so that less can be given back.
    pub guests_hiding_need: u64,
    /// Plans of the replay that the checker refused: 0 unless something is wrong.
    pub plans_refused: u64,
    /// How far this can be relied on.
    pub confidence: ConfidenceView,
    /// The guests, sorted by name.
    pub guests: Vec<GuestAdviceView>,
    /// Guests that are in the sums only.
    pub guests_left_out: u64,
    /// All guests over time.
    pub course: Vec<CoursePointView>,
}

/// What was replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AdviceWindowView {
    /// The first tick.
    pub first_unix_ms: i64,
    /// The last tick.
    pub last_unix_ms: i64,
    /// How many ticks.
    pub ticks: u64,
    /// The time between them, without gaps.
    pub covered_s: f64,
}

/// A size over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AmountsView {
    /// On average.
    pub mean_bytes: u64,
    /// At least this in half of the time.
    pub p50_bytes: u64,
    /// At least this in 95 % of the time.
    pub p95_bytes: u64,
    /// On average in the worst hour.
    pub worst_hour_bytes: u64,
    /// When that hour began.
    pub worst_hour_unix_ms: i64,
}

/// How many more guests would have fitted in 95 % of the time; `None`: no guest's figure is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MoreGuestsView {
    /// The guests' median size.
    pub size_bytes: Option<u64>,
    /// Guests of that size, all used.
    pub full: Option<u64>,
    /// The guests' median need.
    pub need_bytes: Option<u64>,
    /// Guests that need that.
    pub alike: Option<u64>,
}

/// How far an advice can be relied on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfidenceView {
    /// The least of the others.
    pub percent: u8,
    /// By the time that was recorded.
    pub coverage_percent: u8,
    /// Guests' time with figures that could be acted on.
    pub freshness_percent: u8,
    /// By what demand was derived from.
    pub source_percent: u8,
    /// Guests' time without swapping, or with an agent that told what is in their swap.
    pub visibility_percent: u8,
    /// What the least of them says, a sentence.
    pub weakest: String,
}

/// One guest's part of an advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GuestAdviceView {
    /// The guest's name.
    pub guest: String,
    /// What it was booted with.
    pub size_bytes: Option<u64>,
    /// What it held.
    pub held_mean_bytes: u64,
    /// What it would have held.
    pub imagined_mean_bytes: u64,
    /// At most this in half of the time; `None`: not known.
    pub need_p50_bytes: Option<u64>,
    /// At most this in 95 % of the time.
    pub need_p95_bytes: Option<u64>,
    /// At most this.
    pub need_max_bytes: Option<u64>,
    /// Whether that is a lower bound: it read back from swap, and no agent told what is in there.
    pub need_is_least: bool,
    /// What it could have given back.
    pub returnable_mean_bytes: u64,
    /// What it read back from swap, in all.
    pub swap_in_bytes: u64,
    /// What it would have read back; `None`: not known.
    pub imagined_swap_in_bytes: Option<u64>,
    /// Part of its time with figures that could be acted on.
    pub usable_percent: u8,
    /// What is wrong with it.
    pub findings: Vec<FindingView>,
}

/// Something wrong with a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FindingView {
    /// A stable word.
    pub code: String,
    /// A sentence.
    pub text: String,
    /// The line to type.
    pub remedy: String,
}

/// All guests in one part of the time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CoursePointView {
    /// Its end.
    pub at_unix_ms: i64,
    /// What they held.
    pub held_bytes: u64,
    /// What they would have held.
    pub imagined_bytes: u64,
    /// What they needed.
    pub needed_bytes: u64,
    /// What could have been given back.
    pub returnable_bytes: u64,
}
