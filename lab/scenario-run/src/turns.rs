//! One run to play, and its workloads in the order of their start times.

use std::time::Duration;

use ballast_lab_guest::workload::WorkloadSpec;
use ballast_lab_host::{Scenario, Variant};
use ballast_model::GuestId;

/// One run to play.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Turn {
    /// The policy and its settings.
    pub(super) variant: Variant,
    /// The repetition, from 1.
    pub(super) repetition: u32,
    /// Its number among all parts that this call plays, from 1.
    pub(super) number: usize,
    /// The number of all parts that this call plays.
    pub(super) of: usize,
}

/// A workload and its start time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Start {
    pub(super) at: Duration,
    pub(super) guest: GuestId,
    pub(super) id: String,
    pub(super) spec: WorkloadSpec,
    /// Whether it fills its memory before the measurement.
    pub(super) prepared: bool,
}

/// Every workload of a scenario, the earliest first.
pub(super) fn starts(scenario: &Scenario) -> Vec<Start> {
    let of_guests = scenario.guests.iter().flat_map(|guest| {
        guest.workloads.iter().map(|workload| Start {
            at: workload.at,
            guest: guest.name.clone(),
            id: workload.id(),
            spec: workload.spec.clone(),
            prepared: workload.prepared,
        })
    });
    let mut starts: Vec<Start> = of_guests.collect();
    // The sort is stable: workloads of the same time begin in the order of the file.
    starts.sort_by_key(|start| start.at);
    starts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::scenario;

    #[test]
    fn workloads_begin_in_the_order_of_their_times() {
        let order: Vec<_> = starts(&scenario())
            .into_iter()
            .map(|start| format!("{} {}/{}", start.at.as_secs(), start.guest, start.id))
            .collect();
        assert_eq!(order, ["0 a/mono", "0 b/cold", "3 a/late"]);
    }
}
