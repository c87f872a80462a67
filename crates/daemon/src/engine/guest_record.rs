//! The engine's record of each guest between ticks.
//!
//! Idea: a record belongs to one process of a hypervisor. A guest that was restarted under its old
//! name begins with an empty record, because what the earlier one held must not be restored to it.
//! A guest's first allocation and the limits that it brought from another host are handed over to
//! the next daemon in the journal.
//!
//! Cost: one look-up per guest and tick.
//! Limits: one record per guest of the last snapshot, and for [`APPEARS_WITHIN`] one per guest of
//! the last daemon.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use ballast_api::CarriedView;
use ballast_model::{
    Bytes, GuestChange, GuestId, GuestSample, Handover, LeftGuest, Outcome, Plan, ProcessId,
    Snapshot, Timestamp,
};

use crate::gathered::gathered;

/// Guests of the last daemon that have not appeared by then are forgotten.
const APPEARS_WITHIN: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default)]
struct EngineRecord {
    /// Its hypervisor's process; `None`: not known yet.
    process: Option<ProcessId>,
    /// Its allocation when a daemon first saw it.
    first_held: Option<Bytes>,
    /// The outcome of its last action.
    outcome: Option<(SystemTime, Outcome)>,
    /// State that it brought from another host to this daemon.
    carried_in: Option<CarriedView>,
    /// The limits that it brought, to this daemon or to an earlier one.
    carried_limits: GuestChange,
}

impl EngineRecord {
    /// Whether the sample is of another process.
    fn is_of_another(&self, sample: &GuestSample) -> bool {
        matches!((self.process, sample.process), (Some(known), Some(seen)) if known != seen)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct GuestRecords {
    guests: BTreeMap<GuestId, EngineRecord>,
    /// Records of the last daemon's guests that have not appeared yet.
    inherited: BTreeMap<GuestId, EngineRecord>,
    inherited_until: Option<Timestamp>,
}

impl GuestRecords {
    /// Records with what the last daemon left about its guests.
    pub(super) fn after(guests: &[LeftGuest]) -> GuestRecords {
        let mut inherited = BTreeMap::new();
        for guest in guests {
            let record = EngineRecord {
                process: Some(guest.process),
                first_held: guest.handover.first_held.or(guest.held),
                carried_limits: guest.handover.carried_limits.clone().unwrap_or_default(),
                ..EngineRecord::default()
            };
            inherited.insert(guest.handover.guest.clone(), record);
        }
        GuestRecords { inherited, ..GuestRecords::default() }
    }

    /// Takes in a snapshot. Returns the guests whose records were dropped because they are gone or
    /// their process changed.
    pub(super) fn align(&mut self, snapshot: &Snapshot) -> Vec<GuestId> {
        let is_same = |id: &GuestId, record: &mut EngineRecord| {
            snapshot.guest(id).is_some_and(|sample| !record.is_of_another(sample))
        };
        let dropped = self.guests.extract_if(.., |id, record| !is_same(id, record));
        let dropped = dropped.map(|(id, _)| id).collect();
        let now = snapshot.taken_at;
        if now > *self.inherited_until.get_or_insert(now + APPEARS_WITHIN) {
            self.inherited.clear();
        }
        for sample in snapshot.guests() {
            let record = self.guests.entry(sample.id.clone()).or_insert_with(|| {
                let inherited = self.inherited.remove(&sample.id);
                inherited.filter(|it| !it.is_of_another(sample)).unwrap_or_default()
            });
            record.process = sample.process.or(record.process);
            let held = sample.allocation.map(|allocation| allocation.value);
            record.first_held = record.first_held.or(held);
        }
        dropped
    }

    /// Remembers the outcome of a guest's action, unless the guest is gone.
    pub(super) fn set_outcome(&mut self, at: SystemTime, outcome: Outcome) {
        if let Some(record) = self.guests.get_mut(&outcome.guest) {
            record.outcome = Some((at, outcome));
        }
    }

    /// Records the state that a guest brought from another host.
    pub(super) fn set_carried_in(&mut self, id: &GuestId, carried: CarriedView) {
        if let Some(record) = self.guests.get_mut(id) {
            if !carried.limits.is_empty() {
                record.carried_limits = carried.limits.clone();
            }
            record.carried_in = Some(carried);
        }
    }

    /// The limits that each guest brought from another host.
    pub(super) fn carried_limits(&self) -> BTreeMap<GuestId, GuestChange> {
        let limits = self.guests.iter().map(|(id, record)| (id, &record.carried_limits));
        let carried = limits.filter(|(_, limits)| !limits.is_empty());
        gathered(carried.map(|(id, limits)| (id.clone(), limits.clone())))
    }

    /// The state that each guest brought from another host.
    pub(super) fn carried_in(&self) -> BTreeMap<GuestId, CarriedView> {
        let carried_in = |(id, record): (&GuestId, &EngineRecord)| {
            record.carried_in.clone().map(|carried| (id.clone(), carried))
        };
        gathered(self.guests.iter().filter_map(carried_in))
    }

    /// The state that this guest brought from another host.
    pub(super) fn carried_in_of(&self, id: &GuestId) -> Option<&CarriedView> {
        self.guests.get(id)?.carried_in.as_ref()
    }

    /// Each guest's allocation when a daemon first saw it.
    pub(super) fn first_held(&self) -> impl Iterator<Item = (&GuestId, Bytes)> {
        self.guests.iter().filter_map(|(id, record)| Some((id, record.first_held?)))
    }

    /// What this guest held when a daemon first saw it.
    pub(super) fn first_held_of(&self, id: &GuestId) -> Option<Bytes> {
        self.guests.get(id)?.first_held
    }

    /// Adds each guest's first allocation, unless the plan has the same, and the limits that it
    /// brought to `handovers`, which is sorted by name before and after. O(n log n).
    pub(super) fn hand_over(&self, plan: &Plan, handovers: &mut Vec<Handover>) {
        let mut others = Vec::new();
        for (id, record) in &self.guests {
            let planned = plan.guest(id).and_then(|guest| guest.allocation);
            let first_held = record.first_held.filter(|held| planned != Some(*held));
            let carried_limits = Some(&record.carried_limits).filter(|it| !it.is_empty()).cloned();
            if first_held.is_none() && carried_limits.is_none() {
                continue;
            }
            let own = Handover { first_held, carried_limits, ..Handover::nothing(id.clone()) };
            match handovers.binary_search_by(|it| it.guest.cmp(id)) {
                Ok(place) => {
                    let known = &mut handovers[place];
                    known.first_held = own.first_held.or(known.first_held);
                    known.carried_limits = own.carried_limits;
                }
                Err(_) => others.push(own),
            }
        }
        handovers.append(&mut others);
        handovers.sort_unstable_by(|one, other| one.guest.cmp(&other.guest));
    }

    /// The outcome of each guest's last action, with its wall-clock time.
    pub(super) fn outcomes(&self) -> BTreeMap<GuestId, (SystemTime, Outcome)> {
        let known = |(id, record): (&GuestId, &EngineRecord)| {
            record.outcome.clone().map(|outcome| (id.clone(), outcome))
        };
        self.guests.iter().filter_map(known).collect()
    }
}

#[cfg(test)]
mod tests {
    use ballast_model::{Generation, HostSample, LinkState, Measured, OutcomeKind};

    use super::*;

    fn sample(name: &str, start_ticks: Option<u64>, mib: Option<u64>) -> GuestSample {
        GuestSample {
            process: start_ticks.map(|start_ticks| ProcessId { pid: 7, start_ticks }),
            allocation: mib.map(|mib| Measured::fresh(Bytes::mib(mib))),
            ..GuestSample::unknown(name.parse().unwrap(), LinkState::Up)
        }
    }

    fn seen(guests: Vec<GuestSample>) -> Snapshot {
        Snapshot::new(Timestamp::ZERO, HostSample::default(), guests)
    }

    fn accepted(records: &mut GuestRecords, name: &str) {
        let (guest, generation, target) = (name.parse().unwrap(), Generation(1), Bytes::mib(1));
        let outcome = Outcome { guest, generation, target, kind: OutcomeKind::Accepted };
        records.set_outcome(SystemTime::UNIX_EPOCH, outcome);
    }

    #[test]
    fn a_record_lasts_while_its_process_may_be_the_same() {
        let mut records = GuestRecords::default();
        records.align(&seen(vec![sample("a", None, None)]));
        accepted(&mut records, "a");
        for sample in [
            sample("a", Some(5), Some(512)),
            sample("a", None, Some(300)),
            sample("a", Some(5), Some(256)),
        ] {
            assert_eq!(records.align(&seen(vec![sample])), []);
        }
        assert!(records.first_held().map(|(_, held)| held).eq([Bytes::mib(512)]));
        assert_eq!(records.outcomes().len(), 1);
    }

    #[test]
    fn a_restarted_guest_begins_with_an_empty_record() {
        let mut records = GuestRecords::default();
        records.align(&seen(vec![sample("a", Some(5), Some(512)), sample("b", None, None)]));
        accepted(&mut records, "a");
        accepted(&mut records, "b");
        let restarted = seen(vec![sample("a", Some(6), Some(256)), sample("b", None, None)]);
        assert_eq!(records.align(&restarted), ["a".parse().unwrap()]);
        assert!(records.first_held().map(|(_, held)| held).eq([Bytes::mib(256)]));
        assert!(records.outcomes().keys().map(GuestId::as_str).eq(["b"]));
    }

    /// A guest as the last daemon left it, in MiB.
    fn left(start_ticks: u64, held: u64, first_held: Option<u64>) -> LeftGuest {
        let first_held = first_held.map(Bytes::mib);
        LeftGuest {
            process: ProcessId { pid: 7, start_ticks },
            held: Some(Bytes::mib(held)),
            target: None,
            regret: None,
            handover: Handover { first_held, ..Handover::nothing("a".parse().unwrap()) },
        }
    }

    #[test]
    fn what_a_guest_held_first_outlives_a_daemon() {
        let first = |left: LeftGuest, samples: [GuestSample; 2]| {
            let mut records = GuestRecords::after(&[left]);
            for sample in samples {
                records.align(&seen(vec![sample]));
            }
            records.first_held().map(|(_, held)| held.get() >> 20).collect::<Vec<_>>()
        };
        let same = || [sample("a", Some(5), Some(256)), sample("a", Some(5), Some(300))];
        assert_eq!(first(left(5, 256, Some(512)), same()), [512]);
        assert_eq!(first(left(5, 384, None), same()), [384], "unchanged when that daemon ended");
        assert_eq!(first(left(4, 256, Some(512)), same()), [256], "another process");
        let later = |start_ticks| [sample("a", None, None), sample("a", start_ticks, Some(256))];
        assert_eq!(first(left(5, 256, Some(512)), later(None)), [512]);
        assert_eq!(first(left(5, 256, Some(512)), later(Some(6))), [256]);
    }

    #[test]
    fn guests_of_the_last_daemon_are_forgotten_in_time() {
        let mut records = GuestRecords::after(&[left(5, 256, Some(512))]);
        records.align(&seen(vec![]));
        let late = Timestamp::ZERO + APPEARS_WITHIN + Duration::from_secs(1);
        let guest = sample("a", Some(5), Some(256));
        records.align(&Snapshot::new(late, HostSample::default(), vec![guest]));
        assert!(records.first_held().map(|(_, held)| held).eq([Bytes::mib(256)]));
    }

    #[test]
    fn nothing_is_remembered_of_a_guest_that_is_gone() {
        let mut records = GuestRecords::default();
        records.align(&seen(vec![sample("a", Some(5), Some(512))]));
        assert_eq!(records.align(&seen(vec![])), ["a".parse().unwrap()]);
        accepted(&mut records, "a");
        assert_eq!((records.first_held().count(), records.outcomes().len()), (0, 0));
    }
}
