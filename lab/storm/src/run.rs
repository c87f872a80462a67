//! One run of what a seed drew: a storm of faults, a lull in which only lies go on, and a calm.
//!
//! Idea: after each tick the orders are judged at once (`judge.rs`). When the storm is over,
//! offenders go on lying for a while, and nothing else happens. What each honest guest has then is
//! kept for the comparison with a run without lies (`twin.rs`). In the calm that follows offenders
//! become honest, and everything has to settle.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ballast_daemon::Inherited;
use ballast_daemon::engine::{Engine, SampleScope, World};
use ballast_daemon::view::Command;
use ballast_model::{Change, GuestChange, GuestId, GuestPlan, HoldReason, Restart};
use futures_util::FutureExt;

use crate::disk::{Disk, Recovered};
use crate::drawn::Drawn;
use crate::fault::Injected;
use crate::guest::{Driver, StormGuest};
use crate::host::HostMemory;
use crate::journal_files::Damage;
use crate::sabotage::Sabotage;
use crate::strike::{STORM_TICKS, Strike};
use crate::trace::Trace;
use crate::violation::Violation;
use crate::world::{Delivery, StormWorld};

/// Length of the lull: even the slowest balloon of a storm gives half of the largest guest in less.
const LULL: Duration = Duration::from_secs(180);

/// How long a daemon whose journal was damaged needs to see what guests give and take by orders
/// that it does not know.
const UNTOLD: Duration = Duration::from_secs(60);

/// The greatest number of calm ticks until everything is settled.
const CALM_TICKS_MAX: u32 = 2_400;

/// Everything counts as settled when nothing was amiss for this many ticks.
const QUIET_TICKS: u32 = 60;

/// What a guest has at the end of the lull, MiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) guest: GuestId,
    /// Memory that it holds and the host has not paged out.
    pub(crate) has: u64,
    /// Memory that it would use if it could.
    pub(crate) wants: u64,
    /// The part of its entitlement that it has filled.
    pub(crate) filled: u64,
    /// The part of its entitlement that it may keep, whatever it claims.
    pub(crate) own: u64,
    /// What it may come to occupy beyond its grant and swap has no room for.
    pub(crate) beyond: u64,
}

/// A run in progress.
pub(crate) struct Storm<'a> {
    pub(crate) drawn: &'a Drawn,
    strikes: &'a [Strike],
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) engine: Engine,
    pub(crate) world: StormWorld,
    pub(crate) injected: Injected,
    /// The strikes that found a victim.
    pub(crate) struck: Vec<Strike>,
    pub(crate) ticks: u64,
    /// Until when operators have paused the daemon; zero: they have not.
    pub(crate) paused_until: Duration,
    /// The limits that operators have set, as they are in force.
    pub(crate) set: BTreeMap<GuestId, GuestChange>,
    /// Until when the daemon may not know guests' orders from before its start.
    pub(crate) untold_until: Duration,
    /// What each guest had at the end of the lull.
    pub(crate) kept: Vec<Kept>,
    /// The times of its ticks until then.
    pub(crate) moments: Vec<Duration>,
    /// The times at which its next ticks have to be; empty: the engine decides.
    paced_by: VecDeque<Duration>,
    pub(crate) trace: Trace,
}

impl<'a> Storm<'a> {
    /// A run of `drawn` with only the given `strikes`.
    pub(crate) fn new(drawn: &'a Drawn, strikes: &'a [Strike], sabotage: Option<Sabotage>) -> Self {
        let host = HostMemory::new(drawn.memory, drawn.own, drawn.swap);
        let mut world = StormWorld::new(drawn.guests.clone(), host, sabotage);
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
            set: BTreeMap::new(),
            untold_until: Duration::ZERO,
            kept: Vec::new(),
            moments: Vec::new(),
            paced_by: VecDeque::new(),
            trace: Trace::default(),
        }
    }

    /// The run, with its ticks at the times of another run.
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
                let injected = self.inject(strike);
                if !matches!(injected, Ok(false)) {
                    self.injected.count(strike.fault);
                    self.struck.push(strike.clone());
                }
                injected?;
            }
            self.tick()?;
        }
        self.lull()?;
        self.calm()
    }

    /// One tick, and the judgements that follow each tick.
    fn tick(&mut self) -> Result<(), Violation> {
        let passed = match self.paced_by.pop_front() {
            Some(moment) => moment.saturating_sub(self.world.now),
            None => self.engine.due().saturating_since(self.world.now()),
        };
        let passed = passed.max(Duration::from_millis(100));
        self.world.step(passed);
        self.judge_room()?;
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

    /// Notes what guests may keep that claim to have no swap.
    fn note_parts(&mut self) {
        for place in 0..self.world.guests.len() {
            let guest = &self.world.guests[place];
            let part = if guest.claims_no_swap() { self.keeps(guest) } else { 0 };
            let guest = &mut self.world.guests[place];
            guest.own = guest.own.max(part);
        }
    }

    pub(crate) fn tick_engine(&mut self) {
        // Memory that they filled before any daemon ordered them anything, they may keep.
        for guest in self.world.guests.iter_mut().filter(|guest| !guest.was_ordered) {
            guest.own = guest.own.max(guest.touched);
        }
        self.world.overdue = self.overdue();
        self.world.promised = self.promised();
        let ticked = self.engine.tick(&mut self.world, SampleScope::All);
        ticked.now_or_never().expect("nothing in a storm waits");
        let plan = self.engine.latest().map(|(_, plan)| plan);
        self.trace.note(self.ticks, &self.world, plan);
    }

    pub(crate) fn obey(&mut self, command: Command) -> Result<String, String> {
        let obeyed = self.engine.obey(command, "uid 0".to_owned(), &mut self.world);
        obeyed.now_or_never().expect("nothing in a storm waits")
    }

    fn resume(&mut self) {
        if self.paused_until > Duration::ZERO {
            self.paused_until = Duration::ZERO;
            let _ = self.obey(Command::Resume);
        }
    }

    /// All faults are over except the offenders' lies.
    fn lull(&mut self) -> Result<(), Violation> {
        self.world.delivery = Delivery::Reliable;
        self.world.hides_host = false;
        for guest in &mut self.world.guests {
            guest.seen_age = Duration::ZERO;
        }
        self.resume();
        let (now, wall) = (self.world.now(), self.world.wall());
        if let Some(mut disk) = self.world.disk.take() {
            // From now on the run goes on without the disk, like other seeds.
            disk.judge_end(wall, now)?;
        }
        let until = self.world.now + LULL;
        while self.world.now < until {
            self.tick()?;
        }
        let room = self.world.host.swap_free(&self.world.guests);
        for guest in &self.world.guests {
            let entitlement = self.entitlement(guest);
            let beyond = guest.holds.saturating_sub(entitlement);
            self.kept.push(Kept {
                guest: guest.id.clone(),
                has: guest.holds.saturating_sub(guest.paged_out),
                wants: if guest.is_gone() { 0 } else { guest.wants },
                filled: guest.touched.min(entitlement),
                own: guest.own.min(entitlement),
                beyond: beyond.saturating_sub(room),
            });
        }
        Ok(())
    }

    /// Offenders become honest, and everything has to settle.
    fn calm(&mut self) -> Result<(), Violation> {
        for guest in &mut self.world.guests {
            guest.driver = Driver::Honest;
            (guest.claims_too_much, guest.claims_use, guest.false_claim) = (false, false, None);
        }
        self.trace.calm_begins();
        let (mut amiss, mut quiet) = (String::new(), 0);
        for _ in 0..CALM_TICKS_MAX {
            self.tick()?;
            self.take_over_offenders();
            match self.amiss() {
                Some(what) => (amiss, quiet) = (what, 0),
                None => quiet += 1,
            }
            if quiet == QUIET_TICKS {
                return self.judge_end();
            }
        }
        Err(Violation::NotSettled(amiss))
    }

    /// False sizes may have looked like another owner's orders. Operators tell the daemon that
    /// there is no other owner.
    fn take_over_offenders(&mut self) {
        let Some((_, plan)) = self.engine.latest() else { return };
        let is_owned = |line: &&GuestPlan| {
            matches!(line.change, Change::Hold(HoldReason::AnotherOwner { .. }))
        };
        let owned = plan.guests.iter().filter(is_owned).map(|line| line.id.clone());
        for guest in owned.collect::<Vec<_>>() {
            let take_over = GuestChange { take_over: Some(true), ..GuestChange::default() };
            let _ = self.obey(Command::SetGuest(guest, take_over));
        }
    }

    /// The daemon ends, and another one is started.
    pub(crate) fn restart(&mut self, damage: Damage, noise: u64) -> Result<(), Violation> {
        self.world.daemon_died();
        self.set.clear();
        for guest in &mut self.world.guests {
            guest.kept_for = Duration::ZERO;
        }
        let (now, wall) = (self.world.now(), self.world.wall());
        let left = match &mut self.world.disk {
            None => self.world.recorded.clone(),
            Some(disk) => {
                let Recovered { left, is_told, is_pause_known } =
                    disk.start(damage, noise, now, wall)?;
                if !is_told {
                    self.world.guests.iter_mut().for_each(StormGuest::forget);
                    self.untold_until = self.world.now + UNTOLD;
                }
                if !is_pause_known || damage == Damage::Unsynced {
                    // The new daemon knows of a pause only what it finds. If a pause is over, it is
                    // resumed once more.
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

pub(crate) fn settings(drawn: &Drawn, sabotage: Option<Sabotage>) -> ballast_control::Settings {
    let mut settings = drawn.settings.clone();
    if let Some(sabotage) = sabotage {
        sabotage.set(&mut settings);
    }
    settings
}

/// A daemon that finds what the previous one `left`.
fn start(drawn: &Drawn, sabotage: Option<Sabotage>, left: Restart, world: &StormWorld) -> Engine {
    let left = match sabotage {
        Some(sabotage) => sabotage.left(left),
        None => left,
    };
    Engine::new(
        settings(drawn, sabotage),
        Inherited { restart: left, ..Inherited::default() },
        world,
    )
}
