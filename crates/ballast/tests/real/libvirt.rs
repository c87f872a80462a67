//! Domains of a real libvirt under the real daemon, which has no monitor of its own to them; what
//! libvirt's own client says is the truth.

use crate::harness::{Daemon, Ground, guest, wait_for};
use crate::support::{Lab, allocation, swapping, wait_allocation};
use ballast_lab_host::Run;
use ballast_model::Bytes;

const FAST: &str = "tick = \"250ms\"";
const BOOT: Bytes = Bytes::mib(512);
const HALF: Bytes = Bytes::mib(256);
/// Too much for half of the budget, and little enough for all but the other's floor.
const WORKING_SET: Bytes = Bytes::mib(240);

/// What libvirt says that a domain holds.
fn actual(run: &Run, name: &str) -> Bytes {
    let text = run.virsh(&["dommemstat", name]).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("actual "));
    Bytes::kib(line.unwrap_or_else(|| panic!("{text}")).trim().parse().unwrap())
}

/// Waits until daemon and libvirt agree on what both domains hold, and checks the budget.
fn assert_agreed(lab: &Lab, daemon: &Daemon<'_>) {
    wait_for("libvirt to say the same", || {
        let names = ["busy", "idle"];
        let told = names.map(|name| allocation(daemon, name));
        let held = names.map(|name| actual(&lab.run, name));
        assert!(held.iter().copied().sum::<Bytes>() <= BOOT, "{held:?}");
        (told == held.map(Some)).then_some(())
    });
}

#[test]
fn domains_of_libvirt_are_balanced_without_a_monitor() {
    let guests = vec![swapping("busy", BOOT), swapping("idle", BOOT)];
    let Some(mut lab) = Lab::boot_under_libvirt(guests) else { return };
    let (ground, nothing) = (Ground::new(), tempfile::tempdir().unwrap());
    let socket = lab.run.folder().libvirt_socket();
    let settings = format!(
        "[host]\nbudget = \"512MiB\"\n[policy]\nname = \"static\"\ninterval = \"1s\"\n\
         [libvirt]\nenabled = true\nsocket = {socket:?}"
    );
    ground.configure_for(nothing.path(), FAST, &settings);
    let daemon = ground.start();
    for name in ["busy", "idle"] {
        wait_allocation("half of the budget", &daemon, name, |holds| holds == HALF);
    }
    assert_agreed(&lab, &daemon);
    they_are_seen_as_they_are(&lab, &ground, &daemon);

    lab.start_constant("busy", WORKING_SET);
    let (code, out, err) = ground.ballast(&["set", "--policy", "global"]);
    assert_eq!(code, Some(0), "{out}{err}");
    wait_allocation("memory for the work", &daemon, "busy", |holds| {
        holds > WORKING_SET + Bytes::mib(64)
    });
    assert_agreed(&lab, &daemon);

    libvirtd_dies_and_comes_back(&mut lab, &daemon);

    lab.run.virsh(&["destroy", "idle"]).unwrap();
    wait_for("the domain to be gone", || guest(&daemon.status()?, "idle").is_none().then_some(()));
    assert!(daemon.stop().success());
}

fn they_are_seen_as_they_are(lab: &Lab, ground: &Ground, daemon: &Daemon<'_>) {
    let status = wait_for("statistics", || {
        let status = daemon.status()?;
        guest(&status, "busy")?.used_bytes.is_some().then_some(status)
    });
    let view = guest(&status, "busy").unwrap();
    assert_eq!((view.state.code.as_str(), view.boot_bytes), ("running", Some(BOOT.get())));
    assert!(view.resident_bytes.is_some(), "its process is known: {view:?}");
    let (code, out, err) = ground.ballast(&["explain", "busy", "--json"]);
    assert_eq!(code, Some(0), "{out}{err}");
    let explained: ballast_api::ExplainReply = serde_json::from_str(&out).unwrap();
    let inputs = explained.inputs;
    assert_eq!(inputs.capabilities.balloon, Some(true));
    assert_eq!(inputs.capabilities.deflate_on_oom, Some(false));
    assert_eq!(inputs.capabilities.discard_inhibited, Some(false));
    // The guest's kernel has less than it was booted with, and some of that is available.
    let stats = inputs.stats.unwrap();
    let meminfo = lab.shell("busy", "grep MemTotal /proc/meminfo");
    let kib: u64 = meminfo.split_whitespace().nth(1).unwrap().parse().unwrap();
    let total = Bytes::new(stats.total_bytes.unwrap());
    assert!(total.abs_diff(Bytes::kib(kib)) <= Bytes::mib(8), "{total} {meminfo}");
    assert!(stats.available_bytes.unwrap() < total.get());
}

/// Domains run on without their libvirtd, and nothing that was decided is lost.
fn libvirtd_dies_and_comes_back(lab: &mut Lab, daemon: &Daemon<'_>) {
    let state = |name: &str| Some(guest(&daemon.status()?, name)?.state.code.clone());
    lab.run
        .restart_libvirtd(|_| {
            wait_for("libvirtd to be missed", || {
                ["busy", "idle"]
                    .iter()
                    .all(|name| state(name).as_deref() != Some("running"))
                    .then_some(())
            });
        })
        .unwrap();
    wait_for("the domains to be back", || {
        ["busy", "idle"].iter().all(|name| state(name).as_deref() == Some("running")).then_some(())
    });
    assert_agreed(lab, daemon);
}
