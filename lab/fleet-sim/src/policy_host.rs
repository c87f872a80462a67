//! Hosts under a daemon's policy: `crates/control` with its estimators, policies and guard.
//!
//! Idea: each host has its own controller. In each second the guests' balloons move, the controller
//! gets a snapshot of samples, and its actions become the balloons' next targets. Memory for a
//! guest that comes from another host is reserved first, as `ballast reserve` does it.
//! Guests are numbers: a guest uses as much of its working set as it holds, fills the rest of its
//! memory with page cache, and reads back pages for which it has no room. Its kernel keeps a 64th
//! of its allocation, which does not count as available.
//! Cost: some 25 µs for a host of 30 guests and a second under `global`, 100 µs under `meb`.
//! Limits: statistics are current, nothing fails, no guest lies, and reading back costs no time.
//! Sizes are whole MiB. The simulator of a single host (`lab/sim`) models all this in more detail.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ballast_control::{Controller, Event, Settings};
use ballast_model::{
    Bytes, Capabilities, GuestId, GuestLimits, GuestSample, GuestStats, HostSample, LinkState,
    Measured, MissCurve, Outcome, OutcomeKind, Plan, PolicyName, ProcessId, Reservation, RunState,
    Snapshot, Timestamp, TrackerReport, TrackingSource,
};

use crate::miss_model::{MISSES_MAX, misses_per_s, tracked_curve, usable};
use crate::world::{SimGuest, World};

/// How fast a balloon takes unused memory, MiB a second.
const INFLATE_IDLE_RATE: u64 = 1024;
/// How fast a balloon takes used memory, MiB a second: the slowest rate that was seen
/// (`GuardSettings::STUCK_AFTER_DEFAULT`).
const INFLATE_USED_RATE: u64 = 80;
/// How fast a balloon gives memory back, MiB a second.
const DEFLATE_RATE: u64 = 2048;
/// How fast a guest fills memory with its working set, MiB a second.
const FILL_RATE: u64 = 512;
/// How long a reservation lasts.
const RESERVED_FOR: Duration = Duration::from_secs(60);

/// How hosts divide their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// Not at all: each guest keeps its first allocation.
    Fixed,
    /// By a policy, as a daemon runs it.
    ByPolicy {
        /// Its name.
        name: PolicyName,
        /// Whether it gets miss curves and objectives, as an exact tracker would report them.
        is_tracked: bool,
    },
}

/// The controllers of all hosts, and the balloons of all guests.
#[derive(Debug)]
pub(crate) struct FleetState {
    /// By host; empty if hosts do not divide their memory.
    controllers: Vec<Controller>,
    plans: Vec<Option<Arc<Plan>>>,
    /// By guest.
    balloons: Vec<GuestBalloon>,
    is_tracked: bool,
}

#[derive(Clone, Debug)]
struct GuestBalloon {
    id: GuestId,
    target: u64,
    in_use: u64,
    /// How often it was started on a host.
    starts: u64,
    /// Pages written to and read back from swap.
    swapped: u64,
    /// Its curve, and the working set that the curve is for.
    curve: Option<(u64, Arc<MissCurve>)>,
}

impl FleetState {
    pub(crate) fn new(world: &World, division: Division) -> FleetState {
        let balloon = |(index, guest): (usize, &SimGuest)| GuestBalloon {
            id: name(index),
            target: guest.allocation,
            in_use: 0,
            starts: 1,
            swapped: 0,
            curve: None,
        };
        let controller = |name| Controller::new(Settings::new(name), Timestamp::ZERO);
        let (controllers, is_tracked) = match division {
            Division::Fixed => (Vec::new(), false),
            Division::ByPolicy { name, is_tracked } => {
                (world.hosts.iter().map(|_| controller(name)).collect(), is_tracked)
            }
        };
        let mut hosts = FleetState {
            is_tracked,
            plans: vec![None; controllers.len()],
            controllers,
            balloons: world.guests.iter().enumerate().map(balloon).collect(),
        };
        (0..world.hosts.len()).for_each(|host| hosts.set_limits(world, host));
        hosts
    }

    /// Passes the floors of a host's guests to its controller.
    pub(crate) fn set_limits(&mut self, world: &World, host: usize) {
        let limits = |guest: &SimGuest| GuestLimits {
            floor: Some(Bytes::mib(guest.floor)),
            swap: Some(true),
            miss_rate_max: self.is_tracked.then_some(MISSES_MAX),
            ..GuestLimits::default()
        };
        let named: BTreeMap<GuestId, GuestLimits> = world
            .on(host)
            .map(|(index, guest)| (self.balloons[index].id.clone(), limits(guest)))
            .collect();
        if let Some(controller) = self.controllers.get_mut(host) {
            controller.handle_event(Event::ReplaceLimits(named));
        }
    }

    /// One second of all hosts, which ends at `now`.
    pub(crate) fn second(&mut self, world: &mut World, now: Timestamp) {
        for (guest, balloon) in world.guests.iter_mut().zip(&mut self.balloons) {
            balloon.second(guest);
        }
        for host in 0..self.controllers.len() {
            self.decide(world, host, now);
        }
    }

    /// Reserves memory for a guest that is to come.
    pub(crate) fn reserve(&mut self, guest: usize, to: usize, mib: u64, now: Timestamp) {
        let Some(controller) = self.controllers.get_mut(to) else { return };
        controller.handle_event(Event::Reserve(Reservation {
            guest: self.balloons[guest].id.clone(),
            size: Bytes::mib(mib),
            until: now + RESERVED_FOR,
            free: Bytes::ZERO,
        }));
    }

    /// The guest arrives with the `mib` that were reserved for it, or stays where it is if not all
    /// of that is free. Returns whether it has arrived.
    pub(crate) fn arrive(&mut self, world: &mut World, guest: usize, to: usize, mib: u64) -> bool {
        let id = &self.balloons[guest].id;
        let reserved = self.plans.get(to).and_then(Option::as_ref).map(|plan| &plan.reservations);
        let is_ready = match reserved {
            Some(all) => all.iter().any(|it| it.guest == *id && it.is_ready()),
            // Without a controller there is room as long as guests hold less than the budget.
            None => {
                let held: u64 = world.on(to).map(|(_, it)| it.allocation).sum();
                held + mib <= world.hosts[to].budget
            }
        };
        if !is_ready {
            let id = id.clone();
            if let Some(controller) = self.controllers.get_mut(to) {
                controller.handle_event(Event::Unreserve(id));
            }
            return false;
        }
        let from = world.guests[guest].host;
        world.move_guest(guest, to);
        let balloon = &mut self.balloons[guest];
        balloon.starts += 1;
        if reserved.is_some() {
            world.guests[guest].allocation = mib;
            balloon.target = mib;
        }
        balloon.in_use = balloon.in_use.min(usable(world.guests[guest].allocation));
        self.set_limits(world, from);
        self.set_limits(world, to);
        true
    }

    fn decide(&mut self, world: &mut World, host: usize, now: Timestamp) {
        let controller = &mut self.controllers[host];
        let reserve = controller.settings().guard.host_reserve;
        let mut held = 0;
        let mut samples = Vec::new();
        for (index, guest) in world.on(host) {
            held += guest.allocation;
            samples.push(self.balloons[index].sample(guest, self.is_tracked));
        }
        let budget = world.hosts[host].budget;
        let free = Bytes::mib(budget.saturating_sub(held)) + reserve;
        let sampled = HostSample {
            memory_total: Some(Bytes::mib(budget) + reserve),
            memory_available: Some(free),
            ..HostSample::default()
        };
        let plan = controller.handle_sample(&Snapshot::new(now, sampled, samples));
        while let Some(action) = controller.poll_action() {
            let found = action.guest.as_str().get(1..).and_then(|it| it.parse::<usize>().ok());
            let Some(balloon) = found.and_then(|index| self.balloons.get_mut(index)) else {
                continue;
            };
            balloon.target = mib(action.target);
            controller.handle_event(Event::Outcome(Outcome {
                guest: action.guest,
                generation: action.generation,
                target: action.target,
                kind: OutcomeKind::Accepted,
            }));
        }
        let reported = &mut world.hosts[host];
        reported.distributable = mib(plan.budget.distributable);
        reported.committed = plan.budget.committed.get().div_ceil(1 << 20);
        reported.free = budget.saturating_sub(held);
        let indices: Vec<usize> = world.on(host).map(|(index, _)| index).collect();
        for (index, part) in indices.into_iter().zip(&plan.guests) {
            let guest = &mut world.guests[index];
            world.curves[index] = part.estimate.as_ref().and_then(|it| it.curve.clone());
            let demand = part.estimate.as_ref().map(|it| it.demand.size);
            guest.estimated = demand.map_or(guest.allocation, |it| it.get().div_ceil(1 << 20));
        }
        self.plans[host] = Some(plan);
    }
}

impl GuestBalloon {
    /// Moves the balloon, and lets the guest use what it needs.
    fn second(&mut self, guest: &mut SimGuest) {
        let held = guest.allocation;
        if self.target >= held {
            guest.allocation = self.target.min(held + DEFLATE_RATE).min(guest.boot);
        } else {
            let idle = usable(held).saturating_sub(self.in_use).min(INFLATE_IDLE_RATE);
            guest.allocation = self.target.max(held - idle.max(INFLATE_USED_RATE).min(held));
        }
        let most = guest.demand.min(usable(guest.allocation));
        self.in_use = most.min(self.in_use + FILL_RATE);
        self.swapped += misses_per_s(guest.demand, usable(guest.allocation));
    }

    /// The report of an exact tracker.
    fn tracked(&mut self, guest: &SimGuest) -> TrackerReport {
        if self.curve.as_ref().is_none_or(|(demand, _)| *demand != guest.demand) {
            self.curve = Some((guest.demand, tracked_curve(guest.demand)));
        }
        TrackerReport {
            working_set: Bytes::mib(guest.demand),
            curve: self.curve.as_ref().map(|(_, curve)| Arc::clone(curve)),
            source: TrackingSource::default(),
        }
    }

    fn sample(&mut self, guest: &SimGuest, is_tracked: bool) -> GuestSample {
        let tracked = is_tracked.then(|| self.tracked(guest));
        let size = |mib: u64| Some(Bytes::mib(mib));
        let stats = GuestStats {
            total: size(guest.allocation),
            free: size(guest.allocation - usable(guest.allocation)),
            available: size(usable(guest.allocation).saturating_sub(self.in_use)),
            swap_in: Some(Bytes::pages(self.swapped)),
            swap_out: Some(Bytes::pages(self.swapped)),
            major_faults: Some(self.swapped),
            ..GuestStats::default()
        };
        GuestSample {
            run_state: Some(RunState::Running),
            allocation: Some(Measured::fresh(Bytes::mib(guest.allocation))),
            boot_memory: size(guest.boot),
            process: Some(ProcessId { pid: 1, start_ticks: self.starts }),
            resident: Some(Measured::fresh(Bytes::mib(guest.allocation))),
            stats: Some(Measured::fresh(stats)),
            tracker: tracked.map(|report| Box::new(Measured::fresh(report))),
            capabilities: Capabilities {
                balloon: Some(true),
                statistics: Some(true),
                deflate_on_oom: Some(false),
                discard_inhibited: Some(false),
                ..Capabilities::default()
            },
            ..GuestSample::unknown(self.id.clone(), LinkState::Up)
        }
    }
}

fn mib(size: Bytes) -> u64 {
    size.get() >> 20
}

/// The name of a guest by its index; names sort like indices.
pub(crate) fn name(index: usize) -> GuestId {
    format!("g{index:07}").parse().expect("a name")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::miss_model::is_slow;

    /// Two hosts of 16 GiB; the first has four guests of 8 GiB that hold half of that each.
    fn world() -> World {
        let guest = |host| SimGuest {
            host,
            boot: 8192,
            floor: 1024,
            demand: 1000,
            allocation: 4096,
            ..SimGuest::default()
        };
        World::new(&[16 << 10, 16 << 10], vec![guest(0), guest(0), guest(0), guest(0), guest(1)])
    }

    fn seconds(hosts: &mut FleetState, world: &mut World, now: &mut u64, seconds: u64) {
        for _ in 0..seconds {
            *now += 1;
            hosts.second(world, Timestamp::from_millis(*now * 1000));
            for host in 0..world.hosts.len() {
                let held: u64 = world.on(host).map(|(_, guest)| guest.allocation).sum();
                assert!(held <= world.hosts[host].budget, "host {host} at {now} s: {held} MiB");
            }
        }
    }

    const BY_MEB: Division = Division::ByPolicy { name: PolicyName::Meb, is_tracked: true };

    #[test]
    fn a_guest_that_needs_more_gets_it_from_the_others() {
        let (mut world, mut now) = (world(), 0);
        let mut hosts = FleetState::new(&world, BY_MEB);
        seconds(&mut hosts, &mut world, &mut now, 10);
        world.guests[2].demand = 7000;
        seconds(&mut hosts, &mut world, &mut now, 60);
        let guest = world.guests[2];
        assert!(!is_slow(guest.demand, usable(guest.allocation)), "{guest:?}");
    }

    #[test]
    fn a_guest_arrives_once_its_memory_is_free() {
        let (mut world, mut now) = (world(), 0);
        let mut hosts = FleetState::new(&world, BY_MEB);
        seconds(&mut hosts, &mut world, &mut now, 10);
        assert!(!hosts.arrive(&mut world, 4, 0, 2048), "nothing was reserved");
        hosts.reserve(4, 0, 2048, Timestamp::from_millis(now * 1000));
        seconds(&mut hosts, &mut world, &mut now, 30);
        assert!(hosts.arrive(&mut world, 4, 0, 2048), "{:?}", hosts.plans[0]);
        assert_eq!((world.guests[4].host, world.guests[4].allocation), (0, 2048));
        seconds(&mut hosts, &mut world, &mut now, 30);
    }

    #[test]
    fn fixed_allocations_do_not_change() {
        let (mut world, mut now) = (world(), 0);
        let mut hosts = FleetState::new(&world, Division::Fixed);
        world.guests[2].demand = 7000;
        seconds(&mut hosts, &mut world, &mut now, 30);
        assert!(world.guests.iter().all(|guest| guest.allocation == 4096), "{world:?}");
        assert!(hosts.arrive(&mut world, 0, 1, 4096), "the other host has room");
    }
}
