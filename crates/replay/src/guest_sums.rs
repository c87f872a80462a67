//! The sums over time of one guest, and the findings that follow from them.
//!
//! Limits: a guest's size is judged only if its need was seen for at least [`SEEN_MIN`].

use std::collections::BTreeMap;
use std::time::Duration;

use ballast_model::{Bounds, Bytes, Change, GuestId, GuestLimits, GuestPlan, GuestSample};

use crate::advice::{GuestAdvice, NeedAdvice};
use crate::amounts::Percentiles;
use crate::confidence::percent;
use crate::guest_finding::{GuestFinding, rounded};
use crate::recorded_need::{SWAPPING_MIN, reported_swap};
use crate::row::ReplayRow;
use crate::totals::bytes;

/// Significant digits of a guest's percentiles: exact to a hundredth, in a tenth of the memory that
/// a third digit would take.
const DIGITS: u8 = 2;
/// A guest whose need was seen for less time is not called too big or too small.
const SEEN_MIN: Duration = Duration::from_secs(3600);
/// A reason to hold a guest becomes a finding from this part of its time on.
const HELD_MIN_PERCENT: u8 = 20;
/// A guest is too small if it needed all that it may have in at least this part of its time.
const SMALL_MIN_PERCENT: u8 = 5;
/// A guest needs all that it may have if at most one part in this many is not needed.
const ALMOST: u64 = 32;
/// A floor is too high if it keeps at least this much unneeded memory.
const FLOOR_MIN: Bytes = Bytes::mib(128);
/// A guest hides its need if that was hidden in at least this part of its time.
const HIDING_MIN_PERCENT: u8 = 1;

/// One guest at one tick.
pub(crate) struct GuestSeen<'a> {
    pub(crate) sample: &'a GuestSample,
    /// Its row in the replay; `None`: its need is not known.
    pub(crate) row: Option<&'a ReplayRow>,
    /// What the replay decided about it.
    pub(crate) imagined: Option<&'a GuestPlan>,
    /// Free memory left to each guest on top of what it needs.
    pub(crate) reserve: Bytes,
    pub(crate) passed: Duration,
}

impl GuestSeen<'_> {
    /// Whether its memory could be moved: its figures are fresh, so it has an estimate.
    pub(crate) fn is_movable(&self) -> bool {
        self.row.is_some() && self.imagined.is_some_and(|plan| plan.estimate.is_some())
    }

    fn bounds(&self) -> Option<Bounds> {
        self.imagined.and_then(|plan| plan.bounds)
    }

    /// Whether it reads back from swap and no agent reports what else is in there.
    fn is_hiding(&self) -> bool {
        reported_swap(self.sample).is_none()
            && self.row.is_some_and(|row| row.recorded_swap_in >= SWAPPING_MIN)
    }

    /// What the policy would have left it beyond need, reserve and floor.
    pub(crate) fn surplus(&self) -> Bytes {
        let (Some(row), true) = (self.row, self.is_movable()) else { return Bytes::ZERO };
        let floor = self.bounds().map_or(row.imagined, |bounds| bounds.floor);
        row.imagined.saturating_sub(row.demand.saturating_add(self.reserve).max(floor))
    }
}

/// The sums over time of one guest.
#[derive(Clone, Debug)]
pub(crate) struct GuestSums {
    need: Percentiles,
    need_max: Bytes,
    pub(crate) seen_ms: u128,
    pub(crate) usable_ms: u128,
    /// Time in which it did not show what it needs.
    pub(crate) hiding_ms: u128,
    /// Time for which the record does not suffice to know what it would have read back.
    unpredictable_ms: u128,
    /// Time in which it needed all that it may have.
    capped_ms: u128,
    held_byte_ms: u128,
    imagined_byte_ms: u128,
    returnable_byte_ms: u128,
    swap_in: Bytes,
    imagined_swap_in: Bytes,
    /// How much less it would have read back at times when it would have lacked nothing.
    pub(crate) swap_in_avoided: Bytes,
    /// Time for which it was held, by the reason's code.
    held_ms: BTreeMap<&'static str, u128>,
    size: Option<Bytes>,
    size_max: Option<Bytes>,
    bounds: Option<Bounds>,
    is_domain: bool,
}

impl GuestSums {
    pub(crate) fn new() -> Option<GuestSums> {
        Some(GuestSums {
            need: Percentiles::new(DIGITS)?,
            need_max: Bytes::ZERO,
            seen_ms: 0,
            usable_ms: 0,
            hiding_ms: 0,
            unpredictable_ms: 0,
            capped_ms: 0,
            held_byte_ms: 0,
            imagined_byte_ms: 0,
            returnable_byte_ms: 0,
            swap_in: Bytes::ZERO,
            imagined_swap_in: Bytes::ZERO,
            swap_in_avoided: Bytes::ZERO,
            held_ms: BTreeMap::new(),
            size: None,
            size_max: None,
            bounds: None,
            is_domain: false,
        })
    }

    pub(crate) fn add(&mut self, seen: &GuestSeen<'_>) {
        let GuestSeen { sample, row, imagined, passed, .. } = seen;
        let ms = passed.as_millis();
        self.seen_ms += ms;
        self.size = sample.present_memory().or(self.size);
        self.size_max = sample.memory_max().or(self.size_max);
        self.bounds = seen.bounds().or(self.bounds);
        self.is_domain = sample.capabilities.shared_control.unwrap_or(self.is_domain);
        if let Some(GuestPlan { change: Change::Hold(why), .. }) = imagined {
            *self.held_ms.entry(why.code()).or_default() += ms;
        }
        let held = sample.allocation.map(|it| it.value);
        let (recorded, holds) = match row {
            Some(row) => (row.recorded, row.imagined),
            None => (held.unwrap_or_default(), held.unwrap_or_default()),
        };
        self.held_byte_ms += u128::from(recorded.get()) * ms;
        self.imagined_byte_ms += u128::from(holds.get()) * ms;
        let Some(row) = row else { return };
        let returnable = recorded.saturating_add(seen.surplus()).saturating_sub(holds);
        self.returnable_byte_ms += u128::from(returnable.get()) * ms;
        self.swap_in = self.swap_in.saturating_add(row.recorded_swap_in);
        self.imagined_swap_in = self.imagined_swap_in.saturating_add(row.imagined_swap_in);
        // A guest that still lacks memory would work faster, and so read back as fast as its disk
        // permits: nothing is avoided.
        if row.imagined >= row.demand {
            let avoided = row.recorded_swap_in.saturating_sub(row.imagined_swap_in);
            self.swap_in_avoided = self.swap_in_avoided.saturating_add(avoided);
        }
        if !row.is_predictable {
            self.unpredictable_ms += ms;
        }
        if !seen.is_movable() {
            return;
        }
        self.usable_ms += ms;
        self.need.add(row.demand, *passed);
        if ms > 0 {
            self.need_max = self.need_max.max(row.demand);
        }
        if seen.is_hiding() {
            self.hiding_ms += ms;
        }
        let ceiling = self.bounds.map(|bounds| bounds.ceiling);
        let is_capped = |ceiling: Bytes| row.demand >= ceiling - ceiling.fraction(1, ALMOST);
        if ceiling.is_some_and(is_capped) {
            self.capped_ms += ms;
        }
    }

    pub(crate) fn size(&self) -> Option<Bytes> {
        self.size
    }

    /// What it needed in 95 % of its time, with the reserve and at least its floor; `None`: not
    /// known.
    pub(crate) fn need_to_keep(&self, reserve: Bytes) -> Option<Bytes> {
        let floor = self.bounds.map(|bounds| bounds.floor).unwrap_or_default();
        Some(self.needed()?.p95.saturating_add(reserve).max(floor))
    }

    fn needed(&self) -> Option<NeedAdvice> {
        let need = |percent: u8| self.need.at_most(percent).min(self.need_max);
        let found = NeedAdvice { p50: need(50), p95: need(95), max: self.need_max };
        (self.usable_ms > 0).then_some(found)
    }

    /// The part of its time in which it hid what it needs; `None`: too little to count.
    fn hiding_percent(&self) -> Option<u8> {
        Some(percent(self.hiding_ms, self.usable_ms)).filter(|it| *it >= HIDING_MIN_PERCENT)
    }

    /// The advice for the guest, which is called `id`.
    pub(crate) fn advice(&self, id: &GuestId, reserve: Bytes) -> GuestAdvice {
        let mean = |byte_ms: u128| bytes(byte_ms / self.seen_ms.max(1));
        GuestAdvice {
            id: id.clone(),
            size: self.size,
            held: mean(self.held_byte_ms),
            imagined: mean(self.imagined_byte_ms),
            need: self.needed(),
            need_is_least: self.hiding_percent().is_some(),
            returnable: mean(self.returnable_byte_ms),
            swap_in: self.swap_in,
            imagined_swap_in: (self.unpredictable_ms == 0).then_some(self.imagined_swap_in),
            usable_percent: percent(self.usable_ms, self.seen_ms),
            findings: self.findings(reserve),
        }
    }

    fn findings(&self, reserve: Bytes) -> Vec<GuestFinding> {
        let is_domain = self.is_domain;
        let held = |codes: &[&str]| -> u8 {
            let ms = codes.iter().filter_map(|code| self.held_ms.get(code)).sum();
            percent(ms, self.seen_ms)
        };
        let often = |codes: &[&str]| Some(held(codes)).filter(|it| *it >= HELD_MIN_PERCENT);
        let found = [
            often(&["no-balloon"]).map(|_| GuestFinding::NoBalloon { is_domain }),
            often(&["no-statistics", "sampled-alone", "stale"])
                .map(|percent| GuestFinding::NoStatistics { percent }),
            often(&["unreachable"]).map(|percent| GuestFinding::Unreachable { percent }),
            often(&["discard-inhibited", "pinned"]).map(|_| GuestFinding::DiscardInhibited),
            often(&["opted-out"]).map(|_| GuestFinding::OptedOut),
            often(&["another-owner"]).map(|_| GuestFinding::AnotherOwner),
            self.hiding_percent().map(|percent| GuestFinding::HiddenNeed { percent }),
        ];
        found.into_iter().flatten().chain(self.sizing(reserve)).collect()
    }

    /// Findings about its size and its floor.
    fn sizing(&self, reserve: Bytes) -> Vec<GuestFinding> {
        let mut found = Vec::new();
        let (Some(need), Some(Bounds { floor, ceiling }), Some(size)) =
            (self.needed(), self.bounds, self.size)
        else {
            return found;
        };
        if self.usable_ms < SEEN_MIN.as_millis() {
            return found;
        }
        let enough = need.max.saturating_add(reserve);
        let capped = percent(self.capped_ms, self.usable_ms);
        if capped >= SMALL_MIN_PERCENT {
            let has_memory = rounded(enough) <= self.size_max.unwrap_or(size);
            let (percent, is_domain) = (capped, self.is_domain);
            found.push(GuestFinding::TooSmall { ceiling, percent, enough, has_memory, is_domain });
        } else if rounded(enough.max(floor)) <= ceiling.min(size).fraction(1, 2) {
            found.push(GuestFinding::TooBig { size, enough: enough.max(floor) });
        }
        let usual = need.p95.saturating_add(reserve).max(GuestLimits::FLOOR_DEFAULT_MIN);
        if floor.saturating_sub(rounded(usual)) >= FLOOR_MIN {
            found.push(GuestFinding::FloorHigh { floor, enough: usual });
        }
        found
    }
}
