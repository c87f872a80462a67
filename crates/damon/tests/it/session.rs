//! Starting DAMON, sampling, and stopping it; and leaving it to another user.

use std::time::Duration;

use ballast_damon::{DamonError, DamonSession, DamonTarget, DamonWindow};

use crate::fake_kernel::FakeKernel;

const PAGE: u64 = 4096;
const WINDOW: Duration = Duration::from_secs(2);
const UPDATE: &str = "0/contexts/0/monitoring_attrs/intervals/update_us";

fn targets() -> [DamonTarget; 2] {
    let pages = |pages: &[u64]| pages.iter().map(|page| page * PAGE).collect();
    [
        DamonTarget { pid: 70, pages: pages(&[3, 9]) },
        DamonTarget { pid: 80, pages: pages(&[1, 2, 4]) },
    ]
}

fn record(target: usize, page: u64, touches: u32) -> String {
    let (start, end) = (page * PAGE, (page + 1) * PAGE);
    format!(
        "kdamond.0-9 [000] 1.0: damon_aggregated: target_id={target} nr_regions=2 {start}-{end}: {touches} 0\n"
    )
}

fn refusal(kernel: &FakeKernel) -> String {
    DamonSession::begin(kernel.paths()).unwrap_err().to_string()
}

#[test]
fn guests_become_targets_with_regions_of_one_page() {
    let kernel = FakeKernel::new();
    let mut session = DamonSession::begin(kernel.paths()).unwrap();
    session.set_window(WINDOW).unwrap();
    assert_eq!(kernel.get("nr_kdamonds"), "0", "nobody is sampled");
    session.watch(&targets(), WINDOW).unwrap();
    for (path, text) in [
        ("nr_kdamonds", "1"),
        ("0/contexts/nr_contexts", "1"),
        ("0/contexts/0/operations", "fvaddr"),
        ("0/contexts/0/monitoring_attrs/intervals/sample_us", "2000000"),
        ("0/contexts/0/monitoring_attrs/intervals/aggr_us", "2000000"),
        ("0/contexts/0/monitoring_attrs/nr_regions/min", "5"),
        ("0/contexts/0/monitoring_attrs/nr_regions/max", "5"),
        ("0/contexts/0/targets/nr_targets", "2"),
        ("0/contexts/0/targets/0/pid_target", "70"),
        ("0/contexts/0/targets/1/regions/nr_regions", "3"),
        ("0/contexts/0/targets/1/regions/2/start", "16384"),
        ("0/contexts/0/targets/1/regions/2/end", "20480"),
        ("0/state", "on"),
    ] {
        assert_eq!(kernel.get(path), text, "{path}");
    }
    let instance = "sys/kernel/tracing/instances/ballast-damon";
    assert_eq!(kernel.text(&format!("{instance}/trace")), "");
    assert_eq!(kernel.text(&format!("{instance}/events/damon/damon_aggregated/enable")), "1");

    assert_eq!(session.read().unwrap(), [], "nothing has come");
    let trace = [record(0, 3, 0), record(0, 9, 1), record(1, 1, 0), record(1, 2, 0)].concat();
    kernel.put(&format!("{instance}/trace_pipe"), &trace);
    assert_eq!(session.read().unwrap(), [DamonWindow { target: 0, touched: vec![1] }]);
    kernel.put("proc/9/schedstat", "1500000 20 3\n");
    kernel.set("0/pid", "9");
    assert_eq!(session.cost(), Some(Duration::from_micros(1500)));

    session.set_window(WINDOW * 2).unwrap();
    let interval =
        |name: &str| kernel.get(&format!("0/contexts/0/monitoring_attrs/intervals/{name}"));
    assert_eq!(["sample_us", "aggr_us"].map(interval), ["4000000", "4000000"]);
    assert_eq!((kernel.get("0/state"), kernel.get(UPDATE)), ("on".into(), "195107415".into()));
    kernel.set("0/state", "off");
    assert!(matches!(session.read().unwrap_err(), DamonError::Stopped));
    kernel.set("0/state", "on");
    drop(session);
    assert_eq!((kernel.get("0/state"), kernel.get("nr_kdamonds")), ("off".into(), "0".into()));
    assert_eq!(kernel.text(&format!("{instance}/events/damon/damon_aggregated/enable")), "0");
}

#[test]
fn a_probe_leaves_nothing() {
    let kernel = FakeKernel::new();
    DamonSession::probe(kernel.paths()).unwrap();
    assert_eq!(kernel.get("nr_kdamonds"), "0");
    kernel.set("0/contexts/0/avail_operations", "paddr\n");
    let error = DamonSession::probe(kernel.paths()).unwrap_err();
    assert!(matches!(error, DamonError::Operations(_)), "{error}");
    assert_eq!(kernel.get("nr_kdamonds"), "0");
    kernel.set("nr_kdamonds", "1");
    kernel.set("0/contexts/0/monitoring_attrs/intervals/update_us", "1000");
    let error = DamonSession::probe(kernel.paths()).unwrap_err();
    assert!(matches!(error, DamonError::Foreign { .. }), "{error}");
    assert_eq!(kernel.get("nr_kdamonds"), "1", "somebody else's stays");
}

#[test]
fn what_a_killed_daemon_left_is_stopped() {
    let kernel = FakeKernel::new();
    let mut session = DamonSession::begin(kernel.paths()).unwrap();
    session.watch(&targets(), WINDOW).unwrap();
    assert!(refusal(&kernel).contains("another program of Ballast"), "while it lives");
    let (update, left) = (kernel.get(UPDATE), kernel.get("0/state"));
    drop(session);
    // As if the daemon had been killed before.
    kernel.set("nr_kdamonds", "1");
    kernel.set("0/state", &left);
    assert_eq!(kernel.get(UPDATE), update);
    drop(DamonSession::begin(kernel.paths()).unwrap());
    assert_eq!((kernel.get("0/state"), kernel.get("nr_kdamonds")), ("off".into(), "0".into()));
}

#[test]
fn what_somebody_else_set_up_is_left_alone() {
    let kernel = FakeKernel::new();
    for count in ["1", "2"] {
        kernel.set("nr_kdamonds", count);
        kernel.set("0/state", "on");
        let error = refusal(&kernel);
        assert!(error.contains("in use by somebody else") && error.contains(count), "{error}");
        assert_eq!((kernel.get("0/state"), kernel.get("nr_kdamonds")), ("on".into(), count.into()));
    }
    // The kernel's own modules have kdamonds that sysfs does not show; a process may have any name.
    kernel.set("nr_kdamonds", "0");
    kernel.put("proc/50/stat", "50 (kdamond.0) S 1 0 0");
    DamonSession::begin(kernel.paths()).unwrap();
    kernel.put("proc/51/stat", "51 (kdamond.0) S 2 0 0");
    assert!(matches!(DamonSession::begin(kernel.paths()).unwrap_err(), DamonError::Kernel));
}

#[test]
fn what_the_kernel_lacks_is_reported() {
    let lacking = |path: &str| {
        let kernel = FakeKernel::new();
        kernel.remove(path);
        DamonSession::begin(kernel.paths()).unwrap_err()
    };
    let error = lacking("sys/kernel/mm");
    assert!(error.is_lasting() && error.to_string().contains("no DAMON"), "{error}");
    let error = lacking("sys/kernel/tracing");
    assert!(!error.is_lasting() && error.to_string().contains("mount -t tracefs"), "{error}");
    let error = lacking("sys/kernel/tracing/events");
    assert!(error.is_lasting() && error.to_string().contains("damon_aggregated"), "{error}");
    let kernel = FakeKernel::new();
    kernel.put("sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
    assert!(refusal(&kernel).contains("locked down"));
    kernel.put("sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
    let mut session = DamonSession::begin(kernel.paths()).unwrap();
    kernel.set("0/contexts/0/avail_operations", "paddr\n");
    let error = session.watch(&targets(), WINDOW).unwrap_err();
    assert!(error.is_lasting() && error.to_string().contains("`paddr`"), "{error}");
    assert_eq!(kernel.get("nr_kdamonds"), "0");
}

#[test]
fn too_few_and_too_many_pages_are_refused() {
    let kernel = FakeKernel::new();
    let mut session = DamonSession::begin(kernel.paths()).unwrap();
    for pages in [vec![0, PAGE], (0..20_000).map(|page| page * PAGE).collect()] {
        let target = DamonTarget { pid: 1, pages };
        let error = session.watch(&[target], WINDOW).unwrap_err().to_string();
        assert!(error.contains("expected 3 to 16384"), "{error}");
    }
    assert_eq!(kernel.get("nr_kdamonds"), "0");
}

#[test]
fn rubbish_in_a_file_is_named() {
    let kernel = FakeKernel::new();
    kernel.set("nr_kdamonds", "many");
    let error = refusal(&kernel);
    assert!(error.contains("nr_kdamonds: `many`: expected a number"), "{error}");
}
