//! The whole bench, on small workloads.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn report(options: &[&str]) -> WithGoals<MrcFindings> {
    let line = Line::parse_from(["mrc"].iter().chain(options));
    measure(&line.args, &|_| ()).unwrap()
}

#[test]
fn a_quick_run_has_every_engine_on_every_workload() {
    let held = report(&["--quick"]);
    let report = &held.findings;
    assert_eq!(report.workloads.len(), WorkloadName::value_variants().len());
    for workload in &report.workloads {
        let engines: Vec<_> = workload.engines.iter().map(|engine| engine.engine).collect();
        let expected: Vec<_> =
            ContenderName::value_variants().iter().map(|name| name.as_str()).collect();
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
    let path = path.to_str().unwrap();
    let held = report(&[
        "--repetitions",
        "2",
        "--engine",
        "avl",
        "--engine",
        "exact",
        "--engine",
        "floor",
        "--trace",
        path,
    ]);
    let [workload] = held.findings.workloads.as_slice() else { panic!("{held:?}") };
    assert_eq!((workload.references, workload.pages), (3000, 500));
    let engines: Vec<_> = workload.engines.iter().map(|engine| engine.engine).collect();
    assert_eq!(engines, ["floor", "avl", "exact"]);
    let goals: Vec<_> = held.goals.iter().map(|goal| goal.what.as_str()).collect();
    assert_eq!(goals, ["some.u64: exact, times avl"]);
}
