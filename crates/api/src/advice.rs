//! Advice: what balancing would have been worth, from a journal by replay.
//!
//! `ballast advise --json` prints it, and the daemon answers it about its own journal. Sizes are
//! means over time unless their name says otherwise; *imagined* figures are those of the replay
//! under the policy.

use serde::{Deserialize, Serialize};

use crate::API_VERSION;

/// Answer to `GET /v1/what-if`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WhatIfReply {
    /// Version of this format, as in the path: 1 for `/v1`.
    pub api_version: u32,
    /// What balancing under the policy would have gained.
    pub advice: AdviceView,
}

impl WhatIfReply {
    /// The reply with `advice`.
    pub fn new(advice: AdviceView) -> Self {
        WhatIfReply { api_version: API_VERSION, advice }
    }
}

/// What balancing would have gained on a recorded host, from a replay of its journal. Sizes are
/// those of all guests together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AdviceView {
    /// Path of the journal.
    pub journal: String,
    /// The policy under which the journal was replayed.
    pub policy: String,
    /// Always `true`: figures of the replay were not measured.
    pub simulated: bool,
    /// What the replay assumes, one sentence each.
    pub assumptions: Vec<String>,
    /// The time that was replayed.
    pub window: AdviceWindowView,
    /// Memory that guests held, mean over time.
    pub held_mean_bytes: u64,
    /// Memory that they would have held under the policy, mean over time.
    pub imagined_mean_bytes: u64,
    /// Memory that they needed, mean over time: memory in use, and what they needed of their swap.
    /// Guests count only while their need is known.
    pub needed_mean_bytes: u64,
    /// Memory that guests have and did not hold, mean over time: they had given it back already.
    pub given_already_mean_bytes: u64,
    /// Memory that guests could have given back beyond `given_already_mean_bytes`.
    pub returnable: AmountsView,
    /// Room for more guests: `returnable`, and what was free for guests anyway.
    pub room: AmountsView,
    /// How many more guests would have fitted.
    pub more_guests: MoreGuestsView,
    /// Memory that guests read back from swap in all of that time.
    pub swap_in_bytes: u64,
    /// Memory that they would have read back under the policy; `null`: unknown, because some guest
    /// would have had to reclaim memory that it had room for in the record.
    pub imagined_swap_in_bytes: Option<u64>,
    /// How much less guests would have read back at times when they would have lacked nothing.
    pub swap_in_avoided_bytes: u64,
    /// Number of guests whose need is only a lower bound (`need_is_least`). If there are any,
    /// `returnable` and `room` are upper bounds.
    pub guests_hiding_need: u64,
    /// Number of the replay's plans that the checker refused: 0 unless something is wrong.
    pub plans_refused: u64,
    /// How far this advice can be relied on.
    pub confidence: ConfidenceView,
    /// The guests, sorted by name; at most 4,096.
    pub guests: Vec<GuestAdviceView>,
    /// Number of guests beyond these, at most 4,096. They count in mean sizes, `returnable`, `room`
    /// and `course`, but not in the sums of memory read back from swap.
    pub guests_left_out: u64,
    /// All guests together over time, in at most 400 parts.
    pub course: Vec<CoursePointView>,
}

/// The time that was replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AdviceWindowView {
    /// The first tick, in milliseconds since 1970.
    pub first_unix_ms: i64,
    /// The last tick, in milliseconds since 1970.
    pub last_unix_ms: i64,
    /// Number of ticks.
    pub ticks: u64,
    /// Time that the ticks cover without gaps, in seconds.
    pub covered_s: f64,
}

/// An amount of memory over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AmountsView {
    /// Mean over time.
    pub mean_bytes: u64,
    /// At least this much in half of the time.
    pub p50_bytes: u64,
    /// At least this much in 95 % of the time.
    pub p95_bytes: u64,
    /// Mean of the hour of the clock in which it was lowest. An hour that was recorded for less
    /// than half counts only if there is no other.
    pub worst_hour_bytes: u64,
    /// When that hour began, in milliseconds since 1970.
    pub worst_hour_unix_ms: i64,
}

/// How many more guests would have fitted in 95 % of the time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MoreGuestsView {
    /// Memory of the median guest; `null`: no guest's memory is known.
    pub size_bytes: Option<u64>,
    /// Number of guests that have `size_bytes` each and use all of it; `null`: as there.
    pub full: Option<u64>,
    /// What the median guest needs in 95 % of its time, with the reserve, and at least its floor;
    /// `null`: no guest's need is known.
    pub need_bytes: Option<u64>,
    /// Number of guests that need `need_bytes` each; `null`: as there.
    pub alike: Option<u64>,
}

/// How far an advice can be relied on, in percent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfidenceView {
    /// The lowest of the other four.
    pub percent: u8,
    /// By how much time was recorded: 50 for an hour, 80 for a day, 100 for a week; in between in
    /// proportion.
    pub coverage_percent: u8,
    /// Share of guests' time in which their figures could be acted on.
    pub freshness_percent: u8,
    /// By what demand was derived from: the mean of the estimates' confidence.
    pub source_percent: u8,
    /// Share of guests' time in which a guest did not read back from swap, or an agent reported
    /// what was in its swap.
    pub visibility_percent: u8,
    /// What limits the lowest of them and how to improve that, a sentence for people.
    pub weakest: String,
}

/// The advice about one guest. Means and shares are over the time in which it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GuestAdviceView {
    /// The guest's name.
    pub guest: String,
    /// Its memory: boot memory and plugged memory; `null`: unknown.
    pub size_bytes: Option<u64>,
    /// Memory that it held, mean over time.
    pub held_mean_bytes: u64,
    /// Memory that it would have held under the policy, mean over time.
    pub imagined_mean_bytes: u64,
    /// Memory that it needed: at most this much in half of the time; `null`: unknown.
    pub need_p50_bytes: Option<u64>,
    /// Memory that it needed: at most this much in 95 % of the time; `null`: unknown.
    pub need_p95_bytes: Option<u64>,
    /// The most memory that it needed; `null`: unknown.
    pub need_max_bytes: Option<u64>,
    /// Whether its need is only a lower bound: it read back from swap, and no agent reported what
    /// was in there.
    pub need_is_least: bool,
    /// Memory that it could have given back, mean over time.
    pub returnable_mean_bytes: u64,
    /// Memory that it read back from swap in all of that time.
    pub swap_in_bytes: u64,
    /// Memory that it would have read back under the policy; `null`: unknown, because it would have
    /// had to reclaim memory that it had room for in the record.
    pub imagined_swap_in_bytes: Option<u64>,
    /// Share of its time in which its figures could be acted on, in percent.
    pub usable_percent: u8,
    /// What is wrong with it.
    pub findings: Vec<FindingView>,
}

/// Something that is wrong with a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FindingView {
    /// `no-balloon`, `no-statistics`, `unreachable`, `discard-inhibited`, `opted-out`,
    /// `another-owner`, `hidden-need`, `too-big`, `too-small` or `floor-high`.
    pub code: String,
    /// A sentence for people; its wording may change.
    pub text: String,
    /// The command to type.
    pub remedy: String,
}

/// All guests together in one part of the time, as means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CoursePointView {
    /// When the part ended, in milliseconds since 1970.
    pub at_unix_ms: i64,
    /// Memory that guests held.
    pub held_bytes: u64,
    /// Memory that they would have held under the policy.
    pub imagined_bytes: u64,
    /// Memory that they needed.
    pub needed_bytes: u64,
    /// Memory that they could have given back.
    pub returnable_bytes: u64,
}
