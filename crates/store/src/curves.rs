//! Stores each miss curve once; ticks refer to it by number.
//!
//! Idea: a curve has hundreds of points and stays the same while tracking rests. A tick holds it
//! twice: as the tracker reported it, and in the estimate, shifted by what the kernel keeps. So
//! curves have their own table, and a tick stores a number and a shift. A curve equal to the
//! previous tick's is referred to; any other curve is written. So the lowest number that a tick
//! refers to never falls from tick to tick, and retention can delete every curve below the lowest
//! one of the oldest row.
//!
//! Cost: two comparisons per curve and tick, and a copy of a tick that has curves. Limits: a curve
//! that does not change is written again after [`TICKS_MAX`] ticks; else it would keep all later
//! curves from being deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use ballast_model::{
    CurveReference, GuestId, GuestPlan, GuestSample, MissCurve, MissCurveError, Plan, Snapshot,
};

use crate::{Tick, TickEntry};

/// Ticks that refer to a curve before it is written again: ten minutes at one tick a second.
const TICKS_MAX: u32 = 600;

/// Which of a guest's two curves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CurveSource {
    Tracker,
    Estimate,
}

/// A curve that is in the journal.
#[derive(Clone, Debug)]
struct RecordedCurve {
    id: i64,
    ticks: u32,
    curve: Arc<MissCurve>,
}

/// The curves of the last tick, in one file.
#[derive(Clone, Debug)]
pub(crate) struct Curves {
    next: i64,
    last: BTreeMap<(GuestId, CurveSource), RecordedCurve>,
}

/// What one tick changes in the table of curves.
pub(crate) struct CurveChanges {
    /// The state once this tick is committed.
    pub(crate) after: Curves,
    /// Curves to insert, with their numbers.
    pub(crate) new: Vec<(i64, Arc<MissCurve>)>,
    /// The lowest number that the tick refers to.
    pub(crate) lowest: Option<i64>,
}

impl Curves {
    /// The state for a file whose highest curve number is `highest`. Every guest's next curve will
    /// be written.
    pub(crate) fn new(highest: i64) -> Curves {
        Curves { next: highest.saturating_add(1), last: BTreeMap::new() }
    }

    /// Forgets the last tick, because it is deleted. Every guest's next curve will be written.
    pub(crate) fn forget(&mut self) {
        self.last.clear();
    }

    /// The curves that `tick` adds, and its snapshot and plan with references instead of curves;
    /// `None`: the tick has no curves.
    pub(crate) fn extract(&self, tick: &Tick<'_>) -> (CurveChanges, Option<(Snapshot, Plan)>) {
        let after = Curves { next: self.next, last: BTreeMap::new() };
        let mut changes = CurveChanges { after, new: Vec::new(), lowest: None };
        let has_curves = tick.snapshot.guests().iter().any(|guest| reported(guest).is_some())
            || tick.plan.guests.iter().any(|guest| estimated(guest).is_some());
        if !has_curves {
            return (changes, None);
        }
        let Snapshot { taken_at, ref host, .. } = *tick.snapshot;
        let mut guests = tick.snapshot.guests().to_vec();
        let mut plan = tick.plan.clone();
        let mut trackers: BTreeMap<GuestId, (Arc<MissCurve>, i64)> = BTreeMap::new();
        for guest in &mut guests {
            let Some(curve) = reported(guest).cloned() else { continue };
            let id = self.assign_number(&guest.id, CurveSource::Tracker, &curve, &mut changes);
            trackers.insert(guest.id.clone(), (curve, id));
            set_reference(reported_mut(guest), CurveReference { id, shifted: 0 });
        }
        for guest in &mut plan.guests {
            let Some(curve) = estimated(guest).cloned() else { continue };
            let shifted = trackers
                .get(&guest.id)
                .and_then(|(plain, id)| Some((*id, steps_between(plain, &curve)?)));
            let (id, shifted) = shifted.unwrap_or_else(|| {
                let source = CurveSource::Estimate;
                (self.assign_number(&guest.id, source, &curve, &mut changes), 0)
            });
            set_reference(estimated_mut(guest), CurveReference { id, shifted });
        }
        (changes, Some((Snapshot::new(taken_at, host.clone(), guests), plan)))
    }

    /// The number of `curve`: the previous tick's if the curve is the same, else a new one.
    fn assign_number(
        &self,
        guest: &GuestId,
        source: CurveSource,
        curve: &Arc<MissCurve>,
        changes: &mut CurveChanges,
    ) -> i64 {
        let key = (guest.clone(), source);
        let same = self.last.get(&key).filter(|it| it.ticks < TICKS_MAX && it.curve == *curve);
        let (id, ticks) = match same {
            Some(same) => (same.id, same.ticks + 1),
            None => {
                let id = changes.after.next;
                changes.after.next = id.saturating_add(1);
                changes.new.push((id, Arc::clone(curve)));
                (id, 1)
            }
        };
        changes.lowest = Some(changes.lowest.map_or(id, |lowest| lowest.min(id)));
        changes.after.last.insert(key, RecordedCurve { id, ticks, curve: Arc::clone(curve) });
        id
    }
}

/// Replaces the references of `tick` by curves, which `find` looks up.
pub(crate) fn resolve<E>(
    mut tick: TickEntry,
    mut find: impl FnMut(CurveReference) -> Result<Arc<MissCurve>, E>,
) -> Result<TickEntry, E> {
    let mut restore = |slot: Option<&mut Arc<MissCurve>>| {
        if let Some(slot) = slot
            && let Some(reference) = slot.reference()
        {
            *slot = find(reference)?;
        }
        Ok(())
    };
    for guest in &mut tick.plan.guests {
        restore(estimated_mut(guest))?;
    }
    if tick.snapshot.guests().iter().all(|guest| reported(guest).is_none()) {
        return Ok(tick);
    }
    let Snapshot { taken_at, ref host, .. } = tick.snapshot;
    let host = host.clone();
    let mut guests = tick.snapshot.into_guests();
    for guest in &mut guests {
        restore(reported_mut(guest))?;
    }
    Ok(TickEntry { snapshot: Snapshot::new(taken_at, host, guests), ..tick })
}

fn reported(guest: &GuestSample) -> Option<&Arc<MissCurve>> {
    guest.tracker.as_ref()?.value.curve.as_ref()
}

fn reported_mut(guest: &mut GuestSample) -> Option<&mut Arc<MissCurve>> {
    guest.tracker.as_mut()?.value.curve.as_mut()
}

fn estimated(guest: &GuestPlan) -> Option<&Arc<MissCurve>> {
    guest.estimate.as_ref()?.curve.as_ref()
}

fn estimated_mut(guest: &mut GuestPlan) -> Option<&mut Arc<MissCurve>> {
    guest.estimate.as_mut()?.curve.as_mut()
}

fn set_reference(slot: Option<&mut Arc<MissCurve>>, reference: CurveReference) {
    if let Some(slot) = slot {
        *slot = Arc::new(MissCurve::from_reference(reference));
    }
}

/// By how many steps `curve` is `plain` shifted; `None`: it is a different curve.
fn steps_between(plain: &MissCurve, curve: &MissCurve) -> Option<u32> {
    let (points, all) = (plain.points(), curve.points());
    let (first, rest) = all.split_at_checked(all.len().checked_sub(points.len())?)?;
    let is_same = plain.step() == curve.step() && plain.interval() == curve.interval();
    let is_shifted = is_same && rest == points && first.iter().all(|count| *count == points[0]);
    is_shifted.then(|| u32::try_from(first.len()).ok())?
}

/// `plain`, shifted by `steps`.
///
/// # Errors
/// The result has too many points.
pub(crate) fn shifted(plain: &MissCurve, steps: u32) -> Result<MissCurve, MissCurveError> {
    // A damaged row must not exhaust memory; one point too many is refused anyway.
    let steps = (steps as usize).min(MissCurve::POINTS_MAX);
    let points = plain.points();
    let misses = std::iter::repeat_n(points[0], steps).chain(points.iter().copied());
    MissCurve::new(plain.step(), plain.interval(), misses.collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ballast_model::Bytes;

    use super::*;

    fn curve(step: Bytes, misses: &[u64]) -> Arc<MissCurve> {
        Arc::new(MissCurve::new(step, Duration::from_nanos(1), misses.to_vec()).unwrap())
    }

    fn assign_number(curves: &mut Curves, misses: &[u64]) -> (i64, usize) {
        let empty = Curves { next: curves.next, last: BTreeMap::new() };
        let mut changes = CurveChanges { after: empty, new: Vec::new(), lowest: None };
        let guest = "a".parse().unwrap();
        let curve = curve(Bytes::kib(4), misses);
        let id = curves.assign_number(&guest, CurveSource::Tracker, &curve, &mut changes);
        assert_eq!(changes.lowest, Some(id));
        *curves = changes.after;
        (id, changes.new.len())
    }

    #[test]
    fn a_curve_is_written_on_change_and_every_600_ticks() {
        let mut curves = Curves::new(41);
        assert_eq!(assign_number(&mut curves, &[9, 3]), (42, 1));
        assert_eq!(assign_number(&mut curves, &[9, 3]), (42, 0));
        assert_eq!(assign_number(&mut curves, &[9, 2]), (43, 1));
        assert_eq!(
            assign_number(&mut curves, &[9, 3]),
            (44, 1),
            "only the previous tick's curves are reused"
        );
        let ticks = 0..10 * TICKS_MAX;
        let written = ticks.map(|_| assign_number(&mut curves, &[9, 3]).1).sum::<usize>();
        assert_eq!(written, 10);
    }

    #[test]
    fn a_shifted_curve_is_recognized() {
        let step = Bytes::kib(4);
        let plain = curve(step, &[9, 5, 0]);
        for steps in [0, 1, 7] {
            assert_eq!(steps_between(&plain, &shifted(&plain, steps).unwrap()), Some(steps));
        }
        for other in [&[9, 9, 5][..], &[9, 8, 5, 0], &[9, 9, 5, 1], &[5, 0]] {
            assert_eq!(steps_between(&plain, &curve(step, other)), None, "{other:?}");
        }
        assert_eq!(steps_between(&plain, &curve(Bytes::kib(8), &[9, 5, 0])), None);
        assert!(shifted(&plain, u32::MAX).is_err());
    }
}
