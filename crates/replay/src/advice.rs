//! The data of an advice.

use std::time::Duration;

use ballast_model::{Bytes, GuestId, PolicyName};

use crate::amounts::Amounts;
use crate::confidence::AdviceConfidence;
use crate::guest_finding::GuestFinding;

/// The assumptions behind an advice, beside those of the replay ([`crate::ASSUMPTIONS`]).
pub const ADVICE_ASSUMPTIONS: [&str; 6] = [
    "the loop is open: recorded guests do not answer to the replay",
    "what a guest reads back from swap it keeps in use",
    "memory beyond a guest's need, the reserve and its floor can be had",
    "memory that was promised to a guest and never touched counts as held",
    "guests' kernels drop caches rather than swap out what is in use",
    "page cache that was not read from disk again is not needed",
];

/// What balancing would have been worth on a recorded host, and what to do about its guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The policy that was replayed.
    pub policy: PolicyName,
    /// The time that was replayed.
    pub window: AdviceWindow,
    /// What all guests held, on average.
    pub held: Bytes,
    /// What they would have held under the policy.
    pub imagined: Bytes,
    /// What they needed: memory in use, and what they needed from swap. Guests whose need is not
    /// known do not count.
    pub needed: Bytes,
    /// What they had already given back: memory that they have but did not hold.
    pub given_already: Bytes,
    /// Memory that could have been given back beyond that: what the policy would have taken from
    /// them, and what it would have left them beyond need, reserve and floor.
    pub returnable: Amounts,
    /// `returnable` and what was free for guests anyway.
    pub room: Amounts,
    /// How many more guests would have fitted.
    pub more: MoreGuests,
    /// What all guests read back from swap.
    pub swap_in: Bytes,
    /// What they would have read back under the policy; `None`: not known, because some guest would
    /// have had to reclaim memory that it had room for in the record.
    pub imagined_swap_in: Option<Bytes>,
    /// How much less guests would have read back at times when they would have lacked nothing.
    pub swap_in_avoided: Bytes,
    /// How many guests may need more than their advice says: see [`GuestAdvice::need_is_least`].
    pub guests_hiding_need: u64,
    /// Plans of the replay that the checker refused.
    pub plans_refused: u64,
    /// How far the advice can be relied on.
    pub confidence: AdviceConfidence,
    /// The guests, sorted by name.
    pub guests: Vec<GuestAdvice>,
    /// How many guests are not listed: those beyond the first [`GUESTS_MAX`](crate::GUESTS_MAX).
    pub guests_left_out: u64,
    /// The host over time.
    pub course: Vec<CoursePoint>,
}

/// The time that an advice is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdviceWindow {
    /// The first tick, in milliseconds since 1970.
    pub first_ms: i64,
    /// The last tick, in milliseconds since 1970.
    pub last_ms: i64,
    /// How many ticks.
    pub ticks: u64,
    /// The time that they cover, without gaps.
    pub covered: Duration,
}

/// How many more guests would have fitted in 95 % of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoreGuests {
    /// Memory of the median guest, by time.
    pub size: Bytes,
    /// How many, if each used all of its memory; `None`: no guest's size is known.
    pub full: Option<u64>,
    /// What the median guest needs in 95 % of its time, with the reserve and at least its floor.
    pub need: Bytes,
    /// How many, if each needed that; `None`: no guest's need is known.
    pub alike: Option<u64>,
}

/// One guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestAdvice {
    /// Its name.
    pub id: GuestId,
    /// Its memory: boot memory and plugged memory; `None`: not known.
    pub size: Option<Bytes>,
    /// What it held, on average over the time in which it was seen.
    pub held: Bytes,
    /// What it would have held.
    pub imagined: Bytes,
    /// What it needed; `None`: not known.
    pub need: Option<NeedAdvice>,
    /// Whether `need` is a lower bound: it read back from swap, and no agent reported what is in
    /// there.
    pub need_is_least: bool,
    /// What it could have given back, on average.
    pub returnable: Bytes,
    /// What it read back from swap.
    pub swap_in: Bytes,
    /// What it would have read back; `None`: not known.
    pub imagined_swap_in: Option<Bytes>,
    /// The part of its time with figures that could be acted on, in per cent.
    pub usable_percent: u8,
    /// What is wrong with it, and what to do.
    pub findings: Vec<GuestFinding>,
}

/// What a guest needed: memory in use, and what it needed from swap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeedAdvice {
    /// At most this in half of the time.
    pub p50: Bytes,
    /// At most this in 95 % of the time.
    pub p95: Bytes,
    /// The most.
    pub max: Bytes,
}

/// All guests together, on average over a part of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoursePoint {
    /// The end of that part, in milliseconds since 1970.
    pub at_ms: i64,
    /// What they held.
    pub held: Bytes,
    /// What they would have held.
    pub imagined: Bytes,
    /// What they needed.
    pub needed: Bytes,
    /// What could have been given back.
    pub returnable: Bytes,
}
