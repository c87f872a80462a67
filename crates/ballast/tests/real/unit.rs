//! Real guests under a daemon that systemd started with the shipped unit, unchanged.
//!
//! Idea: every function that the unit promises is used once, under all of its settings, so anything
//! that the settings forbid by mistake fails. The guests' hypervisors run as another user.
//!
//! Limits: asserts states and counts, never times; needs QEMU, a built `lab-guest`, and root. Tests
//! that need a right that root itself lacks on a machine run only in an outer machine of
//! `ballast-lab nested`.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::{Daemon, Testbed, guest, wait_for};
use crate::support::journal::assert_file_intact;
use crate::support::own_cgroup::OwnCgroup;
use crate::support::systemd::{self, property, systemctl};
use crate::support::{
    IMPATIENT, Lab, SWAP, assert_unrefused, resident, set_ceiling, swapped, swapping, ticks,
    touch_once, wait_allocation, wait_stuck,
};
use ballast_actuation::paging::OVERHEAD;
use ballast_lab_host::{GuestSpec, NESTED_VARIABLE};
use ballast_model::{Bytes, Mechanism};
use ballast_qmp_testing::{Peer, PeerConfig};
use ballast_store::TickEntry;

const UNIT: &str = include_str!("../../../../packaging/ballast.service");
const CONFIG: &str = "/etc/ballast/ballast.toml";
const SOCKET: &str = "/run/ballast/ballast.sock";
const JOURNAL: &str = "/var/lib/ballast/journal.db";
const LOG: &str = "/run/lab/daemon.log";
const DAMON: &str = "/sys/kernel/mm/damon/admin";
/// The capability to raise one's own limits.
const CAP_SYS_RESOURCE: u32 = 24;
const CGROUP: &str = "/sys/fs/cgroup/system.slice/ballast.service";
/// The user that the hypervisors run as, and the unit's group, which that user belongs to.
const USER: &str = "hypervisor";
const GROUP: &str = "kvm";

const STUBBORN: &str = "stubborn";
const NEEDY: &str = "needy";
const BOOT: Bytes = Bytes::mib(512);
const BUDGET: Bytes = Bytes::mib(768);
const HALF: Bytes = Bytes::mib(384);
/// What the workload of `needy` uses: more than fits into half of the budget.
const WORKS_WITH: Bytes = Bytes::mib(400);
/// What a guest needs beside its workload, and what it gets beyond half of the budget.
const ROOM: Bytes = Bytes::mib(32);
/// What the workload of `stubborn` uses.
const WORKS_LITTLE: Bytes = Bytes::mib(40);
/// What `stubborn` touches once and does not use, and what it is asked to hold in the end.
const IDLE: Bytes = Bytes::mib(240);
const ASKED: Bytes = Bytes::mib(256);
/// What a process may occupy above its bound between two samples.
const SLACK: Bytes = Bytes::mib(16);

#[test]
fn the_shipped_unit_manages_real_guests() {
    if !systemd::is_inside() {
        return systemd::run_again("unit::the_shipped_unit_manages_real_guests", UNIT);
    }
    start();
    let Some(lab) = Lab::boot_with_swap([STUBBORN, NEEDY].map(foreign).into(), SWAP) else {
        return;
    };
    let group = OwnCgroup::around(lab.guest(NEEDY).pid().unsigned_abs());
    hand_over_sockets(&lab, &[STUBBORN, NEEDY]);
    // A restarted daemon finds guests that were there before it: their sockets outlive a daemon.
    systemctl(&["restart", "ballast.service"]);
    let testbed = attach();
    let daemon = testbed.of_another();
    wait_for("the first tick", || daemon.status());
    let process = property("MainPID");
    let pinged = property("WatchdogTimestampMonotonic");
    assert_confined(&process);

    the_group_reads_and_changes_nothing();
    memory_follows_the_work(&lab, &daemon);
    a_foreign_guest_is_tracked(&lab, &daemon);
    if let Some(group) = &group {
        a_fence_is_set_and_lifted(&daemon, group);
    }
    a_guest_that_gives_nothing_is_paged(&lab, &testbed, &daemon);

    assert_unrefused(&daemon);
    assert_eq!(property("MainPID"), process, "it was not restarted");
    assert_ne!(property("WatchdogTimestampMonotonic"), pinged, "systemd heard of it");
    systemctl(&["stop", "ballast.service"]);
    assert_eq!(property("Result"), "success");
    let pages_out = |tick: &TickEntry| {
        tick.plan.paging.iter().any(|order| order.mechanism == Mechanism::PageOut)
    };
    assert!(ticks(&testbed).iter().any(pages_out));
    assert_file_intact(&testbed.journal());
    assert_nothing_was_refused();
}

/// Limits that only a process with `CAP_SYS_RESOURCE` can raise.
#[test]
fn the_shipped_unit_raises_its_limits() {
    if !has_root(CAP_SYS_RESOURCE) {
        return println!("SKIPPED: root has no CAP_SYS_RESOURCE here");
    }
    if !systemd::is_inside() {
        return systemd::run_again("unit::the_shipped_unit_raises_its_limits", UNIT);
    }
    start();
    let process = property("MainPID");
    let text = |name| fs::read_to_string(format!("/proc/{process}/{name}")).unwrap();
    let limits = text("limits");
    for (name, limit) in [("Max open files", "65536"), ("Max locked memory", "unlimited")] {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        assert_eq!(line.split_whitespace().next(), Some(limit), "{name}");
    }
    assert_eq!(text("oom_score_adj").trim(), "-900");
    assert_ne!(status(&process, "VmLck"), "0 kB");
    systemctl(&["stop", "ballast.service"]);
    assert_nothing_was_refused();
    let log = fs::read_to_string(LOG).unwrap();
    assert!(!log.contains("no memory-pressure trigger"), "{log}");
}

/// With the two folders opened that the unit closes by default, stock guests are sampled and
/// fenced, by cgroups of version 2.
#[test]
fn the_unit_open_to_damon_samples_and_fences_guests() {
    if std::env::var_os(NESTED_VARIABLE).is_none() || !Path::new(DAMON).exists() {
        return println!("SKIPPED: needs an outer machine of `ballast-lab nested` with DAMON");
    }
    if !systemd::is_inside() {
        let unit = UNIT.replace("\n#ReadWritePaths=", "\nReadWritePaths=");
        assert_ne!(unit, UNIT);
        return systemd::run_again("unit::the_unit_open_to_damon_samples_and_fences_guests", &unit);
    }
    start();
    let stock = GuestSpec { tracked: false, private_memory: true, ..foreign(NEEDY) };
    let Some(lab) = Lab::boot_with_swap(vec![stock], SWAP) else { return };
    let Some(group) = OwnCgroup::around(lab.guest(NEEDY).pid().unsigned_abs()) else { return };
    hand_over_sockets(&lab, &[NEEDY]);
    let testbed = attach();
    let daemon = testbed.of_another();
    lab.start_constant(NEEDY, WORKS_LITTLE);
    wait_for("a working set", || {
        let tracking = guest(&daemon.status()?, NEEDY)?.tracking.clone()?;
        // In huge pages if the machine has them.
        let is_sampled = tracking.source?.code.starts_with("damon");
        (is_sampled && tracking.working_set_bytes? >= WORKS_LITTLE.get()).then_some(())
    });
    a_fence_is_set_and_lifted(&daemon, &group);
    systemctl(&["stop", "ballast.service"]);
    assert_nothing_was_refused();
}

/// The daemon cannot run the policy's program as another user, and says what that takes.
#[test]
fn the_shipped_unit_names_what_a_policys_user_takes() {
    if !systemd::is_inside() {
        return systemd::run_again("unit::the_shipped_unit_names_what_a_policys_user_takes", UNIT);
    }
    let program = start_with_program("exec sleep 600");
    let reason = wait_for("the reason", || {
        let status = program.testbed.of_another().status()?;
        let note = status.notes.iter().find(|note| note.code == "unanswered")?;
        Some(note.text.clone())
    });
    for words in [
        &format!("/bin/sh: as `{USER}`:"),
        "CapabilityBoundingSet=CAP_SETUID CAP_SETGID CAP_KILL",
        "SystemCallFilter=@setuid",
        "`global`",
    ] {
        assert!(reason.contains(words), "{words}: {reason}");
    }
    systemctl(&["stop", "ballast.service"]);
}

/// The unit with its two commented lines in force.
#[test]
fn the_unit_open_to_users_runs_a_policy_as_one() {
    if !systemd::is_inside() {
        let opened = ["CapabilityBoundingSet=CAP_SETUID", "SystemCallFilter=@setuid"];
        let unit = opened.iter().fold(UNIT.to_owned(), |unit, line| {
            let open = unit.replace(&format!("\n#{line}"), &format!("\n{line}"));
            assert_ne!(open, unit, "{line}");
            open
        });
        let test = "unit::the_unit_open_to_users_runs_a_policy_as_one";
        return systemd::run_again(test, &unit);
    }
    // The program does not end with its input, so it has to be killed.
    let answers = format!(
        r#"while read -r asked; do
             number=$(echo "$asked" | sed 's/.*"question":\([0-9]*\).*/\1/')
             echo '{{"question":'$number',"targets":{{"{NEEDY}":{}}}}}'
           done; exec sleep 600"#,
        HALF.get()
    );
    let program = start_with_program(&answers);
    wait_for("its target", || (program.guest.target() == HALF).then_some(()));
    let child = child_of(&property("MainPID"));
    let (user, group) = ids();
    assert_eq!(status(&child, "Uid"), [user; 4].map(|id| id.to_string()).join("\t"));
    assert_eq!(status(&child, "Gid"), [group; 4].map(|id| id.to_string()).join("\t"));
    assert_eq!(
        (status(&child, "Groups"), status(&child, "CapEff")),
        (String::new(), "0".repeat(16))
    );
    reload("global", "");
    let place = PathBuf::from(format!("/proc/{child}"));
    wait_for("its end", || (!place.exists()).then_some(()));
    systemctl(&["stop", "ballast.service"]);
}

/// A program of the operator, which a daemon with one guest runs as another user.
struct PolicyProgram {
    testbed: Testbed,
    guest: Peer,
    // The guest is a task in this runtime.
    _runtime: tokio::runtime::Runtime,
}

fn start_with_program(script: &str) -> PolicyProgram {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    fs::create_dir("/etc/ballast").unwrap();
    let program = format!(
        "[policy.external]\nprogram = \"/bin/sh\"\nargs = [\"-c\", '''{script}''']\nuser = \"{USER}\"\n"
    );
    write_config("external", &program);
    systemctl(&["start", "ballast.service"]);
    let guest = {
        let _runtime = runtime.enter();
        let config = PeerConfig { boot_memory: BOOT, ..PeerConfig::default() };
        Peer::spawn(&socket(NEEDY), config).unwrap()
    };
    PolicyProgram { testbed: attach(), guest, _runtime: runtime }
}

/// The first child of a process.
fn child_of(process: &str) -> String {
    let numbers = fs::read_dir("/proc").unwrap().flatten().map(|it| it.file_name());
    let is_child = |number: &String| {
        let text = fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
        text.contains(&format!("\nPPid:\t{process}\n"))
    };
    numbers.filter_map(|it| it.into_string().ok()).find(is_child).unwrap()
}

/// Starts the daemon as an operator does.
fn start() {
    fs::create_dir("/etc/ballast").unwrap();
    write_config("global", "");
    systemctl(&["start", "ballast.service"]);
}

/// A testbed whose socket and journal are those of the service.
fn attach() -> Testbed {
    let testbed = Testbed::new();
    symlink(SOCKET, testbed.path("api.sock")).unwrap();
    symlink(JOURNAL, testbed.journal()).unwrap();
    testbed
}

/// A guest with an agent, so that figures arrive even without its balloon driver. Its hypervisor
/// runs as another user, who may not use userfaultfd.
fn foreign(name: &str) -> GuestSpec {
    let qmp = format!("unix:{},server=on,wait=off", socket(name).display());
    let extra_args = ["-qmp", &qmp, "-runas", USER].map(str::to_owned).to_vec();
    GuestSpec { agent: true, tracked: name == STUBBORN, extra_args, ..swapping(name, BOOT) }
}

/// The QMP socket of a guest, in the unit's folder.
fn socket(name: &str) -> PathBuf {
    format!("/run/ballast/qmp/{name}.sock").into()
}

/// Ids of the hypervisors' user and group.
fn ids() -> (u32, u32) {
    let id = |file: &str, name: &str| {
        let text = fs::read_to_string(file).unwrap();
        let line = text.lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap();
        line.split(':').nth(2).unwrap().parse::<u32>().unwrap()
    };
    (id("/etc/passwd", USER), id("/etc/group", GROUP))
}

/// Gives the sockets the owner and mode that they have if hypervisors start as this user.
fn hand_over_sockets(lab: &Lab, guests: &[&str]) {
    let (user, group) = ids();
    for name in guests {
        let socket = socket(name);
        assert_eq!(fs::metadata(&socket).unwrap().gid(), group, "made in the group's folder");
        chown(socket, Some(user), None).unwrap();
        let agent = lab.guest(name).agent_socket().unwrap();
        chown(agent, Some(user), None).unwrap();
        symlink(agent, format!("/run/ballast/agent/{name}.sock")).unwrap();
        let process = lab.guest(name).pid().unsigned_abs().to_string();
        assert_eq!(status(&process, "Uid").split_whitespace().next(), Some(&*user.to_string()));
    }
}

/// Writes the configuration, with the default folders.
fn write_config(policy: &str, more: &str) {
    let text = format!(
        "[daemon]\ntick = \"250ms\"\ngroup = \"{GROUP}\"\n[host]\nbudget = \"{BUDGET}\"\n\
         [policy]\nname = \"{policy}\"\ninterval = \"1s\"\n{IMPATIENT}\n\
         dead_band = \"64KiB\"\n[tracking]\ninterval = \"500ms\"\nevery = true\nintermittent = \"off\"\n{more}"
    );
    fs::write(CONFIG, text).unwrap();
}

/// Makes the daemon reload it, by the unit's own command.
fn reload(policy: &str, more: &str) {
    write_config(policy, more);
    systemctl(&["reload", "ballast.service"]);
}

/// A line of a process's status.
fn status(process: &str, key: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.unwrap().trim().to_owned()
}

/// Whether root itself has this capability on this machine.
fn has_root(capability: u32) -> bool {
    u64::from_str_radix(&status("self", "CapEff"), 16).unwrap() >> capability & 1 == 1
}

/// Asserts that the unit's settings are in force, not only accepted.
fn assert_confined(process: &str) {
    assert_eq!(
        (status(process, "Seccomp"), status(process, "NoNewPrivs")),
        ("2".to_owned(), "1".to_owned())
    );
    let rights = u64::from_str_radix(&status(process, "CapEff"), 16).unwrap();
    assert!(rights.count_ones() <= 7, "{rights:x}");
    let folder = |path: String| fs::metadata(path).unwrap().ino();
    assert_ne!(folder(format!("/proc/{process}/root/tmp")), folder("/tmp".to_owned()));
    // Another process in the service's cgroup may open the one device, and no other.
    let opens = |device: &str| {
        let line = format!("echo 0 >{CGROUP}/cgroup.procs && exec 3<{device}");
        Command::new("sh").args(["-c", &line]).stderr(Stdio::null()).status().unwrap().success()
    };
    assert_eq!((opens("/dev/userfaultfd"), opens("/dev/kvm")), (true, false));
}

/// Members of the configured group can read from the API's socket, and change nothing.
fn the_group_reads_and_changes_nothing() {
    let (user, group) = ids();
    let may = |command: &str| {
        let ids = [format!("--reuid={user}"), format!("--regid={group}")];
        let line = ["--clear-groups", "ballast", command];
        let mut member = Command::new("setpriv");
        let member = member.args(ids).args(line).env("BALLAST_SOCKET", SOCKET).output().unwrap();
        eprintln!("{command} as a member: {}", String::from_utf8_lossy(&member.stderr).trim());
        member.status.success()
    };
    assert_eq!((may("status"), may("pause")), (true, false));
}

/// The guest that needs memory gets it from the one that does not.
fn memory_follows_the_work(lab: &Lab, daemon: &Daemon<'_>) {
    lab.start_constant(NEEDY, WORKS_WITH);
    wait_allocation("memory for the work", daemon, NEEDY, |holds| holds >= WORKS_WITH + ROOM);
    wait_allocation("memory from the other", daemon, STUBBORN, |holds| holds <= HALF - ROOM);
    lab.stop_workload(NEEDY);
}

/// The guest's hypervisor may not open userfaultfd itself: the daemon passes it the device.
fn a_foreign_guest_is_tracked(lab: &Lab, daemon: &Daemon<'_>) {
    lab.start_constant(STUBBORN, WORKS_LITTLE);
    wait_for("a working set", || {
        let tracking = guest(&daemon.status()?, STUBBORN)?.tracking.clone()?;
        let is_tracked = tracking.state.code == "watching" && tracking.source?.code == "library";
        (is_tracked && tracking.working_set_bytes? >= WORKS_LITTLE.get()).then_some(())
    });
}

fn a_fence_is_set_and_lifted(daemon: &Daemon<'_>, group: &OwnCgroup) {
    reload("global", &format!("[guests.{NEEDY}]\nfence = true\n"));
    wait_for("its fence", || {
        let fence = guest(&daemon.status()?, NEEDY)?.fence.clone()?;
        (fence.limit_bytes? == group.limit()?.get() && fence.trouble.is_none()).then_some(())
    });
    reload("global", "");
    wait_for("no fence", || group.limit().is_none().then_some(()));
}

/// The host pages out what the guest does not give.
fn a_guest_that_gives_nothing_is_paged(lab: &Lab, testbed: &Testbed, daemon: &Daemon<'_>) {
    let ceiling = BUDGET.saturating_sub(BOOT);
    reload("static", &format!("[guests.{NEEDY}]\nceiling = \"{ceiling}\"\n"));
    wait_allocation("all of its memory", daemon, STUBBORN, |holds| holds == BOOT);
    touch_once(lab, STUBBORN, IDLE);
    lab.shell(STUBBORN, "rmmod virtio_balloon");
    set_ceiling(testbed, NEEDY, BOOT);
    set_ceiling(testbed, STUBBORN, ASKED);
    wait_stuck(daemon, STUBBORN);
    let bound = ASKED.saturating_add(OVERHEAD).saturating_add(SLACK);
    wait_for("its process to be as small as it was asked to be", || {
        resident(daemon, STUBBORN).filter(|it| *it <= bound)
    });
    let used = swapped(lab, STUBBORN).unwrap();
    assert!(used >= Bytes::mib(16), "{used} in swap");
    assert!(lab.pace(STUBBORN).touches_per_s > 0.0);
}

/// Asserts that the log has no refusal by the kernel, except of what root itself is refused here.
fn assert_nothing_was_refused() {
    const EPERM_EACCES_ENOSYS: [&str; 3] = ["(os error 1)", "(os error 13)", "(os error 38)"];
    let log = fs::read_to_string(LOG).unwrap();
    let of_resources = |line: &str| line.contains("priority") || line.contains("locked");
    let refused: Vec<&str> = log
        .lines()
        .filter(|line| EPERM_EACCES_ENOSYS.iter().any(|error| line.contains(error)))
        .filter(|line| has_root(CAP_SYS_RESOURCE) || !of_resources(line))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}
