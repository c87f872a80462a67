//! What the checker remembers of one guest.
//!
//! Idea: nothing of it comes from the guard or the controller. It is what was seen in snapshots,
//! and what plans promised that were carried out.

use std::time::Duration;

use ballast_model::{
    Bytes, Change, GuestLimits, GuestPlan, GuestSample, LeftGuest, LinkState, ProcessId, Timestamp,
};

use super::promise::Promise;

/// Figures belong to what a guest holds when that has been so for this long before them: devices
/// tell times in whole seconds.
const SETTLED_FOR: Duration = Duration::from_secs(1);

/// Room in a cap for the hypervisor beside its guest.
const ROOM: Bytes = Bytes::mib(64);

/// Left to a guest without swap beside what it uses.
const SPARE: Bytes = Bytes::mib(32);

/// What a plan has for a guest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) target: Option<Bytes>,
    pub(super) stale_after: Duration,
}

/// One guest, from plan to plan.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    /// Its hypervisor's process when that was last known.
    process: Option<ProcessId>,
    /// `None` before its first snapshot.
    known_since: Option<Timestamp>,
    /// What it was last seen to hold, though it may not be seen now: memory does not become free
    /// because its holder cannot be asked.
    last_seen: Option<Bytes>,
    changed_at: Timestamp,
    /// What it used when its figures and what it held last belonged together; more if it has said
    /// so since.
    used: Option<Bytes>,
    /// The target in force.
    target: Option<Bytes>,
    /// The total of the last order to balloon and plugged memory together.
    ordered: Option<Bytes>,
    /// What the last plan entitled it to beyond its target.
    entitled: Option<Bytes>,
    /// What its process is held to.
    cap: Option<Bytes>,
}

impl Memory {
    pub(super) fn observe(&mut self, sample: &GuestSample, now: Timestamp) {
        if let (Some(before), Some(process)) = (self.process, sample.process)
            && before != process
        {
            // Another guest under the same name, which was promised nothing.
            *self = Memory::default();
        }
        self.process = sample.process.or(self.process);
        self.known_since.get_or_insert(now);
        let is_down = matches!(sample.link, LinkState::Down(_));
        if is_down || sample.hotplug.is_none() {
            self.ordered = None;
        }
        let Some(allocation) = sample.allocation.filter(|_| !is_down) else { return };
        if self.last_seen != Some(allocation.value) {
            self.last_seen = Some(allocation.value);
            self.changed_at = now;
        }
        // While a balloon takes memory, what a guest seems to use falls with what it holds.
        let Some(stats) = sample.stats else { return };
        let Some(spared) = stats.value.available.or(stats.value.free) else { return };
        let used = allocation.value.saturating_sub(spared);
        let settled_after = stats.age.saturating_add(SETTLED_FOR);
        let belongs = now.saturating_since(self.changed_at) >= settled_after;
        self.used = Some(self.used.filter(|_| !belongs).map_or(used, |before| before.max(used)));
    }

    /// A plan is carried out.
    pub(super) fn promised(&mut self, guest: &GuestPlan, promise: Option<&Promise>) {
        if !matches!(guest.change, Change::Hold(_)) {
            self.target = guest.target;
        }
        self.entitled = promise.and_then(|promise| promise.entitled);
        self.cap = promise.and_then(|promise| promise.cap);
    }

    /// What the daemon before this one promised it.
    pub(super) fn left(&mut self, left: &LeftGuest, now: Timestamp) {
        let LeftGuest { process, held, target, ref handover, .. } = *left;
        self.process = Some(process);
        self.last_seen = held;
        self.changed_at = now;
        self.target = target;
        self.entitled = target.map(|target| target.saturating_add(handover.transient_grant));
        self.cap = handover.resident_cap;
    }

    /// So is an order to balloon and plugged memory.
    pub(super) fn ordered(&mut self, total: Bytes) {
        self.ordered = Some(total);
    }

    pub(super) fn target(&self) -> Option<Bytes> {
        self.target
    }

    pub(super) fn known_for(&self, now: Timestamp) -> Duration {
        self.known_since.map_or(Duration::ZERO, |since| now.saturating_since(since))
    }

    /// What the guest holds or may take at any moment, were it not capped.
    fn holds(&self, sample: &GuestSample) -> Bytes {
        let holds = sample.allocation.map(|allocation| allocation.value).or(self.last_seen);
        let promised = self.target.max(self.ordered).max(self.entitled);
        holds.max(promised).or(sample.present_memory()).unwrap_or(Bytes::ZERO)
    }

    /// The same, where the host takes what is beyond a cap. The room in it for the hypervisor is
    /// nothing promised.
    pub(super) fn committed(&self, sample: &GuestSample, stale_after: Duration) -> Bytes {
        let holds = self.holds(sample);
        let occupies = sample.resident.filter(|it| it.age <= stale_after);
        match (self.cap, occupies) {
            (Some(cap), Some(occupies)) => holds.min(occupies.value.max(cap)),
            _ => holds,
        }
    }

    /// What the guest may take beyond what it is committed once `promise` holds. Its floor and what
    /// it uses without swap it may have whatever the cap; and a transient grant that is new is an
    /// order not seen to be followed yet, beside which the one before still counts.
    pub(super) fn let_go(
        &self,
        sample: &GuestSample,
        limits: &GuestLimits,
        promise: &Promise,
        planned: Planned,
    ) -> Bytes {
        let (Some(cap), Some(next)) = (self.cap, promise.cap) else { return Bytes::ZERO };
        let beyond = |entitled: Option<Bytes>, target: Option<Bytes>| {
            entitled.unwrap_or_default().saturating_sub(target.unwrap_or_default())
        };
        let transient = beyond(promise.entitled, planned.target);
        let next =
            next.saturating_sub(transient.saturating_sub(beyond(self.entitled, self.target)));
        let floor = limits.bounds_for(sample).unwrap_or_default().floor;
        let own = floor.max(self.unsparable(sample, limits, planned.stale_after));
        let cap = cap.max(own.saturating_add(ROOM));
        let holds = self.holds(sample);
        holds.min(next.max(cap)) - holds.min(cap)
    }

    /// What the guest uses and has no swap for.
    fn unsparable(
        &self,
        sample: &GuestSample,
        limits: &GuestLimits,
        stale_after: Duration,
    ) -> Bytes {
        let agent = sample.agent.filter(|agent| agent.age <= stale_after);
        let has_swapped = || sample.stats?.value.swap_out.filter(|out| *out > Bytes::ZERO);
        let swap_free = match (limits.swap, agent.and_then(|agent| agent.value.swap_free)) {
            (Some(true), _) => return Bytes::ZERO,
            (Some(false), _) => Bytes::ZERO,
            (None, Some(free)) => free,
            (None, None) if has_swapped().is_some() => return Bytes::ZERO,
            (None, None) => Bytes::ZERO,
        };
        let (Some(used), Some(holds)) = (self.used, sample.allocation) else { return Bytes::ZERO };
        used.saturating_add(SPARE).saturating_sub(swap_free).page_ceil().min(holds.value)
    }
}
