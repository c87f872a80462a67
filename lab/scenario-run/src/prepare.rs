//! Workloads that fill their memory before the measurement.
//!
//! Idea: a server that fills while memory is taken from it never gets all its data in, and the run
//! would measure how it fills. So prepared workloads fill while guests have all their memory; the
//! guests are set to their start sizes afterwards.
//! Limits: a workload fills once; one that grows later does that during the measurement.

use std::time::Duration;

use ballast_lab_guest::protocol::{FromGuest, LabReport};
use ballast_lab_host::{Run, Scenario};
use tokio::time::Instant;

use super::live::Live;
use super::turns::{Start, starts};

/// How long filling may take; an emulated memcached fills some MiB a second.
const PATIENCE: Duration = Duration::from_secs(900);
/// Time between two polls.
const POLL: Duration = Duration::from_millis(500);

/// Starts the prepared workloads and waits until they have filled their memory.
pub(super) async fn fill(
    scenario: &Scenario,
    run: &Run,
    live: &mut Live,
) -> anyhow::Result<Vec<Start>> {
    let prepared: Vec<Start> = starts(scenario).into_iter().filter(|it| it.prepared).collect();
    let mut filling = Vec::new();
    for start in &prepared {
        let guest = run.guest(start.guest.as_str())?;
        let events = guest.subscribe()?;
        guest.send_start(&start.id, &start.spec)?;
        filling.push((start, guest, events));
    }
    let end = Instant::now() + PATIENCE;
    for (start, guest, events) in filling {
        let workload = format!("workload {} of guest {}", start.id, start.guest);
        let bad = |why: &str| {
            let console = guest.console_tail();
            anyhow::anyhow!("{workload} {why}; the end of its console:\n{console}")
        };
        while !guest.latest_report()?.is_some_and(|report| has_filled(&report, &start.id)) {
            match events.next(Duration::ZERO).map(|event| event.message) {
                Some(FromGuest::Error { text, .. }) => return Err(bad(&format!("failed: {text}"))),
                Some(FromGuest::Done { id, .. }) if id == start.id => {
                    return Err(bad("ended before it had filled its memory"));
                }
                Some(_) => continue,
                None if events.is_over() => return Err(bad("is lost with its guest")),
                None if Instant::now() > end => {
                    let waited = PATIENCE.as_secs();
                    return Err(bad(&format!("had not filled its memory after {waited} s")));
                }
                None => tokio::time::sleep(POLL).await,
            }
        }
        live.say(&format!("{workload} has filled its memory"));
    }
    Ok(prepared)
}

fn has_filled(report: &LabReport, id: &str) -> bool {
    let own = report.workloads.iter().find(|workload| workload.id == id);
    own.is_some_and(|own| own.phase.has_filled() && own.size >= own.size_wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ballast_lab_guest::protocol::{MemoryInfo, VmCounters, WorkloadReport, WorkloadState};
    use ballast_lab_guest::workload::Kind;
    use ballast_model::Bytes;

    #[test]
    fn a_workload_has_filled_when_it_touches_all_it_wants() {
        let report = |phase, size| LabReport {
            seq: 1,
            uptime_ms: 1000,
            memory: MemoryInfo::default(),
            vm: VmCounters::default(),
            workloads: vec![WorkloadReport {
                id: "w".to_owned(),
                kind: Kind::Program,
                phase,
                touches: 0,
                touches_delta: 0,
                iterations: 0,
                size: Bytes::mib(size),
                size_wanted: Bytes::mib(8),
                major_faults: None,
                resident: None,
                swapped: None,
            }],
        };
        assert!(!has_filled(&report(WorkloadState::Filling, 8), "w"));
        assert!(!has_filled(&report(WorkloadState::Touching, 7), "w"));
        assert!(has_filled(&report(WorkloadState::Touching, 8), "w"));
        assert!(has_filled(&report(WorkloadState::Waiting, 8), "w"));
        assert!(!has_filled(&report(WorkloadState::Touching, 8), "v"));
    }
}
