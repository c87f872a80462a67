//! Tests of scenario files: what is read, what is refused and at which place, and that every file
//! in the tree runs.

use std::path::PathBuf;

use ballast_sim::{Balloon, Kernel, Pace, Pattern, Ramp, Step};
use proptest::prelude::*;

use super::super::paper::Metric;
use super::*;

const GOOD: &str = r#"
name = "s"
duration = "60s"
policies = ["static", "mom"]
[host]
budget = "1GiB"
[defaults]
swap = { size = "2GiB", speed = "hdd" }
[[guests]]
name = "a"
memory = "1GiB"
start = "512MiB"
swap = { size = "1GiB", speed = { iops = 100, bytes_per_second = 1000000 } }
[[guests.workloads]]
at = "5s"
kind = "mono"
low = "50MiB"
high = "650MiB"
ramp_s = 10.0
[[guests]]
name = "b"
count = 2
memory = "1GiB"
start = "256MiB"
[[paper]]
what = "times of both"
policy = "meb"
guest = "a"
metric = "work_ratio"
value = 0.96
source = "MEB Table VIII"
"#;

fn parse(text: &str) -> Result<ScenarioFile, String> {
    ScenarioFile::parse(text, Path::new("s.toml")).map_err(|error| error.to_string())
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

/// Every scenario file in the tree, the lab's too.
fn files() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = ["", "lab"]
        .iter()
        .flat_map(|sub| std::fs::read_dir(folder().join(sub)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "toml"))
        .collect();
    files.sort();
    files
}

fn read(path: &Path) -> ScenarioFile {
    let text = std::fs::read_to_string(path).unwrap();
    ScenarioFile::parse(&text, path).unwrap_or_else(|error| panic!("{error}"))
}

/// The lab's key `hotplug` becomes the memory by which the guest can grow.
#[test]
fn a_guest_with_pluggable_memory_can_grow_by_it() {
    let hotplug =
        "memory = \"1GiB\"\nceiling = \"2GiB\"\nhotplug = { max = \"1GiB\", kind = \"dimm\" }";
    let file = parse(&GOOD.replacen("memory = \"1GiB\"", hotplug, 1)).unwrap();
    assert_eq!(file.scenario.guests[0].memory_max, Some(Bytes::gib(2)));
    let error =
        parse(&GOOD.replacen("memory = \"1GiB\"", &hotplug.replace("max = \"1", "max = \"0"), 1));
    assert!(error.unwrap_err().contains("ceiling: 2GiB is more than the guest can grow to"));
}

#[test]
fn every_value_arrives() {
    let file = parse(GOOD).unwrap();
    let scenario = &file.scenario;
    assert_eq!(file.policies, [PolicyName::Static, PolicyName::Custom("mom")]);
    assert_eq!(scenario.duration, Duration::from_secs(60));
    assert_eq!(scenario.block, Scenario::BLOCK_DEFAULT);
    assert_eq!(scenario.host.memory, Bytes::mib(1024 + 512));
    assert_eq!(scenario.budget(), Bytes::gib(1));
    let names: Vec<&str> = scenario.guests.iter().map(|guest| guest.id.as_str()).collect();
    assert_eq!(names, ["a", "b-1", "b-2"]);
    let [a, b, _] = &scenario.guests[..] else { panic!("three guests") };
    let swap = a.swap.unwrap();
    assert_eq!((swap.size, swap.disk.latency), (Bytes::gib(1), Duration::from_millis(10)));
    assert_eq!(b.swap, Some(Swap::new(Bytes::gib(2), Disk::HDD)));
    assert_eq!((a.start(), b.start()), (Bytes::mib(512), Bytes::mib(256)));
    assert_eq!(a.workloads[0].at, Duration::from_secs(5));
    assert_eq!((file.paper[0].metric, file.paper[0].value), (Metric::WorkRatio, 0.96));
}

#[test]
fn machine_and_host_are_as_written() {
    let text = GOOD.replace(
        "[defaults]\n",
        r#"memory = "4GiB"
reserve = "64MiB"
hypervisor_reserve = "128MiB"
scrub_per_mib = "1ms"
swap_shared = true
reclaim = { grace = "7s", speed = "ssd" }
[settings]
tick = "500ms"
block = "2MiB"
[policy]
reserve_per_guest = "150MiB"
meb = { grow_max = 0.5 }
tws = { fast = 0.1 }
[defaults]
touch = "2us"
kernel = { unreclaimable = "20MiB", swappiness = 10 }
balloon = { deflate = "1GiB" }
sources = { agent = false, tracker_interval = "3s" }
"#,
    );
    let scenario = parse(&text).unwrap().scenario;
    let host = &scenario.host;
    assert_eq!((host.memory, host.hypervisor_reserve), (Bytes::gib(4), Bytes::mib(128)));
    assert_eq!((host.scrub_per_mib, host.swap_shared), (Duration::from_millis(1), true));
    let reclaim = HostReclaim { grace: Duration::from_secs(7), disk: Disk::SSD };
    assert_eq!(host.reclaim, Some(reclaim));
    assert_eq!((scenario.control.tick.as_millis(), scenario.block), (500, Bytes::mib(2)));
    assert_eq!(scenario.control.guard.host_reserve, Bytes::mib(64));
    assert_eq!(scenario.control.policy_settings.reserve, Bytes::mib(150));
    assert_eq!(scenario.control.policy_settings.meb.grow_basis_points, 5_000);
    assert_eq!(scenario.control.probing.fast_basis_points, 1_000);
    for guest in &scenario.guests {
        assert_eq!(guest.touch, Duration::from_micros(2));
        assert_eq!((guest.kernel.unreclaimable, guest.kernel.swappiness), (Bytes::mib(20), 10));
        assert_eq!(guest.kernel.uncounted, Kernel::default().uncounted);
        assert_eq!(guest.balloon, Balloon { deflate: Bytes::gib(1), ..Balloon::default() });
        assert!(!guest.sources.agent && guest.sources.statistics);
        assert_eq!(guest.sources.tracker.unwrap().interval, Duration::from_secs(3));
    }
    let none = parse(&text.replace("tracker_interval = \"3s\"", "tracker = false")).unwrap();
    assert_eq!(none.scenario.guests[0].sources.tracker, None);
}

#[test]
fn every_kind_of_workload_is_read() {
    let pattern = |table: &str| {
        let text = GOOD
            .replace("kind = \"mono\"\nlow = \"50MiB\"\nhigh = \"650MiB\"\nramp_s = 10.0", table);
        parse(&text).map(|file| file.scenario.guests[0].workloads[0].workload.pattern.clone())
    };
    let (mib, s) = (Bytes::mib, Duration::from_secs);
    let mono = Pattern::Mono {
        low: mib(1),
        high: mib(11),
        ramp: Ramp::GrowthPerS(mib(2)),
        hold: s(0),
        cycles: None,
    };
    let steps = vec![Step { at: s(0), size: mib(1) }, Step { at: s(9), size: mib(2) }];
    let phases = vec![
        ballast_sim::Phase { duration: s(60), pattern: Pattern::Constant { size: mib(3) } },
        ballast_sim::Phase {
            duration: s(30),
            pattern: Pattern::Zipf { size: mib(9), exponent: 0.8, file: false },
        },
    ];
    let point = |at, size, touches_per_s| ballast_sim::TracePoint {
        at: s(at),
        working_set: mib(size),
        touches_per_s,
    };
    for (table, expected) in [
        ("kind = \"mono\"\nlow = \"1MiB\"\nhigh = \"11MiB\"\ngrow_per_s = \"2MiB\"", mono),
        ("kind = \"constant\"\nsize = \"5MiB\"", Pattern::Constant { size: mib(5) }),
        (
            "kind = \"flux\"\nlow = \"1MiB\"\nhigh = \"2MiB\"\nperiod_s = 4",
            Pattern::Flux { low: mib(1), high: mib(2), period: s(4) },
        ),
        (
            "kind = \"random-array\"\nlow = \"1MiB\"\nhigh = \"2MiB\"\nperiod_s = 4",
            Pattern::RandomDrawn { low: mib(1), high: mib(2), period: s(4) },
        ),
        (
            "kind = \"random-array\"\nsteps = [{at_s = 0, size = \"1MiB\"}, {at_s = 9, size = \"2MiB\"}]",
            Pattern::RandomSteps { steps },
        ),
        (
            "kind = \"sequential\"\nsize = \"5MiB\"\npasses = 2",
            Pattern::Sequential { size: mib(5), passes: Some(2) },
        ),
        ("kind = \"file-random\"\nsize = \"5MiB\"", Pattern::FileRandom { size: mib(5) }),
        (
            "kind = \"cold\"\nsize = \"5MiB\"\nshare_per_s = 0.01",
            Pattern::Cold { size: mib(5), share_per_s: 0.01 },
        ),
        (
            "kind = \"zipf\"\nsize = \"9MiB\"\nexponent = 1\nfile = true",
            Pattern::Zipf { size: mib(9), exponent: 1.0, file: true },
        ),
        (
            "kind = \"trace\"\npoints = [{at_s = 0, working_set = \"3MiB\"}, \
             {at_s = 7, working_set = \"4MiB\", touches_per_s = 9}]",
            Pattern::Trace { points: vec![point(0, 3, None), point(7, 4, Some(9))] },
        ),
        (
            "kind = \"phases\"\nrepeat = true\npace = \"work\"\nphases = [\
             {duration = \"1min\", kind = \"constant\", size = \"3MiB\"},\
             {duration = \"30s\", kind = \"zipf\", size = \"9MiB\", exponent = 0.8}]",
            Pattern::Phases { phases, repeat: true, pace: Pace::Work },
        ),
    ] {
        assert_eq!(pattern(table), Ok(expected), "{table}");
    }
    let curve =
        "kind = \"miss-curve\"\nstep = \"8MiB\"\nratios = [1, 0.5, 0]\nreferences_per_s = 100";
    let Ok(Pattern::Curve { curve }) = pattern(curve) else { panic!("a curve") };
    assert_eq!((curve.step(), curve.points()), (mib(8), &[100, 50, 0][..]));
}

#[test]
fn every_mistake_is_reported_with_its_place_and_key() {
    let mut amiss = Vec::new();
    let mono = "kind = \"mono\"\nlow = \"50MiB\"\nhigh = \"650MiB\"\nramp_s = 10.0";
    let (budget, start) = ("budget = \"1GiB\"", "start = \"256MiB\"");
    let with = |text: &str, key: &str| format!("{text}\n{key}");
    let kind = |name: &str, keys: &str| format!("kind = \"{name}\"\n{keys}");
    let curve = |ratios: &str| {
        let keys = format!("step = \"1MiB\"\nratios = {ratios}\nreferences_per_s = 100");
        kind("miss-curve", &keys)
    };
    for (from, to, expected) in [
        ("duration = \"60s\"", "duration = 60", "s.toml:3:12: duration: 60 has no unit"),
        ("duration = \"60s\"", "duration = \"0s\"", "s.toml:3:12: duration: a run of 0 ticks"),
        ("duration = \"60s\"", "duration = \"9999days\"", "duration: a run of"),
        ("duration =", "dration =", "unknown key `dration`: did you mean `duration`"),
        ("[\"static\", \"mom\"]", "[]", "policies: expected at least one policy"),
        ("[\"static\", \"mom\"]", "[\"mom\", \"mom\"]", "policies: expected at least one"),
        ("\"mom\"]", "\"mum\"]", "`mum` is not a policy: expected static"),
        ("\"mom\"]", "\"mum\"]", "or of the rivals mom, qmemman"),
        (budget, "budget = \"100MiB\"", "host.budget: 100MiB is less than the guests' f"),
        (budget, "budget = \"1000MiB\"", "1000MiB is less than the guests start with"),
        (
            budget,
            "budget = \"4097TiB\"",
            "host.budget: 4097TiB is out of range: expected at most 4096TiB",
        ),
        (budget, &with(budget, "memory = \"1GiB\""), "host.memory: 1GiB is less than"),
        (budget, "bugdet = \"1GiB\"", "unknown key `bugdet` in [host]: did you mean"),
        ("[defaults]", "[policy.meb]\ngrow_max = -1\n[defaults]", "policy.meb.grow_max: -1"),
        ("[defaults]", "[policy.tws]\nfats = 1\n[defaults]", "did you mean `fast`"),
        ("[defaults]", "[policy]\ntau = 2\n[defaults]", "policy.tau"),
        (
            "\"mom\"]",
            "\"auction\"]\npolicy.flexmemd.frequency = \"once\"",
            "policy.flexmemd: policy `auction` (auction, once, price market",
        ),
        ("[defaults]", "[settings]\ntick = \"0s\"\n[defaults]", "settings.tick: tick = 0ns"),
        ("[defaults]", "[settings]\nblock = \"5KiB\"\n[defaults]", "settings.block: block = 5KiB"),
        ("[defaults]", "[settings]\nblok = 1\n[defaults]", "did you mean `block`"),
        ("[defaults]\n", "[defaults]\ntuch = \"1us\"\n", "did you mean `touch`"),
        ("[defaults]\n", "[defaults]\nkernel = { swapiness = 1 }\n", "did you mean `swappiness`"),
        ("[defaults]\n", "[defaults]\nkernel = { swappiness = 201 }\n", "swappiness = 201"),
        ("[defaults]\n", "[defaults]\ntouch = \"0s\"\n", "touch = 0ns: expected 1ns to 1s"),
        ("iops = 100", "iops = 0", "guests[0].swap: iops must be at least 1"),
        ("speed = \"hdd\"", "speed = \"sdd\"", "`sdd` is not a speed"),
        ("size = \"2GiB\"", "size = \"4KiB\"", "a disk of 4KiB is too small"),
        ("name = \"b\"", "name = \"-b\"", "is not a guest name"),
        ("name = \"a\"", "name = \"b-2\"", "guests[1].name: guest b-2 is defined twice"),
        ("count = 2", "count = 0", "guests[1].count: 0: expected at least 1"),
        ("count = 2", "count = 99999999", "guests: 100000000: expected 1 to"),
        (start, "start = \"2GiB\"", "guests[1].start: 2GiB is more than memory"),
        (start, "start = \"64MiB\"", "start: 64MiB is not between floor 128MiB"),
        (start, "floor = \"2GiB\"", "floor: 2GiB is more than the guest can grow to"),
        (
            start,
            &with(start, "floor = \"256MiB\"\nceiling = \"200MiB\""),
            "guests[1].floor: floor 256MiB is above ceiling 200MiB",
        ),
        (start, &with(start, "shares = 0"), "shares 0 is out of range"),
        (
            start,
            &with(start, "memory_max = \"512MiB\""),
            "guests[1].memory_max: guest b-1: memory_max = 512MiB: expected at least",
        ),
        ("memory = \"1GiB\"", "memory = \"64MiB\"", "guests[0]"),
        (
            "memory = \"1GiB\"",
            "memory = \"99999TiB\"\nfloor = \"128MiB\"",
            "guests[0].memory: guest a: memory = ",
        ),
        ("kind = \"mono\"", "kind = \"monu\"", "did you mean `mono`"),
        ("kind = \"mono\"", "kind = 7", "kind: expected a text"),
        ("kind = \"mono\"\n", "", "missing key `kind` in [guests[0].workloads[0]]"),
        ("low = \"50MiB\"", "lwo = \"50MiB\"", "lwo"),
        ("low = \"50MiB\"", "low = \"900MiB\"", "low = 900MiB is more than high"),
        ("ramp_s = 10.0", "ramp_s = nan", "guests[0].workloads[0]: ramp_s is not a finite number"),
        ("ramp_s = 10.0", "ramp_s = inf", "ramp_s is not a finite number"),
        ("ramp_s = 10.0", "ramp_s = 10.0\nduration_s = -1", "duration_s = -1"),
        ("ramp_s = 10.0", "ramp_s = 10.0\nwrite_share = 2.0", "write_share = 2"),
        ("ramp_s = 10.0", "ramp_s = 10.0\ntouches_per_s = 0", "touches_per_s = 0"),
        (
            mono,
            &kind("zipf", "size = \"1MiB\"\nexponent = 1\nnothing = 1"),
            "unknown key `nothing`",
        ),
        (mono, &kind("zipf", "size = \"1MiB\"\nexponent = 9"), "exponent = 9: expected 0 to 4"),
        (mono, &kind("trace", "points = []"), "points: expected 1 to"),
        (
            mono,
            &kind("trace", "points = [{at_s = -1, working_set = \"1MiB\"}]"),
            "at_s = -1: expected seconds",
        ),
        (mono, &curve("[0.5, 0.6]"), "rises from 50 misses at 0B to 60 at 1MiB"),
        (mono, &curve("[2]"), "miss ratio 2 at 0B: expected 0 to 1"),
        (mono, &curve("[0.5, nan]"), "guests[0].workloads[0]: ratios[1] is not a finite number"),
        (mono, &curve("[-0.5]"), "miss ratio -0.5 at 0B: expected 0 to 1"),
        (mono, &kind("phases", "phases = []"), "phases: expected 1 to"),
        (
            mono,
            &kind("phases", "phases = [{duration = \"1s\", kind = \"phases\", phases = []}]"),
            "a phase with phases of its own",
        ),
        (
            mono,
            &kind("phases", "phases = [{kind = \"constant\", size = \"1MiB\"}]"),
            "missing key `duration`",
        ),
        ("metric = \"work_ratio\"", "metric = \"work_rate\"", "did you mean `work_ratio`"),
        ("value = 0.96", "value = nan", "paper[0].value: NaN: expected a number"),
        ("value = 0.96", "value = -1", "paper[0].value: -1: expected a number"),
        ("what = \"times of both\"", "what = \"\"", "paper[0].what: expected one line"),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let error = parse(&GOOD.replacen(from, to, 1)).expect_err(to);
        if !(error.contains(expected) && error.starts_with("s.toml:")) {
            amiss.push(format!("{to}: `{error}` lacks `{expected}`"));
        }
    }
    assert!(amiss.is_empty(), "{}", amiss.join("\n"));
}

#[test]
fn scenarios_of_the_lab_read_here_too() {
    let file = read(&folder().join("lab/demo.toml"));
    assert_eq!(file.scenario.guests.len(), 2);
    let lab_only = GOOD
        .replace("[host]", "repetitions = 3\n[host]")
        .replace("[defaults]", "[settings]\nsettle = \"5s\"\naccel = \"kvm\"\n[defaults]");
    assert!(parse(&lab_only).is_ok());
}

#[test]
fn every_file_in_the_tree_reads() {
    assert!(files().len() > 10, "{:?}", files());
    for path in files() {
        let file = read(&path);
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap();
        assert_eq!(file.scenario.name, stem, "{}", path.display());
        for figure in &file.paper {
            let id = figure.guest.as_ref();
            let known = id.is_none_or(|id| file.scenario.guests.iter().any(|it| it.id == *id));
            assert!(known, "{}: {:?}", path.display(), figure.guest);
        }
    }
}

#[test]
fn every_file_in_the_tree_runs() {
    for path in files() {
        let file = read(&path);
        let scenario = Scenario { duration: Duration::from_secs(10), ..file.scenario };
        for name in file.policies {
            let rival = ballast_sim::rivals::build(name.as_str());
            let policy = rival.unwrap_or_else(|| ballast_sim::named(&scenario, name));
            let mut simulation = ballast_sim::Simulation::new(&scenario, policy).unwrap();
            while simulation.step() {}
            let report = simulation.report();
            let path = path.display();
            assert_eq!((report.plans_refused, report.violations), (0, 0), "{path}: {name}");
            let has_work = file.paper.is_empty() || report.work > 0;
            assert!(has_work, "{path}: {name} does nothing in 10s");
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_refused_or_read_without_panic(text in ".{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn damaged_scenarios_are_refused_or_read_without_panic(
        at in 0..GOOD.len(), len in 0usize..40, with in "[ -~]{0,10}"
    ) {
        let end = (at + len).min(GOOD.len());
        let _ = parse(&format!("{}{with}{}", &GOOD[..at], &GOOD[end..]));
    }
}
