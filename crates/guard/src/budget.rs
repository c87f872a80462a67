//! How much memory there is to divide, and how much of it can be handed out at once.
//!
//! Idea: three amounts that are easily confused.
//!
//! - *distributable* (`N`): the operator's budget or, if that is less, what the host has for
//!   guests: its available memory and what guests already occupy, less its reserve. A guest whose
//!   process the host cannot see, or whose last known size is too old, may occupy all that it is
//!   committed, and is counted so: a missing figure must not squeeze any guest. Memory reserved for
//!   guests that are about to start is not divided.
//! - *committed*: what guests hold or were promised. A guest that was granted memory and has not
//!   touched it yet can do so at any moment, so a promise counts in full.
//! - *grantable*: what can be promised now. Zero while a guest has just been found that may take
//!   more than is known, see [`NEWCOMER_SETTLES_IN`]. Otherwise limited by the uncommitted budget,
//!   and by what the host has available beyond its reserve and beyond promises not yet touched.
//!
//! Cost: O(1) per guest. Limits: QEMU's own memory counts as occupied guest memory, up to what the
//! guest is committed; the host's reserve has to cover the rest.

use std::time::Duration;

use ballast_model::{Budget, Bytes, HostSample, Note};

use crate::{Assessment, GuardSettings};

/// A guest known for less than this may be about to take memory that it was promised before it was
/// known: by a daemon that was killed in between, or by its own boot. Guests take promised memory
/// within a second.
pub(crate) const NEWCOMER_SETTLES_IN: Duration = Duration::from_secs(2);

/// Sums over all guests of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// What guests hold or were promised.
    pub committed: Bytes,
    /// Host memory that guests are known to occupy.
    pub occupied: Bytes,
    /// Host memory that guests may occupy.
    pub occupied_at_most: Bytes,
    /// What guests outside of the division hold or were promised, and what others hold beyond their
    /// part.
    pub immovable: Bytes,
    /// What guests hold beyond their entitlements and are not believed to give.
    pub debt: Bytes,
    /// The part of `debt` that may be occupied already.
    pub debt_occupied: Bytes,
    /// Number of guests with debt.
    pub debtors: usize,
    /// Number of guests whose allocation is not certain yet.
    pub newcomers: usize,
    /// Number of guests whose allocation is unknown.
    pub uncounted: usize,
}

impl Totals {
    /// Adds a guest. Sums saturate, because a guest that claims 2^64 bytes must not overflow them.
    pub fn add(&mut self, guest: &Assessment, settings: &GuardSettings) {
        self.committed = self.committed.saturating_add(guest.committed);
        self.occupied = self.occupied.saturating_add(guest.occupied);
        self.occupied_at_most = self.occupied_at_most.saturating_add(guest.occupied_at_most);
        if guest.verdict.is_err() {
            self.immovable = self.immovable.saturating_add(guest.immovable());
            let debt = guest.debt();
            self.debt = self.debt.saturating_add(debt);
            self.debt_occupied = self.debt_occupied.saturating_add(guest.debt_occupied());
            self.debtors += usize::from(debt > Bytes::ZERO);
        }
        self.newcomers += usize::from(is_newcomer(guest, settings));
        self.uncounted += usize::from(!guest.is_counted);
    }
}

/// Whether it is uncertain what a guest holds or may take at once: it has just been found, or it
/// has not been seen at all. The latter counts only for a while, or one socket that never answers
/// would stop every grant. A guest that is whole is committed all that it can take: if it counted
/// too, guests that start one after the other would stop every grant.
fn is_newcomer(guest: &Assessment, settings: &GuardSettings) -> bool {
    let is_new = guest.known_for < NEWCOMER_SETTLES_IN
        || (!guest.is_counted && guest.known_for < settings.stale_after);
    is_new && !guest.is_whole
}

/// The amounts of one tick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TickBudget {
    /// The memory to divide, in whole pages.
    pub budget: Budget,
    /// How much of the reserved memory is free: not held by guests, not promised to them, and not
    /// lacking to the host.
    pub kept_free: Bytes,
    /// Notes about the amounts.
    pub notes: Vec<Note>,
}

/// The amounts of one tick; `reserved` is to be kept free.
pub fn budget_for(
    host: &HostSample,
    totals: &Totals,
    reserved: Bytes,
    settings: &GuardSettings,
) -> TickBudget {
    let Totals { committed, occupied, occupied_at_most, newcomers, .. } = *totals;
    let (Some(total), Some(available)) = (host.memory_total, host.memory_available) else {
        // Without the host's figures the budget still holds, but nothing can be promised.
        let budget = settings.budget.map(|budget| budget.saturating_sub(reserved));
        let distributable = budget.unwrap_or(committed).page_floor();
        let budget = Budget { distributable, committed, grantable: Bytes::ZERO };
        return TickBudget { budget, kept_free: Bytes::ZERO, notes: vec![Note::HostUnknown] };
    };
    let present = available.saturating_add(occupied_at_most).saturating_sub(settings.host_reserve);
    let configured = settings.budget.unwrap_or(total.saturating_sub(settings.host_reserve));
    let for_guests = configured.min(present);
    let distributable = for_guests.saturating_sub(reserved).page_floor();
    let untouched = committed.saturating_sub(occupied);
    let free = available.saturating_sub(settings.host_reserve).saturating_sub(untouched);
    let vacant = for_guests.saturating_sub(committed).min(free);
    let vacant = if newcomers > 0 { Bytes::ZERO } else { vacant };
    let grantable = vacant.saturating_sub(reserved).page_floor();
    let mut notes = Vec::new();
    if newcomers > 0 {
        notes.push(Note::Newcomers { guests: newcomers });
    }
    if let Some(configured) = settings.budget
        && present < configured
    {
        notes.push(Note::BudgetReduced { configured, present });
    }
    let budget = Budget { distributable, committed, grantable };
    TickBudget { budget, kept_free: reserved.min(vacant), notes }
}
