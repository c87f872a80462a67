//! The scenarios in which XAPI's squeezed is tested with stuck guests, each by its letter there:
//! memory has to be freed for a guest that starts, while some driver does not follow its target.
//!
//! Idea: Ballast's own controller decides under the policy `static`, whose rule is squeezed's: it
//! knows no demand. A guest's driver follows `memory/target` as it can. At each step two rules
//! hold: no guest gets a target below its floor, and what guests hold or were ordered to hold never
//! exceeds the machine's memory.
//! Source: `test/squeeze_test.ml` of squeezed, for the sizes (KiB there, MiB here) and the expected
//! results.

use ballast_backend::Backend;
use ballast_control::{Controller, Event, Settings};
use ballast_model::{
    Bytes, Compliance, GuestId, GuestLimits, HostSample, Note, Outcome, Plan, PolicyName,
    Reservation, Snapshot, Timestamp,
};

use super::FakeXen;

/// Parts of a second in which drivers move.
const PARTS: u64 = 10;
/// Drivers stop this much short of their target, in KiB.
const SHORT: u64 = 4;
const MIB: u64 = 1 << 10;

/// How a guest's driver moves; sizes in KiB.
struct Driver {
    id: u16,
    least: u64,
    holds: u64,
    /// How much it moves in a second.
    rate: u64,
    /// The bounds within which it moves, whatever its target.
    lower: u64,
    upper: u64,
    /// It moves for this many parts of a second and then rests for as many; 0: it never rests.
    rests: u64,
}

impl Driver {
    /// A guest with this floor and target, in MiB, whose driver works.
    fn new(id: u16, least: u64, target: u64) -> Driver {
        let holds = target * MIB;
        let (lower, upper) = (0, u64::MAX);
        Driver { id, least: least * MIB, holds, rate: 100 * MIB, lower, upper, rests: 0 }
    }

    /// Moves for a part of a second towards `target`, within what the machine has `free`.
    fn step(&mut self, part: u64, target: u64, free: u64) {
        if self.rests > 0 && (part / self.rests) % 2 == 1 {
            return;
        }
        let most = self.rate / PARTS;
        let gap = target.abs_diff(self.holds).saturating_sub(SHORT).min(most);
        if target < self.holds {
            self.holds -= gap.min(self.holds.saturating_sub(self.lower));
        } else {
            self.holds += gap.min(free).min(self.upper.saturating_sub(self.holds));
        }
    }
}

/// A machine, its guests, and the controller that balances them.
struct Machine {
    xen: FakeXen,
    controller: Controller,
    drivers: Vec<Driver>,
    /// Memory of the machine for guests, in KiB.
    total: u64,
    parts: u64,
    plan: Option<std::sync::Arc<Plan>>,
    /// The highest target that each guest has had, in KiB.
    highest: Vec<u64>,
}

fn name(id: u16) -> GuestId {
    format!("d{id}").parse().unwrap()
}

impl Machine {
    /// `most`: the ceiling of each driver's guest, in MiB.
    async fn new(drivers: Vec<Driver>, most: &[u64], free: u64) -> Machine {
        let mut xen = FakeXen::start().await;
        xen.destroy(0);
        let mut settings = Settings::new(PolicyName::Static);
        settings.guard.host_reserve = Bytes::ZERO;
        for (driver, most) in drivers.iter().zip(most) {
            let id = name(driver.id);
            xen.create(id.as_str(), driver.id, driver.holds / MIB, *most);
            let floor = Some(Bytes::kib(driver.least));
            let limits = GuestLimits { floor, ..settings.limits.default.clone() };
            settings.limits.named.insert(id, limits);
        }
        let total = drivers.iter().map(|it| it.holds).sum::<u64>() + free * MIB;
        let controller = Controller::new(settings, Timestamp::ZERO);
        let highest = drivers.iter().map(|_| 0).collect();
        Machine { xen, controller, drivers, total, parts: 0, plan: None, highest }
    }

    fn free(&self) -> u64 {
        self.total - self.drivers.iter().map(|it| it.holds).sum::<u64>()
    }

    fn target(&self, id: u16) -> u64 {
        self.xen.read(id, "memory/target").unwrap().parse().unwrap()
    }

    /// Two seconds: drivers move, and the plan is carried out.
    async fn tick(&mut self, seq: u64) {
        for _ in 0..2 * PARTS {
            for index in 0..self.drivers.len() {
                let (target, free) = (self.target(self.drivers[index].id), self.free());
                self.drivers[index].step(self.parts, target, free);
            }
            self.parts += 1;
        }
        for driver in &self.drivers {
            let mib = driver.holds / MIB;
            self.xen.hold(driver.id, mib);
            self.xen.publish_stats(driver.id, seq, mib, mib / 2);
        }
        self.xen.free = self.free() / MIB;
        let readings = self.xen.sample().await;
        let memory = self.xen.host.host_memory().unwrap();
        let host = HostSample {
            memory_total: Some(Bytes::kib(self.total)),
            memory_available: memory.available,
            ..HostSample::default()
        };
        let now = Timestamp::from_millis(self.xen.now);
        let guests = readings.into_iter().map(|it| it.sample).collect();
        let plan = self.controller.handle_sample(&Snapshot::new(now, host, guests));
        let mut actions = Vec::new();
        while let Some(action) = self.controller.poll_action() {
            actions.push(action);
        }
        let outcomes: Vec<Outcome> = self.xen.host.act_all(now, &actions).await;
        for outcome in outcomes {
            self.controller.handle_event(Event::Outcome(outcome));
        }
        self.xen.host.planned(&plan);
        self.plan = Some(plan);
        self.check();
    }

    /// Checks the rules that always hold.
    fn check(&mut self) {
        let mut promised = 0;
        for (driver, highest) in self.drivers.iter().zip(&mut self.highest) {
            let target = self.xen.read(driver.id, "memory/target").unwrap();
            let target: u64 = target.parse().unwrap();
            assert!(target + SHORT >= driver.least, "d{} is asked to hold {target} KiB", driver.id);
            promised += target.max(driver.holds);
            *highest = (*highest).max(target);
        }
        // What `xl` shows is rounded to MiB.
        let rounding = MIB * self.drivers.len() as u64;
        assert!(promised <= self.total + rounding, "{promised} of {} KiB", self.total);
    }

    /// Lets at most `ticks` pass until `mib` are free; returns whether they are.
    async fn free_up(&mut self, mib: u64, ticks: u64) -> bool {
        let reservation = Reservation {
            guest: "new".parse().unwrap(),
            size: Bytes::mib(mib),
            until: Timestamp::from_millis(u64::MAX >> 20),
            free: Bytes::ZERO,
        };
        // Statistics count from their second publication on.
        for seq in 1..4 {
            self.tick(seq).await;
        }
        self.controller.handle_event(Event::Reserve(reservation));
        for seq in 4..4 + ticks {
            self.tick(seq).await;
            if self.free() >= mib * MIB {
                return true;
            }
        }
        false
    }

    fn compliance(&self, id: u16) -> &Compliance {
        &self.plan.as_ref().unwrap().guest(&name(id)).unwrap().compliance
    }

    fn gives_not(&self, id: u16) -> bool {
        matches!(self.compliance(id), Compliance::Stuck { .. } | Compliance::Slow { .. })
    }
}

/// Squeezed's a: a small guest that stops above its floor, and a large one that moves by fits and
/// starts.
#[tokio::test]
async fn squeezed_a_a_sticky_guest_gives_what_another_cannot() {
    let small = Driver { lower: 1250 * MIB, ..Driver::new(1, 1000, 1500) };
    let sticky = Driver { rate: 500 * MIB, rests: 2, ..Driver::new(2, 2500, 3500) };
    let mut machine = Machine::new(vec![small, sticky], &[2000, 4500], 0).await;
    assert!(machine.free_up(1000, 60).await);
    assert!(!machine.gives_not(2), "{:?}", machine.compliance(2));
}

/// Squeezed's b: two that move by fits and starts, one longer and one shorter.
#[tokio::test]
async fn squeezed_b_guests_that_rest_for_seconds_give() {
    let slow = Driver { rests: 3 * PARTS, ..Driver::new(1, 500, 3500) };
    let less = Driver { rests: PARTS + 5, ..Driver::new(2, 500, 1500) };
    let mut machine = Machine::new(vec![slow, less], &[4500, 2500], 0).await;
    assert!(machine.free_up(1000, 60).await);
}

/// Squeezed's c: the floors of all guests leave less than is wanted.
#[tokio::test]
async fn squeezed_c_floors_are_kept_though_less_is_freed() {
    let guests = vec![Driver::new(1, 1000, 1500), Driver::new(2, 2000, 2500)];
    let mut machine = Machine::new(guests, &[2000, 3000], 0).await;
    assert!(!machine.free_up(1500, 30).await);
    let holds: Vec<u64> = machine.drivers.iter().map(|it| it.holds.div_ceil(MIB)).collect();
    assert_eq!(holds, [1000, 2000], "each its least");
}

/// Squeezed's d: enough could be freed, but one guest is stuck above its floor.
#[tokio::test]
async fn squeezed_d_a_guest_stuck_above_its_floor_is_found() {
    let stuck = Driver { lower: 2250 * MIB, ..Driver::new(2, 2000, 2500) };
    let mut machine = Machine::new(vec![Driver::new(1, 1000, 1500), stuck], &[2000, 3000], 0).await;
    assert!(!machine.free_up(1000, 30).await);
    assert!(machine.gives_not(2), "{:?}", machine.compliance(2));
    assert_eq!(machine.compliance(1), &Compliance::Compliant);
}

/// Squeezed's e: the one that should give is stuck, and the one that should grow could give.
fn e() -> (Vec<Driver>, [u64; 2]) {
    let stuck = Driver { rate: 0, ..Driver::new(1, 5000, 7000) };
    (vec![stuck, Driver::new(2, 5000, 6000)], [7000, 11000])
}

/// Squeezed takes the memory from the other guest; Ballast does not. What the stuck guest owes is
/// its debt, which the plan names, and no other guest pays for it.
#[tokio::test]
async fn squeezed_e_nobody_pays_for_a_stuck_guest() {
    let (guests, most) = e();
    let mut machine = Machine::new(guests, &most, 0).await;
    assert!(!machine.free_up(1000, 30).await);
    assert!(machine.gives_not(1));
    assert_eq!(machine.compliance(2), &Compliance::Compliant, "it is not taken for stuck");
    assert_eq!(machine.drivers[1].holds, 6000 * MIB, "its part by shares");
    let notes = &machine.plan.as_ref().unwrap().notes;
    let debt = Bytes::mib(1000);
    let owed = Note::BeyondEntitlement { guests: 1, debt, collected: false };
    assert!(notes.contains(&owed), "{notes:?}");
}

/// Squeezed's f: as e, where no guest may be ordered to grow before the memory is free.
#[tokio::test]
async fn squeezed_f_nobody_grows_into_memory_a_stuck_guest_holds() {
    let (guests, most) = e();
    let mut machine = Machine::new(guests, &most, 0).await;
    machine.free_up(1000, 20).await;
    assert!(machine.highest[1] <= 6000 * MIB, "its target was {} KiB", machine.highest[1]);
}

/// Squeezed's g: as a; drivers stop 4 KiB short of every target, and do not count as stuck.
#[tokio::test]
async fn squeezed_g_drivers_that_stop_short_count_as_there() {
    let guests = vec![Driver::new(1, 1000, 1500), Driver::new(2, 2500, 3500)];
    let mut machine = Machine::new(guests, &[2000, 4500], 0).await;
    assert!(machine.free_up(1000, 60).await);
    // Longer than the time that any guest has to begin.
    for seq in 100..120 {
        machine.tick(seq).await;
        for id in [1, 2] {
            assert!(!machine.gives_not(id), "d{id}: {:?}", machine.compliance(id));
        }
    }
}

/// Squeezed's h: one cannot grow, and the other takes up the slack.
#[tokio::test]
async fn squeezed_h_a_guest_that_cannot_grow_stops_no_other() {
    let limited = Driver { upper: 1500 * MIB, ..Driver::new(1, 1000, 1500) };
    let mut machine =
        Machine::new(vec![limited, Driver::new(2, 1000, 1500)], &[2000, 2000], 1000).await;
    for seq in 1..40 {
        machine.tick(seq).await;
        if machine.drivers[1].holds >= 2000 * MIB - 2 * SHORT {
            break;
        }
    }
    assert!(machine.drivers[1].holds >= 2000 * MIB - 2 * SHORT);
    assert_eq!(machine.drivers[0].holds, 1500 * MIB);
}
