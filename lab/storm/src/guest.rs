//! One guest: its true state, and what its driver and statistics claim.
//!
//! Idea: truth and claims are separate. The truth is what the balloon has taken, what the guest has
//! touched, and how much of that the host has paged out. An honest guest's claims follow the truth;
//! an offender's need not.
//! Cost: O(1) a step. Limits: pages are counted but have no identity; a guest's free memory is what
//! it has not touched since it got it.

use std::time::Duration;

use ballast_model::{
    Bytes, Capabilities, DiskReads, GuestId, GuestSample, GuestStats, LinkDown, LinkState,
    Measured, ProcessId, RunState,
};

/// Memory that a guest's kernel needs in any case, MiB.
pub(crate) const KERNEL: u64 = 64;
/// Memory that a hypervisor needs in addition to its guest's, MiB.
pub(crate) const OVERHEAD: u64 = 40;

/// How much a guest claims to read back from its swap in a second, MiB.
const SWAPPED_PER_S: u64 = 40;

/// How much an offender reads from its files in a second, by the page, to be given page cache, MiB.
const READ_PER_S: u64 = 40;

/// Why a guest's processors are stopped, other than by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// Its hypervisor moves it to another host, or saves it.
    Moved,
    /// Its kernel has panicked.
    Panicked,
}

/// The behaviour of a guest's balloon driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// Follows orders and reports the truth.
    Honest,
    /// Ignores orders to shrink and reports the truth.
    Refuses,
    /// Ignores orders to shrink and claims to have followed them.
    Hides,
    /// Takes back all memory, keeps it, and reports the truth.
    Takes,
}

/// One guest; sizes in MiB.
#[derive(Clone, Debug)]
pub(crate) struct StormGuest {
    pub(crate) id: GuestId,
    /// Whether it may misbehave; other guests are always honest.
    pub(crate) is_offender: bool,
    pub(crate) process: ProcessId,
    pub(crate) boot: u64,
    /// Memory that its programs and its kernel use.
    pub(crate) wants: u64,
    /// Memory that it really holds.
    pub(crate) holds: u64,
    /// The part of that which it has touched.
    pub(crate) touched: u64,
    /// The part of that which the host has paged out.
    pub(crate) paged_out: u64,
    /// What it claims to have read back from its own swap since it booted.
    swapped: u64,
    /// The size that it was last ordered to have.
    pub(crate) target: u64,
    /// Whether it was ever given an order.
    pub(crate) was_ordered: bool,
    /// The size that it was last granted, or asked to shrink to.
    pub(crate) granted: u64,
    /// Whether no daemon knows its last order any more.
    pub(crate) is_forgotten: bool,
    /// Memory that it may keep whatever it claims: what it filled while no grant to it was known.
    /// If it claims to have no swap, also what it was granted by then and what it is granted by
    /// right later.
    pub(crate) own: u64,
    pub(crate) driver: Driver,
    /// The most that its balloon takes in a second.
    pub(crate) rate: u64,
    /// Whether it claims to hold more than it does.
    pub(crate) claims_too_much: bool,
    /// It claims to hold this (second field) until then (first field).
    pub(crate) false_claim: Option<(Duration, u64)>,
    /// Whether the daemon does not hear its hypervisor, whatever that says, and what it heard last
    /// that it held, as long as that counts.
    pub(crate) is_unheard: bool,
    pub(crate) heard: u64,
    /// Whether it claims to use everything it holds; guests of every other size also claim to have
    /// no swap.
    pub(crate) claims_use: bool,
    /// In virtual time: until when it does not answer, is stopped, and sends no statistics.
    pub(crate) stalled_until: Duration,
    pub(crate) stopped_until: Duration,
    pub(crate) silent_until: Duration,
    /// Why it is stopped until then, if not by its operator.
    pub(crate) halt: Option<Halt>,
    /// Memory that was reserved for it before it came; it is entitled to that even if it was not
    /// free.
    pub(crate) reserved: u64,
    /// When it leaves for another host.
    pub(crate) leaves_at: Option<Duration>,
    /// Until when no guest has its name; zero: it is present.
    pub(crate) gone_until: Duration,
    /// Whether its statistics include free memory.
    pub(crate) tells_free: bool,
    /// Until when its resident memory cannot be read; and by how much the figure is late otherwise.
    pub(crate) unseen_until: Duration,
    pub(crate) seen_age: Duration,
    /// Its resident memory when that was last read for a late figure.
    seen: u64,
    /// For how long it has visibly kept memory that it was not granted.
    pub(crate) kept_for: Duration,
    /// Its last statistics, when they were made, and the same by the wall clock in seconds.
    stats: (GuestStats, Duration, u64),
    /// The size that it claimed to hold then.
    pub(crate) claimed: u64,
    /// Its number of boots.
    pub(crate) boots: u32,
    /// When its agent last reported statistics.
    pub(crate) agent_at: Duration,
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

    /// Its kernel starts again: the balloon is empty, and hardly any memory is touched.
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

    /// Its process ends, and no guest has its name until `until`.
    pub(crate) fn exit(&mut self, until: Duration) {
        self.replace();
        self.process.pid += 1;
        (self.holds, self.touched, self.target) = (0, 0, 0);
        (self.gone_until, self.leaves_at, self.reserved) = (until, None, 0);
    }

    /// What it was granted (`granted`), or what it was entitled to when it came if it had no order
    /// yet.
    pub(crate) fn entitled(&self, granted: u64) -> u64 {
        if self.was_ordered { granted } else { granted.max(self.reserved) }
    }

    pub(crate) fn is_gone(&self) -> bool {
        !self.gone_until.is_zero()
    }

    /// A process begins under its name, which no guest had meanwhile.
    pub(crate) fn come_back(&mut self) {
        self.gone_until = Duration::ZERO;
        self.replace();
    }

    /// Stops its processors until `until`.
    pub(crate) fn halt(&mut self, why: Halt, until: Duration) {
        (self.halt, self.stopped_until) = (Some(why), until);
    }

    /// The daemon and everything that it knew of the guest are gone.
    pub(crate) fn forget(&mut self) {
        (self.granted, self.was_ordered, self.is_forgotten) = (0, false, true);
    }

    /// Memory that its process really occupies.
    pub(crate) fn resident(&self) -> u64 {
        self.touched - self.paged_out
    }

    /// The resident memory that the host can see at `now`.
    pub(crate) fn visible(&self, now: Duration) -> u64 {
        match self.seen_age {
            _ if now < self.unseen_until => 0,
            Duration::ZERO => self.resident(),
            _ => self.seen.min(self.resident()),
        }
    }

    /// Orders the guest to hold `target`.
    pub(crate) fn order(&mut self, target: u64) {
        (self.target, self.was_ordered) = (target, true);
    }

    /// Lets time pass: about half a second.
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
        // A guest that claims to need more than it holds may also claim to swap. The swapping of
        // honest guests is invisible here, as on systems that do not report it; that is the worse
        // case.
        if self.claims_use {
            self.swapped += share(SWAPPED_PER_S);
        }
        let kept = self.touched.min(self.holds);
        // The balloon takes paged-out memory in proportion.
        self.paged_out = self.paged_out * kept / self.touched.max(1);
        self.touched = kept;
        let wants = self.wants.min(self.holds);
        if self.touched < wants {
            self.touched += share(400).max(1).min(wants - self.touched);
        }
    }

    /// Reads back memory that it uses and the host has paged out, at most `most`; returns how much.
    pub(crate) fn read_back(&mut self, now: Duration, most: u64) -> u64 {
        if now < self.stopped_until {
            return 0;
        }
        let back = self.missed().min(most);
        self.paged_out -= back;
        back
    }

    /// Memory that it uses and the host has paged out.
    pub(crate) fn missed(&self) -> u64 {
        self.paged_out.saturating_sub(self.spare())
    }

    /// Memory that it has touched and does not use.
    pub(crate) fn spare(&self) -> u64 {
        self.touched.saturating_sub(self.wants.min(self.holds))
    }

    /// The age of its statistics.
    pub(crate) fn stats_age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.stats.1.max(self.agent_at))
    }

    /// Whether it claims to use everything it holds and to have no swap.
    pub(crate) fn claims_no_swap(&self) -> bool {
        self.claims_use && self.boot.is_multiple_of(2)
    }

    /// The size that its driver claims it holds.
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

    /// Its last statistics, and when they were made by the wall clock, in seconds.
    pub(crate) fn stats(&self) -> (GuestStats, u64) {
        (self.stats.0, self.stats.2)
    }

    /// Makes new statistics, unless they are stopped.
    pub(crate) fn give_stats(&mut self, now: Duration, wall: u64) {
        if now < self.stalled_until.max(self.silent_until).max(self.stopped_until) {
            return;
        }
        (self.stats, self.claimed) = ((self.figures(), now, wall), self.claims());
    }

    /// What its hypervisor counts.
    fn disk_reads(&self, now: Duration) -> DiskReads {
        let of_files = if self.is_offender { READ_PER_S * now.as_secs() } else { 0 };
        let read = Bytes::mib(self.swapped + of_files);
        DiskReads { read, requests: read.to_pages(), ..DiskReads::default() }
    }

    /// What it reports of its memory now.
    pub(crate) fn figures(&self) -> GuestStats {
        let claims = self.claims();
        let uses = if self.claims_use { claims } else { self.wants.min(self.holds) };
        let available = Bytes::mib(claims.min(self.boot).saturating_sub(uses));
        GuestStats {
            total: Some(Bytes::mib(self.boot)),
            available: Some(available),
            free: self.tells_free.then_some(if self.is_offender { Bytes::ZERO } else { available }),
            disk_caches: Some(available),
            swap_in: Some(Bytes::mib(self.swapped)),
            // It claims to have as much in swap as it was booted with.
            swap_out: (!self.claims_no_swap())
                .then_some(Bytes::mib(1 + self.swapped + self.boot.min(self.swapped))),
            ..GuestStats::default()
        }
    }

    /// What the daemon sees of it if its hypervisor reports `sample`.
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

    /// Whether its processors run, or why they do not.
    pub(crate) fn run_state(&self, now: Duration) -> RunState {
        match self.halt {
            _ if now >= self.stopped_until => RunState::Running,
            None => RunState::Paused,
            Some(Halt::Moved) => RunState::Other("save-vm".to_owned()),
            Some(Halt::Panicked) => RunState::Panicked,
        }
    }

    /// Whether it is being moved or saved, so that the host must not take memory from it.
    pub(crate) fn is_moved(&self, now: Duration) -> bool {
        now < self.stopped_until && self.halt == Some(Halt::Moved)
    }

    /// The sample that its hypervisor reports.
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
            disk_reads: Some(Measured::fresh(self.disk_reads(now))),
            capabilities: Capabilities { balloon: Some(true), ..Capabilities::default() },
            ..GuestSample::unknown(self.id.clone(), LinkState::Up)
        }
    }
}
