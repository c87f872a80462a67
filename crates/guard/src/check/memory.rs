//! What the checker remembers of one guest.
//!
//! Idea: none of it comes from the guard or the controller. It comes from snapshots, and from the
//! promises of plans that were carried out.

use std::time::Duration;

use ballast_model::{
    Bounds, Bytes, Change, CheckedGuest, GuestLimits, GuestPlan, GuestSample, LinkState, ProcessId,
    RunState, Timestamp,
};

use super::promise::Promise;

/// Statistics belong to an allocation that has been the same for this long before them: devices
/// give times in whole seconds.
const SETTLED_FOR: Duration = Duration::from_secs(1);

/// Room in a cap for the hypervisor.
const ROOM: Bytes = Bytes::mib(64);

/// The hypervisor's measured need may grow by this much before it is measured again.
const MARGIN: Bytes = Bytes::mib(16);

/// A guest this near its grant has complied.
const COMPLIED: Bytes = Bytes::mib(4);

/// Left to a guest without swap besides what it uses.
const SPARE: Bytes = Bytes::mib(32);

/// The last resident size counts for this long while no newer one can be read.
const SIZE_COUNTS_FOR: Duration = Duration::from_secs(60);

/// One guest, from plan to plan.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    /// Its hypervisor's process when that was last known.
    process: Option<ProcessId>,
    /// `None` before its first snapshot.
    known_since: Option<Timestamp>,
    /// What it was last seen to hold, even if it cannot be seen now: memory does not become free
    /// because its holder cannot be asked.
    last_seen: Option<Bytes>,
    changed_at: Timestamp,
    /// What it used when its statistics last belonged to its allocation; more if it has said so
    /// since.
    used: Option<Bytes>,
    /// The target in force.
    target: Option<Bytes>,
    /// The last target that it was granted, and not just left for the moment.
    granted: Option<Bytes>,
    /// Its last known floor and ceiling.
    bounds: Option<Bounds>,
    /// The highest grant, or what it held before any, since it last held no more than its grant.
    granted_lately: Bytes,
    /// While nothing is moved: the debt that it had when that began, as far as it has it still.
    debt: Option<Bytes>,
    /// The last measured need of its hypervisor.
    overhead: Option<Bytes>,
    /// The most of its memory that its process occupied by the last size that counts.
    in_use: Option<Bytes>,
    /// The least that it holds by the last size of its process, and when that was read.
    occupied: Option<(Bytes, Timestamp)>,
    /// `occupied` as of now: at most what it can hold, and `None` where that size is too old.
    seen_by_host: Option<Bytes>,
    /// The total of the last order to balloon and plugged memory together.
    ordered: Option<Bytes>,
    /// What the last plan entitled it to beyond its target.
    entitled: Option<Bytes>,
    /// The cap on its process.
    cap: Option<Bytes>,
}

impl Memory {
    pub(super) fn observe(
        &mut self,
        sample: &GuestSample,
        limits: &GuestLimits,
        is_held: bool,
        now: Timestamp,
    ) {
        if let (Some(before), Some(process)) = (self.process, sample.process)
            && before != process
        {
            // Another guest under the same name, to which nothing was promised.
            *self = Memory::default();
        }
        self.process = sample.process.or(self.process);
        self.known_since.get_or_insert(now);
        self.bounds = limits.bounds_for(sample).or(self.bounds);
        let held = self.last_seen.max(self.seen_by_host).unwrap_or_default();
        let debt = held.saturating_sub(self.granted.unwrap_or_default());
        self.debt = is_held.then(|| self.debt.unwrap_or(debt));
        self.compare(sample, now);
        let is_down = matches!(sample.link, LinkState::Down(_));
        if is_down || sample.hotplug.is_none() {
            self.ordered = None;
        }
        let Some(allocation) = sample.claimed().filter(|_| !is_down) else { return };
        if self.last_seen != Some(allocation) {
            self.last_seen = Some(allocation);
            self.changed_at = now;
        }
        // While a balloon takes memory, a guest's use seems to fall with its allocation.
        let Some(stats) = sample.stats else { return };
        let Some(spared) = stats.value.available_or_free() else { return };
        let used = allocation.saturating_sub(spared);
        let settled_after = stats.age.saturating_add(SETTLED_FOR);
        let belongs = now.saturating_since(self.changed_at) >= settled_after;
        self.used = Some(self.used.filter(|_| !belongs).map_or(used, |before| before.max(used)));
    }

    /// Compares the guest's claim with what its process occupies, less what its hypervisor may
    /// need: the measured need and a margin, at most an eighth of the guest's memory plus [`ROOM`].
    fn compare(&mut self, sample: &GuestSample, now: Timestamp) {
        let most = sample.memory_max().unwrap_or(Bytes::MAX);
        self.overhead = sample.overhead.or(self.overhead);
        let assumed =
            sample.present_memory().unwrap_or_default().fraction(1, 8).saturating_add(ROOM);
        let overhead_min = self.overhead.unwrap_or_default().min(assumed);
        let overhead_max =
            self.overhead.map_or(assumed, |own| own.saturating_add(MARGIN).min(assumed));
        if let Some(size) = sample.resident.filter(|size| size.age <= SIZE_COUNTS_FOR) {
            self.occupied = Some((size.value.saturating_sub(overhead_max), now));
            self.in_use = Some(size.value.saturating_sub(overhead_min));
        } else if self.occupied.is_none_or(|(_, at)| now > at + SIZE_COUNTS_FOR) {
            self.in_use = None;
        }
        let shows_holding = sample.capabilities.discard_inhibited != Some(true);
        let lasts = |at: Timestamp| shows_holding && now <= at + SIZE_COUNTS_FOR;
        let occupied = self.occupied.filter(|(_, at)| lasts(*at));
        self.seen_by_host = occupied.map(|(occupied, _)| occupied.min(most));
        // A guest that cannot be reached may by now hold something else than it last reported.
        let heard = sample.claimed().filter(|_| sample.link == LinkState::Up);
        let holds = heard.map(|claimed| self.seen_by_host.unwrap_or_default().max(claimed));
        if let Some(holds) = holds {
            self.grant_what_others_moved(sample, holds);
        }
        // The allowance of a stuck guest ends once it holds no more than its target.
        if let (Some(holds), Some(target)) = (holds, self.target)
            && holds <= target.max(self.entitled.unwrap_or_default()) + COMPLIED
        {
            self.granted = self.granted.map(|granted| granted.min(target));
        }
        let has_complied = |granted: Bytes| holds.is_some_and(|holds| holds <= granted + COMPLIED);
        if self.granted.is_some_and(has_complied) {
            self.granted_lately = Bytes::ZERO;
        }
    }

    /// Memory that came while nothing was moved is granted if others can order the balloon too, as
    /// far as the host sees it.
    fn grant_what_others_moved(&mut self, sample: &GuestSample, holds: Bytes) {
        let (Some(debt), Some(granted)) = (self.debt, self.granted) else { return };
        let debt = debt.min(holds.saturating_sub(granted));
        self.debt = Some(debt);
        if sample.capabilities.shared_control == Some(true) {
            let seen = self.in_use.map_or(Bytes::ZERO, |in_use| in_use.min(holds));
            self.granted = Some(granted.max(seen.saturating_sub(debt)));
        }
    }

    /// A plan is carried out.
    pub(super) fn commit(&mut self, guest: &GuestPlan, promise: Option<&Promise>) {
        if !matches!(guest.change, Change::Hold(_)) {
            self.target = guest.target;
        }
        match guest.change {
            Change::Grow { .. } => self.grant(guest.target),
            // A guest that holds more than its grant, and shrinks towards that, is granted nothing.
            Change::Shrink { .. } if self.granted.is_none_or(|it| guest.target <= Some(it)) => {
                self.grant(guest.target);
            }
            Change::Shrink { .. } | Change::CancelShrink { .. } | Change::Hold(_) => {}
        }
        if let Some(asked) = promise.and_then(|promise| promise.asked) {
            self.grant(Some(asked));
        }
        self.entitled = promise.and_then(|promise| promise.entitled);
        self.cap = promise.and_then(|promise| promise.cap);
    }

    /// What was remembered of this guest, whose process is `process`, before it appeared.
    pub(super) fn restore(&mut self, process: ProcessId, left: CheckedGuest, now: Timestamp) {
        let CheckedGuest { held, target, granted, granted_lately, entitled, resident_cap } = left;
        self.process = Some(process);
        self.last_seen = held;
        self.occupied = held.map(|held| (held, now));
        self.changed_at = now;
        self.target = target;
        self.granted = granted;
        self.granted_lately = granted_lately.unwrap_or_default();
        self.entitled = entitled;
        self.cap = resident_cap;
    }

    /// What the next checker has to remember of this guest.
    pub(super) fn hand_over(&self) -> CheckedGuest {
        let is_releasing = |granted: &Bytes| self.granted_lately > *granted;
        CheckedGuest {
            // Not what the host saw: the next checker sees that by itself.
            held: self.last_seen,
            target: self.target,
            granted: self.granted,
            granted_lately: self.granted.filter(is_releasing).map(|_| self.granted_lately),
            entitled: self.entitled,
            resident_cap: self.cap,
        }
    }

    /// An order to balloon and plugged memory is carried out.
    pub(super) fn record_order(&mut self, total: Bytes) {
        self.ordered = Some(total);
    }

    pub(super) fn target(&self) -> Option<Bytes> {
        self.target
    }

    /// What the host sees it hold.
    pub(super) fn seen_by_host(&self) -> Option<Bytes> {
        self.seen_by_host
    }

    fn grant(&mut self, target: Option<Bytes>) {
        let seen = self.last_seen.max(self.seen_by_host);
        let held = || self.in_use.map_or(seen, |in_use| seen.min(Some(in_use)));
        let had = self.granted.or_else(held).unwrap_or_default();
        self.granted_lately = self.granted_lately.max(had).max(target.unwrap_or_default());
        self.granted = target;
    }

    /// The most that it may use without swap and without evidence; `None`: no limit.
    pub(super) fn may_use(&self, share: Option<Bytes>) -> Option<Bytes> {
        match self.granted {
            Some(granted) => {
                let lately = self.in_use.map_or(self.granted_lately, |in_use| {
                    // It may still use what it is about to release.
                    self.granted_lately.min(in_use)
                });
                Some(granted.max(lately))
            }
            None => Some(share?.max(self.in_use?)),
        }
    }

    /// A target up to this gives it nothing new: its commitment, limited to what it was granted if
    /// anything was. For a capped guest it is whatever the guest holds or may take: what raising
    /// the cap lets go is counted apart, and must not be counted twice.
    pub(super) fn owned(&self, sample: &GuestSample, committed: Bytes) -> Bytes {
        if self.cap.is_some() {
            return self.holds(sample);
        }
        let Some(granted) = self.granted else { return committed };
        let granted = granted.max(self.granted_lately).max(self.entitled.unwrap_or_default());
        committed.min(granted.saturating_add(COMPLIED))
    }

    /// What the host may page it out to on its own observation, without asking the guest: its
    /// grant, or its present cap. `None`: the host may not.
    pub(super) fn may_be_held_to(&self) -> Option<Bytes> {
        let granted = self.granted?.max(self.bounds?.floor);
        Some(self.cap.map_or(granted, |cap| cap.min(granted)))
    }

    pub(super) fn bounds(&self) -> Option<Bounds> {
        self.bounds
    }

    pub(super) fn known_for(&self, now: Timestamp) -> Duration {
        self.known_since.map_or(Duration::ZERO, |since| now.saturating_since(since))
    }

    /// What the guest would hold, or could take at any moment, without its cap.
    fn holds(&self, sample: &GuestSample) -> Bytes {
        let holds = sample.claimed().or(self.last_seen);
        let holds = holds.max(self.seen_by_host);
        let promised = self.target.max(self.ordered).max(self.entitled);
        // An empty hypervisor without a reservation may receive any amount.
        let is_empty = sample.run_state == Some(RunState::Incoming);
        let comes = sample.present_memory().filter(|_| is_empty && promised.is_none());
        holds.max(promised).max(comes).or(sample.present_memory()).unwrap_or(Bytes::ZERO)
    }

    /// The same with the cap, as long as the plan `keeps_cap`: the host takes what exceeds it. The
    /// cap's room for the hypervisor is promised to no guest.
    pub(super) fn committed(
        &self,
        sample: &GuestSample,
        keeps_cap: bool,
        stale_after: Duration,
    ) -> Bytes {
        let holds = self.holds(sample);
        let occupies = sample.resident.filter(|it| it.age <= stale_after);
        match (self.cap, occupies) {
            (Some(cap), Some(occupies)) if keeps_cap => holds.min(occupies.value.max(cap)),
            _ => holds,
        }
    }

    /// What the guest may take beyond its commitment once `promise` and the plan's `target` are in
    /// force. Whatever the cap, it may have its floor, and what it uses without swap. A new
    /// transient grant is an order not yet seen to be followed, so the order before it still counts
    /// too.
    pub(super) fn freed_by_raised_cap(
        &self,
        sample: &GuestSample,
        limits: &GuestLimits,
        promise: &Promise,
        target: Option<Bytes>,
        stale_after: Duration,
    ) -> Bytes {
        // Where the host does not see what the process occupies, everything that it holds counts
        // already.
        if sample.resident.is_none_or(|it| it.age > stale_after) {
            return Bytes::ZERO;
        }
        let (Some(cap), Some(next)) = (self.cap, promise.cap) else { return Bytes::ZERO };
        let beyond = |entitled: Option<Bytes>, target: Option<Bytes>| {
            entitled.unwrap_or_default().saturating_sub(target.unwrap_or_default())
        };
        let transient = beyond(promise.entitled, target);
        let next =
            next.saturating_sub(transient.saturating_sub(beyond(self.entitled, self.target)));
        let floor = limits.bounds_for(sample).unwrap_or_default().floor;
        let own = floor.max(self.needed_without_swap(sample, limits, stale_after));
        let cap = cap.max(own.saturating_add(ROOM));
        let holds = self.holds(sample);
        holds.min(next.max(cap)) - holds.min(cap)
    }

    /// What the guest uses and has no swap for.
    pub(super) fn needed_without_swap(
        &self,
        sample: &GuestSample,
        limits: &GuestLimits,
        stale_after: Duration,
    ) -> Bytes {
        let swap_free = swap_free(sample, limits, stale_after);
        let (Some(swap_free), Some(used), Some(holds)) = (swap_free, self.used, sample.claimed())
        else {
            return Bytes::ZERO;
        };
        used.saturating_add(SPARE).saturating_sub(swap_free).page_ceil().min(holds)
    }
}

/// How much the guest can still swap out. `None`: it has swap, but how much is free is unknown.
pub(super) fn swap_free(
    sample: &GuestSample,
    limits: &GuestLimits,
    stale_after: Duration,
) -> Option<Bytes> {
    let agent = sample.agent.as_ref().filter(|agent| agent.age <= stale_after);
    let has_swapped = sample.stats.is_some_and(|stats| stats.value.swap_out > Some(Bytes::ZERO));
    match (limits.swap, agent.and_then(|agent| agent.value.swap_free)) {
        (Some(true), _) => None,
        (Some(false), _) => Some(Bytes::ZERO),
        (None, Some(free)) => Some(free),
        (None, None) if has_swapped => None,
        (None, None) => Some(Bytes::ZERO),
    }
}
