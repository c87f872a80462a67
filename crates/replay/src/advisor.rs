//! Adds up a replay tick by tick, and makes an advice from the sums.
//!
//! Idea: in each tick, for every guest whose need is known and whose memory could be moved,
//!
//! ```text
//! keeps      = max(floor, need + reserve)
//! returnable = (held − imagined) + max(0, imagined − keeps)
//! ```
//!
//! The first term is what the policy would have taken from the guest; it is negative if the policy
//! would have given it memory. The second is what the policy would have left the guest beyond its
//! need: a policy that hands out all memory, such as `global`, lends that and takes it back when
//! another guest needs it. The sum over all guests is memory that could have been given back;
//! together with what was free for guests anyway it is the room for more guests. It never exceeds
//! what guests held beyond their floors.
//!
//! Cost: O(guests) a tick. Memory: about 15 KiB a guest, however long the record is.
//! Limits: [`GUESTS_MAX`] guests get an advice of their own; others count only in the host's sums.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ballast_model::{Bytes, GuestId, Plan, PolicyName, Snapshot};

use crate::advice::{Advice, AdviceWindow, CoursePoint, MoreGuests};
use crate::amounts::AmountSums;
use crate::confidence::{AdviceConfidence, coverage, percent};
use crate::course::Course;
use crate::guest_sums::{GuestSeen, GuestSums};
use crate::replay::Replay;
use crate::totals::bytes;

/// Most guests with an advice of their own.
pub const GUESTS_MAX: usize = 4096;

/// Sums over all guests, in bytes times milliseconds.
#[derive(Clone, Copy, Debug, Default)]
struct HostSums {
    held: u128,
    imagined: u128,
    needed: u128,
    given_already: u128,
    /// Percent times milliseconds of guests' time.
    confidence: u128,
    /// Guests' time with an estimate, in milliseconds.
    estimated_ms: u128,
    ms: u128,
}

/// All guests at one tick.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    held: Bytes,
    imagined: Bytes,
    needed: Bytes,
    given_already: Bytes,
    surplus: Bytes,
}

/// Makes an advice from a replay.
#[derive(Clone, Debug)]
pub struct Advisor {
    returnable: AmountSums,
    room: AmountSums,
    host: HostSums,
    guests: BTreeMap<GuestId, GuestSums>,
    left_out: BTreeSet<GuestId>,
    course: Course,
    window: Option<AdviceWindow>,
    reserve: Bytes,
}

impl Advisor {
    /// An advisor that has seen no tick yet. `None`: the histogram library refuses its settings.
    pub fn new() -> Option<Advisor> {
        Some(Advisor {
            returnable: AmountSums::new()?,
            room: AmountSums::new()?,
            host: HostSums::default(),
            guests: BTreeMap::new(),
            left_out: BTreeSet::new(),
            course: Course::default(),
            window: None,
            reserve: Bytes::ZERO,
        })
    }

    /// Takes in the tick that `replay` replayed last: what was `recorded` at `wall_ms`
    /// (milliseconds since 1970) with its `plan`. `reserve`: free memory left to each guest on top
    /// of what it needs.
    pub fn tick(
        &mut self,
        wall_ms: i64,
        recorded: &Snapshot,
        plan: &Plan,
        replay: &Replay,
        reserve: Bytes,
    ) {
        self.reserve = reserve;
        let passed = replay.passed();
        let window = self.window.get_or_insert(AdviceWindow {
            first_ms: wall_ms,
            last_ms: wall_ms,
            ..AdviceWindow::default()
        });
        window.last_ms = window.last_ms.max(wall_ms);
        window.ticks += 1;
        window.covered += passed;
        let moment = self.add_guests(recorded, replay, passed);
        let held = moment.held.saturating_add(moment.surplus);
        let returnable = held.saturating_sub(moment.imagined);
        let room = held.saturating_add(plan.budget.grantable).saturating_sub(moment.imagined);
        self.add_host(moment, passed);
        if passed > Duration::ZERO {
            self.returnable.add(wall_ms, returnable, passed);
            self.room.add(wall_ms, room, passed);
            let Moment { held, imagined, needed, .. } = moment;
            let point = CoursePoint { at_ms: wall_ms, held, imagined, needed, returnable };
            self.course.add(point, passed);
        }
    }

    fn add_guests(&mut self, recorded: &Snapshot, replay: &Replay, passed: Duration) -> Moment {
        let mut moment = Moment::default();
        let mut rows = replay.rows().iter().peekable();
        for sample in recorded.guests() {
            let row = rows.next_if(|row| row.id == sample.id);
            let imagined = replay.decided().and_then(|plan| plan.guest(&sample.id));
            let seen = GuestSeen { sample, row, imagined, reserve: self.reserve, passed };
            let claimed = sample.claimed().unwrap_or_default();
            let (held, holds) = row.map_or((claimed, claimed), |row| (row.recorded, row.imagined));
            let present = sample.present_memory().unwrap_or(held);
            moment.held = moment.held.saturating_add(held);
            moment.imagined = moment.imagined.saturating_add(holds);
            moment.needed = moment.needed.saturating_add(row.map_or(Bytes::ZERO, |it| it.demand));
            moment.given_already =
                moment.given_already.saturating_add(present.saturating_sub(held));
            moment.surplus = moment.surplus.saturating_add(seen.surplus());
            if let Some(estimate) = imagined.and_then(|plan| plan.estimate.as_ref()) {
                let confidence = u128::from(estimate.demand.confidence.percent());
                self.host.confidence += confidence * passed.as_millis();
                self.host.estimated_ms += passed.as_millis();
            }
            if let Some(sums) = self.sums(&sample.id) {
                sums.add(&seen);
            }
        }
        moment
    }

    /// The sums of the guest called `id`; `None`: there are too many.
    fn sums(&mut self, id: &GuestId) -> Option<&mut GuestSums> {
        if !self.guests.contains_key(id) {
            if self.guests.len() >= GUESTS_MAX {
                if self.left_out.len() < GUESTS_MAX {
                    self.left_out.insert(id.clone());
                }
                return None;
            }
            self.guests.insert(id.clone(), GuestSums::new()?);
        }
        self.guests.get_mut(id)
    }

    fn add_host(&mut self, moment: Moment, passed: Duration) {
        let ms = passed.as_millis();
        let host = &mut self.host;
        for (sum, part) in [
            (&mut host.held, moment.held),
            (&mut host.imagined, moment.imagined),
            (&mut host.needed, moment.needed),
            (&mut host.given_already, moment.given_already),
        ] {
            *sum += u128::from(part.get()) * ms;
        }
        host.ms += ms;
    }

    /// The advice so far, from a replay of `policy`; the checker refused `plans_refused` of its
    /// plans. `None`: no two ticks were close enough to span any time.
    pub fn advice(&self, policy: PolicyName, plans_refused: u64) -> Option<Advice> {
        let window = self.window.filter(|window| window.covered > Duration::ZERO)?;
        let mean = |byte_ms: u128| bytes(byte_ms / self.host.ms.max(1));
        let (returnable, room) = (self.returnable.amounts(), self.room.amounts());
        let guests: Vec<_> =
            self.guests.iter().map(|(id, sums)| sums.advice(id, self.reserve)).collect();
        Some(Advice {
            policy,
            window,
            held: mean(self.host.held),
            imagined: mean(self.host.imagined),
            needed: mean(self.host.needed),
            given_already: mean(self.host.given_already),
            returnable,
            more: self.more(room.p95),
            room,
            swap_in: guests.iter().map(|guest| guest.swap_in).sum(),
            imagined_swap_in: guests.iter().map(|guest| guest.imagined_swap_in).sum(),
            swap_in_avoided: self.guests.values().map(|guest| guest.swap_in_avoided).sum(),
            guests_hiding_need: guests.iter().filter(|guest| guest.need_is_least).count() as u64,
            plans_refused,
            confidence: self.confidence(window.covered),
            guests,
            guests_left_out: self.left_out.len() as u64,
            course: self.course.points(),
        })
    }

    fn confidence(&self, covered: Duration) -> AdviceConfidence {
        let sum = |part: fn(&GuestSums) -> u128| self.guests.values().map(part).sum::<u128>();
        let (seen, usable) = (sum(|it| it.seen_ms), sum(|it| it.usable_ms));
        AdviceConfidence {
            coverage: coverage(covered),
            freshness: percent(usable, seen),
            source: percent(self.host.confidence, self.host.estimated_ms.saturating_mul(100)),
            visibility: 100 - percent(sum(|it| it.hiding_ms), usable),
        }
    }

    /// How many more guests `room` has place for.
    fn more(&self, room: Bytes) -> MoreGuests {
        let median = |of: &dyn Fn(&GuestSums) -> Option<Bytes>| {
            let sized = |sums: &GuestSums| Some((of(sums)?, sums.seen_ms));
            median_by_time(self.guests.values().filter_map(sized).collect())
        };
        let size = median(&GuestSums::size);
        let need = median(&|sums: &GuestSums| sums.need_to_keep(self.reserve));
        let fit = |each: Bytes| room.get() / each.get().max(1);
        MoreGuests {
            size: size.unwrap_or_default(),
            full: size.map(fit),
            need: need.unwrap_or_default(),
            alike: need.map(fit),
        }
    }
}

/// The median of sizes, each weighted by its time.
fn median_by_time(mut sizes: Vec<(Bytes, u128)>) -> Option<Bytes> {
    sizes.sort_unstable();
    let whole: u128 = sizes.iter().map(|(_, ms)| ms).sum();
    let mut sum = 0;
    for (size, ms) in &sizes {
        sum += ms;
        if sum * 2 >= whole {
            return Some(*size);
        }
    }
    None
}

#[cfg(test)]
mod tests;
