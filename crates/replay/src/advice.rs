//! What an advice says, as data.

use std::time::Duration;

use ballast_model::{Bytes, GuestId, PolicyName};

use crate::amounts::Amounts;
use crate::confidence::AdviceConfidence;
use crate::guest_finding::GuestFinding;

/// The assumptions behind an advice, beside those of the replay ([`crate::ASSUMPTIONS`]).
pub const ADVICE_ASSUMPTIONS: [&str; 5] = [
    "the loop is open: recorded guests do not answer to the replay",
    "what a guest reads back from swap it keeps in use",
    "memory beyond a guest's need, the reserve and its floor can be had",
    "memory that was promised to a guest and never touched counts as held",
    "guests' kernels drop caches rather than swap out what is in use",
];

/// What a record says of the memory of a host and its guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The policy that was replayed.
    pub policy: PolicyName,
    /// The time that it rests on.
    pub window: AdviceWindow,
    /// What all guests held, on average.
    pub held: Bytes,
    /// What they would have held under the policy.
    pub imagined: Bytes,
    /// What they used and needed of their swap; guests whose need is not known do not count.
    pub needed: Bytes,
    /// What they had given back already: memory that they have and did not hold.
    pub given_already: Bytes,
    /// Memory that could have been given back beyond that: what the policy would have taken from
    /// them, and what it would have left them beyond need, reserve and floor.
    pub returnable: Amounts,
    /// The same, and what was free for guests anyway.
    pub room: Amounts,
    /// How many more guests would have fitted.
    pub more: MoreGuests,
    /// What all guests read back from swap.
    pub swap_in: Bytes,
    /// What they would have read back under the policy; `None`: not known, as some would have had
    /// to reclaim what they had room for.
    pub imagined_swap_in: Option<Bytes>,
    /// What guests would have read back less while they lacked nothing.
    pub swap_in_avoided: Bytes,
    /// Guests that may need more than is said of them: see [`GuestAdvice::need_is_least`].
    pub guests_hiding_need: u64,
    /// Plans of the replay that the checker refused.
    pub plans_refused: u64,
    /// How far all this is to be relied on.
    pub confidence: AdviceConfidence,
    /// Every guest, sorted by name.
    pub guests: Vec<GuestAdvice>,
    /// Guests that are not among them: beyond the first [`GUESTS_MAX`](crate::GUESTS_MAX).
    pub guests_left_out: u64,
    /// The host over time.
    pub course: Vec<CoursePoint>,
}

/// The time that an advice rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdviceWindow {
    /// The first tick, in milliseconds since 1970.
    pub first_ms: i64,
    /// The last one.
    pub last_ms: i64,
    /// How many there are.
    pub ticks: u64,
    /// Time that they cover: without gaps.
    pub covered: Duration,
}

/// How many more guests would have fitted in 95 % of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoreGuests {
    /// Memory of the median guest, by time.
    pub size: Bytes,
    /// So many if each held all of its memory; `None`: no guest's size is known.
    pub full: Option<u64>,
    /// What the median guest needs, and the reserve, in 95 % of its time.
    pub need: Bytes,
    /// So many if each needed that; `None`: no guest's need is known.
    pub alike: Option<u64>,
}

/// One guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestAdvice {
    /// Its name.
    pub id: GuestId,
    /// Memory that it has: booted with and plugged in; `None`: not known.
    pub size: Option<Bytes>,
    /// What it held, on average over the time in which it was seen.
    pub held: Bytes,
    /// What it would have held.
    pub imagined: Bytes,
    /// What it needed; `None`: not known.
    pub need: Option<NeedAdvice>,
    /// Whether that is a lower bound: it read back from swap, and no agent told what is in there.
    pub need_is_least: bool,
    /// What could have been given back of it on average.
    pub returnable: Bytes,
    /// What it read back from swap.
    pub swap_in: Bytes,
    /// What it would have read back; `None`: not known.
    pub imagined_swap_in: Option<Bytes>,
    /// How much of its time it had figures that could be acted on, in per cent.
    pub usable_percent: u8,
    /// What is wrong with it, and what to do.
    pub findings: Vec<GuestFinding>,
}

/// What a guest needed: memory in use, and what it needs of its swap.
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
    /// When that part ends, in milliseconds since 1970.
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
