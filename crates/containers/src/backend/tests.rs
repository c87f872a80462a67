//! Containers in plain files: what is read, ordered, noted and refused.
//!
//! Limits: plain files reclaim nothing. They need a file system with extended attributes.

use std::cell::Cell;

use ballast_model::{Bounds, Compliance, Generation, GuestPlan, PolicyName, PressureLevel};
use ballast_model::{Budget, Change, Estimate, HoldReason, Provenance};
use tempfile::TempDir;

use super::*;

/// A hierarchy of cgroups in plain files, which imitates the kernel's as far as possible.
struct Tree {
    folder: TempDir,
    second: Cell<u64>,
}

const STAT: &str = "file 31457280\ninactive_file 20971520\nslab_reclaimable 0\n\
                    workingset_refault_anon 0\npgfault 5\npgmajfault 1\n";

impl Tree {
    fn new() -> Tree {
        let tree = Tree { folder: tempfile::tempdir().unwrap(), second: Cell::new(100) };
        tree.write("sys/cgroup.controllers", "cpu memory pids\n");
        let point = tree.folder.path().join("sys");
        let mount = format!("30 1 0:26 / {} rw - cgroup2 cgroup2 rw\n", point.display());
        tree.write("proc/self/mountinfo", &mount);
        tree
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join("sys").join(name)).unwrap().trim().to_owned()
    }

    /// Adds a cgroup that holds `holds` MiB, with a limit of 1 GiB.
    fn add(&self, name: &str, holds: u64) {
        let bytes = (holds << 20).to_string();
        for (file, text) in [
            ("memory.current", bytes.as_str()),
            ("memory.high", "max"),
            ("memory.low", "0"),
            ("memory.max", "1073741824"),
            ("memory.stat", STAT),
            ("memory.swap.current", "0"),
            ("memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=77"),
            ("memory.reclaim", ""),
            ("cgroup.events", "populated 1\nfrozen 0\n"),
            ("cgroup.procs", "4711\n"),
        ] {
            self.write(&format!("sys/{name}/{file}"), &format!("{text}\n"));
        }
    }

    fn containers(&self, pattern: &str) -> Containers {
        let config = ContainersConfig {
            cgroups: vec![pattern.parse().unwrap()],
            memory: None,
            probes: true,
            order_timeout: Duration::from_secs(60),
            guests_max: 3,
        };
        Containers::new(config, &self.folder.path().join("proc"))
    }

    /// Samples a second later: each guest's name, allocation and available memory, in MiB.
    fn sample(&self, containers: &mut Containers) -> Vec<(String, u64, u64)> {
        self.second.set(self.second.get() + 1);
        let now = Timestamp::from_millis(self.second.get() * 1000);
        let request = SampleRequest {
            now,
            wall: std::time::SystemTime::UNIX_EPOCH,
            deadline: Duration::from_secs(1),
            only: None,
        };
        let mib = |size: Bytes| size.get() >> 20;
        let figures = |it: GuestReading| {
            let spare = it.sample.stats.unwrap().value.available.unwrap();
            (it.sample.id.to_string(), mib(it.sample.allocation.unwrap().value), mib(spare))
        };
        containers.sample_now(request).into_iter().map(figures).collect()
    }
}

fn action(guest: &str, target: u64, generation: u64) -> Action {
    Action {
        guest: guest.parse().unwrap(),
        target: Bytes::mib(target),
        plug: None,
        generation: Generation(generation),
        deadline: Timestamp::from_millis(u64::MAX),
    }
}

async fn order(containers: &mut Containers, guest: &str, target: u64) -> OutcomeKind {
    let now = Timestamp::from_millis(1_000_000);
    let actions = [action(guest, target, 1)];
    containers.order_all(now, &actions).await.remove(0).kind
}

/// A plan in which each guest has an estimate and a floor of 128 MiB, except those left alone.
fn plan(guests: &[(&str, HoldReason)]) -> Plan {
    let guest = |(name, held): &(&str, HoldReason)| GuestPlan {
        id: name.parse().unwrap(),
        allocation: None,
        bounds: Some(Bounds { floor: Bytes::mib(128), ceiling: Bytes::gib(1) }),
        estimate: Some(Estimate::of_used(
            Bytes::mib(1),
            Bytes::mib(1),
            Provenance::BalloonStatistics { age: Duration::ZERO },
        )),
        desired: None,
        clamps: Vec::new(),
        credits: None,
        compliance: Compliance::Compliant,
        target: None,
        change: Change::Hold(held.clone()),
        moves: Vec::new(),
        balloon_rate: None,
        regret: None,
    };
    Plan {
        generation: Generation(1),
        decided_at: Timestamp::ZERO,
        policy: PolicyName::Static,
        budget: Budget::default(),
        guests: guests.iter().map(guest).collect(),
        actions: Vec::new(),
        paging: Vec::new(),
        host_pressure: PressureLevel::Normal,
        reservations: Vec::new(),
        notes: Vec::new(),
    }
}

/// Waits for the threads that write files.
fn wait_until(is_so: impl Fn() -> bool) {
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < until, "waited in vain");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn a_container_is_limited_and_given_back() {
    let tree = Tree::new();
    tree.add("app.slice/web\\x2d1.scope", 300);
    let mut containers = tree.containers("app.slice/*");
    let name = "web-1.scope";
    assert_eq!(tree.sample(&mut containers), [(name.to_owned(), 1024, 1024 - 300 + 20)]);
    containers.planned(&plan(&[(name, HoldReason::OnTarget)]));
    assert_eq!(order(&mut containers, name, 400).await, OutcomeKind::Accepted);
    let at = |file: &str| tree.read(&format!("app.slice/web\\x2d1.scope/{file}"));
    assert_eq!(
        [at("memory.high"), at("memory.low")],
        [(400u64 << 20), 128 << 20].map(|it| it.to_string())
    );
    assert_eq!(tree.sample(&mut containers), [(name.to_owned(), 400, 120)]);
    let mut raised = plan(&[(name, HoldReason::OnTarget)]);
    raised.guests[0].bounds.as_mut().unwrap().floor = Bytes::mib(200);
    containers.planned(&raised);
    wait_until(|| at("memory.low") == (200u64 << 20).to_string());
    // The 100 MiB that it holds beyond the target are not released.
    assert_eq!(order(&mut containers, name, 200).await, OutcomeKind::Accepted);
    assert_eq!(tree.sample(&mut containers), [(name.to_owned(), 300, 20)]);

    // The next daemon knows which limits Ballast has set, and which it had found.
    let mut next = tree.containers("app.slice/*");
    assert_eq!(tree.sample(&mut next), [(name.to_owned(), 300, 20)]);
    assert_eq!(order(&mut next, name, 1024).await, OutcomeKind::Accepted);
    assert_eq!([at("memory.high"), at("memory.low")], ["max", "0"]);
    assert_eq!(tree.sample(&mut next), [(name.to_owned(), 1024, 1024 - 300 + 20)]);
    let gone = order(&mut next, "nobody", 300).await;
    assert_eq!(gone, OutcomeKind::Failed("not sent: the guest is gone".to_owned()));
}

#[tokio::test]
async fn a_limit_set_by_others_is_the_most_allowed() {
    let tree = Tree::new();
    tree.add("web", 300);
    let mut containers = tree.containers("web");
    tree.sample(&mut containers);
    order(&mut containers, "web", 500).await;
    tree.write("sys/web/memory.high", &(400u64 << 20).to_string());
    assert_eq!(tree.sample(&mut containers)[0].1, 400);
    order(&mut containers, "web", 800).await;
    assert_eq!(tree.read("web/memory.high"), (400u64 << 20).to_string());
    order(&mut containers, "web", 350).await;
    assert_eq!(tree.read("web/memory.high"), (350u64 << 20).to_string());
}

#[test]
fn what_is_no_container_is_refused_once_with_the_reason() {
    let tree = Tree::new();
    tree.add("a/unlimited", 10);
    tree.write("sys/a/unlimited/memory.max", "max\n");
    tree.add("a/vm", 10);
    tree.write("sys/a/vm/libvirt/cgroup.procs", "4712\n");
    tree.write("proc/4712/comm", "qemu-system-x86\n");
    tree.add("a/good", 10);
    let mut containers = tree.containers("a/*");
    assert_eq!(tree.sample(&mut containers).len(), 1);
    let notices = containers.take_notices().join("\n");
    for words in
        ["unlimited: has no memory.max", "vm: it holds a virtual machine", "container good"]
    {
        assert!(notices.contains(words), "{words}: {notices}");
    }
    assert_eq!(containers.refused(), 2);
    tree.sample(&mut containers);
    assert_eq!(containers.take_notices(), [""; 0]);

    let mut config = containers.config.clone();
    config.cgroups = vec!["a".parse().unwrap(), "a/*".parse().unwrap()];
    tree.add("a", 20);
    let mut containers = Containers::new(config, &tree.folder.path().join("proc"));
    assert_eq!(tree.sample(&mut containers)[0].0, "good");
    assert!(containers.take_notices().join("\n").contains("a: it holds a virtual machine"));
}

#[test]
fn one_within_another_counts_once() {
    let tree = Tree::new();
    tree.add("a", 20);
    tree.add("a/b", 10);
    let mut containers = tree.containers("a");
    containers.config.cgroups.push("a/*".parse().unwrap());
    let names = |it: Vec<(String, u64, u64)>| it.into_iter().map(|it| it.0).collect::<Vec<_>>();
    assert_eq!(names(tree.sample(&mut containers)), ["a"]);
    assert!(containers.take_notices().join("\n").contains("a/b: it is within"));
    assert_eq!(names(tree.sample(&mut containers)), ["a"]);

    // The outer cgroup gets its limit after the inner one became a guest.
    tree.write("sys/a/memory.max", "max\n");
    let mut later = tree.containers("a");
    later.config.cgroups.push("a/*".parse().unwrap());
    assert_eq!(names(tree.sample(&mut later)), ["b"]);
    tree.write("sys/a/memory.max", "1073741824\n");
    assert_eq!(names(tree.sample(&mut later)), ["b"]);
    assert!(later.take_notices().join("\n").contains("is within it"));
}

#[test]
fn another_cgroup_of_the_same_name_is_another_guest() {
    let tree = Tree::new();
    tree.add("web", 300);
    let mut containers = tree.containers("web");
    tree.sample(&mut containers);
    let before = containers.containers.values().next().unwrap().inode();
    let path = tree.folder.path().join("sys/web");
    fs::rename(&path, tree.folder.path().join("kept")).unwrap();
    tree.add("web", 200);
    tree.sample(&mut containers);
    assert_ne!(containers.containers.values().next().unwrap().inode(), before);
    assert!(containers.take_notices().join("\n").contains("container web is gone"));
    fs::remove_dir_all(&path).unwrap();
    assert_eq!(tree.sample(&mut containers), []);
}

#[test]
fn only_who_takes_part_is_probed() {
    let tree = Tree::new();
    tree.add("left", 400);
    tree.add("observed", 400);
    tree.add("probed", 400);
    let mut containers = tree.containers("*");
    let plan = plan(&[
        ("left", HoldReason::OptedOut),
        ("observed", HoldReason::Observing),
        ("probed", HoldReason::OnTarget),
    ]);
    for _ in 0..9 {
        tree.sample(&mut containers);
        containers.planned(&plan);
    }
    wait_until(|| !tree.read("probed/memory.reclaim").is_empty());
    assert_eq!(tree.read("probed/memory.reclaim"), (2u64 << 20).to_string());
    assert_eq!(tree.read("left/memory.reclaim"), "");
    assert_eq!(tree.read("observed/memory.reclaim"), "");
}

#[test]
fn version_one_is_refused_with_the_reason() {
    let tree = Tree::new();
    tree.add("web", 300);
    tree.write("sys/cgroup.controllers", "\n");
    let mut containers = tree.containers("web");
    assert_eq!(tree.sample(&mut containers), []);
    let notices = containers.take_notices().join("\n");
    assert!(notices.contains("version 1 of cgroups") && notices.contains("unified"), "{notices}");
    tree.write("proc/self/mountinfo", "");
    let notices = tree.containers("web").take_notices().join("\n");
    assert!(notices.contains("version 2 of cgroups is not mounted"), "{notices}");
}
