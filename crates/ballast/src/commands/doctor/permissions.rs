//! Judges other owners of balloons, and the rights of the daemon and of this command.
//!
//! Limits: pure. Permissions were tried by this command, as its own user.

use std::path::Path;

use ballast_config::Config;
use ballast_config::paging::PagingWay;
use ballast_host::{ProcessCapability, ProcessRights};
use ballast_model::BalloonOwner;

use super::finding::{Area, Check, Finding, Severity};
use super::probe::{DaemonSeen, JournalSeen, ProcessSeen, RightsSeen};

/// Root's user id.
const ROOT: u32 = 0;
/// Most processes that a finding names.
const NAMED_MAX: usize = 5;

/// The findings about other owners of balloons. `moved`: the VMIDs of guests that `pvestatd` moves;
/// `None`: not known.
pub(super) fn judge_owners(owners: &[(u32, BalloonOwner)], moved: Option<&[u32]>) -> Vec<Finding> {
    const WHY: &str =
        "A balloon with two owners goes to and fro; Ballast leaves such a guest alone.";
    let check = Area::Owners.check("owner", WHY);
    let mut findings = Vec::new();
    for (pid, owner) in owners {
        if let (BalloonOwner::Pvestatd, Some(moved)) = (owner, moved) {
            findings.push(pvestatd_finding(&check, *pid, moved));
            continue;
        }
        let stop = match owner {
            BalloonOwner::Ballast => continue,
            BalloonOwner::Mom => "systemctl disable --now momd || systemctl disable --now vdsmd",
            BalloonOwner::Pvestatd => "qm set VMID --shares 0    # for each guest of Ballast's",
            BalloonOwner::Squeezed => "systemctl disable --now squeezed",
            BalloonOwner::Qmemman => "systemctl disable --now qubes-qmemman",
        };
        let found = format!("{owner} runs (process {pid})");
        findings.push(check.warning(found).remedy(stop));
    }
    let daemons: Vec<u32> =
        owners.iter().filter(|(_, it)| *it == BalloonOwner::Ballast).map(|(pid, _)| *pid).collect();
    if daemons.len() > 1 {
        let found = format!("{} daemons of Ballast run ({})", daemons.len(), processes(&daemons));
        findings.push(check.warning(found).remedy("ps -o pid,user,args -C ballast"));
    }
    if findings.is_empty() {
        findings.push(check.ok("no other program is known to move balloons"));
    }
    findings
}

fn pvestatd_finding(check: &Check, pid: u32, moved: &[u32]) -> Finding {
    if moved.is_empty() {
        return check.ok(format!("pvestatd runs (process {pid}) and moves no guest of Ballast's"));
    }
    let vmids: Vec<String> = moved.iter().map(u32::to_string).collect();
    let vmids = vmids.join(" ");
    check
        .warning(format!("pvestatd runs (process {pid}) and moves machines {vmids}"))
        .remedy(format!("for vmid in {vmids}; do qm set $vmid --shares 0; done"))
}

fn processes(pids: &[u32]) -> String {
    let mut named: Vec<String> = pids.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    if pids.len() > NAMED_MAX {
        named.push("…".to_owned());
    }
    let noun = if pids.len() == 1 { "process" } else { "processes" };
    format!("{noun} {}", named.join(", "))
}

/// The findings about the rights of the daemon and of this command.
pub(super) fn judge_permissions(seen: &RightsSeen, config: &Config) -> Vec<Finding> {
    let mut findings = vec![daemon_finding(&seen.daemon, config)];
    findings.push(user_finding(&seen.own, &seen.daemon));
    findings.extend(smaps_finding(&seen.hypervisors));
    findings.extend(cgroups_finding(&seen.hypervisors, config));
    findings.push(journal_finding(&seen.journal));
    findings
}

fn daemon_finding(daemon: &DaemonSeen, config: &Config) -> Finding {
    const WHY: &str = "As root, or with these capabilities, the daemon keeps running on a host that \
        is short of memory, and sees and pages out hypervisors of other users.";
    let check = Area::Permissions.check("daemon-rights", WHY);
    let (pid, rights) = match &daemon.rights {
        None => return check.note("no daemon was found running"),
        Some((pid, Err(why))) => {
            return check
                .warning(format!("process {pid}: {why}"))
                .remedy("sudo ballast doctor host");
        }
        Some((pid, Ok(rights))) => (pid, rights),
    };
    let who = format!("process {pid}, user {}", rights.user);
    let lacks: Vec<&str> = ProcessCapability::ALL
        .into_iter()
        .filter(|it| !rights.has(*it))
        .map(ProcessCapability::as_str)
        .collect();
    if lacks.is_empty() {
        return check.ok(format!("{who}, with all rights that it can use"));
    }
    let pages_out =
        rights.has(ProcessCapability::SysPtrace) && rights.has(ProcessCapability::SysNice);
    let severity = match config.paging.is_some() && !pages_out {
        true => Severity::Warning,
        false => Severity::Note,
    };
    check
        .found(severity, format!("{who}, without {}", lacks.join(", ")))
        .remedy(format!("systemctl edit ballast    # AmbientCapabilities={}", lacks.join(" ")))
}

fn user_finding(own: &Result<ProcessRights, String>, daemon: &DaemonSeen) -> Finding {
    const WHY: &str = "This command tries things with its own rights; the daemon can do the same \
        only if it has the same rights.";
    let check = Area::Permissions.check("user", WHY);
    match (own, &daemon.rights) {
        (Err(why), _) => check.warning(why.clone()).remedy("cat /proc/self/status"),
        (Ok(own), Some((_, Ok(daemon)))) if own != daemon => {
            let found = format!(
                "this command runs as user {}, with other rights than the daemon (user {})",
                own.user, daemon.user
            );
            check.note(found)
        }
        (Ok(own), _) if own.user == ROOT => check.ok("root"),
        (Ok(own), Some(_)) => check.ok(format!("user {}, as the daemon", own.user)),
        (Ok(own), None) => {
            check.note(format!("user {}, not root", own.user)).remedy("sudo ballast doctor")
        }
    }
}

fn smaps_finding(hypervisors: &[ProcessSeen]) -> Option<Finding> {
    const WHY: &str = "/proc/PID/smaps of a guest's hypervisor says what the guest really \
        occupies, and which of its pages are huge.";
    let check = Area::Permissions.check("smaps", WHY);
    let closed: Vec<u32> =
        hypervisors.iter().filter(|it| it.smaps.is_err()).map(|it| it.pid).collect();
    let why = hypervisors.iter().find_map(|it| it.smaps.as_ref().err());
    Some(match (hypervisors.len(), why) {
        (0, _) => return None,
        (all, None) => check.ok(format!("readable of all {all} hypervisors")),
        (all, Some(why)) => {
            let count = closed.len();
            let found = format!(
                "not readable of {count} of {all} hypervisors: {} ({why})",
                processes(&closed)
            );
            check.warning(found).remedy("sudo ballast doctor host    # run the daemon as root, too")
        }
    })
}

fn cgroups_finding(hypervisors: &[ProcessSeen], config: &Config) -> Option<Finding> {
    const WHY: &str = "A guest can be fenced, or paged out as a whole, only if it has a cgroup of \
        its own with a writable limit.";
    let check = Area::Permissions.check("guest-cgroups", WHY);
    let without: Vec<&ProcessSeen> = hypervisors.iter().filter(|it| it.cgroup.is_err()).collect();
    let why = hypervisors.iter().find_map(|it| it.cgroup.as_ref().err());
    Some(match (hypervisors.len(), why) {
        (0, _) => return None,
        (all, None) => check.ok(format!("writable of all {all} hypervisors")),
        (all, Some(why)) => {
            // A problem only if the configuration pages guests out by cgroup alone.
            let is_chosen = config.paging.is_some_and(|it| it.way == PagingWay::Cgroup);
            let severity = if is_chosen { Severity::Problem } else { Severity::Note };
            let count = without.len();
            let found = format!("{count} of {all} hypervisors have no such cgroup: {why}");
            check.found(severity, found).remedy(
                "systemd-run --scope --slice=machine.slice qemu-system-x86_64 …    # next time",
            )
        }
    })
}

fn journal_finding(journal: &JournalSeen) -> Finding {
    const WHY: &str = "Without its journal a restarted daemon forgets what guests were promised, \
        and past decisions cannot be explained.";
    let check = Area::Permissions.check("journal", WHY);
    let shown = |path: &Path| path.display().to_string();
    match journal {
        JournalSeen::Off => check.note("[journal] is off"),
        JournalSeen::Failing { why } => {
            check.problem(format!("the daemon does not record: {why}")).remedy("ballast status")
        }
        JournalSeen::Recording => check.ok("the daemon records"),
        JournalSeen::NoFolder { folder } => check
            .warning(format!("its folder {} is missing", shown(folder)))
            .remedy(format!("install -d -m 750 {}", shown(folder))),
        JournalSeen::NotWritable { path } => check
            .problem(format!("this user may not write {}", shown(path)))
            .remedy("sudo ballast doctor host    # run the daemon as root, too"),
        JournalSeen::Writable { path } => check.ok(format!("{} can be written", shown(path))),
    }
}
