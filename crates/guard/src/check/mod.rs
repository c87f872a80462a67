//! An independent checker of finished plans.
//!
//! Idea: the code that makes plans could be wrong, and so could its state. So every plan is
//! checked, in production too, by code that shares only the vocabulary with it: a [`Checker`] keeps
//! its own record of what it saw of guests, of what carried-out plans promised them, and of what
//! operators ordered: reservations, a pause, the mode. It imports no policy and none of the guard's
//! other files.
//!
//! ```text
//! observe(snapshot) ─▶ check(plan) ─▶ commit(plan), if it was found good
//! ```
//!
//! Checked are:
//!
//! - conservation: grants stay within what budget and host have free, and within what the kernel's
//!   limits leave to guests' processes;
//! - floors, ceilings, step limits, the host's reserve, and the use of guests without swap;
//! - no reduction on stale or missing figures, except what the host sees itself;
//! - no action on guests that must not be touched;
//! - releases before grants;
//! - the plan's list of reservations, from which the next daemon takes them over;
//! - form: whole pages, generation, deadline, one action per guest;
//! - caps are enforced;
//! - plugging: whole blocks within the device, and never against the balloon.
//!
//! For some guests a plan says more than its actions do ([`Promise`]). A promise is believed where
//! it makes a guest's part larger. Where it makes the part smaller, as a cap does, the plan has to
//! enforce it.
//!
//! Cost: O(n), O(n log n) where actions are few and far between. Limits: checks that targets are
//! safe, not that they are wise. Ending a cap is no grant, because the host may be unable to keep
//! the cap; but no grant of the same plan may count on what the cap took.

mod action;
mod memory;
mod promise;
mod restart;
mod room;
mod rules;
mod violation;

use std::collections::BTreeMap;
use std::time::Duration;

use ballast_model::{
    Bounds, Bytes, Change, CheckedGuest, GuestId, GuestStats, Handover, LimitTable, LinkState,
    Measured, Mechanism, Mode, PerGuest, Plan, Reservation, Restart, Snapshot, Timestamp,
};

use action::{GuestFacts, check_form, check_guest, new_memory};
use memory::Memory;
pub use promise::Promise;
use restart::{LeftGuests, said_of, unsaid};
pub use rules::Rules;
pub use violation::Violation;

/// While any guest that may take more than is known has been known for less than this, nothing is
/// granted to any guest.
const SETTLES_IN: Duration = Duration::from_secs(2);

/// A process this little above its cap need not be paged out.
const CAP_SLACK: Bytes = Bytes::mib(8);

/// Checks plans, and remembers guests from plan to plan.
#[derive(Clone, Debug, Default)]
pub struct Checker {
    guests: PerGuest<Memory>,
    now: Timestamp,
    /// Promises of the last daemon.
    left: LeftGuests,
    /// Memory that is kept free for guests about to start.
    reservations: BTreeMap<GuestId, Reservation>,
    /// Whether the operator has paused acting.
    paused: bool,
    mode: Mode,
}

impl Checker {
    /// Goes on where the last daemon ended. Call before the first snapshot.
    pub fn restore(&mut self, restart: &Restart) {
        self.paused |= restart.paused;
        restart.reservations.iter().for_each(|it| self.reserve(it));
        self.left = LeftGuests::new(&restart.guests);
    }

    /// Adds to the `handover` of the guest at this place of the last snapshot what the checker
    /// remembers of it, unless the rest of the tick says the same: the handover, what the guest
    /// `held`, and the `target` in force. O(1).
    pub fn hand_over(
        &self,
        place: usize,
        held: Option<Bytes>,
        target: Option<Bytes>,
        handover: &mut Handover,
    ) {
        let known = self.guests.at(place).map(Memory::hand_over);
        handover.checked = known.and_then(|known| unsaid(known, said_of(held, target, handover)));
    }

    /// The operator pauses acting, or resumes.
    pub fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// The operator sets the mode. It is [`Mode::Balance`] at first.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// Memory is to be kept free for a guest that is about to start. Replaces an earlier
    /// reservation of the same name.
    pub fn reserve(&mut self, reservation: &Reservation) {
        self.reservations.insert(reservation.guest.clone(), reservation.clone());
    }

    /// A reservation is not needed any more.
    pub fn unreserve(&mut self, guest: &GuestId) {
        self.reservations.remove(guest);
    }

    /// Takes in a snapshot, before the plan made from it is checked.
    pub fn observe(&mut self, snapshot: &Snapshot, limits: &LimitTable) {
        self.now = snapshot.taken_at;
        self.guests.align(snapshot);
        self.left.join(&mut self.guests, snapshot);
        self.end_reservations(snapshot);
        // Operators may move memory by hand then.
        let is_held = self.forbids_all().is_some();
        let mut limits = limits.in_order();
        for (memory, sample) in self.guests.values_mut().zip(snapshot.guests()) {
            memory.observe(sample, limits.of(&sample.id), is_held, snapshot.taken_at);
        }
    }

    /// Ends reservations that have expired, and those of guests that appear: these were granted
    /// what was reserved for them.
    fn end_reservations(&mut self, snapshot: &Snapshot) {
        let (guests, now) = (&mut self.guests, self.now);
        self.reservations.retain(|guest, reservation| {
            let process = snapshot.guest(guest).and_then(|sample| sample.process);
            if let (Some(process), Some(memory)) = (process, guests.named_mut(guest)) {
                let size = Some(reservation.size.page_floor());
                let granted =
                    CheckedGuest { target: size, granted: size, ..CheckedGuest::default() };
                memory.restore(process, granted, now);
            }
            process.is_none() && reservation.until > now
        });
    }

    /// The violation of every action, if nothing at all may be moved.
    fn forbids_all(&self) -> Option<Violation> {
        match (self.mode, self.paused) {
            (Mode::Observe, _) => Some(Violation::WhileObserving),
            (Mode::Balance, true) => Some(Violation::WhilePaused),
            (Mode::Balance, false) => None,
        }
    }

    /// All faults of `plan`, which was made from the last observed snapshot. `promises` are sorted
    /// by name.
    pub fn check(
        &self,
        plan: &Plan,
        promises: &[Promise],
        snapshot: &Snapshot,
        rules: &Rules<'_>,
    ) -> Vec<Violation> {
        let check = Check {
            plan,
            promises,
            snapshot,
            checker: self,
            rules,
            for_guests: rules
                .budget
                .or_else(|| Some(snapshot.host.memory_total?.saturating_sub(rules.host_reserve))),
            shares: rules.limits.shares_of_all(snapshot),
        };
        let mut found = Vec::new();
        if !plan.actions.is_empty() {
            found.extend(self.forbids_all());
        }
        let listed = plan.reservations.iter().map(|it| (&it.guest, it.size, it.until));
        if !listed.eq(self.reservations.values().map(|it| (&it.guest, it.size, it.until))) {
            found.push(Violation::OtherReservations);
        }
        let granted = check.actions(&mut found);
        check.paging(&mut found);
        check.caps(&mut found);
        let mut has_granted = false;
        for (action, given) in plan.actions.iter().zip(&granted) {
            if given.releases && has_granted {
                found.push(Violation::ReleaseAfterGrant(action.guest.clone()));
            }
            has_granted |= given.new > Bytes::ZERO && !given.releases;
        }
        check.rooms(&granted, &mut found);
        let new: Bytes = granted.iter().map(|given| given.new).sum();
        let (free, granted) = (check.free(), new.saturating_add(check.freed_by_caps()));
        if granted > free {
            found.push(Violation::Overcommitted { granted, free });
        }
        found
    }

    /// The plan last checked is carried out.
    pub fn commit(&mut self, plan: &Plan, promises: &[Promise]) {
        let mut promises = promises.iter().peekable();
        for (memory, guest) in self.guests.values_mut().zip(&plan.guests) {
            let promise = promises.next_if(|promise| promise.guest == guest.id);
            memory.commit(guest, promise);
        }
        let mut at = 0;
        for action in &plan.actions {
            if let Some(place) = plan.index_near(&action.guest, at) {
                at = place;
                if let Some(memory) = self.guests.at_mut(place) {
                    memory.record_order(action.target);
                }
            }
        }
    }
}

/// One plan under check.
struct Check<'a> {
    plan: &'a Plan,
    promises: &'a [Promise],
    snapshot: &'a Snapshot,
    checker: &'a Checker,
    rules: &'a Rules<'a>,
    /// The memory for all guests; `None`: unknown.
    for_guests: Option<Bytes>,
    /// Sum of all guests' shares.
    shares: u64,
}

/// What an action gives its guest.
#[derive(Clone, Copy)]
struct ActionGrant {
    /// Memory that the guest did not have already.
    new: Bytes,
    /// Whether the action asks for some of what the guest claims to hold.
    releases: bool,
}

impl<'a> Check<'a> {
    fn guest(&self, place: usize) -> Option<GuestFacts<'a>> {
        let (sample, memory) = (self.snapshot.guests().get(place)?, self.checker.guests.at(place)?);
        let limits = self.rules.limits.of(&sample.id);
        let committed = memory.committed(sample, true, self.rules.stale_after);
        Some(GuestFacts { sample, limits, memory, committed })
    }

    /// Faults of single actions, in the order of their guests' names. Returns what each action
    /// grants.
    fn actions(&self, found: &mut Vec<Violation>) -> Vec<ActionGrant> {
        let plan = self.plan;
        let mut acted = vec![false; self.snapshot.guests().len()];
        let mut by_guest: Vec<(&GuestId, Vec<Violation>)> = Vec::new();
        let mut near = 0;
        let mut granted = Vec::with_capacity(plan.actions.len());
        for action in &plan.actions {
            let mut faults = Vec::new();
            check_form(action, plan, &mut faults);
            let place = self.snapshot.index_near(&action.guest, near);
            let (mut new, mut releases) = (Bytes::ZERO, false);
            match place.and_then(|place| Some((place, self.guest(place)?))) {
                Some((place, guest)) => {
                    if std::mem::replace(&mut acted[place], true) {
                        faults.push(Violation::Twice(action.guest.clone()));
                    }
                    let share = self.share_of(&guest);
                    let planned = plan.guests.get(place);
                    // Only the operator's setting that a guest has no swap counts beyond what it
                    // was granted.
                    let may_use = guest.memory.may_use(share);
                    let believed = may_use.filter(|_| guest.limits.swap != Some(false));
                    let believed = believed.unwrap_or(Bytes::MAX);
                    new = new_memory(action, guest, planned, believed, self.rules);
                    let holds = guest.sample.claimed().unwrap_or_default();
                    releases = action.target < guest.memory.target().unwrap_or(holds).min(holds);
                    check_guest(action, guest, believed, self.rules, &mut faults);
                    near = place;
                }
                None => faults.push(Violation::UnknownGuest(action.guest.clone())),
            }
            granted.push(ActionGrant { new, releases });
            if !faults.is_empty() {
                by_guest.push((&action.guest, faults));
            }
        }
        by_guest.sort_by_key(|(id, _)| *id);
        found.extend(by_guest.into_iter().flat_map(|(_, faults)| faults));
        granted
    }

    /// Faults of paging.
    fn paging(&self, found: &mut Vec<Violation>) {
        let (plan, rules) = (self.plan, self.rules);
        let forbids_all = self.checker.forbids_all();
        if !plan.paging.is_empty() {
            found.extend(forbids_all);
        }
        for paging in &plan.paging {
            let place = self.checker.guests.index_of(&paging.guest);
            let Some(guest) = place.and_then(|place| self.guest(place)) else {
                found.push(Violation::UnknownGuest(paging.guest.clone()));
                continue;
            };
            if !guest.limits.managed {
                let why = "excluded by the operator";
                found.push(Violation::Untouchable(paging.guest.clone(), why));
            }
            if paging.mechanism != Mechanism::PageOut {
                continue;
            }
            let is_fresh = |stats: Measured<GuestStats>| stats.age <= rules.stale_after;
            let is_recent = |size: Measured<Bytes>| size.age <= rules.stale_after;
            let may_be_held_to = guest.memory.may_be_held_to().or_else(|| self.share_of(&guest));
            let is_seen = guest.sample.resident.is_some_and(is_recent)
                && may_be_held_to.is_some_and(|least| paging.resident >= least);
            if !guest.sample.stats.is_some_and(is_fresh) && !is_seen {
                found.push(Violation::OnStaleFigures(paging.guest.clone()));
            }
            let floor = guest.memory.bounds().map_or(Bytes::MAX, |bounds| bounds.floor);
            if paging.resident < floor {
                let (guest, target) = (paging.guest.clone(), paging.resident);
                found.push(Violation::BelowFloor { guest, target, floor });
            }
        }
    }

    /// Caps that nothing enforces.
    fn caps(&self, found: &mut Vec<Violation>) {
        if self.checker.forbids_all().is_some() {
            return;
        }
        for Promise { guest: id, cap, .. } in self.promises {
            let place = self.checker.guests.index_of(id);
            let (Some(cap), Some(guest)) = (*cap, place.and_then(|place| self.guest(place))) else {
                continue;
            };
            let resident = guest.sample.resident.filter(|it| it.age <= self.rules.stale_after);
            let Some(resident) = resident.map(|it| it.value) else { continue };
            let is_paged_out = || {
                self.plan.paging.iter().any(|it| {
                    it.guest == *id && it.mechanism == Mechanism::PageOut && it.resident <= cap
                })
            };
            if resident > cap.saturating_add(CAP_SLACK) && !is_paged_out() {
                let guest = id.clone();
                found.push(Violation::CapNotEnforced { guest, cap, resident });
            }
        }
    }

    /// The part of the budget that a guest's shares alone give it, within its bounds.
    fn share_of(&self, guest: &GuestFacts<'_>) -> Option<Bytes> {
        let Bounds { floor, ceiling } = guest.memory.bounds()?;
        let share = self.for_guests?.fraction(guest.limits.shares.into(), self.shares);
        Some(share.page_floor().clamp(floor, ceiling))
    }

    /// The place of a guest, and what it may take beyond its commitment because the plan raises its
    /// cap.
    fn freed_by_cap(&self, promise: &Promise) -> Option<(usize, Bytes)> {
        let place = self.checker.guests.index_of(&promise.guest)?;
        let (guest, planned) = (self.guest(place)?, self.plan.guests.get(place)?);
        // A guest that is left alone for lack of figures is granted nothing.
        if matches!(planned.change, Change::CancelShrink { .. }) {
            return None;
        }
        let GuestFacts { sample, limits, memory, .. } = guest;
        let stale_after = self.rules.stale_after;
        let freed =
            memory.freed_by_raised_cap(sample, limits, promise, planned.target, stale_after);
        Some((place, freed))
    }

    /// What all guests may take beyond their commitment because the plan raises their caps.
    fn freed_by_caps(&self) -> Bytes {
        let freed = self.promises.iter().filter_map(|promise| self.freed_by_cap(promise));
        freed.map(|(_, freed)| freed).sum()
    }

    /// Memory that neither budget nor host has given away yet.
    fn free(&self) -> Bytes {
        let (rules, snapshot) = (self.rules, self.snapshot);
        let (Some(total), Some(available)) =
            (snapshot.host.memory_total, snapshot.host.memory_available)
        else {
            return Bytes::ZERO;
        };
        let (mut committed, mut touched) = (Bytes::ZERO, Bytes::ZERO);
        let mut promises = self.promises.iter().peekable();
        for (memory, sample) in self.checker.guests.values().zip(snapshot.guests()) {
            let kept = promises.next_if(|it| it.guest == sample.id).and_then(|it| it.cap);
            let own = memory.committed(sample, kept.is_some(), rules.stale_after);
            let is_whole = sample.link == LinkState::Up
                && sample.allocation.is_some()
                && sample.memory_max().is_some_and(|most| own >= most);
            if !is_whole && memory.known_for(self.checker.now) < SETTLES_IN {
                return Bytes::ZERO;
            }
            committed = committed.saturating_add(own);
            let resident = sample.resident.map_or(Bytes::ZERO, |it| it.value);
            touched = touched.saturating_add(resident.min(own));
        }
        let budget = self.for_guests.unwrap_or(total.saturating_sub(rules.host_reserve));
        let reserved: Bytes = self.checker.reservations.values().map(|it| it.size).sum();
        let of_budget = budget.saturating_sub(reserved).saturating_sub(committed);
        let of_host = available
            .saturating_sub(rules.host_reserve)
            .saturating_sub(reserved)
            .saturating_sub(committed.saturating_sub(touched));
        of_budget.min(of_host)
    }
}
