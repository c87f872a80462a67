//! A scenario in words, for the record.

use std::num::NonZeroU64;

use ballast_lab_guest::workload::{Pattern, Ramp, WorkloadSpec};
use ballast_lab_host::{
    BEST, DiskSpec, FleetHost, Scenario, ScenarioFleet, ScenarioGuest, ScenarioWorkload,
};

use super::fleet_record::{FleetHostInfo, FleetInfo, FloorInfo};
use super::paper;
use super::record::{GuestInfo, ScenarioInfo};

/// The record's description of `scenario`; `description` says in words what it is about.
pub(super) fn scenario(scenario: &Scenario, description: &str) -> ScenarioInfo {
    ScenarioInfo {
        name: scenario.name.to_string(),
        description: description.to_owned(),
        budget_bytes: scenario.host.budget.get(),
        duration_s: scenario.duration.as_secs_f64(),
        repetitions: scenario.repetitions,
        policies: scenario.contestants().into_iter().map(|variant| variant.name).collect(),
        best: scenario.best.then(|| BEST.to_owned()),
        guests: scenario.guests.iter().map(guest).collect(),
        fleet: scenario.fleet.as_ref().map(|it| fleet(scenario, it)),
        paper: paper::figures(scenario).unwrap_or_default(),
    }
}

/// The hosts of a scenario, and what is expected of them.
fn fleet(scenario: &Scenario, fleet: &ScenarioFleet) -> FleetInfo {
    let host = |host: &FleetHost| FleetHostInfo {
        host: host.name.to_string(),
        budget_bytes: host.budget.get(),
        guests: host.guests.iter().map(ToString::to_string).collect(),
    };
    let floor = |guest: &ScenarioGuest| FloorInfo {
        guest: guest.name.to_string(),
        floor_bytes: guest.limits().floor_for(guest.memory).get(),
    };
    FleetInfo {
        hosts: fleet.hosts.iter().map(host).collect(),
        overloaded: fleet.overloaded.to_string(),
        kills_leader: fleet.killed.is_some(),
        window_s: fleet.window.as_secs_f64(),
        work_times: fleet.work_times,
        floors: scenario.guests.iter().map(floor).collect(),
    }
}

fn guest(guest: &ScenarioGuest) -> GuestInfo {
    GuestInfo {
        guest: guest.name.to_string(),
        boot_bytes: guest.memory.get(),
        start_bytes: guest.start().get(),
        needs_bytes: None,
        full_speed_per_s: guest.full_speed.map(NonZeroU64::get),
        work: guest.work.map(NonZeroU64::get),
        swap: guest.swap.map(|DiskSpec { size, speed }| format!("{size} on {speed}")),
        workloads: guest.workloads.iter().map(workload).collect(),
    }
}

fn workload(workload: &ScenarioWorkload) -> String {
    let from = match workload.at.as_secs_f64() {
        0.0 if workload.prepared => ", filled before".to_owned(),
        0.0 => String::new(),
        at => format!(", from {at} s on"),
    };
    let id = workload.id();
    let what = pattern(&workload.spec);
    // A workload without a name of its own is called by its kind.
    let name = if what.starts_with(&id) { String::new() } else { format!("{id}: ") };
    format!("{name}{what}{from}")
}

fn pattern(spec: &WorkloadSpec) -> String {
    match &spec.pattern {
        Pattern::Mono { low, high, ramp, hold, cycles } => {
            let grow = match ramp {
                Ramp::Time(ramp) => format!(" in {} s", ramp.as_secs_f64()),
                Ramp::GrowthPerS(step) => format!(" by {step}/s"),
            };
            let hold = match hold.as_secs_f64() {
                0.0 => String::new(),
                hold_s => format!(", {hold_s} s there"),
            };
            let cycles = match cycles {
                Some(1) => ", and back".to_owned(),
                Some(cycles) => format!(", and back, {cycles} times"),
                None => ", and back, again and again".to_owned(),
            };
            format!("mono {low} to {high}{grow}{hold}{cycles}")
        }
        Pattern::Constant { size } => format!("constant {size}"),
        Pattern::Flux { low, high, period } => {
            format!("flux {low} and {high} in turns, every {} s", period.as_secs_f64())
        }
        Pattern::RandomDrawn { low, high, period } => {
            let period_s = period.as_secs_f64();
            format!("random-array {low} to {high}, another size every {period_s} s")
        }
        Pattern::RandomSteps { steps } => format!("random-array of {} sizes", steps.len()),
        Pattern::Sequential { size, passes: None } => format!("sequential {size}"),
        Pattern::Sequential { size, passes: Some(passes) } => {
            format!("sequential {size}, {passes} passes")
        }
        Pattern::FileRandom { size } => format!("file-random {size}"),
        Pattern::Cold { size, share_per_s } => {
            format!("cold {size}, {:.1} % touched each second", share_per_s * 100.0)
        }
        Pattern::Zipf { size, exponent, .. } => format!("zipf {size}, exponent {exponent}"),
        Pattern::Program { program, size } => format!("{} of {size}", program.packed()),
        // The lab's scenarios refuse what only the simulator runs.
        Pattern::Curve { .. } => "miss-curve".to_owned(),
        Pattern::Trace { .. } => "trace".to_owned(),
        Pattern::Phases { .. } => "phases".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn guests_and_workloads_are_described_in_words() {
        let info = scenario(&fixture::scenario(), "about it");
        assert_eq!(info.policies, ["static", "global"]);
        assert_eq!(info.guests[0].swap.as_deref(), Some("1GiB on ssd"));
        assert_eq!(
            info.guests[0].workloads,
            [
                "late: sequential 32MiB, from 3 s on",
                "mono 50MiB to 650MiB in 5 s, and back, again and again"
            ]
        );
        assert_eq!(info.guests[1].workloads, ["cold 64MiB, 1.0 % touched each second"]);
        assert_eq!(info.guests[1].swap, None);
    }
}
