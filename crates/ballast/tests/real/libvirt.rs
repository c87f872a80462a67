//! Domains of a real libvirt under the real daemon, which has no monitor of its own to them. The
//! output of libvirt's own client is the truth.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::harness::{Daemon, Testbed, finding, guest, wait_for};
use crate::support::{Lab, allocation, assert_unrefused, set_ceiling, swapping, wait_allocation};
use ballast_lab_host::{GuestSpec, Hotplug, Run};
use ballast_model::Bytes;

const FAST: &str = "tick = \"250ms\"";
const BOOT: Bytes = Bytes::mib(512);
const HALF: Bytes = Bytes::mib(256);
/// A working set that is too large for half of the budget, and fits if the other domain has its
/// floor.
const WORKING_SET: Bytes = Bytes::mib(240);

/// What a domain holds, by libvirt.
fn actual(run: &Run, name: &str) -> Bytes {
    let text = run.virsh(&["dommemstat", name]).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("actual "));
    Bytes::kib(line.unwrap_or_else(|| panic!("{text}")).trim().parse().unwrap())
}

/// Waits until the daemon and libvirt agree on what both domains hold, and checks the budget.
fn assert_agreed(lab: &Lab, daemon: &Daemon<'_>) {
    wait_for("libvirt to say the same", || {
        let names = ["busy", "idle"];
        let reported = names.map(|name| allocation(daemon, name));
        let held = names.map(|name| actual(&lab.run, name));
        assert!(held.iter().copied().sum::<Bytes>() <= BOOT, "{held:?}");
        (reported == held.map(Some)).then_some(())
    });
}

#[test]
fn domains_of_libvirt_are_balanced_without_a_monitor() {
    let guests = vec![swapping("busy", BOOT), swapping("idle", BOOT)];
    let Some(mut lab) = Lab::boot_under_libvirt(guests) else { return };
    let (testbed, nothing) = (Testbed::new(), tempfile::tempdir().unwrap());
    let socket = lab.run.folder().libvirt_socket();
    let settings = format!(
        "[host]\nbudget = \"512MiB\"\n[policy]\nname = \"static\"\ninterval = \"1s\"\n\
         [libvirt]\nenabled = true\nsocket = {socket:?}"
    );
    testbed.configure_for(nothing.path(), FAST, &settings);
    let daemon = testbed.start();
    for name in ["busy", "idle"] {
        wait_allocation("half of the budget", &daemon, name, |holds| holds == HALF);
    }
    assert_agreed(&lab, &daemon);
    they_are_confined_where_libvirt_is(&lab);
    they_are_seen_as_they_are(&lab, &testbed, &daemon);

    lab.start_constant("busy", WORKING_SET);
    let (code, out, err) = testbed.ballast(&["set", "--policy", "global"]);
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

/// Whether AppArmor confines domains, as in an outer machine with libvirtd's profile.
fn are_domains_confined() -> bool {
    let profiles = std::fs::read_to_string("/sys/kernel/security/apparmor/profiles");
    profiles.is_ok_and(|text| text.contains("libvirtd (enforce)"))
}

fn they_are_confined_where_libvirt_is(lab: &Lab) {
    let is_confined = are_domains_confined();
    for domain in lab.run.guests() {
        let profile = std::fs::read_to_string(format!("/proc/{}/attr/current", domain.pid()));
        let (name, profile) = (domain.id(), profile.unwrap_or_default());
        eprintln!("{name} is confined by {profile:?}");
        let is_its_own = profile.starts_with("libvirt-") && profile.contains("(enforce)");
        assert_eq!(is_its_own, is_confined, "{name}: {profile}");
    }
}

fn they_are_seen_as_they_are(lab: &Lab, testbed: &Testbed, daemon: &Daemon<'_>) {
    let status = wait_for("statistics", || {
        let status = daemon.status()?;
        guest(&status, "busy")?.used_bytes.is_some().then_some(status)
    });
    let view = guest(&status, "busy").unwrap();
    assert_eq!((view.state.code.as_str(), view.boot_bytes), ("running", Some(BOOT.get())));
    assert!(view.resident_bytes.is_some(), "its process is known: {view:?}");
    // The guest's kernel has less than its boot memory, and some of that is available. Its
    // statistics are older than the figure of what it holds.
    let meminfo = lab.shell("busy", "grep MemTotal /proc/meminfo");
    let total = Bytes::kib(meminfo.split_whitespace().nth(1).unwrap().parse().unwrap());
    let inputs = wait_for("statistics of its present size", || {
        let (code, out, err) = testbed.ballast(&["explain", "busy", "--json"]);
        assert_eq!(code, Some(0), "{out}{err}");
        let explained: ballast_api::ExplainReply = serde_json::from_str(&out).unwrap();
        let said = Bytes::new(explained.inputs.stats.as_ref()?.total_bytes?);
        (said.abs_diff(total) <= Bytes::mib(8)).then_some(explained.inputs)
    });
    assert_eq!(inputs.capabilities.balloon, Some(true));
    assert_eq!(inputs.capabilities.deflate_on_oom, Some(false));
    assert_eq!(inputs.capabilities.discard_inhibited, Some(false));
    assert!(inputs.stats.unwrap().available_bytes.unwrap() < total.get());

    let (_, reply) = testbed.doctor(&[]);
    let findings = reply["findings"].as_array().unwrap();
    let socket = lab.run.folder().libvirt_socket();
    let (severity, text) = finding(findings, "libvirt", socket.to_str());
    let version = lab.run.virsh(&["version", "--daemon"]).unwrap();
    let number = version.lines().find_map(|line| line.strip_prefix("Running against daemon: "));
    let number = number.unwrap_or_else(|| panic!("{version}"));
    assert_eq!((severity, text), ("ok", format!("libvirt {number} answers").as_str()));
    assert_eq!(finding(findings, "balloon", Some("busy")), ("ok", "has a balloon device"));
    let (severity, text) = finding(findings, "statistics", Some("busy"));
    assert!(severity == "ok" && text.starts_with("the driver reports"), "{text}");
}

#[test]
fn a_domain_with_the_tracker_shows_its_working_set() {
    const LOOP: Bytes = Bytes::mib(96);
    // If domains are confined, the tracker is where the guides put it, and only the rule that
    // Ballast ships for it permits QEMU to make its socket.
    let tracker_socket = are_domains_confined().then(|| {
        let folder = Path::new("/run/ballast/track");
        std::fs::create_dir_all(folder).unwrap();
        // QEMU runs as another user, who must reach the folder.
        for folder in [folder, folder.parent().unwrap()] {
            std::fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
        }
        folder.join("busy.sock")
    });
    let tracked = GuestSpec { tracked: true, tracker_socket, ..swapping("busy", BOOT) };
    let Some(lab) = Lab::boot_under_libvirt(vec![tracked]) else { return };
    let (testbed, nothing) = (Testbed::new(), tempfile::tempdir().unwrap());
    let socket = lab.run.folder().libvirt_socket();
    let settings = format!(
        "[policy]\nname = \"static\"\n[libvirt]\nenabled = true\nsocket = {socket:?}\n\
         [tracking]\nsource = \"library\""
    );
    testbed.configure_for(nothing.path(), FAST, &settings);
    let daemon = testbed.start();
    they_are_confined_where_libvirt_is(&lab);
    lab.start_constant("busy", LOOP);
    wait_for("a working set from the library", || {
        let status = daemon.status()?;
        let tracking = guest(&status, "busy")?.tracking.as_ref()?;
        let size = Bytes::new(tracking.working_set_bytes?);
        let is_library = tracking.source.as_ref()?.code == "library";
        let near = LOOP.fraction(3, 4)..LOOP.fraction(3, 2);
        (is_library && near.contains(&size)).then_some(())
    });
    assert!(daemon.stop().success());
}

/// Domains keep running without their libvirtd, and no target is lost.
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

/// The limits of a guest, by `ballast explain`.
fn limits(testbed: &Testbed, name: &str) -> Option<ballast_api::LimitsView> {
    let (_, out, _) = testbed.ballast(&["explain", name, "--json"]);
    Some(serde_json::from_str::<ballast_api::ExplainReply>(&out).ok()?.limits)
}

/// Ballast's element in a domain's metadata, or the client's error.
fn metadata(run: &Run, stored: &str) -> String {
    run.virsh(&["metadata", "web", "urn:ballast:guest:1", stored]).unwrap()
}

#[test]
fn settings_live_in_the_metadata_of_a_domain() {
    let Some(lab) = Lab::boot_under_libvirt(vec![swapping("web", BOOT)]) else { return };
    let set = |element: &str| {
        let name =
            ["metadata", "web", "urn:ballast:guest:1", "--live", "--key", "ballast", "--set"];
        lab.run.virsh(&[&name[..], &[element]].concat()).unwrap();
    };
    set("<guest><floor>300MiB</floor><shares>many</shares><priority>3</priority></guest>");
    let (testbed, nothing) = (Testbed::new(), tempfile::tempdir().unwrap());
    let socket = lab.run.folder().libvirt_socket();
    let settings = format!(
        "[host]\nbudget = \"512MiB\"\n[policy]\nname = \"static\"\n\
         [libvirt]\nenabled = true\nsocket = {socket:?}\n[guests.web]\nshares = 5"
    );
    testbed.configure_for(nothing.path(), FAST, &settings);
    let daemon = testbed.start();
    let floor = |mib: u64| {
        let limits = limits(&testbed, "web")?;
        (limits.floor_bytes == Some(mib << 20)).then_some(limits)
    };
    let found = wait_for("the domain's own floor", || floor(300));
    let sources = found.sources.unwrap();
    assert_eq!((sources.floor.as_str(), sources.shares.as_str()), ("metadata", "file"));
    assert_eq!((found.priority, found.shares), (Some(3), Some(5)));
    let log = testbed.log();
    assert!(log.contains("domain web: settings") && log.contains("<shares> is `many`"), "{log}");

    // Only an event announces the change this soon: the XML is read only every few minutes.
    set("<guest><floor>200MiB</floor><priority>4</priority></guest>");
    wait_for("the change", || floor(200));

    let stored = lab.run.folder().libvirt_socket().with_file_name("web.xml");
    std::fs::write(&stored, lab.run.virsh(&["dumpxml", "web"]).unwrap()).unwrap();
    lab.run.virsh(&["define", &stored.to_string_lossy()]).unwrap();
    let current =
        |xml: String| xml.lines().find(|it| it.contains("<currentMemory")).map(str::to_owned);
    let inactive = || current(lab.run.virsh(&["dumpxml", "web", "--inactive"]).unwrap());
    let before = inactive();
    assert!(before.is_some());
    let (code, out, err) = testbed.ballast(&["set", "web", "--floor", "256MiB", "--persist"]);
    assert_eq!(code, Some(0), "{out}{err}");
    for stored in ["--live", "--config"] {
        let text = metadata(&lab.run, stored);
        assert!(text.contains("<floor>256MiB</floor>"), "{stored}: {text}");
        assert!(text.contains("<priority>4</priority>"), "what was there stays: {text}");
    }
    assert_eq!(inactive(), before, "only metadata are stored");
    let found = floor(256).expect("in force at once");
    assert_eq!(found.sources.unwrap().floor, "metadata");
    let (_, explained, _) = testbed.ballast(&["explain", "web"]);
    assert!(explained.contains("floor 256MiB (metadata)"), "{explained}");
    assert!(explained.contains("5 shares (file)"), "{explained}");
    assert!(daemon.stop().success());
}

/// Waits until a guest is held because another program moves its balloon, or no longer is.
fn wait_owned(daemon: &Daemon<'_>, is_owned: bool) {
    wait_for("the owner to count, or not", || {
        let change = guest(&daemon.status()?, "web")?.change.clone()?;
        let has_other_owner = change.why.is_some_and(|why| why.code == "another-owner");
        (has_other_owner == is_owned).then_some(())
    });
}

/// The memory plugged into a domain and the requested amount, by libvirt.
fn plugged(run: &Run, name: &str) -> (Bytes, Bytes) {
    let xml = run.virsh(&["dumpxml", name]).unwrap();
    let of = |tag: &str| {
        let text =
            xml.split_once(&format!("<{tag} unit='KiB'>")).unwrap_or_else(|| panic!("{xml}"));
        Bytes::kib(text.1.split('<').next().unwrap().parse().unwrap())
    };
    (of("current"), of("requested"))
}

#[test]
fn a_domain_grows_beyond_its_boot_memory_and_back() {
    let boot = Bytes::mib(384);
    let hotplug = Some(Hotplug::virtio_mem(Bytes::mib(512)));
    let spec = GuestSpec { hotplug, ..GuestSpec::new("web".parse().unwrap(), boot) };
    let Some(lab) = Lab::boot_under_libvirt(vec![spec]) else { return };
    let (testbed, nothing) = (Testbed::new(), tempfile::tempdir().unwrap());
    let socket = lab.run.folder().libvirt_socket();
    let settings = format!(
        "[host]\nbudget = \"900MiB\"\n[policy]\nname = \"static\"\ninterval = \"1s\"\n\
         [mechanisms.hotplug]\nidle_after = \"1s\"\nkeep = \"0B\"\nahead = \"0B\"\n\
         [guests.web]\nceiling = \"300MiB\"\n[libvirt]\nenabled = true\nsocket = {socket:?}"
    );
    testbed.configure_for(nothing.path(), FAST, &settings);
    let daemon = testbed.start();
    // The balloon may have taken plugged memory, which then need not be unplugged.
    for (mib, plugged_min) in [(300, 0), (700, 300), (300, 0)] {
        set_ceiling(&testbed, "web", Bytes::mib(mib));
        wait_for("libvirt to say what Ballast does", || {
            let (current, requested) = plugged(&lab.run, "web");
            let held = actual(&lab.run, "web") + current;
            let is_there = held.abs_diff(Bytes::mib(mib)) <= Bytes::mib(4);
            let is_done = current == requested && current >= Bytes::mib(plugged_min);
            (is_there && is_done && allocation(&daemon, "web") == Some(held)).then_some(())
        });
    }
    assert_unrefused(&daemon);
    assert!(daemon.stop().success());
}

#[test]
fn a_second_owner_is_left_the_guest() {
    let Some(lab) = Lab::boot_under_libvirt(vec![swapping("web", BOOT)]) else { return };
    let (testbed, nothing) = (Testbed::new(), tempfile::tempdir().unwrap());
    let socket = lab.run.folder().libvirt_socket();
    let settings = format!(
        "[host]\nbudget = \"384MiB\"\n[policy]\nname = \"static\"\ninterval = \"1s\"\n\
         [libvirt]\nenabled = true\nsocket = {socket:?}"
    );
    testbed.configure_for(nothing.path(), FAST, &settings);
    let daemon = testbed.start();
    let wait = |mib: u64| {
        wait_allocation("what was ordered", &daemon, "web", |holds| holds == Bytes::mib(mib));
    };
    let setmem = |mib: u64| {
        lab.run.virsh(&["setmem", "web", &format!("{mib}M"), "--live"]).unwrap();
        wait_for("the balloon", || (actual(&lab.run, "web") == Bytes::mib(mib)).then_some(()));
    };
    wait(384);
    // One foreign change may be chance: Ballast keeps the guest, and the next order is its own.
    setmem(300);
    wait_for("the guest's kernel to agree", || {
        let (_, out, _) = testbed.ballast(&["explain", "web", "--json"]);
        let explained: ballast_api::ExplainReply = serde_json::from_str(&out).ok()?;
        let total = explained.inputs.stats?.total_bytes?;
        (total < Bytes::mib(300).get()).then_some(())
    });
    set_ceiling(&testbed, "web", Bytes::mib(350));
    wait(350);
    wait_owned(&daemon, false);
    setmem(256);
    wait_owned(&daemon, true);
    set_ceiling(&testbed, "web", Bytes::mib(340));
    setmem(280);
    wait(280);
    wait_owned(&daemon, true);
    let (code, out, err) = testbed.ballast(&["set", "web", "--take-over"]);
    assert_eq!(code, Some(0), "{out}{err}");
    wait(340);
    assert!(daemon.stop().success());
}
