//! Small runs, and the form of the JSON.

use ballast_model::{Bytes, PolicyName, Signals};
use ballast_policy::{PolicySettings, build};
use serde_json::{Value, json};

use super::*;
use crate::timing::RunTime;

#[test]
fn a_quick_run_has_every_policy_in_every_situation() {
    let held = measure(&scaffold::parsed("--quick").unwrap(), &|_| ()).unwrap();
    let report = &held.findings;
    assert_eq!(report.figures.len(), Situation::ALL.len() * measure::names().count());
    assert!(report.figures.iter().all(|it| it.processor_ms.worst > 0.0), "{report:?}");
    for &name in PolicyName::BUILT_IN {
        let is_there = report.figures.iter().any(|it| it.what == name.as_str());
        assert_eq!(is_there, name != PolicyName::Meb, "{name}");
    }
    let text = held.render(None);
    assert!(text.contains("round-robin") && text.ends_with("against goals\n"), "{text}");
}

/// The JSON has the form that docs/json.md documents.
#[test]
fn the_json_is_as_documented() {
    let taken = |ms: f64| vec![RunTime { processor: ms / 1e3, wall: 2.0 * ms / 1e3 }];
    let runs = vec![taken(0.5), taken(1.0), taken(4.0)];
    let figures = report::figures(Situation::Short, &runs);
    let found = serde_json::to_value(&figures).unwrap();
    let expected = json!({
        "situation": "short", "what": "static", "processor_ms": {"median": 4.0, "worst": 4.0},
        "wall_ms": {"median": 8.0, "worst": 8.0}, "times_floor": 8.0,
    });
    assert_eq!(found[2], expected);
    let goals: Value = serde_json::to_value(report::goals(&figures)).unwrap();
    let goal = json!({
        "what": "static: worst run", "unit": "ms", "found": 4.0, "wanted": {"at_most": 5.0},
        "is_met": true,
    });
    assert_eq!(goals[3], goal);
}

/// Each situation has more or less memory than the guests want, as its name says.
#[test]
fn situations_are_what_they_are_called() {
    let names = guests::names(200).unwrap();
    for situation in Situation::ALL {
        let problem = guests::problem(situation, &names, 3);
        let mut policy = build(PolicyName::Tws, PolicySettings::default());
        let wanted: Bytes = problem.contenders().iter().map(|it| it.used).sum();
        let is_known = problem.contenders().iter().any(|it| it.signals != Signals::default());
        assert_eq!(is_known, situation != Situation::Bare);
        let given = policy.divide(&problem).wanted;
        let given: Bytes = given.iter().map(|wanted| wanted.target).sum();
        assert!(given <= problem.budget());
        match situation {
            Situation::Ample => assert!(wanted <= given && wanted < problem.budget()),
            Situation::Bare | Situation::Short | Situation::Priorities => {
                assert_eq!(given, problem.budget())
            }
            Situation::Ceilings => {
                let ceilings: Vec<Bytes> =
                    problem.contenders().iter().map(|it| it.ceiling).collect();
                let groups = ceilings.chunk_by(|a, b| a == b).count();
                assert!(groups >= 12 && ceilings.is_sorted(), "{groups} groups");
                assert_eq!(given, problem.budget());
            }
        }
        let ranks = problem.contenders().iter().map(|it| it.priority);
        assert_eq!(ranks.max() > Some(0), situation == Situation::Priorities);
    }
}
