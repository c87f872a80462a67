//! Every miss curve once: a tick says which of the journal's curves its guests have.
//!
//! Idea: a curve has hundreds of points and stays the same while tracking rests, and a tick holds it
//! twice: as the tracker reported it and as it was estimated with, shifted by what the kernel keeps. So
//! curves are rows of their own, and a record refers to one by its number, shifted or not. A curve that
//! was in the tick before is referred to; any other is written.
//! Cost: two comparisons a curve and tick, and one copy of the curves of the last tick.
//! Limits: a curve is written anew after [`TICKS_MAX`] ticks, so that an old one need not be kept for
//! the newest tick: numbers that ticks refer to only grow, and retention deletes below the oldest row's
//! lowest. A curve that differs in one count is another one.

use std::collections::BTreeMap;

use ballast_model::GuestId;

use crate::record::{CurveRecord, TickRecord};

/// Ticks that refer to a curve before it is written anew: ten minutes at a tick a second.
const TICKS_MAX: u32 = 600;

/// Which of a guest's two curves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    Tracker,
    Estimate,
}

/// A curve that is in the journal.
#[derive(Clone, Debug)]
struct Kept {
    id: i64,
    ticks: u32,
    curve: CurveRecord,
}

/// The curves of the last tick, in one file.
#[derive(Clone, Debug)]
pub(crate) struct Curves {
    next: i64,
    last: BTreeMap<(GuestId, Whose), Kept>,
}

/// What a tick adds to a journal's curves.
pub(crate) struct Added {
    /// What holds once this tick is written.
    pub(crate) after: Curves,
    /// Curves to write, with their numbers.
    pub(crate) new: Vec<(i64, CurveRecord)>,
    /// The lowest number that the tick refers to.
    pub(crate) lowest: Option<i64>,
}

impl Curves {
    /// Of a file whose highest number is `highest`; whatever comes is written anew.
    pub(crate) fn new(highest: i64) -> Curves {
        Curves { next: highest.saturating_add(1), last: BTreeMap::new() }
    }

    /// Puts references into `tick` where curves were.
    pub(crate) fn take_out(&self, tick: &mut TickRecord) -> Added {
        let after = Curves { next: self.next, last: BTreeMap::new() };
        let mut added = Added { after, new: Vec::new(), lowest: None };
        let mut reported: BTreeMap<&GuestId, (CurveRecord, i64)> = BTreeMap::new();
        for guest in &mut tick.sample.guests {
            let slot = guest.tracker.as_mut().and_then(|tracker| tracker.curve.as_mut());
            let Some(slot) = slot else { continue };
            let id = self.refer(&guest.id, Whose::Tracker, slot.clone(), &mut added);
            let curve = std::mem::replace(slot, CurveRecord::Kept { id, shifted: 0 });
            reported.insert(&guest.id, (curve, id));
        }
        for guest in &mut tick.plan.guests {
            let slot = guest.estimate.as_mut().and_then(|estimate| estimate.curve.as_mut());
            let Some(slot) = slot else { continue };
            let shifted = reported
                .get(&guest.id)
                .and_then(|(curve, id)| Some((*id, slot.shifted_from(curve)?)));
            *slot = match shifted {
                Some((id, shifted)) => CurveRecord::Kept { id, shifted },
                None => {
                    let id = self.refer(&guest.id, Whose::Estimate, slot.clone(), &mut added);
                    CurveRecord::Kept { id, shifted: 0 }
                }
            };
        }
        added
    }

    /// The number of `curve`: that of the last tick if it is the same, else a new one.
    fn refer(&self, guest: &GuestId, whose: Whose, curve: CurveRecord, added: &mut Added) -> i64 {
        let key = (guest.clone(), whose);
        let same = self.last.get(&key).filter(|it| it.ticks < TICKS_MAX && it.curve == curve);
        let kept = match same {
            Some(same) => Kept { id: same.id, ticks: same.ticks + 1, curve },
            None => {
                let id = added.after.next;
                added.after.next = id.saturating_add(1);
                added.new.push((id, curve.clone()));
                Kept { id, ticks: 1, curve }
            }
        };
        let id = kept.id;
        added.lowest = Some(added.lowest.map_or(id, |lowest| lowest.min(id)));
        added.after.last.insert(key, kept);
        id
    }
}

/// Puts the curves back that `tick` refers to; `find` gives one by its number.
pub(crate) fn put_back<E>(
    tick: &mut TickRecord,
    mut find: impl FnMut(i64) -> Result<CurveRecord, E>,
) -> Result<(), E> {
    let reported = tick.sample.guests.iter_mut();
    let reported = reported.filter_map(|guest| guest.tracker.as_mut()?.curve.as_mut());
    let estimated = tick.plan.guests.iter_mut();
    let estimated = estimated.filter_map(|guest| guest.estimate.as_mut()?.curve.as_mut());
    for slot in reported.chain(estimated) {
        if let CurveRecord::Kept { id, shifted } = *slot {
            *slot = find(id)?.shifted_by(shifted);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(misses: &[u64]) -> CurveRecord {
        CurveRecord::Whole { step_bytes: 4096, interval_ns: 1, misses: misses.to_vec() }
    }

    fn refer(curves: &mut Curves, misses: &[u64]) -> (i64, usize) {
        let empty = Curves { next: curves.next, last: BTreeMap::new() };
        let mut added = Added { after: empty, new: Vec::new(), lowest: None };
        let guest = "a".parse().unwrap();
        let id = curves.refer(&guest, Whose::Tracker, curve(misses), &mut added);
        assert_eq!(added.lowest, Some(id));
        *curves = added.after;
        (id, added.new.len())
    }

    #[test]
    fn a_curve_is_written_when_it_changes_and_now_and_then() {
        let mut curves = Curves::new(41);
        assert_eq!(refer(&mut curves, &[9, 3]), (42, 1));
        assert_eq!(refer(&mut curves, &[9, 3]), (42, 0));
        assert_eq!(refer(&mut curves, &[9, 2]), (43, 1));
        assert_eq!(refer(&mut curves, &[9, 3]), (44, 1), "only the last tick's are referred to");
        let written = (0..10 * TICKS_MAX).map(|_| refer(&mut curves, &[9, 3]).1).sum::<usize>();
        assert_eq!(written, 10);
    }

    #[test]
    fn a_shifted_curve_is_known_as_such() {
        let plain = curve(&[9, 5, 0]);
        for shifted in [0, 1, 7] {
            assert_eq!(plain.clone().shifted_by(shifted).shifted_from(&plain), Some(shifted));
        }
        for other in [&[9, 9, 5][..], &[9, 8, 5, 0], &[9, 9, 5, 1], &[5, 0], &[]] {
            assert_eq!(curve(other).shifted_from(&plain), None, "{other:?}");
        }
        let coarse = CurveRecord::Whole { step_bytes: 8192, interval_ns: 1, misses: vec![9, 5, 0] };
        assert_eq!(coarse.shifted_from(&plain), None);
    }
}
