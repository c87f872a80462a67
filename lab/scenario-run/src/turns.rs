//! One run to make, and when its workloads begin: in the order of their times.

use std::time::Duration;

use ballast_lab_guest::workload::WorkloadSpec;
use ballast_lab_host::{Scenario, Variant};
use ballast_model::GuestId;

/// One run to make.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Turn {
    /// The policy and how it is set.
    pub(super) variant: Variant,
    /// The repetition, from 1.
    pub(super) repetition: u32,
    /// Which part of all that this call plays it is, from 1.
    pub(super) number: usize,
    /// How many those are.
    pub(super) of: usize,
}

/// A workload and when it begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Start {
    pub(super) at: Duration,
    pub(super) guest: GuestId,
    pub(super) id: String,
    pub(super) spec: WorkloadSpec,
    /// Whether it fills its memory before anything is measured.
    pub(super) prepared: bool,
}

/// Every workload of a scenario, the first to begin first.
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
    // Stable: those of one moment begin in the order of the file.
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
