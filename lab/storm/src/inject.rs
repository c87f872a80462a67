//! Carries out one strike.
//!
//! Idea: a strike changes guests, the host or the next tick. A crash is a tick that ends early and
//! is judged like any other, followed by another daemon. Limits: a strike that finds no victim is
//! not counted.

use std::sync::Arc;
use std::time::Duration;

use ballast_api::{CarriedView, ThrashedView};
use ballast_daemon::view::Command;
use ballast_model::{Bytes, GuestChange};

use crate::fault::{Fault, Strikes};
use crate::guest::{Driver, Halt, StormGuest};
use crate::journal_files::Damage;
use crate::run::{Storm, settings};
use crate::strike::Strike;
use crate::violation::Violation;
use crate::world::{Death, Delivery};

/// How often readers ask between two ticks.
const QUESTIONS: u32 = 20;

/// How long a reservation lasts beyond the time at which its guest should come.
const RESERVED_AFTER: Duration = Duration::from_secs(30);

/// One in this many exits is permanent.
const FOR_GOOD: u64 = 4;

impl Storm<'_> {
    /// Carries out one strike; returns whether it found a victim.
    pub(crate) fn inject(&mut self, strike: &Strike) -> Result<bool, Violation> {
        let now = self.world.now;
        let until = now + strike.lasting;
        let guest = &mut self.world.guests[strike.guest];
        let is_lacking = match strike.fault.strikes() {
            Strikes::Guest => guest.is_gone(),
            Strikes::Offender => guest.is_gone() || !guest.is_offender,
            Strikes::Other => false,
        };
        if is_lacking {
            return Ok(false);
        }
        match strike.fault {
            Fault::Stop | Fault::Migrate | Fault::Panic if guest.halt.is_some() => {
                return Ok(false);
            }
            // A stopped guest does not panic, and for a stopped guest QEMU does not report that it
            // is moved or saved.
            Fault::Migrate | Fault::Panic if now < guest.stopped_until => return Ok(false),
            Fault::Migrate => guest.halt(Halt::Moved, until),
            Fault::Panic => guest.halt(Halt::Panicked, until),
            Fault::Exit => {
                let is_for_good = strike.amount.is_multiple_of(FOR_GOOD);
                guest.exit(if is_for_good { Duration::MAX } else { until });
                let guest = &self.world.guests[strike.guest];
                if let Some(wire) = self.world.wires.get_mut(strike.guest) {
                    wire.begin_anew(guest, now);
                }
            }
            Fault::Stall => guest.stalled_until = until,
            Fault::Reboot => guest.reboot(),
            Fault::Replace => guest.replace(),
            Fault::Stop => guest.stopped_until = until,
            Fault::Silence => guest.silent_until = until,
            Fault::HideMemory => guest.driver = Driver::Hides,
            Fault::TakeBack => (guest.driver, guest.wants) = (Driver::Takes, guest.boot),
            Fault::Refuse => guest.driver = Driver::Refuses,
            Fault::ClaimTooMuch => guest.claims_too_much ^= true,
            Fault::ClaimUse => {
                guest.claims_use ^= true;
                if guest.claims_no_swap() {
                    guest.own = guest.own.max(guest.granted);
                }
            }
            Fault::Grow => guest.wants = guest.boot,
            Fault::SilenceAgent
            | Fault::FloodByAgent
            | Fault::CycleAgent
            | Fault::CallWithoutNeed
            | Fault::LieByAgent
            | Fault::GarbleAgent => {
                let agent = self.world.agents.get_mut(strike.guest);
                let Some(agent) = agent.and_then(Option::as_mut) else { return Ok(false) };
                agent.strike(strike.fault, until, strike.amount);
            }
            Fault::FalseActual => {
                let claims = [0, 1, guest.boot / 4, guest.boot, 2 * guest.boot, u64::MAX >> 21];
                guest.false_claim = Some((until, claims[(strike.amount % 6) as usize]));
            }
            Fault::HoldBytes
            | Fault::CutLink
            | Fault::GreetLate
            | Fault::DoubleBytes
            | Fault::DoubleReplies
            | Fault::SwapReplies
            | Fault::SwapIds
            | Fault::ForgeReplies
            | Fault::RefuseCommands
            | Fault::DoubleEvents => {
                let Some(wire) = self.world.wires.get_mut(strike.guest) else { return Ok(false) };
                wire.strike(strike.fault, until, strike.amount);
            }
            Fault::LoseOrder => self.world.delivery = Delivery::LosesOrder,
            Fault::LoseOutcome => self.world.delivery = Delivery::LosesOutcome,
            Fault::DelayOrder => self.world.delivery = Delivery::Late,
            Fault::HideResident => guest.unseen_until = until,
            Fault::AgeResident => guest.seen_age = Duration::from_secs(strike.amount),
            Fault::HideHost => self.world.hides_host = true,
            Fault::HangSwap => self.world.host.swap_hangs_until = until,
            Fault::FillSwap => {
                self.world.host.fill_swap(&self.world.guests, until, strike.amount);
            }
            Fault::SlowSwap => self.world.host.slow_swap(until, strike.amount),
            Fault::CrashBeforeRecord => self.crash(Death::Record, Damage::None, 0)?,
            Fault::CrashBeforeFence => self.crash(Death::Fence, Damage::None, 0)?,
            Fault::CrashBeforeAct => self.crash(Death::Act(0), Damage::None, strike.amount)?,
            Fault::CrashInAct => {
                let after = 1 + strike.amount as usize % self.world.guests.len();
                self.crash(Death::Act(after), Damage::None, 0)?;
            }
            Fault::CrashBeforePage => self.crash(Death::Page, Damage::None, 0)?,
            Fault::CrashAfterAct => self.crash(Death::End, Damage::None, strike.amount)?,
            Fault::TearJournal => self.crash(Death::End, Damage::Torn, strike.amount)?,
            Fault::CutJournal => self.crash(Death::End, Damage::Cut, strike.amount)?,
            Fault::LosePower => self.crash(Death::End, Damage::Unsynced, strike.amount)?,
            Fault::DoubleOutcome => self.world.delivery = Delivery::Doubled,
            Fault::RepeatOutcome => self.world.delivery = Delivery::Repeated,
            Fault::FloodByReaders => return self.ask(),
            Fault::LoseDisk => self.world.disk_gone_until = until,
            Fault::FailReads | Fault::FailWrites | Fault::FailSyncs | Fault::FillDisk => {
                let Some(disk) = &mut self.world.disk else { return Ok(false) };
                disk.files.strike(strike.fault, until, strike.amount);
            }
            Fault::Suspend => self.world.now += Duration::from_secs(strike.amount),
            Fault::JumpWall => self.world.wall_off = Duration::from_secs(strike.amount),
            Fault::Pause => {
                self.paused_until = until;
                return Ok(self.obey(Command::Pause).is_ok());
            }
            Fault::SetGuest => {
                let shares = u32::try_from(strike.amount).ok();
                let change = GuestChange { shares, ..GuestChange::default() };
                return Ok(self.set(strike.guest, change));
            }
            Fault::SetBounds => {
                let change = bounds(guest, strike.amount);
                return Ok(self.set(strike.guest, change));
            }
            Fault::Depart if guest.leaves_at.is_some() => return Ok(false),
            Fault::Depart => {
                guest.leaves_at = Some(until);
                let ceiling = Some(Bytes::mib(guest.wants.max(guest.boot / 2)));
                return Ok(self.set(strike.guest, GuestChange { ceiling, ..Default::default() }));
            }
            Fault::Arrive | Fault::AbandonMove if !guest.is_gone() => return Ok(false),
            Fault::Arrive => {
                guest.gone_until = until;
                let (id, size) = (guest.id.clone(), Bytes::mib(guest.boot));
                let reserve = Command::Reserve(id, size, strike.lasting + RESERVED_AFTER);
                let is_obeyed = self.obey(reserve).is_ok();
                if is_obeyed {
                    let guest = &mut self.world.guests[strike.guest];
                    guest.reserved = guest.boot;
                }
                return Ok(is_obeyed);
            }
            Fault::AbandonMove => {
                (guest.gone_until, guest.reserved) = (Duration::MAX, 0);
                let id = guest.id.clone();
                return Ok(self.obey(Command::Unreserve(id)).is_ok());
            }
            Fault::TakeCarried => {
                let carried = carried(guest, strike);
                let id = guest.id.clone();
                return Ok(self.obey(Command::TakeCarried(id, Box::new(carried))).is_ok());
            }
            Fault::Reload => {
                let loaded = Ok((settings(self.drawn, self.sabotage), String::new()));
                self.engine.reload(loaded, &mut self.world);
                self.set.clear();
            }
        }
        Ok(true)
    }

    /// An operator sets a guest's limits; returns whether they took effect.
    fn set(&mut self, place: usize, change: GuestChange) -> bool {
        let id = self.world.guests[place].id.clone();
        let is_obeyed = self.obey(Command::SetGuest(id.clone(), change.clone())).is_ok();
        if is_obeyed {
            let before = self.set.entry(id).or_default();
            *before = change.layered_over(before);
        }
        is_obeyed
    }

    /// Readers ask what there is to see and what would be done; that must change nothing.
    fn ask(&mut self) -> Result<bool, Violation> {
        let Some((_, plan)) = self.engine.latest() else { return Ok(false) };
        let (plan, due) = (plan.clone(), self.engine.due());
        let dry_run = self.engine.dry_run().ok();
        for _ in 0..QUESTIONS {
            let _ = self.engine.view(&self.world);
            let other = self.engine.dry_run().ok();
            let is_same = dry_run.iter().zip(&other).all(|(it, other)| Arc::ptr_eq(it, other));
            if !is_same {
                return Err(Violation::MovedByReaders("a dry run is computed anew"));
            }
        }
        let is_same = self.engine.latest().is_some_and(|(_, latest)| *latest == plan);
        if !is_same || self.engine.due() != due {
            return Err(Violation::MovedByReaders("the plan or its time is another"));
        }
        Ok(true)
    }

    /// The daemon is killed in a tick and started again. What it recorded counts as promised.
    fn crash(&mut self, death: Death, damage: Damage, noise: u64) -> Result<(), Violation> {
        self.world.death = Some(death);
        self.tick_engine();
        self.judge_tick()?;
        if damage == Damage::Unsynced {
            let guests = self.world.guests.iter_mut();
            guests.filter(|guest| !guest.is_gone()).for_each(StormGuest::replace);
        }
        self.restart(damage, noise)
    }
}

/// What a guest brings from another host: it thrashed at one to sixteen sixteenths of its memory,
/// at most half a minute ago.
fn carried(guest: &StormGuest, strike: &Strike) -> CarriedView {
    let least = guest.boot * (1 + strike.amount % 16) / 16;
    let left_ms = u64::try_from(strike.lasting.as_millis()).unwrap_or(u64::MAX);
    let thrashed = ThrashedView { least_bytes: least << 20, left_ms, pause_ms: 30_000 };
    let credits = Some(strike.amount >> 40);
    CarriedView { limits: GuestChange::default(), credits, thrashed: Some(thrashed) }
}

/// A floor of one to eight sixteenths of a guest's memory, and a ceiling from the floor to all of
/// its memory.
fn bounds(guest: &StormGuest, amount: u64) -> GuestChange {
    let floor = 1 + amount % 8;
    let ceiling = floor + (amount >> 8) % (17 - floor);
    let part = |sixteenths: u64| Some(Bytes::mib(guest.boot * sixteenths / 16));
    let (floor, ceiling) = match (amount >> 16) % 3 {
        0 => (part(floor), None),
        1 => (None, part(ceiling.max(4))),
        _ => (part(floor), part(ceiling)),
    };
    GuestChange { floor, ceiling, ..GuestChange::default() }
}
