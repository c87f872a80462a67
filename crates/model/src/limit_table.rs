//! The limits of all guests.

use std::collections::BTreeMap;
use std::collections::btree_map::Iter;
use std::iter::Peekable;

use crate::{GuestChange, GuestId, GuestLimits, Snapshot};

/// The limits of all guests of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitTable {
    /// Limits of guests that are not named.
    pub default: GuestLimits,
    /// Limits of guests that are named.
    pub named: BTreeMap<GuestId, GuestLimits>,
    /// The limits that the configuration gives for those, without the defaults.
    pub given: BTreeMap<GuestId, GuestChange>,
}

impl LimitTable {
    /// The limits of one guest.
    pub fn of(&self, id: &GuestId) -> &GuestLimits {
        self.named.get(id).unwrap_or(&self.default)
    }

    /// Sum of the shares of all guests of a snapshot. O(n) if guests are named, else O(1).
    pub fn shares_of_all(&self, snapshot: &Snapshot) -> u64 {
        if self.named.is_empty() {
            return u64::from(self.default.shares) * snapshot.guests().len() as u64;
        }
        let mut limits = self.in_order();
        snapshot.guests().iter().map(|guest| u64::from(limits.of(&guest.id).shares)).sum()
    }

    /// For looking guests up in the order of their names, O(1) each.
    pub fn in_order(&self) -> LimitsInOrder<'_> {
        LimitsInOrder { default: &self.default, named: self.named.iter().peekable() }
    }
}

/// See [`LimitTable::in_order`].
#[derive(Clone, Debug)]
pub struct LimitsInOrder<'a> {
    default: &'a GuestLimits,
    named: Peekable<Iter<'a, GuestId, GuestLimits>>,
}

impl<'a> LimitsInOrder<'a> {
    /// The limits of a guest whose name sorts after all names looked up before.
    #[inline]
    pub fn of(&mut self, id: &GuestId) -> &'a GuestLimits {
        if self.named.peek().is_none() {
            return self.default;
        }
        while self.named.next_if(|(own, _)| *own < id).is_some() {}
        self.named.next_if(|(own, _)| *own == id).map_or(self.default, |(_, limits)| limits)
    }
}
