//! One seed: what it draws, its storm, and its judgement.
//!
//! Idea: after each tick what was ordered is judged at once (floors, grants, refused plans). Then
//! the faults stop; in the calm that follows offenders become honest, and everything has to settle.

use std::time::Duration;

use ballast_actuation::paging::SwapRules;
use ballast_control::Settings;
use ballast_daemon::engine::{Engine, SampleScope, World};
use ballast_daemon::view::Command;
use ballast_model::{Bytes, Change, Compliance, GuestChange, GuestLimits, PolicyName, Restart};
use fastrand::Rng;
use futures_util::FutureExt;

use crate::fault::{Fault, Injected, Rates};
use crate::guest::{Driver, StormGuest};
use crate::sabotage::Sabotage;
use crate::violation::Violation;
use crate::world::{Delivery, StormWorld};

/// Ticks under faults, and in calm until everything is settled.
const STORM_TICKS: u32 = 240;
const CALM_TICKS_MAX: u32 = 2_400;

/// Everything is settled when nothing was amiss for so many ticks.
const QUIET_TICKS: u32 = 60;

/// What guests are given beside what they use.
const RESERVE: u64 = 110;

/// An offender may hide this part of its memory in what a hypervisor may need.
const HIDDEN_PART: u64 = 8;
const HIDDEN_MIN: u64 = 64;

/// What is not worth an order, or a balloon's last pages.
const SLACK: u64 = 24;

/// Statistics older than this take nothing from a guest.
const STALE_AFTER: Duration = Duration::from_secs(10);

/// What an offender may keep: room for its hypervisor, and what it reads back while the host pages.
const KEPT_MIN: u64 = 200;

/// A tick takes this long at most, unless the host slept.
const SLEEP_MIN: Duration = Duration::from_secs(2);

/// The host takes back what an offender keeps within this time: it is given time to comply first.
const TAKEN_BACK_WITHIN: Duration = Duration::from_secs(60);

/// A guest that holds this much more than its part is left that.
const DEAD_BAND: u64 = 10;

/// What one seed came to.
#[derive(Clone, Debug)]
pub struct SeedReport {
    /// The faults that struck.
    pub injected: Injected,
    /// Ticks of the engine.
    pub ticks: u64,
    /// The promise that was broken first, and at which tick; `None`: all held.
    pub violation: Option<(u64, Violation)>,
}

/// What a guest may come to occupy at one moment; in MiB.
#[derive(Clone, Copy, Debug)]
struct Holding {
    granted: u64,
    takeable: u64,
}

/// Runs one seed. With a `sabotage` it should find a violation.
pub fn run_seed(seed: u64, sabotage: Option<Sabotage>) -> SeedReport {
    let mut storm = Storm::draw(seed, sabotage);
    let violation = storm.run().err();
    let violation = violation.map(|found| (storm.ticks, found));
    SeedReport { injected: storm.injected, ticks: storm.ticks, violation }
}

/// A run in progress.
struct Storm {
    rng: Rng,
    rates: Rates,
    settings: Settings,
    sabotage: Option<Sabotage>,
    engine: Engine,
    world: StormWorld,
    /// What guests may hold in all, MiB.
    budget: u64,
    injected: Injected,
    ticks: u64,
    /// Until when operators have paused.
    paused_until: Duration,
}

impl Storm {
    fn draw(seed: u64, sabotage: Option<Sabotage>) -> Storm {
        let mut rng = Rng::with_seed(seed);
        let count = rng.u64(2..7);
        let mut guests = Vec::new();
        for number in 0..count {
            let boot = rng.u64(512..4096);
            let holds = (boot / 2).max(256);
            let wants = rng.u64(100..boot * 9 / 10);
            let is_offender = number > 0 && rng.u32(0..3) == 0;
            let id = format!("g{number}").parse().expect("a name");
            let mut guest = StormGuest::new(id, boot, holds, wants, is_offender);
            guest.rate = rng.u64(20..400);
            guests.push(guest);
        }
        let held = guests.iter().map(|guest| guest.holds).sum::<u64>();
        let budget = held + rng.u64(0..1500);
        let policies = [PolicyName::Static, PolicyName::SelfScheduling, PolicyName::Global];
        let mut settings = Settings::new(policies[rng.usize(0..policies.len())]);
        settings.guard.budget = Some(Bytes::mib(budget));
        settings.guard.host_reserve = Bytes::mib(256);
        settings.hotplug = None;
        settings.transfer_tick = Duration::from_millis(500);
        settings.paging = Some(SwapRules { use_max_percent: 95, reserve: Bytes::ZERO });
        if let Some(sabotage) = sabotage {
            sabotage.set(&mut settings);
        }
        let rates = Rates::draw(&mut rng);
        let most = guests.iter().map(|guest| guest.boot + 64).sum::<u64>();
        let world = StormWorld::new(guests, most + budget, 2 * most, sabotage);
        let engine = Engine::new(settings.clone(), Vec::new(), Restart::default(), &world);
        Storm {
            rng,
            rates,
            settings,
            sabotage,
            engine,
            world,
            budget,
            injected: Injected::default(),
            ticks: 0,
            paused_until: Duration::ZERO,
        }
    }

    fn run(&mut self) -> Result<(), Violation> {
        for _ in 0..STORM_TICKS {
            self.strike()?;
            self.tick()?;
        }
        self.calm();
        let (mut amiss, mut quiet) = (String::new(), 0);
        for _ in 0..CALM_TICKS_MAX {
            self.tick()?;
            match self.amiss() {
                Some(what) => (amiss, quiet) = (what, 0),
                None => quiet += 1,
            }
            if quiet == QUIET_TICKS {
                return self.judge_end();
            }
        }
        Err(Violation::NotSettled { what: amiss })
    }

    /// One tick, and what is judged after each.
    fn tick(&mut self) -> Result<(), Violation> {
        let passed = self.engine.due().saturating_since(self.world.now());
        let passed = passed.max(Duration::from_millis(100));
        self.world.step(passed);
        if self.paused_until > Duration::ZERO && self.world.now >= self.paused_until {
            self.paused_until = Duration::ZERO;
            let _ = self.engine.obey(Command::Resume, &mut self.world);
        }
        self.ticks += 1;
        let before = self.holdings();
        self.tick_engine();
        self.judge_tick(&before)?;
        self.judge_debts(passed)
    }

    fn tick_engine(&mut self) {
        let ticked = self.engine.tick(&mut self.world, SampleScope::All);
        ticked.now_or_never().expect("nothing in a storm waits");
    }

    /// `before`: what guests might come to occupy before this tick.
    fn judge_tick(&mut self, before: &[Holding]) -> Result<(), Violation> {
        let view = self.engine.view(&self.world).expect("there was a tick");
        if view.plans_refused > 0 {
            let why =
                view.plan.notes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            return Err(Violation::PlanRefused { why });
        }
        if view.limits.len() > self.world.guests.len() {
            return Err(Violation::Unbounded { remembered: view.limits.len() });
        }
        let mut grants = false;
        for action in &self.world.ordered {
            let guest = self.world.guests.iter_mut().find(|guest| guest.id == action.guest);
            let Some(guest) = guest else { continue };
            let change = view.plan.guest(&guest.id).map(|line| &line.change);
            // To be told to keep what it holds is no grant.
            if matches!(change, Some(Change::CancelShrink { .. })) {
                continue;
            }
            let granted = std::mem::replace(&mut guest.granted, action.target.get() >> 20);
            let target = action.target.get() >> 20;
            let age = guest.stats_age(self.world.now);
            if target < granted.min(guest.holds) && age > STALE_AFTER {
                return Err(Violation::OnStaleFigures { guest: guest.id.clone(), age });
            }
            // No fault sets a floor.
            let floor = GuestLimits::default().floor_for(Bytes::mib(guest.boot)).get() >> 20;
            if target < floor && target < guest.holds {
                let guest = guest.id.clone();
                return Err(Violation::BelowFloor { guest, target, floor });
            }
            // Before it was ordered anything its claim is all there is to go by.
            let holds =
                if guest.was_ordered { guest.holds } else { guest.claims().min(guest.boot) };
            grants |= target > guest.holds.max(holds).max(granted);
        }
        // A stuck guest is asked to hold more without an order; the journal tells.
        for left in &self.world.recorded.guests {
            let id = &left.handover.guest;
            let ordered = self.world.ordered.iter().find(|action| action.guest == *id);
            // To be told to keep what it holds is no grant.
            let is_kept = view
                .plan
                .guest(id)
                .is_some_and(|it| matches!(it.change, Change::CancelShrink { .. }));
            let ordered = ordered.filter(|_| !is_kept).map(|action| action.target);
            let granted = left.handover.granted.or(left.target).max(ordered);
            let guest = self.world.guests.iter_mut().find(|guest| guest.id == *id);
            let (Some(guest), Some(granted)) = (guest, granted) else { continue };
            grants |= granted.get() >> 20 > guest.granted;
            guest.granted = granted.get() >> 20;
        }
        if grants {
            self.judge_grants(before)?;
        }
        Ok(())
    }

    /// What an offender keeps without a grant, for the host to see, is taken back in time.
    fn judge_debts(&mut self, passed: Duration) -> Result<(), Violation> {
        let now = self.world.now;
        let can_page = !self.world.hides_host
            && now >= self.world.swap_hangs_until
            && self.paused_until == Duration::ZERO;
        for guest in &mut self.world.guests {
            let occupies = guest.visible(now);
            let keeps = guest.driver != Driver::Honest
                && guest.was_ordered
                && occupies > guest.granted.saturating_add(KEPT_MIN);
            if !keeps || !can_page {
                guest.kept_for = Duration::ZERO;
                continue;
            }
            // A host that slept takes nothing back.
            guest.kept_for += passed.min(SLEEP_MIN);
            if guest.kept_for > TAKEN_BACK_WITHIN {
                let (guest, granted) = (guest.id.clone(), guest.granted);
                return Err(Violation::NotTakenBack { guest, occupies, granted });
            }
        }
        Ok(())
    }

    /// Memory was granted: it has to be there, but for what an offender hides. Where more could be
    /// taken than that already, as a guest rebooted, the grants must not add to it.
    fn judge_grants(&self, before: &[Holding]) -> Result<(), Violation> {
        let (mut takeable, mut earlier) = (0, 0);
        let mut allowed = self.budget;
        let plan = self.engine.latest().map(|(_, plan)| plan);
        for (guest, before) in self.world.guests.iter().zip(before) {
            // Nobody can count a guest that this daemon has never heard of.
            let line = plan.and_then(|plan| plan.guest(&guest.id));
            if line.is_some_and(|line| line.allocation.is_none() && line.target.is_none()) {
                continue;
            }
            let after = self.takeable(guest);
            let is_granted = guest.granted > before.granted;
            takeable += if is_granted { after } else { after.min(before.takeable) };
            earlier += before.takeable;
            if guest.is_offender {
                allowed += HIDDEN_MIN + guest.boot / HIDDEN_PART;
            }
        }
        if takeable > allowed.max(earlier) {
            return Err(Violation::Overcommitted { takeable, allowed });
        }
        Ok(())
    }

    /// What each guest may come to occupy now.
    fn holdings(&self) -> Vec<Holding> {
        let holding =
            |guest: &StormGuest| Holding { granted: guest.granted, takeable: self.takeable(guest) };
        self.world.guests.iter().map(holding).collect()
    }

    /// What a guest may come to occupy. One that is overdue is held to what it was granted.
    fn takeable(&self, guest: &StormGuest) -> u64 {
        let plan = self.engine.latest().map(|(_, plan)| plan);
        let owes = plan.and_then(|plan| plan.guest(&guest.id)).is_some_and(|line| {
            matches!(line.compliance, Compliance::Slow { .. } | Compliance::Stuck { .. })
        });
        self.world.takeable(guest, owes)
    }

    /// The faults are over, and offenders see the light.
    fn calm(&mut self) {
        let world = &mut self.world;
        world.delivery = Delivery::Reliable;
        world.hides_host = false;
        for guest in &mut world.guests {
            guest.driver = Driver::Honest;
            (guest.claims_too_much, guest.claims_use) = (false, false);
            guest.seen_age = Duration::ZERO;
        }
        if self.paused_until > Duration::ZERO {
            self.paused_until = Duration::ZERO;
            let _ = self.engine.obey(Command::Resume, &mut self.world);
        }
    }

    /// What has not settled yet.
    fn amiss(&self) -> Option<String> {
        let (_, plan) = self.engine.latest()?;
        for guest in &plan.guests {
            if !matches!(guest.compliance, Compliance::Compliant) {
                return Some(format!("{} is {:?}", guest.id, guest.compliance));
            }
            let truth = self.world.guests.iter().find(|it| it.id == guest.id)?;
            if guest.target.is_some_and(|target| truth.holds.abs_diff(target.get() >> 20) > SLACK) {
                return Some(format!("{} holds {} of {:?}", guest.id, truth.holds, guest.target));
            }
        }
        if !plan.actions.is_empty() {
            return Some(format!("{} orders", plan.actions.len()));
        }
        (!plan.paging.is_empty()).then(|| format!("{} orders to page", plan.paging.len()))
    }

    /// No honest guest ends below what is due to it: its share where shares alone count, and what it
    /// needs where there is enough for all.
    fn judge_end(&self) -> Result<(), Violation> {
        let view = self.engine.view(&self.world).expect("there was a tick");
        let shares = |guest: &StormGuest| u64::from(view.limits[&guest.id].shares);
        let all: u64 = self.world.guests.iter().map(shares).sum();
        let needs = |guest: &StormGuest| (guest.wants + RESERVE).min(guest.boot);
        // What is not worth an order to each of the others adds up.
        let slack = SLACK + DEAD_BAND * (self.world.guests.len() as u64 - 1);
        let fits = self.world.guests.iter().map(needs).sum::<u64>() <= self.budget;
        for guest in self.world.guests.iter().filter(|guest| !guest.is_offender) {
            let share = self.budget * shares(guest) / all;
            let due = match self.settings.policy {
                PolicyName::Static => share.min(guest.boot),
                _ if fits => guest.wants,
                _ => 0,
            };
            if guest.holds + slack < due {
                let (guest, has) = (guest.id.clone(), guest.holds);
                return Err(Violation::Squeezed { guest, has, due });
            }
        }
        Ok(())
    }

    /// What strikes in this second.
    fn strike(&mut self) -> Result<(), Violation> {
        self.world.delivery = Delivery::Reliable;
        self.world.hides_host = false;
        for fault in self.rates.clone().strike(&mut self.rng) {
            if matches!(fault, Fault::CrashBeforeAct | Fault::CrashAfterAct) {
                self.crash(fault)?;
                self.injected.count(fault);
                continue;
            }
            if self.inject(fault) {
                self.injected.count(fault);
            }
        }
        Ok(())
    }

    /// Lets one fault strike; whether it found a victim.
    fn inject(&mut self, fault: Fault) -> bool {
        let now = self.world.now;
        let for_s = Duration::from_millis(self.rng.u64(300..25_000));
        let at = self.rng.usize(0..self.world.guests.len());
        let guest = &mut self.world.guests[at];
        let is_offender = guest.is_offender;
        match fault {
            Fault::Stall => guest.stalled_until = now + for_s,
            Fault::Reboot => guest.reboot(),
            Fault::Replace => guest.replace(),
            Fault::Stop => guest.stopped_until = now + for_s,
            Fault::Silence => guest.silent_until = now + for_s,
            Fault::HideMemory if is_offender => guest.driver = Driver::Hides,
            Fault::TakeBack if is_offender => {
                (guest.driver, guest.wants) = (Driver::Takes, guest.boot);
            }
            Fault::Refuse if is_offender => guest.driver = Driver::Refuses,
            Fault::ClaimTooMuch if is_offender => guest.claims_too_much ^= true,
            Fault::ClaimUse if is_offender => guest.claims_use ^= true,
            Fault::Grow if is_offender => guest.wants = guest.boot,
            Fault::HideMemory
            | Fault::TakeBack
            | Fault::Refuse
            | Fault::ClaimTooMuch
            | Fault::ClaimUse
            | Fault::Grow => return false,
            Fault::LoseOrder => self.world.delivery = Delivery::LosesOrder,
            Fault::LoseOutcome => self.world.delivery = Delivery::LosesOutcome,
            Fault::DelayOrder => self.world.delivery = Delivery::Late,
            Fault::HideResident => guest.unseen_until = now + for_s,
            Fault::AgeResident => guest.seen_age = Duration::from_secs(self.rng.u64(0..9)),
            Fault::HideHost => self.world.hides_host = true,
            Fault::HangSwap => self.world.swap_hangs_until = now + for_s,
            Fault::CrashBeforeAct | Fault::CrashAfterAct => return false,
            Fault::Suspend => self.world.now += Duration::from_secs(self.rng.u64(5..7200)),
            Fault::JumpWall => self.world.wall_off = Duration::from_secs(self.rng.u64(0..100_000)),
            Fault::Pause => {
                self.paused_until = now + for_s;
                return self.engine.obey(Command::Pause, &mut self.world).is_ok();
            }
            Fault::SetGuest => {
                let id = guest.id.clone();
                let shares = Some(self.rng.u32(500..2000));
                let change = GuestChange { shares, ..GuestChange::default() };
                return self.engine.obey(Command::SetGuest(id, change), &mut self.world).is_ok();
            }
            Fault::Reload => {
                let loaded = Ok((self.settings.clone(), String::new()));
                self.engine.reload(loaded, &mut self.world);
            }
        }
        true
    }

    /// The daemon is killed in a tick, and started again. What it recorded it has promised.
    fn crash(&mut self, fault: Fault) -> Result<(), Violation> {
        self.world.dies_before_act = fault == Fault::CrashBeforeAct;
        let before = self.holdings();
        self.tick_engine();
        self.judge_tick(&before)?;
        self.world.dies_before_act = false;
        self.world.daemon_died();
        for guest in &mut self.world.guests {
            guest.kept_for = Duration::ZERO;
        }
        let recorded = match self.sabotage {
            Some(Sabotage::Journal) => Restart::default(),
            _ => self.world.recorded.clone(),
        };
        self.engine = Engine::new(self.settings.clone(), Vec::new(), recorded, &self.world);
        Ok(())
    }
}
