//! The engine's record of each guest between ticks.
//!
//! Idea: a record belongs to one process of a hypervisor. A guest that was restarted under its old
//! name begins with an empty record, because what the earlier one held must not be restored to it.
//!
//! Cost: one look-up per guest and tick.
//! Limits: one record per guest of the last snapshot.

use std::collections::BTreeMap;
use std::time::SystemTime;

use ballast_api::CarriedView;
use ballast_model::{Bytes, GuestId, GuestSample, Outcome, ProcessId, Snapshot};

/// The record of one guest.
#[derive(Clone, Debug, Default)]
struct GuestRecord {
    /// Its hypervisor's process; `None`: not known yet.
    process: Option<ProcessId>,
    /// Its allocation when it was first seen.
    first_held: Option<Bytes>,
    /// The outcome of its last action.
    outcome: Option<(SystemTime, Outcome)>,
    /// State that it brought from another host.
    carried_in: Option<CarriedView>,
}

impl GuestRecord {
    /// Whether the sample is of another process.
    fn is_of_another(&self, sample: &GuestSample) -> bool {
        matches!((self.process, sample.process), (Some(known), Some(seen)) if known != seen)
    }
}

/// The records of all guests.
#[derive(Clone, Debug, Default)]
pub(super) struct GuestRecords(BTreeMap<GuestId, GuestRecord>);

impl GuestRecords {
    /// Takes in a snapshot. Returns the guests whose records were dropped because they are gone or
    /// their process changed.
    pub(super) fn align(&mut self, snapshot: &Snapshot) -> Vec<GuestId> {
        let is_same = |id: &GuestId, record: &mut GuestRecord| {
            snapshot.guest(id).is_some_and(|sample| !record.is_of_another(sample))
        };
        let dropped = self.0.extract_if(.., |id, record| !is_same(id, record));
        let dropped = dropped.map(|(id, _)| id).collect();
        for sample in snapshot.guests() {
            let record = self.0.entry(sample.id.clone()).or_default();
            record.process = sample.process.or(record.process);
            let held = sample.allocation.map(|allocation| allocation.value);
            record.first_held = record.first_held.or(held);
        }
        dropped
    }

    /// Remembers the outcome of a guest's action, unless the guest is gone.
    pub(super) fn set_outcome(&mut self, at: SystemTime, outcome: Outcome) {
        if let Some(record) = self.0.get_mut(&outcome.guest) {
            record.outcome = Some((at, outcome));
        }
    }

    /// Records the state that a guest brought from another host.
    pub(super) fn set_carried_in(&mut self, id: &GuestId, carried: CarriedView) {
        if let Some(record) = self.0.get_mut(id) {
            record.carried_in = Some(carried);
        }
    }

    /// The state that each guest brought from another host.
    pub(super) fn carried_in(&self) -> BTreeMap<GuestId, CarriedView> {
        let carried_in = |(id, record): (&GuestId, &GuestRecord)| {
            record.carried_in.clone().map(|carried| (id.clone(), carried))
        };
        self.0.iter().filter_map(carried_in).collect()
    }

    /// The state that this guest brought from another host.
    pub(super) fn carried_in_of(&self, id: &GuestId) -> Option<&CarriedView> {
        self.0.get(id)?.carried_in.as_ref()
    }

    /// Each guest's allocation when it was first seen.
    pub(super) fn first_held(&self) -> impl Iterator<Item = (&GuestId, Bytes)> {
        self.0.iter().filter_map(|(id, record)| Some((id, record.first_held?)))
    }

    /// The outcome of each guest's last action, with its wall-clock time.
    pub(super) fn outcomes(&self) -> BTreeMap<GuestId, (SystemTime, Outcome)> {
        let known = |(id, record): (&GuestId, &GuestRecord)| {
            record.outcome.clone().map(|outcome| (id.clone(), outcome))
        };
        self.0.iter().filter_map(known).collect()
    }
}

#[cfg(test)]
mod tests {
    use ballast_model::{Generation, HostSample, LinkState, Measured, OutcomeKind, Timestamp};

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

    #[test]
    fn nothing_is_remembered_of_a_guest_that_is_gone() {
        let mut records = GuestRecords::default();
        records.align(&seen(vec![sample("a", Some(5), Some(512))]));
        assert_eq!(records.align(&seen(vec![])), ["a".parse().unwrap()]);
        accepted(&mut records, "a");
        assert_eq!((records.first_held().count(), records.outcomes().len()), (0, 0));
    }
}
