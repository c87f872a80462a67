//! One guest: what is really so, and what its driver and statistics claim.
//!
//! Idea: truth and claims are apart. Truth is what the balloon really took, what the guest touched,
//! and what of that the host has paged out. An honest guest's claims follow the truth; an
//! offender's need not.
//! Cost: O(1) a step. Limits: pages are counted, not named; free memory in a guest is what it has
//! not touched since it was last given.

use std::time::Duration;

use ballast_model::{
    Bytes, Capabilities, GuestId, GuestSample, GuestStats, LinkDown, LinkState, Measured,
    ProcessId, RunState,
};

/// Memory that a guest's kernel needs whatever runs.
pub(crate) const KERNEL: u64 = 64;
/// What a hypervisor needs beside its guest's memory, MiB.
pub(crate) const OVERHEAD: u64 = 40;

/// What a guest claims to read back from its swap in a second, MiB.
const SWAPPED_PER_S: u64 = 40;

/// Why a guest's processors rest, other than by its operator's will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// Its hypervisor moves it to another host, or saves it.
    Moved,
    /// Its kernel has panicked.
    Panicked,
}

/// How a guest's driver behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// Does what it is asked, and says so.
    Honest,
    /// Does nothing, and says so.
    Refuses,
    /// Does nothing, and says that it did.
    Hides,
    /// Takes back all memory and keeps it, and says so.
    Takes,
}

/// One guest; sizes in MiB.
#[derive(Clone, Debug)]
pub(crate) struct StormGuest {
    pub(crate) id: GuestId,
    /// Whether it may misbehave; the others are honest to the end.
    pub(crate) is_offender: bool,
    pub(crate) process: ProcessId,
    pub(crate) boot: u64,
    /// What its programs use, its kernel included.
    pub(crate) wants: u64,
    /// What it holds, really.
    pub(crate) holds: u64,
    /// What it has touched of that.
    pub(crate) touched: u64,
    /// What the host has paged out of that.
    pub(crate) paged_out: u64,
    /// What it claims to have read back from its own swap since it booted.
    swapped: u64,
    /// What it was last ordered to hold.
    pub(crate) target: u64,
    /// Whether it was ever ordered to hold anything.
    pub(crate) was_ordered: bool,
    /// What it was last granted, or asked to release to.
    pub(crate) granted: u64,
    /// Whether no daemon knows any more what it was last ordered.
    pub(crate) is_forgotten: bool,
    /// What it may keep whatever it claims: what it filled while no grant to it was known; as it
    /// claims to have no swap, what it was granted by then and what it is granted by right since.
    pub(crate) own: u64,
    pub(crate) driver: Driver,
    /// Most that its balloon takes a second.
    pub(crate) rate: u64,
    /// It claims to hold more than there is.
    pub(crate) claims_too_much: bool,
    /// Until when it claims to hold this instead.
    pub(crate) false_claim: Option<(Duration, u64)>,
    /// Whether the daemon does not hear its hypervisor, whatever that says, and what it heard last
    /// that it held, as long as that counts.
    pub(crate) is_unheard: bool,
    pub(crate) heard: u64,
    /// It claims to use all it holds: guests of every other size without swap.
    pub(crate) claims_use: bool,
    /// Until when it does not answer, is stopped, and its statistics rest, in virtual time.
    pub(crate) stalled_until: Duration,
    pub(crate) stopped_until: Duration,
    pub(crate) silent_until: Duration,
    /// Why it is stopped until then, if its operator did not do that.
    pub(crate) halt: Option<Halt>,
    /// What was reserved for it before it came: it is entitled to that whether it was free or not.
    pub(crate) reserved: u64,
    /// When it leaves for another host.
    pub(crate) leaves_at: Option<Duration>,
    /// Until when nobody has its name; zero: it is there.
    pub(crate) gone_until: Duration,
    /// Whether its statistics say what memory is free.
    pub(crate) tells_free: bool,
    /// Until when what it occupies cannot be read, and is this old otherwise.
    pub(crate) unseen_until: Duration,
    pub(crate) seen_age: Duration,
    /// What it occupied when that was last read for an old figure.
    seen: u64,
    /// For how long it has visibly kept what it was not granted.
    pub(crate) kept_for: Duration,
    /// Its last statistics and when they were made, also by the wall clock, in seconds.
    stats: (GuestStats, Duration, u64),
    /// What it claimed to hold then.
    claimed: u64,
    /// How often it booted.
    pub(crate) boots: u32,
    /// When its agent told its figures last.
    agent_at: Duration,
}

impl StormGuest {
    pub(crate) fn new(id: GuestId, boot: u64, holds: u64, wants: u64, is_offender: bool) -> Self {
        StormGuest {
            id,
            is_offender,
            process: ProcessId { pid: 1000, start_ticks: 1 },
            boot,
            wants,
            holds,
            touched: wants.min(holds),
            paged_out: 0,
            swapped: 0,
            target: holds,
            was_ordered: false,
            granted: holds,
            is_forgotten: false,
            own: 0,
            driver: Driver::Honest,
            rate: 100,
            claims_too_much: false,
            false_claim: None,
            is_unheard: false,
            heard: 0,
            claims_use: false,
            stalled_until: Duration::ZERO,
            stopped_until: Duration::ZERO,
            silent_until: Duration::ZERO,
            halt: None,
            reserved: 0,
            leaves_at: None,
            gone_until: Duration::ZERO,
            tells_free: false,
            unseen_until: Duration::ZERO,
            seen_age: Duration::ZERO,
            seen: 0,
            kept_for: Duration::ZERO,
            stats: (GuestStats::default(), Duration::ZERO, 0),
            claimed: 0,
            boots: 0,
            agent_at: Duration::ZERO,
        }
    }

    /// Its kernel starts again: the balloon is empty, and hardly anything is touched.
    pub(crate) fn reboot(&mut self) {
        self.boots += 1;
        self.holds = self.boot;
        self.touched = KERNEL;
        self.paged_out = 0;
        self.swapped = 0;
        if self.halt.take().is_some() {
            self.stopped_until = Duration::ZERO;
        }
    }

    /// Another process begins under its name.
    pub(crate) fn replace(&mut self) {
        self.reboot();
        self.process.start_ticks += 1;
        (self.target, self.granted, self.was_ordered) = (self.boot, 0, false);
        self.own = 0;
        (self.driver, self.false_claim) = (Driver::Honest, None);
    }

    /// Its process ends, and nobody has its name until then.
    pub(crate) fn exit(&mut self, until: Duration) {
        self.replace();
        self.process.pid += 1;
        (self.holds, self.touched, self.target) = (0, 0, 0);
        (self.gone_until, self.leaves_at, self.reserved) = (until, None, 0);
    }

    /// What it was granted, or was entitled to when it came.
    pub(crate) fn entitled(&self, granted: u64) -> u64 {
        if self.was_ordered { granted } else { granted.max(self.reserved) }
    }

    pub(crate) fn is_gone(&self) -> bool {
        !self.gone_until.is_zero()
    }

    /// Another process begins under its name, which nobody had.
    pub(crate) fn come_back(&mut self) {
        self.gone_until = Duration::ZERO;
        self.replace();
    }

    /// Its processors rest until then.
    pub(crate) fn halt(&mut self, why: Halt, until: Duration) {
        (self.halt, self.stopped_until) = (Some(why), until);
    }

    /// The daemon is gone, and whatever it knew of the guest.
    pub(crate) fn forget(&mut self) {
        (self.granted, self.was_ordered, self.is_forgotten) = (0, false, true);
    }

    /// What its process really occupies.
    pub(crate) fn resident(&self) -> u64 {
        self.touched - self.paged_out
    }

    /// The part of that which the host can see at `now`.
    pub(crate) fn visible(&self, now: Duration) -> u64 {
        match self.seen_age {
            _ if now < self.unseen_until => 0,
            Duration::ZERO => self.resident(),
            _ => self.seen.min(self.resident()),
        }
    }

    /// It is ordered to hold this.
    pub(crate) fn order(&mut self, target: u64) {
        (self.target, self.was_ordered) = (target, true);
    }

    /// Half a second or so passes.
    pub(crate) fn step(&mut self, now: Duration, passed: Duration) {
        self.seen = self.resident();
        self.false_claim = self.false_claim.filter(|(until, _)| now < *until);
        if now < self.stopped_until || self.is_gone() {
            return;
        }
        if self.halt.take() == Some(Halt::Panicked) {
            self.reboot();
        }
        let share = |per_s: u64| (per_s as u128 * passed.as_millis() / 1000) as u64;
        match self.driver {
            Driver::Honest if self.holds > self.target => {
                self.holds -= share(self.rate).max(1).min(self.holds - self.target);
            }
            Driver::Honest | Driver::Hides | Driver::Refuses => {
                // Deflating is quick, and no driver refuses memory.
                self.holds = self.holds.max(self.target.min(self.boot));
            }
            Driver::Takes => self.holds = self.boot,
        }
        // One that claims to need more than it holds may claim that it swaps as well. Honest guests
        // swap unseen here, as some systems do not report it: the worse case.
        if self.claims_use {
            self.swapped += share(SWAPPED_PER_S);
        }
        let kept = self.touched.min(self.holds);
        // What the balloon takes had been paged out as often as the rest.
        self.paged_out = self.paged_out * kept / self.touched.max(1);
        self.touched = kept;
        let wants = self.wants.min(self.holds);
        if self.touched < wants {
            self.touched += share(400).max(1).min(wants - self.touched);
        }
    }

    /// It reads back what it uses of what the host took, as much as `most`; returns how much.
    pub(crate) fn read_back(&mut self, now: Duration, most: u64) -> u64 {
        if now < self.stopped_until {
            return 0;
        }
        let back = self.missed().min(most);
        self.paged_out -= back;
        back
    }

    /// What the host took of what it uses.
    pub(crate) fn missed(&self) -> u64 {
        self.paged_out.saturating_sub(self.spare())
    }

    /// What it has touched and does not use.
    pub(crate) fn spare(&self) -> u64 {
        self.touched.saturating_sub(self.wants.min(self.holds))
    }

    /// How old its statistics are.
    pub(crate) fn stats_age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.stats.1.max(self.agent_at))
    }

    /// Its agent tells its figures.
    pub(crate) fn tell_agent(&mut self, now: Duration) {
        self.agent_at = now;
    }

    /// Whether it claims to use all it holds, and to have no swap for that.
    pub(crate) fn claims_no_swap(&self) -> bool {
        self.claims_use && self.boot.is_multiple_of(2)
    }

    /// What its driver claims that it holds.
    pub(crate) fn claims(&self) -> u64 {
        if let Some((_, claim)) = self.false_claim {
            return claim;
        }
        match self.driver {
            _ if self.claims_too_much => u64::MAX >> 21,
            Driver::Hides => self.target.min(self.holds),
            _ => self.holds,
        }
    }

    /// Its last statistics, and the second of the wall clock when they were made.
    pub(crate) fn stats(&self) -> (GuestStats, u64) {
        (self.stats.0, self.stats.2)
    }

    /// What it claimed to hold when they were made.
    pub(crate) fn claimed(&self) -> u64 {
        self.claimed
    }

    /// It gives new statistics, unless they rest.
    pub(crate) fn give_stats(&mut self, now: Duration, wall: u64) {
        if now < self.stalled_until.max(self.silent_until).max(self.stopped_until) {
            return;
        }
        (self.stats, self.claimed) = ((self.figures(), now, wall), self.claims());
    }

    /// What it says now of its memory.
    pub(crate) fn figures(&self) -> GuestStats {
        let claims = self.claims();
        let uses = if self.claims_use { claims } else { self.wants.min(self.holds) };
        let available = Bytes::mib(claims.min(self.boot).saturating_sub(uses));
        GuestStats {
            total: Some(Bytes::mib(self.boot)),
            available: Some(available),
            free: self.tells_free.then_some(available),
            swap_in: Some(Bytes::mib(self.swapped)),
            // What is in its swap is as much as it was booted with.
            swap_out: (!self.claims_no_swap())
                .then_some(Bytes::mib(1 + self.swapped + self.boot.min(self.swapped))),
            ..GuestStats::default()
        }
    }

    /// What the daemon sees of it where its hypervisor says `sample`.
    pub(crate) fn seen_by_host(&self, sample: GuestSample, now: Duration) -> GuestSample {
        let resident = (now >= self.unseen_until).then(|| {
            let (value, age) = match self.seen_age {
                Duration::ZERO => (self.resident(), Duration::ZERO),
                age => (self.seen, age),
            };
            Measured { value: Bytes::mib(value + OVERHEAD), age }
        });
        let overhead = resident.map(|_| Bytes::mib(OVERHEAD));
        GuestSample { process: Some(self.process), resident, overhead, ..sample }
    }

    /// Whether its processors run, or why not.
    pub(crate) fn run_state(&self, now: Duration) -> RunState {
        match self.halt {
            _ if now >= self.stopped_until => RunState::Running,
            None => RunState::Paused,
            Some(Halt::Moved) => RunState::Other("save-vm".to_owned()),
            Some(Halt::Panicked) => RunState::Panicked,
        }
    }

    /// Whether the host has to leave it all that it occupies.
    pub(crate) fn is_moved(&self, now: Duration) -> bool {
        now < self.stopped_until && self.halt == Some(Halt::Moved)
    }

    /// What its hypervisor says of it.
    pub(crate) fn sample(&self, now: Duration) -> GuestSample {
        if now < self.stalled_until {
            return GuestSample::unknown(self.id.clone(), LinkState::Down(LinkDown::TimedOut));
        }
        let (stats, ..) = self.stats;
        GuestSample {
            run_state: Some(self.run_state(now)),
            allocation: Some(Measured::fresh(Bytes::mib(self.claims()))),
            boot_memory: Some(Bytes::mib(self.boot)),
            stats: Some(Measured { value: stats, age: self.stats_age(now) }),
            capabilities: Capabilities { balloon: Some(true), ..Capabilities::default() },
            ..GuestSample::unknown(self.id.clone(), LinkState::Up)
        }
    }
}
