//! Small runs, and the form of the JSON.

use std::time::Duration;

use ballast_sim::{Scenario, Simulation, named};
use serde_json::{Value, json};

use super::*;
use crate::timing::RunTime;

#[test]
fn a_quick_run_has_every_host_under_every_policy() {
    let args = scaffold::parsed("--quick --policy tws,static,tws").unwrap();
    let held = measure(&args, &|_| ()).unwrap();
    let report = &held.findings;
    let named: Vec<_> = report.figures.iter().map(|it| (it.setup, it.policy)).collect();
    let expected: Vec<_> =
        Setup::QUICK.iter().flat_map(|it| [(it.name, "static"), (it.name, "tws")]).collect();
    assert_eq!(named, expected);
    assert!(report.figures.iter().all(|it| it.times_real_time.worst > 0.0));
    assert!(held.goals.is_empty());
    let text = held.render(None);
    assert!(text.contains("to the page") && text.ends_with("against goals\n"), "{text}");
}

/// The JSON has the form that docs/json.md documents.
#[test]
fn the_json_is_as_documented() {
    let policies = [PolicyName::Global];
    let taken = |seconds: f64| vec![vec![RunTime { processor: seconds, wall: 2.0 * seconds }]];
    let measured = [(Setup::ALL[0], taken(0.03)), (Setup::ALL[1], taken(3.0))];
    let (figures, goals) = report::figures(&measured, &policies);
    let found: Value = serde_json::to_value((figures, goals)).unwrap();
    let spread = |speed: f64| json!({"median": speed, "worst": speed});
    let goal = |what: &str| {
        json!({
            "what": format!("16 guests, blocks of 1 MiB, global: times real time, {what}"),
            "unit": "", "found": 2000.0, "wanted": {"at_least": 1000.0}, "is_met": true,
        })
    };
    let expected = json!([
        [
            {
                "setup": "16 guests, blocks of 1 MiB", "guests": 16, "block_bytes": 1048576,
                "virtual_s": 60, "policy": "global", "runs": 1, "times_real_time": spread(2000.0),
                "times_real_time_wall": spread(1000.0), "times_pages": 100.0,
            },
            {
                "setup": "16 guests, to the page", "guests": 16, "block_bytes": 4096,
                "virtual_s": 60, "policy": "global", "runs": 1, "times_real_time": spread(20.0),
                "times_real_time_wall": spread(10.0), "times_pages": null,
            },
        ],
        [goal("median"), goal("worst run")],
    ]);
    assert_eq!(found, expected);
}

/// A host at rest would be simulated faster than any real one.
#[test]
fn the_crowd_keeps_everybody_busy() {
    let scenario = crowd::crowd(16, Duration::from_secs(60), Scenario::BLOCK_DEFAULT).unwrap();
    let policy = named(&scenario, PolicyName::Global);
    let mut simulation = Simulation::new(&scenario, policy).unwrap();
    while simulation.step() {}
    let report = simulation.report();
    assert!(report.major_faults > 0, "no guest lacks memory");
    let still = report.guests.iter().filter(|guest| guest.work == 0 || guest.moved.get() == 0);
    assert_eq!(still.count(), 0, "some guest rests");
}
