//! Stock guests, without the tracker, under the real daemon on a KVM host: their working sets come
//! from the kernel's DAMON or MGLRU.
//!
//! Limits: only in an outer machine of `ballast-lab nested`, where nothing else uses DAMON; asserts
//! states and amounts, never times.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::harness::{Daemon, Testbed, guest, wait_for};
use crate::support::own_cgroup::OwnCgroup;
use crate::support::{Lab, allocation, swapping, wait_allocation};
use ballast_api::{StatusReply, TrackingView};
use ballast_lab_host::{GuestSpec, Hotplug, HotplugKind, NESTED_VARIABLE};
use ballast_model::Bytes;

/// Memory of the guest, and what its loop touches.
const BOOT: Bytes = Bytes::mib(256);
const LOOP: Bytes = Bytes::mib(72);
const COUNT: &str = "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds";
const INSTANCE: &str = "/sys/kernel/tracing/instances/ballast-damon";
const HUGE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Boots a guest as QEMU starts it by default, and starts its loop; `None` outside of an outer
/// machine.
fn boot(huge_pages: &str) -> Option<Lab> {
    boot_guest(huge_pages, stock())
}

fn stock() -> GuestSpec {
    GuestSpec { private_memory: true, ..swapping("stock", BOOT) }
}

fn boot_guest(huge_pages: &str, guest: GuestSpec) -> Option<Lab> {
    let lab = boot_idle(huge_pages, guest)?;
    lab.start_constant_at_full_speed("stock", LOOP);
    Some(lab)
}

fn boot_idle(huge_pages: &str, guest: GuestSpec) -> Option<Lab> {
    may_sample(huge_pages).then(|| Lab::boot(vec![guest]))
}

/// Whether this is a machine for these tests; sets its use of huge pages as named. Prints `SKIPPED`
/// if it is not.
pub(crate) fn may_sample(huge_pages: &str) -> bool {
    let is_one = std::env::var_os(NESTED_VARIABLE).is_some() && Path::new(COUNT).exists();
    if is_one {
        // Nobody else uses this machine.
        std::fs::write(HUGE, huge_pages).unwrap();
    } else {
        println!("SKIPPED: needs an outer machine of `ballast-lab nested` whose kernel has DAMON");
    }
    is_one
}

fn configured(lab: &Lab, tracking: &str) -> Testbed {
    let testbed = Testbed::new();
    let settings = format!("[policy]\nname = \"static\"\n[tracking]\n{tracking}");
    testbed.configure_for(lab.sockets(), "tick = \"250ms\"", &settings);
    testbed
}

fn tracking(daemon: &Daemon<'_>) -> Option<TrackingView> {
    tracking_of(&daemon.status()?, "stock")
}

fn tracking_of(status: &StatusReply, name: &str) -> Option<TrackingView> {
    guest(status, name)?.tracking.clone()
}

/// Waits until the daemon has a working set from `source`.
fn wait_source(daemon: &Daemon<'_>, source: &str) -> Bytes {
    wait_for(&format!("a working set from {source}"), || {
        let tracking = tracking(daemon)?;
        let is_seen = ["sampling", "aging"].contains(&tracking.state.code.as_str());
        let is_it = is_seen && tracking.source?.code == source;
        let size = Bytes::new(tracking.working_set_bytes?);
        // What a guest touched only while it booted is no longer in the working set in the end.
        (is_it && size < LOOP.fraction(3, 2)).then_some(size)
    })
}

/// Whether a working set is that of the loop, within a tenth.
fn is_loop(size: Bytes) -> bool {
    (LOOP.fraction(9, 10)..LOOP.fraction(11, 10)).contains(&size)
}

/// The output of `ballast track` for some seconds, one object per interval.
fn track(testbed: &Testbed, source: &str) -> Vec<serde_json::Value> {
    let line = ["track", "stock", "--source", source, "--budget", "5", "--for", "12s", "--json"];
    let (code, output, error) = testbed.ballast(&line);
    assert_eq!(code, Some(0), "{error}");
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn working_set(interval: &serde_json::Value) -> Bytes {
    Bytes::new(interval["working_set_bytes"].as_u64().unwrap())
}

/// What `ballast doctor tracking` finds about the guest.
fn diagnosis(testbed: &Testbed) -> serde_json::Value {
    let (code, output, error) = testbed.ballast(&["doctor", "tracking", "--json"]);
    assert_eq!(code, Some(0), "{error}");
    let mut diagnosis: serde_json::Value = serde_json::from_str(&output).unwrap();
    diagnosis["guests"][0].take()
}

fn is_left_behind() -> bool {
    std::fs::read_to_string(COUNT).unwrap().trim() != "0" || Path::new(INSTANCE).exists()
}

#[test]
fn a_stock_guest_is_sampled_by_whoever_asks() {
    let Some(lab) = boot("never") else { return };
    let testbed = configured(&lab, "");
    let daemon = testbed.start();
    let size =
        wait_for("the loop", || Some(wait_source(&daemon, "damon")).filter(|it| is_loop(*it)));
    eprintln!("the daemon sees {size}");
    let words = [
        "sampling page touches by DAMON",
        "(DAMON, by pages of 4KiB)",
        "from sampled working set",
        "confidence 8",
        "used memory",
    ];
    wait_for("the source and its confidence to be told", || {
        let (_, output, _) = testbed.ballast(&["explain", "stock"]);
        words.iter().all(|words| output.contains(words)).then_some(())
    });
    let (_, output, _) = testbed.ballast(&["status"]);
    assert!(output.contains("by DAMON"), "{output}");

    let found = diagnosis(&testbed);
    assert_eq!(found["best"], "damon", "{found}");
    assert_eq!(found["damon"]["note"], "page by page", "although the daemon uses it: {found}");
    assert_eq!([&found["library"]["works"], &found["referenced"]["works"]], [false, false]);
    assert!(found["referenced"]["note"].as_str().unwrap().contains("KVM"), "{found}");

    // Only one program can use DAMON at a time: a second one reports that and changes nothing.
    let (code, _, error) = testbed.ballast(&["track", "stock", "--for", "2s"]);
    assert!(code == Some(1) && error.contains("another program of Ballast uses DAMON"), "{error}");
    daemon.kill();
    assert!(is_left_behind(), "its kdamond goes on");
    let daemon = testbed.start();
    wait_source(&daemon, "damon");
    assert!(daemon.stop().success());
    assert!(!is_left_behind());

    let (_, output, _) = testbed.ballast(&["track"]);
    assert!(output.contains("stock  none: by DAMON"), "{output}");
    let seen = track(&testbed, "auto");
    assert!(seen.iter().all(|seen| seen["source"] == "damon"), "{seen:?}");
    assert!(
        is_loop(working_set(seen.last().unwrap())) && seen.last().unwrap()["misses"].is_array()
    );
    let (code, _, error) = testbed.ballast(&["track", "stock", "--every"]);
    assert!(code != Some(0) && error.contains("need the tracker"), "{error}");
    assert!(!is_left_behind());
}

#[test]
fn a_taken_damon_is_told_and_waited_for() {
    let Some(lab) = boot("never") else { return };
    std::fs::write(COUNT, "1").unwrap();
    let testbed = configured(&lab, "source = \"damon\"");
    let daemon = testbed.start();
    let trouble = wait_for("the reason", || tracking(&daemon)?.trouble);
    assert!(trouble.contains("in use by somebody else"), "{trouble}");
    std::fs::write(COUNT, "0").unwrap();
    wait_source(&daemon, "damon");
    assert!(daemon.stop().success());
    assert!(!is_left_behind());
}

#[test]
fn huge_pages_give_an_upper_bound_that_decides_nothing() {
    let Some(lab) = boot("always") else { return };
    let testbed = configured(&lab, "source = \"damon\"");
    let daemon = testbed.start();
    let size = wait_for("an upper bound", || {
        let tracking = tracking(&daemon)?;
        (tracking.source?.code == "damon-huge").then_some(Bytes::new(tracking.working_set_bytes?))
    });
    eprintln!("at most {size}");
    assert!(size >= LOOP, "{size}");
    let found = diagnosis(&testbed);
    assert!(found["damon"]["note"].as_str().unwrap().contains("upper bound"), "{found}");
    let output = wait_for("the guest's own figures", || {
        let (_, output, _) = testbed.ballast(&["explain", "stock"]);
        output.contains("from used memory").then_some(output)
    });
    for words in ["by pieces of 2MiB", "working set at most, in huge pages"] {
        assert!(output.contains(words), "{words}: {output}");
    }
    assert!(daemon.stop().success());
    assert!(!is_left_behind());
}

/// The tracker sees every access to the pages that it watches, so it is the oracle.
#[test]
fn tracker_and_damon_see_the_same_working_set() {
    let guest = GuestSpec { tracked: true, ..swapping("stock", BOOT) };
    let Some(lab) = boot_guest("never", guest) else { return };
    let testbed = configured(&lab, "");
    // The last interval of each: in the first ones a sample still adjusts its size.
    let [by_library, by_damon] = ["library", "damon"].map(|source| {
        let seen = track(&testbed, source);
        let last = seen.iter().rfind(|seen| seen["source"] == source).unwrap();
        eprintln!("{source}: {} of {}", working_set(last), last["share"]);
        working_set(last)
    });
    assert!(by_library.abs_diff(by_damon).get() * 8 < by_library.get());
    assert!(!is_left_behind());
}

#[test]
fn a_stock_guest_is_seen_by_its_page_generations() {
    if !may_sample("never") {
        return;
    }
    // libvirt and systemd start each hypervisor in a cgroup of its own, so all of its memory is
    // charged there. The lab moves it to another cgroup after its boot, to limit its processor
    // time.
    let cgroup = OwnCgroup::around_myself().expect("an outer machine has cgroups of version 2");
    let Some(lab) = boot_idle("never", stock()) else { return };
    let pid = u32::try_from(lab.guest("stock").pid()).unwrap();
    cgroup.take_in(pid);
    lab.start_constant_at_full_speed("stock", LOOP);
    let testbed = configured(&lab, "source = \"mglru\"");
    let daemon = testbed.start();
    let trouble = wait_for("the reason", || tracking(&daemon)?.trouble);
    assert!(trouble.contains("in this cgroup"), "{trouble}");
    cgroup.leave_only(pid);
    let size = wait_for("the loop", || {
        let size = wait_source(&daemon, "mglru");
        eprintln!("the generations show {size}");
        (LOOP.fraction(9, 10)..LOOP.fraction(5, 4)).contains(&size).then_some(size)
    });
    eprintln!("the daemon sees {size}");
    let (_, output, _) = testbed.ballast(&["status"]);
    assert!(output.contains("by MGLRU"), "{output}");
    let found = diagnosis(&testbed);
    assert_eq!(found["mglru"]["note"], "page by page", "{found}");
    assert!(daemon.stop().success());
    let seen = track(&testbed, "mglru");
    assert!(seen.iter().all(|seen| seen["source"] == "mglru"), "{seen:?}");
    let sizes: Vec<_> = seen.iter().map(|seen| (working_set(seen), &seen["cost_share"])).collect();
    eprintln!("ballast track sees {sizes:?}");
    let around = LOOP.fraction(17, 20)..LOOP.fraction(5, 4);
    assert!(sizes.iter().any(|(size, _)| around.contains(size)), "{sizes:?}");
    // Aging that does not walk page tables sees nothing, so it is not used.
    std::fs::write("/sys/kernel/mm/lru_gen/enabled", "5").unwrap();
    let found = diagnosis(&testbed);
    std::fs::write("/sys/kernel/mm/lru_gen/enabled", "y").unwrap();
    assert!(found["mglru"]["note"].as_str().unwrap().contains("do not walk"), "{found}");
    // Memory touched before the process came is charged elsewhere, so nothing can be seen here.
    let _late = OwnCgroup::around(u32::try_from(lab.guest("stock").pid()).unwrap()).unwrap();
    let found = diagnosis(&testbed);
    assert_eq!(found["mglru"]["works"], false, "{found}");
    assert!(found["mglru"]["note"].as_str().unwrap().starts_with("only "), "{found}");
}

/// A loop that does not fit into the guest's boot memory.
const LONG_LOOP: Bytes = Bytes::mib(300);
const PLUGGABLE: Bytes = Bytes::mib(256);

/// Samples a guest, has the daemon plug memory, and waits until a loop that needs it is seen.
fn assert_plugged_memory_is_sampled(kind: HotplugKind) {
    let hotplug = Hotplug { kind, ..Hotplug::virtio_mem(PLUGGABLE) };
    let guest = GuestSpec { hotplug: Some(hotplug), ..stock() };
    let Some(lab) = boot_idle("never", guest) else { return };
    let testbed = Testbed::new();
    let settings = "[policy]\nname = \"static\"\n[tracking]\nsource = \"damon\"";
    testbed.configure_for(lab.sockets(), "tick = \"250ms\"", settings);
    testbed.configure_to_observe();
    let daemon = testbed.start();
    wait_for("the guest to be sampled", || {
        (tracking(&daemon)?.state.code == "sampling").then_some(())
    });
    assert_eq!(allocation(&daemon, "stock"), Some(BOOT));
    let (code, out, err) = testbed.ballast(&["mode", "balance"]);
    assert_eq!(code, Some(0), "{out}{err}");
    wait_allocation("all memory", &daemon, "stock", |holds| holds == BOOT + PLUGGABLE);
    lab.start_constant_at_full_speed("stock", LONG_LOOP);
    let size = wait_for("the loop through boot memory and plugged memory", || {
        let size = Bytes::new(tracking(&daemon)?.working_set_bytes?);
        let near = LONG_LOOP.fraction(9, 10)..LONG_LOOP.fraction(11, 10);
        near.contains(&size).then_some(size)
    });
    eprintln!("a loop of {LONG_LOOP} is seen as {size}");
    assert!(daemon.stop().success());
    assert!(!is_left_behind());
}

#[test]
fn blocks_plugged_by_virtio_mem_are_sampled() {
    assert_plugged_memory_is_sampled(HotplugKind::VirtioMem);
}

#[test]
fn a_memory_module_plugged_while_sampled_is_sampled() {
    assert_plugged_memory_is_sampled(HotplugKind::Dimm);
}

/// The number of guests that are sampled at once.
const GUESTS: usize = 16;
/// Windows of each guest over which the kernel's thread is measured.
const WINDOWS_MEASURED: u32 = 10;
/// Most of a core that the kernel's thread may take; its goal is 1 %.
const COST_MAX: f64 = 0.015;
/// Process id of DAMON's kernel thread, and its processor time.
fn kdamond() -> Option<(u32, Duration)> {
    let pid = std::fs::read_to_string(COUNT.replace("nr_kdamonds", "0/pid")).ok()?;
    let pid = pid.trim().parse().ok()?;
    let times = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    Some((pid, Duration::from_nanos(times.split_whitespace().next()?.parse().ok()?)))
}

/// Length of DAMON's windows.
fn window() -> Option<Duration> {
    let name = "0/contexts/0/monitoring_attrs/intervals/aggr_us";
    let text = std::fs::read_to_string(COUNT.replace("nr_kdamonds", name)).ok()?;
    text.trim().parse().ok().map(Duration::from_micros)
}

/// A machine without an operating system, whose memory is all present; killed when dropped.
struct Empty(std::process::Child);

impl Empty {
    fn start(sockets: &Path, number: usize) -> Empty {
        let qmp = format!("unix:{}/g{number}.sock,server=on,wait=off", sockets.display());
        let memory = "memory-backend-ram,id=ram,size=64M,prealloc=on";
        let machine = ["-accel", "kvm", "-machine", "q35,memory-backend=ram", "-m", "64M"];
        let rest = ["-object", memory, "-nodefaults", "-display", "none", "-qmp", &qmp];
        let mut command = std::process::Command::new("qemu-system-x86_64");
        Empty(command.args(machine).args(rest).spawn().unwrap())
    }
}

impl Drop for Empty {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn sixteen_guests_are_sampled_for_a_hundredth_of_a_core() {
    if !may_sample("never") {
        return;
    }
    let (testbed, sockets) = (Testbed::new(), tempfile::tempdir().unwrap());
    let _guests: Vec<Empty> =
        (0..GUESTS).map(|number| Empty::start(sockets.path(), number)).collect();
    let settings = "[policy]\nname = \"static\"\n[tracking]\nsource = \"damon\"";
    testbed.configure_for(sockets.path(), "tick = \"1s\"", settings);
    let daemon = testbed.start();
    wait_for("all guests to be sampled", || {
        let status = daemon.status()?;
        let is_sampled = |number| {
            let tracking = tracking_of(&status, &format!("g{number}"));
            tracking.is_some_and(|it| it.state.code == "sampling" && it.working_set_bytes.is_some())
        };
        (0..GUESTS).all(is_sampled).then_some(())
    });
    // Once the same thread lasts, the length of its windows has settled.
    let mut begun = None;
    let share = wait_for("some windows of one length", || {
        let (pid, spent) = kdamond()?;
        let (first, before, began) = *begun.get_or_insert((pid, spent, Instant::now()));
        if first != pid {
            begun = None;
            return None;
        }
        let (spent, elapsed) = (spent - before, began.elapsed());
        // An outer machine without output for long would be taken to hang.
        eprintln!("kdamond {pid} took {spent:?} in {elapsed:?}");
        std::thread::sleep(Duration::from_secs(1));
        (elapsed > window()? * WINDOWS_MEASURED)
            .then(|| spent.as_secs_f64() / elapsed.as_secs_f64())
    });
    eprintln!(
        "the kernel's thread takes {:.2} % of an emulated core, in windows of {:?}",
        100.0 * share,
        window()
    );
    assert!(share > 0.0 && share <= COST_MAX, "{share}");
    assert!(daemon.stop().success());
    assert!(!is_left_behind());
}
