//! One run of what a seed drew: a storm of faults, a lull in which only lies go on, and a calm.
//!
//! Idea: after each tick what was ordered is judged at once (`judge.rs`). When the storm is over,
//! offenders lie on for a while, and nothing else happens: what each honest guest is left then is
//! kept for the comparison with a run in which nobody lies (`twin.rs`). In the calm that follows
//! offenders become honest, and everything has to settle.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ballast_daemon::Inherited;
use ballast_daemon::engine::{Engine, SampleScope, World};
use ballast_daemon::view::Command;
use ballast_model::{Change, GuestChange, GuestId, GuestPlan, Held, Restart};
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

/// How long the lull lasts: the slowest balloon of a storm gives half of the largest guest in less.
const LULL: Duration = Duration::from_secs(180);

/// A daemon whose journal is damaged needs this long to see what guests give and take by orders
/// that it does not know.
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
    /// What it may come to occupy beyond its grant, and swap has no room for.
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
    /// The strikes that found somebody to strike.
    pub(crate) struck: Vec<Strike>,
    pub(crate) ticks: u64,
    /// Until when operators have paused.
    pub(crate) paused_until: Duration,
    /// What operators have said of guests that counts now.
    pub(crate) set: BTreeMap<GuestId, GuestChange>,
    /// Until when a daemon may not know what guests were ordered before it.
    pub(crate) untold_until: Duration,
    /// What guests were left before the calm.
    pub(crate) kept: Vec<Kept>,
    /// The moments of its ticks until then.
    pub(crate) moments: Vec<Duration>,
    /// The moments at which its next ticks are to be; none: when the engine wants them.
    paced_by: VecDeque<Duration>,
    pub(crate) trace: Trace,
}

impl<'a> Storm<'a> {
    /// A run of `drawn` under `strikes` alone.
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

    /// One tick, and what is judged after each.
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

    /// Notes what guests may keep as they claim to have no swap.
    fn note_parts(&mut self) {
        for place in 0..self.world.guests.len() {
            let guest = &self.world.guests[place];
            let part = if guest.claims_no_swap() { self.keeps(guest) } else { 0 };
            let guest = &mut self.world.guests[place];
            guest.own = guest.own.max(part);
        }
    }

    pub(crate) fn tick_engine(&mut self) {
        // What they filled before this daemon or the last one ordered them anything they may keep.
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
        Err(Violation::NotSettled { what: amiss })
    }

    /// False sizes may have looked like another owner's orders. Operators say that there is none.
    fn take_over_offenders(&mut self) {
        let Some((_, plan)) = self.engine.latest() else { return };
        let is_owned =
            |line: &&GuestPlan| matches!(line.change, Change::Hold(Held::AnotherOwner { .. }));
        let owned = plan.guests.iter().filter(is_owned).map(|line| line.id.clone());
        for guest in owned.collect::<Vec<_>>() {
            let take_over = GuestChange { take_over: Some(true), ..GuestChange::default() };
            let _ = self.obey(Command::SetGuest(guest, take_over));
        }
    }

    /// The daemon is gone, and another is started.
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

pub(crate) fn settings(drawn: &Drawn, sabotage: Option<Sabotage>) -> ballast_control::Settings {
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
    Engine::new(
        settings(drawn, sabotage),
        Inherited { restart: left, ..Inherited::default() },
        world,
    )
}
