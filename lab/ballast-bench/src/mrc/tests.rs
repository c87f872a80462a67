//! The whole bench, on small workloads.

use clap::ValueEnum;

use super::*;

fn report(options: &str) -> WithGoals<MrcFindings> {
    measure(&scaffold::parsed(options).unwrap(), &|_| ()).unwrap()
}

#[test]
fn a_quick_run_has_every_engine_on_every_workload() {
    let held = report("--quick");
    let report = &held.findings;
    assert_eq!(report.workloads.len(), WorkloadName::value_variants().len());
    for workload in &report.workloads {
        let engines: Vec<_> = workload.engines.iter().map(|it| it.engine.clone()).collect();
        let expected: Vec<_> =
            ContenderName::value_variants().iter().map(|&name| name_of(name)).collect();
        assert_eq!(engines, expected, "{}", workload.workload);
        for engine in &workload.engines {
            assert!(engine.million_per_second.median > 0.0, "{engine:?}");
            assert!(engine.references > 0, "{engine:?}");
        }
    }
    let text = held.render(None);
    assert!(text.contains("\nzipf: ") && text.ends_with("against goals\n"), "{text}");
}

#[test]
fn a_trace_is_a_workload() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.u64");
    let pages = (0..500_u64).cycle().take(3000).map(|page| page << 40);
    std::fs::write(&path, pages.flat_map(u64::to_le_bytes).collect::<Vec<_>>()).unwrap();
    let engines = "--engine avl --engine exact --engine floor";
    let held = report(&format!("--repetitions 2 {engines} --trace {}", path.display()));
    let [workload] = held.findings.workloads.as_slice() else { panic!("{held:?}") };
    assert_eq!((workload.references, workload.pages), (3000, 500));
    let engines: Vec<_> = workload.engines.iter().map(|it| it.engine.as_str()).collect();
    assert_eq!(engines, ["floor", "avl", "exact"]);
    let goals: Vec<_> = held.goals.iter().map(|goal| goal.what.as_str()).collect();
    assert_eq!(goals, ["some.u64: exact, times avl"]);
}
