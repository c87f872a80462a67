//! One value per guest, aligned with snapshots.
//!
//! Idea: state of guests that lives from tick to tick is kept sorted by name, as snapshots are, and
//! is aligned with each snapshot once. From then on a guest has the same index in both, and no
//! names are compared in that tick. Cost: O(n) comparisons of pointers a tick while guests stay the
//! same; O(n) comparisons of names when some come or go. Looking a name up is O(log n).

use crate::{GuestId, Snapshot};

/// One value per guest, sorted by name.
#[derive(Clone, Debug)]
pub struct PerGuest<T> {
    entries: Vec<(GuestId, T)>,
}

impl<T> Default for PerGuest<T> {
    fn default() -> Self {
        PerGuest { entries: Vec::new() }
    }
}

impl<T: Default> PerGuest<T> {
    /// Drops values of guests that are not in the snapshot, and adds `T::default()` for new ones.
    /// Indices here are then indices in the snapshot.
    pub fn align(&mut self, snapshot: &Snapshot) {
        let guests = snapshot.guests();
        let same = self.entries.len() == guests.len()
            && self.entries.iter().zip(guests).all(|((id, _), guest)| *id == guest.id);
        if same {
            return;
        }
        let mut old = std::mem::take(&mut self.entries).into_iter().peekable();
        self.entries.reserve(guests.len());
        for guest in guests {
            while old.next_if(|(id, _)| *id < guest.id).is_some() {}
            let entry = match old.next_if(|(id, _)| *id == guest.id) {
                Some(entry) => entry,
                None => (guest.id.clone(), T::default()),
            };
            self.entries.push(entry);
        }
    }
}

impl<T> PerGuest<T> {
    /// The value at an index of the last aligned snapshot.
    pub fn at(&self, index: usize) -> Option<&T> {
        self.entries.get(index).map(|(_, value)| value)
    }

    /// The values in the order of the last aligned snapshot.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &T> {
        self.entries.iter().map(|(_, value)| value)
    }

    /// The names and values in the order of the last aligned snapshot.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&GuestId, &T)> {
        self.entries.iter().map(|(id, value)| (id, value))
    }

    /// The values in the order of the last aligned snapshot, mutable.
    pub fn values_mut(&mut self) -> impl ExactSizeIterator<Item = &mut T> {
        self.entries.iter_mut().map(|(_, value)| value)
    }

    /// The value at an index, mutable.
    pub fn at_mut(&mut self, index: usize) -> Option<&mut T> {
        self.entries.get_mut(index).map(|(_, value)| value)
    }

    /// The index of the guest with this name. O(log n).
    pub fn index_of(&self, id: &GuestId) -> Option<usize> {
        self.entries.binary_search_by(|(own, _)| own.cmp(id)).ok()
    }

    /// The value of the guest with this name.
    pub fn named(&self, id: &GuestId) -> Option<&T> {
        self.at(self.index_of(id)?)
    }

    /// The value of the guest with this name, mutable.
    pub fn named_mut(&mut self, id: &GuestId) -> Option<&mut T> {
        self.at_mut(self.index_of(id)?)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{GuestSample, HostSample, LinkState, Timestamp};

    fn snapshot(names: &[u8]) -> Snapshot {
        let guest =
            |n: &u8| GuestSample::unknown(format!("g{n:03}").parse().unwrap(), LinkState::Up);
        let guests = names.iter().map(guest).collect();
        Snapshot::new(Timestamp::ZERO, HostSample::default(), guests)
    }

    proptest! {
        /// The oracle is a map that keeps the names of the snapshot.
        #[test]
        fn behaves_like_a_map(rounds in prop::collection::vec(prop::collection::vec(0..40u8, 0..20), 1..8)) {
            let mut found = PerGuest::<u64>::default();
            let mut oracle = BTreeMap::<GuestId, u64>::new();
            for (round, names) in rounds.iter().enumerate() {
                let snapshot = snapshot(names);
                found.align(&snapshot);
                oracle.retain(|id, _| snapshot.guest(id).is_some());
                for (index, guest) in snapshot.guests().iter().enumerate() {
                    let expected = oracle.entry(guest.id.clone()).or_default();
                    prop_assert_eq!(found.at(index), Some(&*expected));
                    *expected += round as u64 + index as u64;
                    *found.named_mut(&guest.id).unwrap() += round as u64 + index as u64;
                }
                prop_assert_eq!(found.values().count(), oracle.len());
                for (index, guest) in snapshot.guests().iter().enumerate() {
                    prop_assert_eq!(found.index_of(&guest.id), Some(index));
                    for near in 0..snapshot.guests().len() + 2 {
                        prop_assert_eq!(snapshot.index_near(&guest.id, near), Some(index));
                        let equal = guest.id.as_str().parse().unwrap();
                        prop_assert_eq!(snapshot.index_near(&equal, near), Some(index));
                    }
                }
            }
        }
    }
}
