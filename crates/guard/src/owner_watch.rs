//! Whether something else moves a guest's balloon.
//!
//! Idea: a driver moves towards the last order it got, and Ballast knows its own orders. A guest
//! that was at its target and left it, without a new order from Ballast, was ordered by something
//! else. A driver that does not comply looks similar, so only this counts as another's order:
//!
//! - The guest holds *less*, and its kernel agrees. No driver takes more than it was ordered to,
//!   even a slow or stuck one, and a guest gains nothing by claiming that.
//! - The guest holds *more*, and stays there with fresh statistics. A driver that takes memory back
//!   does that too. So this counts only where others can order the balloon at all, through a
//!   manager that Ballast does not have to itself, and where the driver never deflates by itself
//!   when the guest runs out of memory. A guest that was restarted comes back to its target by
//!   itself.
//!
//! One departure may come from a late order of Ballast; two within [`WINDOW`] mean another owner.
//! Standing back on that evidence grants nothing: what such a guest holds beyond its entitlement
//! stays its debt, so no guest gains by pretending.
//!
//! Cost: O(1) per guest and tick. Limits:
//!
//! - QEMU and libvirt report what a balloon holds, not its target. An order that changes less than
//!   [`DEPARTURE_MIN`], or that an order of Ballast overtakes, is not seen.
//! - A kernel that does not subtract the balloon from its total (Windows) hides that it holds less.
//! - Guests with plugged memory are not watched.
//! - Of a guest that is reached only through its own QMP socket, only decreases are seen.
//! - Moves made while Ballast moves nothing point to nobody: operators pause it to move memory by
//!   hand.

use std::time::Duration;

use ballast_model::{Bytes, GuestSample, LinkState, RunState, Timestamp};

use crate::ComplianceLog;

/// A guest within this much of its target has arrived.
const ARRIVED_WITHIN: Bytes = Bytes::mib(4);
/// A smaller distance from where it was is no departure.
const DEPARTURE_MIN: Bytes = Bytes::mib(16);
/// A guest that holds the same for this long has arrived at whatever it was ordered to.
const SETTLED_AFTER: Duration = Duration::from_secs(5);
/// Two departures within this time have one cause.
const WINDOW: Duration = Duration::from_secs(3600);
/// While an order of Ballast may still be carried out, no move is attributed to others.
const UNSURE_FOR: Duration = Duration::from_secs(60);

/// Where a guest is.
#[derive(Clone, Copy, Debug, Default)]
enum Place {
    /// On its way to its target, or unknown.
    #[default]
    OnItsWay,
    /// At its target.
    Arrived(Bytes),
    /// It left its target, which is still in force.
    Left {
        target: Bytes,
        /// What it holds, and since when.
        holds: Bytes,
        since: Timestamp,
        /// What it held when a departure was last counted.
        counted: Bytes,
    },
}

/// Moves of one guest that Ballast did not order.
#[derive(Clone, Debug, Default)]
pub struct OwnerWatch {
    place: Place,
    /// When it last left its target in a way that points to another's order.
    departed_at: Option<Timestamp>,
    unsure_until: Timestamp,
    is_owned: bool,
}

impl OwnerWatch {
    /// Whether something else moves the guest's balloon.
    pub fn is_owned(&self) -> bool {
        self.is_owned
    }

    /// Takes in a sample, before the log does. `is_held`: nothing is moved at all.
    pub fn observe(
        &mut self,
        sample: &GuestSample,
        log: &ComplianceLog,
        is_held: bool,
        now: Timestamp,
    ) {
        if is_held || log.must_send_again() {
            self.unsure_until = now + UNSURE_FOR;
        }
        let is_running = matches!(sample.run_state, None | Some(RunState::Running));
        let is_whole = sample.hotplug.is_none() && sample.unmapped.is_none();
        let is_watched = is_running && is_whole && sample.link == LinkState::Up;
        let seen = sample.allocation.filter(|it| is_watched && it.age < SETTLED_AFTER);
        let (Some(holds), Some(target)) = (seen.and(sample.claimed()), log.target()) else {
            self.place = Place::OnItsWay;
            return;
        };
        if holds.abs_diff(target) <= ARRIVED_WITHIN {
            self.place = Place::Arrived(target);
            return;
        }
        self.place = match self.place {
            Place::Arrived(at) if at == target => {
                if holds.abs_diff(target) < DEPARTURE_MIN {
                    return;
                }
                let left = Place::Left { target, holds, since: now, counted: target };
                self.update_departure(sample, left, now)
            }
            Place::Left { target: from, holds: before, since, counted } if from == target => {
                let is_same = holds.abs_diff(before) <= ARRIVED_WITHIN;
                let since = if is_same { since } else { now };
                let holds = if is_same { before } else { holds };
                self.update_departure(sample, Place::Left { target, holds, since, counted }, now)
            }
            Place::OnItsWay | Place::Arrived(_) | Place::Left { .. } => Place::OnItsWay,
        };
    }

    /// The guest is away from its target. That it really holds less needs no more evidence. If it
    /// goes further than what was counted, and settles there, that is another departure.
    fn update_departure(&mut self, sample: &GuestSample, place: Place, now: Timestamp) -> Place {
        let Place::Left { target, holds, since, counted } = place else { return place };
        let settled_for = now.saturating_since(since);
        let has_settled = settled_for >= SETTLED_AFTER;
        let counts = if holds < target {
            let is_further = counted.saturating_sub(holds) >= DEPARTURE_MIN;
            is_further && (has_settled || counted == target) && really_holds(sample, holds)
        } else {
            let is_further = holds.saturating_sub(counted) >= DEPARTURE_MIN;
            is_further && has_settled && is_ordered(sample, settled_for)
        };
        if counts {
            self.count_departure(now);
        }
        Place::Left { target, holds, since, counted: if counts { holds } else { counted } }
    }

    fn count_departure(&mut self, now: Timestamp) {
        if now < self.unsure_until {
            return;
        }
        let is_second = self.departed_at.is_some_and(|at| now.saturating_since(at) <= WINDOW);
        self.is_owned |= is_second;
        self.departed_at = Some(now);
    }
}

/// Whether a guest's kernel agrees with what its device says: after a reboot QEMU may report the
/// size from before.
fn really_holds(sample: &GuestSample, holds: Bytes) -> bool {
    let is_within = |size: Option<Bytes>| size.is_none_or(|size| size <= holds);
    sample.stats.is_none_or(|it| is_within(it.value.total) && is_within(it.value.available))
}

/// Whether a guest that has held more than its target for `settled_for` was ordered to.
fn is_ordered(sample: &GuestSample, settled_for: Duration) -> bool {
    let is_alive = sample.stats.is_some_and(|stats| stats.age < settled_for);
    let capabilities = sample.capabilities;
    is_alive
        && capabilities.shared_control == Some(true)
        && capabilities.deflate_on_oom == Some(false)
}

#[cfg(test)]
mod tests {
    use ballast_model::{Capabilities, GuestStats, Measured};
    use proptest::prelude::*;

    use super::*;

    /// A guest of a manager that other programs use too, and its driver.
    struct Watched {
        watch: OwnerWatch,
        log: ComplianceLog,
        sample: GuestSample,
        is_held: bool,
        now: Timestamp,
    }

    impl Watched {
        fn new() -> Watched {
            let capabilities = Capabilities {
                deflate_on_oom: Some(false),
                shared_control: Some(true),
                ..Capabilities::default()
            };
            let sample = GuestSample {
                boot_memory: Some(Bytes::gib(1)),
                capabilities,
                stats: Some(Measured::fresh(GuestStats::default())),
                ..GuestSample::unknown("web".parse().unwrap(), LinkState::Up)
            };
            let (watch, log) = (OwnerWatch::default(), ComplianceLog::default());
            let now = Timestamp::from_millis(1000);
            Watched { watch, log, sample, is_held: false, now }
        }

        /// Ballast orders the guest to `mib`.
        fn order(&mut self, mib: u64) {
            self.log.record_target(Bytes::mib(mib), true);
        }

        /// The guest holds `mib` for some seconds. Returns whether it then counts as owned.
        fn holds(&mut self, mib: u64, seconds: u64) -> bool {
            self.sample.allocation = Some(Measured::fresh(Bytes::mib(mib)));
            for _ in 0..seconds {
                self.now = self.now + Duration::from_secs(1);
                self.watch.observe(&self.sample, &self.log, self.is_held, self.now);
            }
            self.watch.is_owned()
        }
    }

    #[test]
    fn two_orders_of_another_are_an_owner() {
        for (first, second) in [(300, 400), (700, 1024), (300, 900)] {
            let mut guest = Watched::new();
            guest.order(512);
            guest.holds(512, 1);
            assert!(!guest.holds(first, 9), "once may be a late order of ours");
            assert!(!guest.holds(512, 1));
            assert!(guest.holds(second, 9), "{first} {second}");
        }
        let mut guest = Watched::new();
        guest.order(512);
        guest.holds(512, 1);
        assert!(!guest.holds(400, 9) && guest.holds(300, 9), "it need not come back");
    }

    #[test]
    fn what_only_the_guest_can_have_done_is_none() {
        let mut rises = Watched::new();
        rises.sample.capabilities.shared_control = None;
        let mut deflates = Watched::new();
        deflates.sample.capabilities.deflate_on_oom = Some(true);
        let mut silent = Watched::new();
        silent.sample.stats = None;
        for guest in [&mut rises, &mut deflates, &mut silent] {
            guest.order(512);
            for _ in 0..5 {
                guest.holds(512, 2);
                assert!(!guest.holds(1024, 20));
            }
        }
        let mut rebooted = Watched::new();
        let total = Some(Bytes::mib(1000));
        let stats = GuestStats { total, ..GuestStats::default() };
        rebooted.sample.stats = Some(Measured::fresh(stats));
        rebooted.order(1024);
        for _ in 0..5 {
            rebooted.holds(1024, 2);
            assert!(!rebooted.holds(700, 20), "its device tells what was so before");
        }
        // An order of Ballast may arrive late.
        let mut late = Watched::new();
        late.order(512);
        late.holds(512, 1);
        late.log.record_send_failure();
        assert!(!late.holds(300, 9));
        late.order(512);
        assert!(!late.holds(512, 1) && !late.holds(300, 9));
    }

    #[test]
    fn what_is_moved_during_a_pause_is_no_departure() {
        for moved in [300, 700] {
            let mut guest = Watched::new();
            guest.order(512);
            guest.holds(512, 1);
            guest.is_held = true;
            for _ in 0..3 {
                guest.holds(moved, 9);
                guest.holds(512, 1);
            }
            guest.holds(moved, 9);
            guest.is_held = false;
            assert!(!guest.holds(moved, 90) && !guest.holds(512, 1), "{moved}");
            assert!(!guest.holds(moved, 9), "the first departure since");
        }
    }

    #[test]
    fn departures_far_apart_are_chance() {
        let mut guest = Watched::new();
        guest.order(512);
        for _ in 0..3 {
            guest.holds(512, 1);
            assert!(!guest.holds(300, 1));
            guest.now = guest.now + WINDOW;
        }
    }

    /// What happens to a guest that nobody else orders, from one second to the next.
    #[derive(Clone, Debug)]
    enum Step {
        Order(u64),
        /// Its driver's largest step towards its target in a tick.
        Move(u64),
        /// Its driver takes memory back, if it can.
        TakeBack(u64),
        /// It restarts, and holds its boot memory until its driver has begun.
        Restart,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            2 => (128..=1024_u64).prop_map(Step::Order),
            6 => (0..400_u64).prop_map(Step::Move),
            1 => (1..600_u64).prop_map(Step::TakeBack),
            1 => Just(Step::Restart),
        ]
    }

    proptest! {
        /// Whether the driver is slow or stuck, takes memory back, or claims anything up to that.
        #[test]
        fn no_driver_is_taken_for_an_owner(
            steps in prop::collection::vec((step(), 1..9_u64), 1..60),
            is_shared: bool,
        ) {
            let mut guest = Watched::new();
            guest.sample.capabilities.shared_control = is_shared.then_some(true);
            // The device tells whether it deflates by itself, which is how taking back differs from
            // an order.
            guest.sample.capabilities.deflate_on_oom = Some(is_shared);
            let (mut target, mut holds) = (1024, 1024_u64);
            for (step, seconds) in steps {
                match step {
                    Step::Order(to) => {
                        target = to;
                        guest.order(to);
                    }
                    Step::Move(by) if holds > target => holds -= by.min(holds - target),
                    Step::Move(by) => holds += by.min(target - holds),
                    Step::TakeBack(by) => holds = (holds + by).min(1024),
                    Step::Restart => holds = 1024,
                }
                prop_assert!(!guest.holds(holds, seconds));
            }
        }

        /// However often Ballast orders something else meanwhile.
        #[test]
        fn an_owner_is_found_while_we_order(
            orders in prop::collection::vec((200..=1000_u64, 100..150_u64), 2..10),
        ) {
            let mut guest = Watched::new();
            let mut is_owned = false;
            for (target, less) in orders {
                guest.order(target);
                guest.holds(target, 2);
                is_owned = guest.holds(target - less, 3);
            }
            prop_assert!(is_owned);
        }
    }
}
