//! A scenario of the simulator: any text gives a scenario or an error with a place, and a small
//! enough valid scenario runs.
#![no_main]

use ballast_model::Bytes;
use ballast_scenario_run::simulate::scenario_file::ScenarioFile;
use ballast_sim::{Scenario, Simulation, named};

/// Number of ticks that each scenario runs.
const TICKS: u32 = 3;
/// Blocks of all guests together, so that an input takes milliseconds.
const BLOCKS_MAX: u64 = 1 << 15;

libfuzzer_sys::fuzz_target!(|text: &str| {
    match ScenarioFile::parse(text, "scenario.toml".as_ref()) {
        Ok(file) => {
            assert!(file.scenario.validate().is_ok(), "read and cannot be");
            run(file);
        }
        Err(error) => assert!(error.to_string().starts_with("scenario.toml"), "{error}"),
    }
});

fn run(file: ScenarioFile) {
    let ScenarioFile { scenario, policies, .. } = file;
    let memory: Bytes = scenario.guests.iter().map(|guest| guest.memory).sum();
    let swap: Bytes = scenario.guests.iter().filter_map(|it| it.swap).map(|it| it.size).sum();
    let all = memory.saturating_add(swap);
    if all.get() / scenario.block.get() > BLOCKS_MAX {
        return;
    }
    let short = Scenario { duration: scenario.control.tick * TICKS, ..scenario };
    let policy = named(&short, policies[0]);
    let Ok(mut simulation) = Simulation::new(&short, policy) else { return };
    while simulation.step() {}
    let report = simulation.report();
    assert_eq!(report.plans_refused, 0);
}
