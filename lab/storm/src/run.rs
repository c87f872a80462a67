//! One run of what a seed drew: a storm of faults, a lull in which only lies go on, and a calm.
//!
//! Idea: after each tick what was ordered is judged at once (`judge.rs`). When the storm is over,
//! offenders lie on for a while, and nothing else happens: what each honest guest is left then is
//! kept for the comparison with a run in which nobody lies (`twin.rs`). In the calm that follows
//! offenders become honest, and everything has to settle.

use std::collections::VecDeque;
use std::time::Duration;

use ballast_daemon::engine::{Engine, SampleScope, World};
use ballast_daemon::view::Command;
use ballast_model::{GuestChange, GuestId, Restart};
use futures_util::FutureExt;

use crate::disk::Disk;
use crate::drawn::{Drawn, STORM_TICKS, Strike};
use crate::fault::{Fault, Injected};
use crate::guest::{Driver, StormGuest};
use crate::journal_files::Damage;
use crate::sabotage::Sabotage;
use crate::violation::Violation;
use crate::world::{Delivery, StormWorld};

/// How long the lull lasts: the slowest balloon of a storm gives half of the largest guest in less.
const LULL: Duration = Duration::from_secs(180);

/// A daemon whose journal is damaged needs this long to see what guests give and take by orders that
/// it does not know.
const UNTOLD: Duration = Duration::from_secs(60);

/// Ticks in calm until everything is settled, at most.
const CALM_TICKS_MAX: u32 = 2_400;

/// Everything is settled when nothing was amiss for so many ticks.
const QUIET_TICKS: u32 = 60;

/// What a guest is left at the end of the lull, MiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) guest: GuestId,
    /// What it holds and the host has not taken.
    pub(crate) has: u64,
    /// What it uses when it may.
    pub(crate) wants: u64,
    /// What it has filled of what it is entitled to.
    pub(crate) filled: u64,
    /// What it may keep of that, whatever it claims.
    pub(crate) own: u64,
}

/// A run in progress.
pub(crate) struct Storm<'a> {
    pub(crate) drawn: &'a Drawn,
    strikes: &'a [Strike],
    sabotage: Option<Sabotage>,
    pub(crate) engine: Engine,
    pub(crate) world: StormWorld,
    pub(crate) injected: Injected,
    /// The strikes that found somebody to strike.
    pub(crate) struck: Vec<Strike>,
    pub(crate) ticks: u64,
    /// Until when operators have paused.
    pub(crate) paused_until: Duration,
    /// Until when a daemon may not know what guests were ordered before it.
    pub(crate) untold_until: Duration,
    /// What guests were left before the calm.
    pub(crate) kept: Vec<Kept>,
    /// The moments of its ticks until then.
    pub(crate) moments: Vec<Duration>,
    /// The moments at which its next ticks are to be; none: when the engine wants them.
    paced_by: VecDeque<Duration>,
}

impl<'a> Storm<'a> {
    /// A run of `drawn` under `strikes` alone.
    pub(crate) fn new(drawn: &'a Drawn, strikes: &'a [Strike], sabotage: Option<Sabotage>) -> Self {
        let mut world = StormWorld::new(drawn.guests.clone(), drawn.memory, drawn.swap, sabotage);
        if drawn.has_disk {
            let lies = sabotage == Some(Sabotage::Syncs);
            world.disk = Some(Disk::new(lies).expect("there is a folder for temporary files"));
        }
        if drawn.has_wire {
            world.wire();
        }
        let engine = start(drawn, sabotage, Restart::default(), &world);
        Storm {
            drawn,
            strikes,
            sabotage,
            engine,
            world,
            injected: Injected::default(),
            struck: Vec::new(),
            ticks: 0,
            paused_until: Duration::ZERO,
            untold_until: Duration::ZERO,
            kept: Vec::new(),
            moments: Vec::new(),
            paced_by: VecDeque::new(),
        }
    }

    /// The same, with its ticks at the moments of another run.
    pub(crate) fn paced_by(self, moments: &[Duration]) -> Self {
        Storm { paced_by: moments.iter().copied().collect(), ..self }
    }

    pub(crate) fn run(&mut self) -> Result<(), Violation> {
        self.restart(Damage::None, 0)?;
        let mut strikes = self.strikes.iter().peekable();
        for tick in 1..=STORM_TICKS {
            self.world.delivery = Delivery::Reliable;
            self.world.hides_host = false;
            while let Some(strike) = strikes.next_if(|strike| strike.tick == tick) {
                if self.inject(strike)? {
                    self.injected.count(strike.fault);
                    self.struck.push(strike.clone());
                }
            }
            self.tick()?;
        }
        self.lull()?;
        self.calm()
    }

    /// One tick, and what is judged after each.
    fn tick(&mut self) -> Result<(), Violation> {
        let passed = match self.paced_by.pop_front() {
            Some(moment) => moment.saturating_sub(self.world.now),
            None => self.engine.due().saturating_since(self.world.now()),
        };
        let passed = passed.max(Duration::from_millis(100));
        self.world.step(passed);
        if self.kept.is_empty() {
            self.moments.push(self.world.now);
        }
        if self.world.now >= self.paused_until {
            self.resume();
        }
        self.ticks += 1;
        self.tick_engine();
        self.note_parts();
        self.judge_agents()?;
        self.judge_tick()?;
        self.judge_debts(passed)
    }

    /// Notes what guests may keep as they claim to have no swap.
    fn note_parts(&mut self) {
        for place in 0..self.world.guests.len() {
            let guest = &self.world.guests[place];
            let part = if guest.claims_no_swap() { self.keeps(guest) } else { 0 };
            let guest = &mut self.world.guests[place];
            guest.own = guest.own.max(part);
        }
    }

    fn tick_engine(&mut self) {
        // What they filled before this daemon or the last one ordered them anything they may keep.
        for guest in self.world.guests.iter_mut().filter(|guest| !guest.was_ordered) {
            guest.own = guest.own.max(guest.touched);
        }
        self.world.overdue = self.overdue();
        let ticked = self.engine.tick(&mut self.world, SampleScope::All);
        ticked.now_or_never().expect("nothing in a storm waits");
    }

    fn obey(&mut self, command: Command) -> Result<String, String> {
        let obeyed = self.engine.obey(command, &mut self.world);
        obeyed.now_or_never().expect("nothing in a storm waits")
    }

    fn resume(&mut self) {
        if self.paused_until > Duration::ZERO {
            self.paused_until = Duration::ZERO;
            let _ = self.obey(Command::Resume);
        }
    }

    /// All faults are over but the offenders' lies.
    fn lull(&mut self) -> Result<(), Violation> {
        self.world.delivery = Delivery::Reliable;
        self.world.hides_host = false;
        for guest in &mut self.world.guests {
            guest.seen_age = Duration::ZERO;
        }
        self.resume();
        let (now, wall) = (self.world.now(), self.world.wall());
        if let Some(mut disk) = self.world.disk.take() {
            // What comes now is decided as in any other seed.
            disk.judge_end(wall, now)?;
        }
        let until = self.world.now + LULL;
        while self.world.now < until {
            self.tick()?;
        }
        for guest in &self.world.guests {
            let entitlement = self.entitlement(guest);
            self.kept.push(Kept {
                guest: guest.id.clone(),
                has: guest.holds.saturating_sub(guest.paged_out),
                wants: guest.wants,
                filled: guest.touched.min(entitlement),
                own: guest.own.min(entitlement),
            });
        }
        Ok(())
    }

    /// Offenders see the light, and everything has to settle.
    fn calm(&mut self) -> Result<(), Violation> {
        for guest in &mut self.world.guests {
            guest.driver = Driver::Honest;
            (guest.claims_too_much, guest.claims_use, guest.false_claim) = (false, false, None);
        }
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

    /// Lets one fault strike; whether it found a victim.
    fn inject(&mut self, strike: &Strike) -> Result<bool, Violation> {
        let now = self.world.now;
        let until = now + strike.lasting;
        let guest = &mut self.world.guests[strike.guest];
        let is_offender = guest.is_offender;
        match strike.fault {
            Fault::Stall => guest.stalled_until = until,
            Fault::Reboot => guest.reboot(),
            Fault::Replace => guest.replace(),
            Fault::Stop => guest.stopped_until = until,
            Fault::Silence => guest.silent_until = until,
            Fault::HideMemory if is_offender => guest.driver = Driver::Hides,
            Fault::TakeBack if is_offender => {
                (guest.driver, guest.wants) = (Driver::Takes, guest.boot);
            }
            Fault::Refuse if is_offender => guest.driver = Driver::Refuses,
            Fault::ClaimTooMuch if is_offender => guest.claims_too_much ^= true,
            Fault::ClaimUse if is_offender => {
                guest.claims_use ^= true;
                if guest.claims_no_swap() {
                    guest.own = guest.own.max(guest.granted);
                }
            }
            Fault::Grow if is_offender => guest.wants = guest.boot,
            Fault::HideMemory
            | Fault::TakeBack
            | Fault::Refuse
            | Fault::ClaimTooMuch
            | Fault::ClaimUse
            | Fault::Grow => return Ok(false),
            Fault::FalseActual
            | Fault::FloodByAgent
            | Fault::CycleAgent
            | Fault::CallWithoutNeed
            | Fault::LieByAgent
            | Fault::GarbleAgent
                if !is_offender =>
            {
                return Ok(false);
            }
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
            Fault::HangSwap => self.world.swap_hangs_until = until,
            Fault::CrashBeforeAct => self.crash(true, Damage::None, strike.amount)?,
            Fault::CrashAfterAct => self.crash(false, Damage::None, strike.amount)?,
            Fault::TearJournal => self.crash(false, Damage::Torn, strike.amount)?,
            Fault::CutJournal => self.crash(false, Damage::Cut, strike.amount)?,
            Fault::LosePower => self.crash(false, Damage::Unsynced, strike.amount)?,
            Fault::LoseDisk => self.world.disk_gone_until = until,
            Fault::FailReads | Fault::FailWrites | Fault::FailSyncs | Fault::FillDisk => {
                let Some(disk) = &mut self.world.disk else { return Ok(false) };
                disk.strike(strike.fault, until, strike.amount);
            }
            Fault::Suspend => self.world.now += Duration::from_secs(strike.amount),
            Fault::JumpWall => self.world.wall_off = Duration::from_secs(strike.amount),
            Fault::Pause => {
                self.paused_until = until;
                return Ok(self.obey(Command::Pause).is_ok());
            }
            Fault::SetGuest => {
                let id = guest.id.clone();
                let shares = u32::try_from(strike.amount).ok();
                let change = GuestChange { shares, ..GuestChange::default() };
                let command = Command::SetGuest(id, change);
                return Ok(self.obey(command).is_ok());
            }
            Fault::Reload => {
                let loaded = Ok((settings(self.drawn, self.sabotage), String::new()));
                self.engine.reload(loaded, &mut self.world);
            }
        }
        Ok(true)
    }

    /// The daemon is killed in a tick, and started again. What it recorded it has promised.
    fn crash(&mut self, before_act: bool, damage: Damage, noise: u64) -> Result<(), Violation> {
        self.world.dies_before_act = before_act;
        self.tick_engine();
        self.judge_tick()?;
        self.world.dies_before_act = false;
        if damage == Damage::Unsynced {
            self.world.guests.iter_mut().for_each(StormGuest::replace);
        }
        self.restart(damage, noise)
    }

    /// The daemon is gone, and another is started.
    fn restart(&mut self, damage: Damage, noise: u64) -> Result<(), Violation> {
        self.world.daemon_died();
        for guest in &mut self.world.guests {
            guest.kept_for = Duration::ZERO;
        }
        let (now, wall) = (self.world.now(), self.world.wall());
        let left = match &mut self.world.disk {
            None => self.world.recorded.clone(),
            Some(disk) => {
                let (left, is_told) = disk.start(damage, noise, now, wall)?;
                if !is_told {
                    self.world.guests.iter_mut().for_each(StormGuest::forget);
                    self.untold_until = self.world.now + UNTOLD;
                }
                if !is_told || damage == Damage::Unsynced {
                    // Of a pause it knows what it was told. One that is over ends once more.
                    let ends = self.world.now + Duration::from_secs(1);
                    self.paused_until = if left.paused { ends } else { Duration::ZERO };
                }
                left
            }
        };
        self.engine = start(self.drawn, self.sabotage, left, &self.world);
        Ok(())
    }
}

fn settings(drawn: &Drawn, sabotage: Option<Sabotage>) -> ballast_control::Settings {
    let mut settings = drawn.settings.clone();
    if let Some(sabotage) = sabotage {
        sabotage.set(&mut settings);
    }
    settings
}

/// A daemon that finds what the last one `left`.
fn start(drawn: &Drawn, sabotage: Option<Sabotage>, left: Restart, world: &StormWorld) -> Engine {
    let left = match sabotage {
        Some(sabotage) => sabotage.left(left),
        None => left,
    };
    Engine::new(settings(drawn, sabotage), Vec::new(), left, world)
}
