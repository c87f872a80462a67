//! Tests of the findings about fake hosts, hypervisors, guests and rights.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_api::StatusReply;
use ballast_daemon::server::fixture;
use ballast_daemon::server::routes::tick;
use ballast_daemon::track::{GuestDiagnosis, SourceFinding};
use ballast_host::{MemoryLimit, ProcessRights, parse_rights};
use ballast_libvirt::LibvirtVersion;
use ballast_model::{Bytes, Capabilities, GuestSample, LinkDown, LinkState, MemoryRoom, RunState};
use ballast_qmp::fleet::Notice;
use ballast_xen::{XenProbe, XlInfo};
use expect_test::{Expect, expect};
use tempfile::TempDir;

use super::finding::Area;
use super::limits::LimitsSeen;
use super::manager::{Manager, Managers};
use super::probe::{
    DaemonSeen, JournalSeen, LibvirtSeen, PatternSeen, ProcessSeen, QmpFolder, QmpSocket,
    RestAnswer, RestHypervisor, RestSeen, RestSocket, RightsSeen, SocketState, XenSeen,
};
use super::*;

mod proxmox_machines;
mod rest_apis;

/// A host without faults.
const GOOD: [(&str, &str); 19] = [
    ("proc/sys/kernel/osrelease", "6.12.48+deb13-amd64\n"),
    ("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n"),
    ("proc/pressure/memory", "some avg10=0.50\nfull avg10=0.00\n"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
    (
        "sys/kernel/mm/transparent_hugepage/shmem_enabled",
        "always within_size advise [never] deny force\n",
    ),
    ("proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 8388608 1024 -2\n"),
    ("sys/module/zswap/parameters/enabled", "N\n"),
    ("proc/sys/vm/swappiness", "60\n"),
    ("proc/sys/vm/overcommit_memory", "0\n"),
    ("sys/devices/system/node/has_memory", "0\n"),
    ("proc/sys/vm/unprivileged_userfaultfd", "1\n"),
    ("sys/kernel/mm/ksm/run", "0\n"),
    ("sys/kernel/mm/ksm/pages_sharing", "0\n"),
    ("sys/kernel/mm/ksm/pages_shared", "0\n"),
    ("sys/kernel/mm/ksm/full_scans", "0\n"),
    ("sys/kernel/mm/ksm/pages_to_scan", "100\n"),
    ("sys/kernel/mm/ksm/sleep_millisecs", "20\n"),
    ("proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
    ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
];
const DELEGATED: (&str, &str) = ("sys/fs/cgroup/cgroup.subtree_control", "cpu memory\n");
/// A host with many faults.
const POOR: [(&str, &str); 16] = [
    ("proc/sys/kernel/osrelease", "5.4.0-generic\n"),
    ("proc/meminfo", "MemTotal: 4194304 kB\nMemAvailable: 102400 kB\n"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n"),
    ("proc/swaps", "Filename Type Size Used Priority\n"),
    ("sys/module/zswap/parameters/enabled", "Y\n"),
    ("proc/sys/vm/swappiness", "0\n"),
    ("proc/sys/vm/overcommit_memory", "2\n"),
    ("sys/devices/system/node/has_memory", "0-1\n"),
    ("proc/sys/vm/unprivileged_userfaultfd", "0\n"),
    ("sys/kernel/mm/ksm/run", "1\n"),
    ("sys/kernel/mm/ksm/pages_sharing", "51200\n"),
    ("sys/kernel/mm/ksm/pages_shared", "0\n"),
    ("sys/kernel/mm/ksm/full_scans", "0\n"),
    ("sys/kernel/mm/ksm/pages_to_scan", "100\n"),
    ("sys/kernel/mm/ksm/sleep_millisecs", "20\n"),
    ("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"),
];
/// A host with some faults.
const STRAINED: [(&str, &str); 11] = [
    ("proc/sys/kernel/osrelease", "5.15.0\n"),
    ("proc/meminfo", "MemTotal: 524288 kB\nMemAvailable: 102400 kB\n"),
    ("proc/pressure/memory", "some avg10=31.07\nfull avg10=4.00\n"),
    ("proc/swaps", "Filename Type Size Used Priority\n/dev/zram0 partition 8388608 1024 100\n"),
    ("sys/kernel/mm/ksm/run", "0\n"),
    ("sys/kernel/mm/ksm/pages_sharing", "256\n"),
    ("sys/kernel/mm/ksm/pages_shared", "0\n"),
    ("sys/kernel/mm/ksm/full_scans", "0\n"),
    ("sys/kernel/mm/ksm/pages_to_scan", "100\n"),
    ("sys/kernel/mm/ksm/sleep_millisecs", "20\n"),
    ("proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"),
];

fn tree<'a>(files: impl IntoIterator<Item = &'a (&'a str, &'a str)>) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn config(text: &str) -> Config {
    ballast_config::parse(text, Path::new("/etc/b.toml")).unwrap()
}

fn source(works: bool, note: &str) -> SourceFinding {
    SourceFinding { works, is_lasting: !works, note: note.to_owned(), remedy: None }
}

fn host(root: &TempDir, damon: &SourceFinding, settings: &str) -> Vec<Finding> {
    let cgroups = probe::memory_cgroups(root.path());
    let mglru = source(damon.works, "as told of DAMON");
    let tracking = TrackingDiagnosis { damon: damon.clone(), mglru, guests: Vec::new() };
    host::judge(&HostFacts::read(root.path()), &cgroups, &tracking, &config(settings))
}

/// One finding a line, without its reason: what was found, and the command that fixes it.
fn as_text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for it in findings {
        let subject = it.subject.as_ref().map_or(String::new(), |it| format!(" {it}"));
        text.push_str(&format!(
            "{} {}{subject}: {}\n",
            it.severity.as_str(),
            it.topic,
            it.found.replace(|c: char| c.is_control(), " ")
        ));
        if let Some(remedy) = &it.remedy {
            text.push_str(&format!("  $ {remedy}\n"));
        }
    }
    text
}

fn severities(findings: &[Finding]) -> Vec<Severity> {
    let mut all: Vec<_> = findings.iter().map(|it| it.severity).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn fake_hosts_are_judged_by_their_settings() {
    let damon = source(true, "nobody uses it");
    let table: [(TempDir, SourceFinding, &str, Expect); 4] = [
        (
            tree(GOOD.iter().chain([&DELEGATED])),
            damon.clone(),
            "",
            expect![[r#"
            ok kernel: Linux 6.12.48+deb13-amd64
            ok memory: 16GiB in all, 8GiB available, 512MiB kept for the host
            ok pressure: some task waited 0.50 % of the last 10 s
            ok swap: disk /dev/sda2 of 8GiB, 8GiB free: 6.4GiB more of guests may be paged out
            ok zswap: off
            ok swappiness: vm.swappiness is 60
            ok overcommit: vm.overcommit_memory is 0: within reason
            ok numa: one node has memory
            ok huge-pages: never; in shared memory never
            ok ksm: off
            ok userfaultfd: any process may use it
            ok damon: nobody uses it
            ok mglru: as told of DAMON
            ok cgroups: version 2 in /sys/fs/cgroup, with the memory controller
        "#]],
        ),
        (
            tree(&POOR),
            source(false, "this kernel has no DAMON"),
            "[tracking]\nsource = \"library\"\n[containers]\ncgroups = [\"a\"]\n",
            expect![[r#"
                warning kernel: Linux 5.4.0-generic
                warning memory: 4GiB in all, 100MiB available, 512MiB kept for the host
                  $ ps -eo rss,pid,comm --sort=-rss | head
                warning pressure: this kernel does not report it (PSI is off)
                  $ sed -i 's/^GRUB_CMDLINE_LINUX="/&psi=1 /' /etc/default/grub && update-grub && reboot
                warning swap: none: no guest can be paged out
                  $ fallocate -l 8G /swapfile && chmod 600 /swapfile && mkswap /swapfile && swapon /swapfile    # on ZFS or Btrfs a partition instead; list it in /etc/fstab
                note zswap: on
                  $ echo N > /sys/module/zswap/parameters/enabled
                warning swappiness: vm.swappiness is 0
                  $ sysctl -w vm.swappiness=60
                warning overcommit: vm.overcommit_memory is 2: never, so a guest may fail to start
                  $ sysctl -w vm.overcommit_memory=0
                note numa: 2 nodes have memory, counted as one
                note huge-pages: always; in shared memory never
                  $ echo never > /sys/kernel/mm/transparent_hugepage/enabled
                note ksm: merges pages, saves 200MiB now
                  $ echo 2 > /sys/kernel/mm/ksm/run
                problem userfaultfd: no /dev/userfaultfd, and only privileged processes may use it
                  $ sysctl -w vm.unprivileged_userfaultfd=1
                note damon: this kernel has no DAMON
                note mglru: as told of DAMON
                problem cgroups: version 1, in /sys/fs/cgroup/memory
                  $ sed -i 's/^GRUB_CMDLINE_LINUX="/&systemd.unified_cgroup_hierarchy=1 /' /etc/default/grub && update-grub && reboot
            "#]],
        ),
        (
            tree(&STRAINED),
            damon.clone(),
            "[host]\nreserve = \"1GiB\"\n",
            expect![[r#"
            note kernel: Linux 5.15.0
            problem memory: 512MiB in all, 100MiB available, 1GiB kept for the host
              $ $EDITOR /etc/b.toml    # reserve under [host]
            warning pressure: some task waited 31.07 % of the last 10 s
              $ ballast status
            note swap: zram /dev/zram0 of 8GiB, 8GiB free: 6.4GiB more of guests may be paged out; it stays in memory, compressed, so the host gains only what that saves
            ok zswap: not in this kernel
            note swappiness: not known: no vm.swappiness
            note overcommit: vm.overcommit_memory is not known: no such file
            ok numa: one node has memory
            ok huge-pages: not in this kernel
            note ksm: stopped, and what it merged saves 1MiB
              $ echo 2 > /sys/kernel/mm/ksm/run
            note userfaultfd: not in this kernel
            ok damon: nobody uses it
            ok mglru: as told of DAMON
            note cgroups: none with a memory controller is mounted
              $ mount -t cgroup2 none /sys/fs/cgroup
        "#]],
        ),
        (
            tree([]),
            damon,
            "[host]\nbudget = \"1GiB\"\n",
            expect![[r#"
            warning kernel: its version is not known
            problem memory: /proc/meminfo is missing
            warning pressure: this kernel does not report it (PSI is off)
              $ sed -i 's/^GRUB_CMDLINE_LINUX="/&psi=1 /' /etc/default/grub && update-grub && reboot
            warning swap: none: no guest can be paged out
              $ fallocate -l 8G /swapfile && chmod 600 /swapfile && mkswap /swapfile && swapon /swapfile    # on ZFS or Btrfs a partition instead; list it in /etc/fstab
            ok zswap: not in this kernel
            note swappiness: not known: no vm.swappiness
            note overcommit: vm.overcommit_memory is not known: no such file
            ok numa: one node has memory
            ok huge-pages: not in this kernel
            ok ksm: not in this kernel
            note userfaultfd: not in this kernel
            ok damon: nobody uses it
            ok mglru: as told of DAMON
            warning cgroups: /proc/self/mountinfo: No such file or directory (os error 2)
              $ cat /proc/self/mountinfo
        "#]],
        ),
    ];
    for (root, damon, settings, expected) in &table {
        let found = as_text(&host(root, damon, settings));
        expected.assert_eq(&found.replace(root.path().to_str().unwrap(), ""));
    }
    let [good, poor, strained, _] = &table;
    let all = |(root, damon, settings, _): &(TempDir, SourceFinding, &str, Expect)| {
        severities(&host(root, damon, settings))
    };
    assert_eq!(all(good), [Severity::Ok], "nothing is found fault with");
    assert!(all(poor).contains(&Severity::Warning) && all(strained).contains(&Severity::Problem));
}

#[test]
fn merging_to_be_tuned_must_be_there_and_free() {
    let damon = source(true, "nobody uses it");
    let found = |files: &[(&str, &str)], settings: &str| {
        let root = tree(GOOD.iter().chain(files));
        let findings = host(&root, &damon, settings);
        let finding = findings.iter().find(|it| it.topic == "ksm").unwrap();
        (finding.severity, finding.found.clone())
    };
    const TUNED: &str = "[mechanisms.ksm]\nenabled = true\n";
    const OTHER: [(&str, &str); 2] =
        [("proc/7/comm", "ksmtuned\n"), ("proc/7/status", "Uid:\t0\t0\t0\t0\n")];
    let state = "off; ksmtuned (process 7) tunes it";
    assert_eq!(found(&[], TUNED), (Severity::Ok, "off; tuned by [mechanisms.ksm]".into()));
    assert_eq!(found(&OTHER, ""), (Severity::Note, state.into()));
    let left = format!("{state}, so [mechanisms.ksm] does not");
    assert_eq!(found(&OTHER, TUNED), (Severity::Warning, left));
    let root = tree(&[]);
    let findings = host(&root, &damon, TUNED);
    let finding = findings.iter().find(|it| it.topic == "ksm").unwrap();
    assert!(finding.severity == Severity::Warning && finding.found.contains("not in this kernel"));
}

#[test]
fn rubbish_in_a_file_is_a_finding_that_names_it() {
    let damon = source(true, "nobody uses it");
    for (name, _) in GOOD.into_iter().filter(|(name, _)| !name.ends_with("controllers")) {
        let root = tree(GOOD.iter().chain([&DELEGATED, &(name, "rub\u{7}bish")]));
        let findings = host(&root, &damon, "");
        let bad: Vec<&Finding> = findings.iter().filter(|it| it.severity > Severity::Ok).collect();
        assert_eq!(bad.len(), 1, "{name}: {bad:?}");
        let path = root.path().join(name).display().to_string();
        assert_eq!(bad[0].severity, Severity::Warning);
        assert!(bad[0].found.contains(&path), "{bad:?}");
        assert!(bad[0].remedy.as_ref().is_some_and(|it| it.starts_with("cat /")), "{bad:?}");
        let text = render::render(&findings, None);
        assert!(text.contains(&path) && !text.contains('\u{7}'), "{text}");
    }
}

#[test]
fn what_depends_on_the_configuration_follows_it() {
    let files = GOOD.iter().chain([&DELEGATED]);
    let root = tree(files.chain(&[("proc/sys/vm/swappiness", "0\n")]));
    let damon = source(false, "in use by somebody else");
    let severity = |settings: &str, topic: &str| {
        let found = host(&root, &damon, settings);
        found.into_iter().find(|it| it.topic == topic).unwrap().severity
    };
    assert_eq!(severity("", "swappiness"), Severity::Warning);
    assert_eq!(severity("[mechanisms.paging]\nenabled = false\n", "swappiness"), Severity::Note);
    assert_eq!(severity("", "damon"), Severity::Note);
    assert_eq!(severity("[tracking]\nsource = \"damon\"\n", "damon"), Severity::Problem);
    assert_eq!(severity("[tracking]\nsource = \"damon\"\n", "mglru"), Severity::Note);
    assert_eq!(severity("[tracking]\nsource = \"mglru\"\n", "mglru"), Severity::Problem);
    assert_eq!(severity("[host]\nbudget = \"1TiB\"\n", "memory"), Severity::Warning);
    assert_eq!(severity("", "cgroups"), Severity::Ok);
    let alone = host(&tree(&GOOD), &damon, "");
    let cgroups = alone.iter().find(|it| it.topic == "cgroups").unwrap();
    let delegate = "echo +memory > /sys/fs/cgroup/cgroup.subtree_control";
    assert_eq!((cgroups.severity, cgroups.remedy.as_deref()), (Severity::Warning, Some(delegate)));
    assert_eq!(severity("[host]\nreserve = \"16GiB\"\n", "memory"), Severity::Problem);
}

#[test]
fn hypervisors_are_told_by_who_answers() {
    let socket = |name: &str, state: SocketState| QmpSocket {
        path: PathBuf::from(format!("/q/{name}.sock")),
        state,
    };
    let down = |down| SocketState::Down(down);
    let unreadable = |folder: &str, is_there, why: &str| QmpFolder {
        path: folder.into(),
        is_there,
        sockets: vec![],
        notices: vec![Notice::FolderUnreadable { folder: folder.into(), why: why.to_owned() }],
    };
    let folders = [
        QmpFolder {
            path: "/q".into(),
            is_there: true,
            sockets: vec![
                socket("fine", SocketState::Answers),
                socket("late", SocketState::NotAsked),
                socket("closed", SocketState::NotWritable),
                socket("taken", down(LinkDown::Taken)),
                socket("denied", down(LinkDown::PermissionDenied)),
                socket("gone", down(LinkDown::Refused)),
                socket("hung", down(LinkDown::TimedOut)),
            ],
            notices: vec![Notice::NotASocket { path: "/q/file.sock".into() }],
        },
        QmpFolder { path: "/empty".into(), is_there: true, sockets: vec![], notices: vec![] },
        unreadable("/closed", true, "Permission denied"),
        unreadable("/none", false, "No such file"),
    ];
    let found = hypervisors::judge(&folders, &[], None, &[], "/etc/b.toml");
    expect![[r#"
        warning qmp /q: ignoring /q/file.sock: it is not a socket
          $ mv /q/file.sock /q/file.sock.not-a-guest
        ok qmp /q: 2 of 7 sockets are usable, 1 of them not asked
        problem qmp-socket /q/closed.sock: not writable by this user
          $ setfacl -m u:$USER:rw /q/closed.sock    # or run as its owner
        warning qmp-socket /q/taken.sock: another client holds the socket: give Ballast one of its own (a second -qmp option)
          $ ss -xp | grep -F /q/taken.sock    # who holds it
        problem qmp-socket /q/denied.sock: permission denied: run the daemon as the socket's owner or in its group
          $ setfacl -m u:$USER:rw /q/denied.sock    # or run as its owner
        note qmp-socket /q/gone.sock: nobody listens on the socket
          $ rm /q/gone.sock
        warning qmp-socket /q/hung.sock: no answer in time
          $ fuser -v /q/hung.sock    # which process that is
        note qmp /empty: no sockets of guests
        problem qmp /closed: cannot read the folder /closed: Permission denied
          $ install -d -g kvm -m 2770 /closed
        note qmp /none: cannot read the folder /none: No such file
          $ install -d -g kvm -m 2770 /none
        ok libvirt: none listens here
    "#]].assert_eq(&as_text(&found));
    assert_eq!(severities(&found).len(), 4, "every severity is there");

    let version = Ok(LibvirtVersion { number: 9_000_000 });
    let libvirt = |is_configured, answer: &Result<LibvirtVersion, LinkDown>| LibvirtSeen {
        socket: "/l/sock".into(),
        is_configured,
        is_there: true,
        answer: answer.clone(),
    };
    let absent = LibvirtSeen { is_there: false, ..libvirt(true, &Err(LinkDown::Refused)) };
    let answers =
        [version, Err(LinkDown::Refused), Err(LinkDown::PermissionDenied), Err(LinkDown::TimedOut)];
    let configured = answers.iter().map(|it| libvirt(true, it));
    let other = answers.iter().map(|it| libvirt(false, it));
    let seen: Vec<LibvirtSeen> = configured.chain(other).chain([absent]).collect();
    let pattern =
        |pattern: &str, found, unreadable: Option<&str>, unwritable: Option<&str>| PatternSeen {
            pattern: pattern.to_owned(),
            found,
            unreadable: unreadable.map(PathBuf::from),
            unwritable: unwritable.map(PathBuf::from),
        };
    let patterns = [
        pattern("a/*", 3, None, None),
        pattern("b", 0, None, None),
        pattern("c", 1, Some("/c/memory.current"), None),
        pattern("d", 1, None, Some("/d/memory.high")),
    ];
    let found = hypervisors::judge(&folders[1..], &seen, None, &patterns, "/etc/b.toml");
    expect![[r#"
        ok qmp /empty: no sockets of guests
        note qmp /closed: cannot read the folder /closed: Permission denied
          $ install -d -g kvm -m 2770 /closed
        note qmp /none: cannot read the folder /none: No such file
          $ install -d -g kvm -m 2770 /none
        ok libvirt /l/sock: libvirt 9.0.0 answers
        problem libvirt /l/sock: nobody listens on the socket
          $ systemctl start libvirtd || systemctl start virtqemud
        problem libvirt /l/sock: this user may not connect
          $ usermod -aG libvirt $USER    # or run the daemon as root
        problem libvirt /l/sock: no answer in time
          $ virsh -c qemu:///system version
        note libvirt /l/sock: libvirt 9.0.0 answers, but is not configured
          $ $EDITOR /etc/b.toml && systemctl restart ballast    # enabled = true under [libvirt]
        note libvirt /l/sock: it is there, but not configured: permission denied: run the daemon as the socket's owner or in its group
        note libvirt /l/sock: it is there, but not configured: no answer in time
        note libvirt /l/sock: no libvirt is here: there is no such socket
          $ systemctl start libvirtd || systemctl start virtqemud    # where there is one
        ok containers a/*: matches 3 cgroups, readable and writable
        note containers b: matches no cgroup now
          $ systemd-cgls --no-pager
        problem containers c: /c/memory.current cannot be read
          $ cat /c/memory.current
        problem containers d: /d/memory.high cannot be written
          $ sudo ballast doctor host    # run the daemon as root, too
    "#]].assert_eq(&as_text(&found));
}

/// A status with guests of all kinds.
fn status() -> StatusReply {
    StatusReply::from(&tick(&fixture::view(), fixture::seen_at() + Duration::from_millis(300)))
}

fn tracking() -> TrackingDiagnosis {
    let guest = |name: &str, damon: &SourceFinding| GuestDiagnosis {
        guest: Some(name.to_owned()),
        pid: 7,
        library: source(false, "not preloaded"),
        damon: damon.clone(),
        mglru: source(false, "turned off"),
        referenced: source(false, "under KVM"),
    };
    let (works, fails) = (source(true, "page by page"), source(false, "absent"));
    let guests = vec![guest("mute", &works), guest("taken", &fails)];
    TrackingDiagnosis { guests, damon: works, mglru: fails }
}

const STALE: Duration = Duration::from_secs(5);

#[test]
fn guests_are_judged_by_what_the_daemon_sees() {
    let found = guests::judge(&status(), &[], &tracking(), &Managers::new(), STALE).unwrap();
    expect![[r#"
        ok monitor grow: running
        ok balloon grow: has a balloon device
        ok statistics grow: the driver reports, last 0.8s ago
        note free-page-reporting grow: not known: its hypervisor has not said
        note deflate-on-oom grow: not known: its hypervisor has not said
        note hotplug grow: not known: its hypervisor has not said
        ok working-set grow: watching page touches, by library
        note monitor mute: its state is not known yet
        note balloon mute: not known: its hypervisor has not said yet
        note statistics mute: none from a guest that does not run or answer
        note free-page-reporting mute: not known: its hypervisor has not said
        note deflate-on-oom mute: not known: its hypervisor has not said
        note hotplug mute: not known: its hypervisor has not said
        note working-set mute: not tracked; with [tracking] it would be by damon
        ok monitor old: running
        ok balloon old: has a balloon device
        warning statistics old: the driver's last report is 12.0s old
          $ ballast explain old
        note free-page-reporting old: not known: its hypervisor has not said
        note deflate-on-oom old: not known: its hypervisor has not said
        note hotplug old: not known: its hypervisor has not said
        ok working-set old: resting until a new phase begins, by library
        ok monitor stuck: running
        ok balloon stuck: has a balloon device
        ok statistics stuck: the driver reports, last 0.4s ago
        note free-page-reporting stuck: not known: its hypervisor has not said
        note deflate-on-oom stuck: not known: its hypervisor has not said
        note hotplug stuck: not known: its hypervisor has not said
        warning working-set stuck: does not work: the guest is tracked by another client: stop that one first
          $ ballast doctor tracking
        problem monitor taken: another client holds the socket: give Ballast one of its own (a second -qmp option)
          $ ballast doctor host    # what its socket says
        note balloon taken: not known: its hypervisor has not said yet
        note statistics taken: none from a guest that does not run or answer
        note free-page-reporting taken: not known: its hypervisor has not said
        note deflate-on-oom taken: not known: its hypervisor has not said
        note hotplug taken: not known: its hypervisor has not said
        note working-set taken: not tracked; with [tracking] it would be by nothing
          $ ballast doctor tracking
    "#]].assert_eq(&as_text(&found));
    assert!(found.iter().all(|it| it.area == Area::Guests && it.subject.is_some()));
    assert_eq!(severities(&found).len(), 4, "every severity is there");

    let asked = |name: &str| {
        guests::judge(&status(), &[name.to_owned()], &tracking(), &Managers::new(), STALE)
    };
    let some = asked("old").unwrap();
    assert!(!some.is_empty() && some.iter().all(|it| it.subject.as_deref() == Some("old")));
    let unknown = asked("web").unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "the daemon knows no guest `web`: it knows grow, mute, old, stuck, taken"
    );
}

#[test]
fn a_guests_devices_are_told_one_by_one() {
    let mut status = status();
    let guest = &mut status.guests[0];
    guest.tracking = None;
    guest.stats_age_ms = None;
    guest.capabilities = ballast_api::CapabilitiesView {
        balloon: Some(true),
        statistics: Some(true),
        free_page_reporting: Some(false),
        deflate_on_oom: Some(false),
        memory_devices: Some(true),
        discard_inhibited: Some(true),
        shared_control: Some(true),
    };
    guest.change.as_mut().unwrap().why =
        Some(ballast_api::Coded::new("another-owner", "mom moves it"));
    let judged_by = |status: &StatusReply, managers: &Managers| {
        guests::judge(status, &["grow".to_owned()], &tracking(), managers, STALE).unwrap()
    };
    let judged = |status: &StatusReply| judged_by(status, &Managers::new());
    expect![[r#"
        ok monitor grow: running
        ok balloon grow: has a balloon device
        warning statistics grow: none arrived: no driver in the guest?
          $ modprobe virtio_balloon    # inside the guest
        note free-page-reporting grow: off
          $ virsh edit grow    # <memballoon model='virtio' freePageReporting='on'/>
        note deflate-on-oom grow: off
          $ virsh edit grow    # <memballoon model='virtio' autodeflate='on'/>
        note hotplug grow: has memory devices that Ballast does not plug
        note working-set grow: not tracked; no hypervisor of that name is seen
        warning discard grow: a passthrough device or locked memory keeps ballooned pages on the host
          $ ballast set grow --managed false
        warning another-owner grow: mom moves it
          $ ballast set grow --take-over
    "#]].assert_eq(&as_text(&judged(&status)));
    let of_proxmox = Managers::from([("grow".to_owned(), Manager::Proxmox { vmid: 101 })]);
    let text = as_text(&judged_by(&status, &of_proxmox));
    for remedy in [
        "--args '… -global virtio-balloon-pci.deflate-on-oom=on'",
        "qm set 101 --shares 0 && systemctl restart ballast",
    ] {
        assert!(text.contains(remedy) && !text.contains("virsh"), "{text}");
    }
    let can = &mut status.guests[0].capabilities;
    (can.balloon, can.shared_control) = (Some(false), Some(false));
    let text = as_text(&judged_by(&status, &of_proxmox));
    assert!(text.contains("qm set 101 --delete balloon && qm reboot 101"), "{text}");
    let topics: Vec<_> = judged(&status).iter().map(|it| (it.topic, it.severity)).collect();
    assert!(topics.contains(&("balloon", Severity::Problem)), "{topics:?}");
    assert!(!topics.iter().any(|(topic, _)| *topic == "statistics"), "{topics:?}");
}

#[test]
fn without_a_daemon_guests_are_said_to_be_unseen() {
    let note = guests::not_looked_at("no daemon listens on /x", 2, Severity::Note);
    assert_eq!((note.area, note.severity), (Area::Guests, Severity::Note));
    for part in ["not looked at", "no daemon listens on /x", "this host: 2"] {
        assert!(note.found.contains(part), "{note:?}");
    }
}

fn rights(user: u32, capabilities: &str) -> ProcessRights {
    let text = format!("Uid:\t{user}\t{user}\t{user}\t{user}\nCapEff:\t{capabilities}\n");
    parse_rights(Path::new("status"), text.as_bytes()).unwrap()
}

#[test]
fn owners_and_rights_are_told_with_what_mends_them() {
    let owners = [
        (7, BalloonOwner::Ballast),
        (8, BalloonOwner::Mom),
        (9, BalloonOwner::Ballast),
        (10, BalloonOwner::Pvestatd),
    ];
    let mut found = permissions::judge_owners(&owners, None);
    assert_eq!(severities(&permissions::judge_owners(&owners[..1], None)), [Severity::Ok]);

    let process = |pid, smaps: Result<(), &str>, cgroup: Result<(), &str>| ProcessSeen {
        pid,
        smaps: smaps.map_err(str::to_owned),
        cgroup: cgroup.map_err(str::to_owned),
    };
    let good = RightsSeen {
        own: Ok(rights(0, "1ffffffffff")),
        daemon: DaemonSeen { rights: Some((7, Ok(rights(0, "1ffffffffff")))) },
        hypervisors: vec![process(20, Ok(()), Ok(()))],
        journal: JournalSeen::Recording,
    };
    let judged = permissions::judge_permissions(&good, &config(""));
    assert_eq!(severities(&judged), [Severity::Ok], "{judged:?}");
    let bad = RightsSeen {
        own: Ok(rights(1000, "0")),
        daemon: DaemonSeen { rights: Some((7, Ok(rights(107, "4000")))) },
        hypervisors: vec![
            process(20, Ok(()), Ok(())),
            process(21, Err("Permission denied"), Err("in the root cgroup")),
        ],
        journal: JournalSeen::Failing { why: "the disk is full".to_owned() },
    };
    found.extend(permissions::judge_permissions(&bad, &config("")));
    let by_cgroup = config("[mechanisms.paging]\nway = \"cgroup\"\n");
    let judged = permissions::judge_permissions(&bad, &by_cgroup);
    let cgroups = judged.iter().find(|it| it.topic == "guest-cgroups").unwrap();
    assert_eq!(cgroups.severity, Severity::Problem, "it is the only way chosen");
    let none = RightsSeen {
        own: Ok(rights(1000, "0")),
        daemon: DaemonSeen::default(),
        hypervisors: vec![],
        journal: JournalSeen::NoFolder { folder: "/var/lib/ballast".into() },
    };
    found.extend(permissions::judge_permissions(&none, &config("")));
    for journal in [
        JournalSeen::Off,
        JournalSeen::NotWritable { path: "/j/journal.db".into() },
        JournalSeen::Writable { path: "/j/journal.db".into() },
    ] {
        let seen = RightsSeen { journal, ..none.clone() };
        found.extend(permissions::judge_permissions(&seen, &config("")).pop());
    }
    expect![[r#"
        warning owner: mom runs (process 8)
          $ systemctl disable --now momd || systemctl disable --now vdsmd
        warning owner: pvestatd runs (process 10)
          $ qm set VMID --shares 0    # for each guest of Ballast's
        warning owner: 2 daemons of Ballast run (processes 7, 9)
          $ ps -o pid,user,args -C ballast
        warning daemon-rights: process 7, user 107, without CAP_SYS_PTRACE, CAP_SYS_NICE, CAP_SYS_RESOURCE
          $ systemctl edit ballast    # AmbientCapabilities=CAP_SYS_PTRACE CAP_SYS_NICE CAP_SYS_RESOURCE
        note user: this command runs as user 1000, with other rights than the daemon (user 107)
        warning smaps: not readable of 1 of 2 hypervisors: process 21 (Permission denied)
          $ sudo ballast doctor host    # run the daemon as root, too
        note guest-cgroups: 1 of 2 hypervisors have no such cgroup: in the root cgroup
          $ systemd-run --scope --slice=machine.slice qemu-system-x86_64 …    # next time
        problem journal: the daemon does not record: the disk is full
          $ ballast status
        note daemon-rights: no daemon was found running
        note user: user 1000, not root
          $ sudo ballast doctor
        warning journal: its folder /var/lib/ballast is missing
          $ install -d -m 750 /var/lib/ballast
        note journal: [journal] is off
        problem journal: this user may not write /j/journal.db
          $ sudo ballast doctor host    # run the daemon as root, too
        ok journal: /j/journal.db can be written
    "#]].assert_eq(&as_text(&found));
    assert_eq!(severities(&found).len(), 4, "every severity is there");
}

#[test]
fn text_has_a_table_for_each_area_and_json_everything() {
    let mut findings = vec![
        Area::Host.check("zswap", "Because.").ok("off"),
        Area::Host.check("swap", "It is needed.").warning("none").remedy("swapon /swap"),
        Area::Permissions.check("user", "Because.").note("not\u{1b}root"),
    ];
    for (topic, severity, found) in [
        ("monitor", Severity::Ok, "running"),
        ("balloon", Severity::Ok, "has one"),
        ("statistics", Severity::Problem, "none"),
    ] {
        let check = Area::Guests.check(topic, "So it is.").about("web-1");
        findings.push(check.found(severity, found));
    }
    expect![[r#"
        HOST
        zswap  ok       off
        swap   warning  none
                        It is needed.
                          $ swapon /swap

        GUESTS
        web-1             ok       monitor: running; balloon: has one
        web-1 statistics  problem  none
                                   So it is.

        PERMISSIONS
        user         note  not�root
                           Because.

        1 problem, 1 warning, 1 note
    "#]]
    .assert_eq(&render::render(&findings, None));
    let reply =
        DiagnosisReply { config: None, worst: Severity::Problem, findings: &findings[1..2] };
    expect![[r#"
        {
          "config": null,
          "worst": "problem",
          "findings": [
            {
              "area": "host",
              "topic": "swap",
              "subject": null,
              "severity": "warning",
              "found": "none",
              "why": "It is needed.",
              "remedy": "swapon /swap"
            }
          ]
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&reply).unwrap());
    assert!(render::render(&[], None).contains("all is well"));
}

#[test]
fn a_xen_is_told_with_what_works_of_it() {
    let xen = |is_configured, store, xl| XenSeen {
        socket: "/x/socket".into(),
        is_configured,
        found: XenProbe { store, xl },
    };
    let info = XlInfo { total: Bytes::gib(4), free: Bytes::mib(512) };
    let refused = || Err("`xl info`: No such file or directory".to_owned());
    let mut found = Vec::new();
    for seen in [
        xen(true, Ok(()), Ok(info)),
        xen(true, Err(LinkDown::PermissionDenied), refused()),
        xen(false, Ok(()), Ok(info)),
        xen(false, Err(LinkDown::Refused), refused()),
    ] {
        found.extend(hypervisors::judge(&[], &[], Some(&seen), &[], "/etc/b.toml").split_off(1));
    }
    expect![[r#"
        ok xen /x/socket: xenstored answers
        ok xen /x/socket: xl works: 512MiB of 4GiB are free
        problem xen /x/socket: xenstored: permission denied: run the daemon as the socket's owner or in its group
          $ xenstore-ls /local/domain    # in dom0, as root
        warning xen /x/socket: `xl info`: No such file or directory: domains shrink and grow back, but not beyond that
          $ xl info    # in dom0, as root
        note xen /x/socket: xenstored answers, but is not configured
          $ $EDITOR /etc/b.toml && systemctl restart ballast    # enabled = true under [xen]
        note xen /x/socket: it is there, but not configured: nobody listens on the socket
          $ $EDITOR /etc/b.toml && systemctl restart ballast    # enabled = true under [xen]
    "#]].assert_eq(&as_text(&found));
}

#[test]
fn limits_on_processes_are_judged_by_ceilings() {
    let limit = |file: &str, mib| MemoryLimit {
        file: Path::new("/sys/fs/cgroup").join(file),
        limit: Bytes::mib(mib),
    };
    let seen = |guest: &str, limits: Option<Vec<MemoryLimit>>| LimitsSeen {
        guest: guest.to_owned(),
        limits: Ok(limits),
        nodes: None,
    };
    let status = status();
    let judged = |seen: &[LimitsSeen]| limits::judge(seen, Some(&status));
    let mut found = judged(&[]);
    found.extend(judged(&[seen("grow", Some(vec![]))]));
    // Its ceiling is 1 GiB.
    found.extend(judged(&[seen(
        "grow",
        Some(vec![limit("vm.scope/memory.max", 1096), limit("memory.high", 1095)]),
    )]));
    let shared = || Some(vec![limit("slice/memory.max", 4096)]);
    found.extend(judged(&[seen("grow", shared()), seen("other", shared()), seen("x", None)]));
    found.extend(limits::judge(&[seen("grow", shared())], None));
    let (by, limit) = ("NUMA node 1".to_owned(), Bytes::gib(1));
    let nodes = Some(MemoryRoom { by, limit, left: Bytes::ZERO });
    found.extend(judged(&[LimitsSeen { nodes, ..seen("grow", Some(vec![])) }]));
    let unreadable = parse_rights(Path::new("/proc/7/cgroup"), b"rubbish").unwrap_err();
    found.extend(judged(&[LimitsSeen { limits: Err(unreadable), ..seen("x", None) }]).pop());
    let (last, found) = found.split_last().unwrap();
    assert_eq!((last.topic, last.severity), ("memory-limits", Severity::Warning));
    expect![[r#"
        ok memory-limits: no guest's process has one
        ok memory-limits: no guest's process has one
        warning memory-limits: /sys/fs/cgroup/memory.high limits grow to 1095MiB, less than 1096MiB: what 1GiB of guests' memory may need
          $ echo 1149239296 > /sys/fs/cgroup/memory.high    # to stay: virsh memtune, MemoryMax=; or lower ceilings
        ok memory-limits: /sys/fs/cgroup/vm.scope/memory.max limits grow to 1096MiB, which is enough for 1GiB
        note memory-limits: /sys/fs/cgroup/slice/memory.max limits grow and 1 more to 4GiB; how far that may grow is not known
        note memory-limits: not known of x: version 2 of cgroups does not control its memory
        note memory-limits: /sys/fs/cgroup/slice/memory.max limits grow to 4GiB; how far that may grow is not known
        warning memory-limits: NUMA node 1 limits grow to 1GiB, less than 1096MiB: what 1GiB of guests' memory may need
          $ ballast set grow --ceiling SIZE    # so that all fit
    "#]]
    .assert_eq(&as_text(found));
}
