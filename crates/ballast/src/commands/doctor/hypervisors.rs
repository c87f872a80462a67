//! Judges the places where guests are looked for, and the answers there.
//!
//! Limits: pure. Sockets that a daemon uses were not asked; the daemon's view of those guests
//! counts.

use ballast_libvirt::LibvirtVersion;
use ballast_model::LinkDown;
use ballast_qmp::fleet::Notice;

use super::finding::{Area, Finding, Severity, configure};
use super::probe::{LibvirtSeen, PatternSeen, QmpFolder, QmpSocket, SocketState, XenSeen};

/// The findings about QMP folders, libvirt, Xen and cgroups. `config` is the path of the
/// configuration.
pub(super) fn judge(
    folders: &[QmpFolder],
    libvirts: &[LibvirtSeen],
    xen: Option<&XenSeen>,
    patterns: &[PatternSeen],
    config: &str,
) -> Vec<Finding> {
    let is_libvirt_on = libvirts.iter().any(|it| it.is_configured);
    let has_others =
        is_libvirt_on || xen.is_some_and(|it| it.is_configured) || !patterns.is_empty();
    let mut findings: Vec<Finding> =
        folders.iter().flat_map(|it| folder_findings(it, has_others)).collect();
    findings.extend(libvirts.iter().filter_map(|it| libvirt_finding(it, config)));
    if libvirts.is_empty() {
        let why = "Domains of libvirt are guests too once [libvirt] is enabled.";
        findings.push(Area::Hypervisors.check("libvirt", why).ok("none listens here"));
    }
    findings.extend(xen.into_iter().flat_map(|it| xen_findings(it, config)));
    findings.extend(patterns.iter().map(pattern_finding));
    findings
}

const QMP_WHY: &str = "A guest of QEMU is seen only if it has a QMP socket for Ballast alone in \
    such a folder, or is a domain of libvirt.";

fn folder_findings(folder: &QmpFolder, has_others: bool) -> Vec<Finding> {
    let shown = folder.path.display().to_string();
    let check = Area::Hypervisors.check("qmp", QMP_WHY).about(shown.clone());
    let mut findings = Vec::new();
    for notice in &folder.notices {
        let found = notice.to_string();
        findings.push(match notice {
            Notice::FolderUnreadable { .. } => {
                // A missing folder may be made while the daemon runs.
                let is_harmless = has_others || !folder.is_there;
                let severity = if is_harmless { Severity::Note } else { Severity::Problem };
                check.found(severity, found).remedy(format!("install -d -g kvm -m 2770 {shown}"))
            }
            Notice::InvalidName { path, .. } | Notice::NotASocket { path } => {
                check.warning(found).remedy(format!("mv {0} {0}.not-a-guest", path.display()))
            }
            _ => check.warning(found),
        });
    }
    let unusable: Vec<Finding> = folder.sockets.iter().filter_map(socket_finding).collect();
    let count = folder.sockets.len();
    let good = count - unusable.len();
    let is_readable =
        !folder.notices.iter().any(|it| matches!(it, Notice::FolderUnreadable { .. }));
    match count {
        0 if is_readable => {
            let severity = if has_others { Severity::Ok } else { Severity::Note };
            findings.push(check.found(severity, "no sockets of guests"));
        }
        0 => {}
        _ if good > 0 || unusable.is_empty() => {
            let unasked = folder.sockets.iter().filter(|it| it.state == SocketState::NotAsked);
            let unasked = match unasked.count() {
                0 => String::new(),
                unasked => format!(", {unasked} of them not asked"),
            };
            let text = format!("{good} of {count} sockets are usable{unasked}");
            findings.push(check.ok(text));
        }
        _ => {}
    }
    findings.extend(unusable);
    findings
}

/// The finding about a QMP socket; `None`: it can be used, or was not asked.
fn socket_finding(socket: &QmpSocket) -> Option<Finding> {
    const WHY: &str = "Ballast sees and balances a guest only while its socket answers.";
    let path = socket.path.display();
    let check = Area::Hypervisors.check("qmp-socket", WHY).about(path.to_string());
    let down = match &socket.state {
        SocketState::Answers | SocketState::NotAsked => return None,
        SocketState::NotWritable => {
            return Some(
                check
                    .problem("not writable by this user")
                    .remedy(format!("setfacl -m u:$USER:rw {path}    # or run as its owner")),
            );
        }
        SocketState::Down(down) => down,
    };
    let found = check.warning(down.to_string());
    Some(match down {
        LinkDown::PermissionDenied => Finding { severity: Severity::Problem, ..found }
            .remedy(format!("setfacl -m u:$USER:rw {path}    # or run as its owner")),
        LinkDown::Refused => {
            Finding { severity: Severity::Note, ..found }.remedy(format!("rm {path}"))
        }
        LinkDown::Taken => found.remedy(format!("ss -xp | grep -F {path}    # who holds it")),
        _ => found.remedy(format!("fuser -v {path}    # which process that is")),
    })
}

/// The finding about a libvirt; `None`: none is configured and none answers.
fn libvirt_finding(libvirt: &LibvirtSeen, config: &str) -> Option<Finding> {
    const WHY: &str = "Domains of libvirt are balanced through its socket as they run.";
    let socket = libvirt.socket.display().to_string();
    let check = Area::Hypervisors.check("libvirt", WHY).about(socket.clone());
    if libvirt.is_configured && !libvirt.is_there {
        // The packaged configuration enables libvirt, whether or not it is installed.
        return Some(check.note("no libvirt is here: there is no such socket").remedy(
            "systemctl start libvirtd || systemctl start virtqemud    # where there is one",
        ));
    }
    let answers = |version: &LibvirtVersion| format!("libvirt {version} answers");
    Some(match (&libvirt.answer, libvirt.is_configured) {
        (Ok(version), true) => check.ok(answers(version)),
        (Ok(version), false) => {
            let found = format!("{}, but is not configured", answers(version));
            check.note(found).remedy(configure(config, "enabled = true", "libvirt"))
        }
        (Err(LinkDown::PermissionDenied), true) => check
            .problem("this user may not connect")
            .remedy("usermod -aG libvirt $USER    # or run the daemon as root"),
        (Err(down @ LinkDown::Refused), true) => check
            .problem(down.to_string())
            .remedy("systemctl start libvirtd || systemctl start virtqemud"),
        (Err(down), true) => {
            check.problem(down.to_string()).remedy("virsh -c qemu:///system version")
        }
        (Err(LinkDown::Refused), false) => return None,
        (Err(down), false) => check.note(format!("it is there, but not configured: {down}")),
    })
}

/// The findings about a Xen: about xenstored, and about `xl` if that matters.
fn xen_findings(xen: &XenSeen, config: &str) -> Vec<Finding> {
    const WHY: &str = "Domains of Xen are balanced through xenstore; xl reports what they hold \
        and lets them grow.";
    let socket = xen.socket.display().to_string();
    let check = Area::Hypervisors.check("xen", WHY).about(socket.clone());
    if !xen.is_configured {
        let found = match &xen.found.store {
            Ok(()) => "xenstored answers, but is not configured".to_owned(),
            Err(down) => format!("it is there, but not configured: {down}"),
        };
        return vec![check.note(found).remedy(configure(config, "enabled = true", "xen"))];
    }
    let store = match &xen.found.store {
        Ok(()) => check.ok("xenstored answers"),
        Err(down) => check
            .problem(format!("xenstored: {down}"))
            .remedy("xenstore-ls /local/domain    # in dom0, as root"),
    };
    let xl = match &xen.found.xl {
        Ok(info) => {
            let (free, total) = (info.free, info.total);
            check.ok(format!("xl works: {free} of {total} are free"))
        }
        Err(why) => {
            let found = format!("{why}: domains shrink and grow back, but not beyond that");
            check.warning(found).remedy("xl info    # in dom0, as root")
        }
    };
    vec![store, xl]
}

fn pattern_finding(seen: &PatternSeen) -> Finding {
    const WHY: &str = "Containers are balanced by memory.high of their cgroups.";
    let check = Area::Hypervisors.check("containers", WHY).about(seen.pattern.clone());
    if let Some(path) = &seen.unreadable {
        return check
            .problem(format!("{} cannot be read", path.display()))
            .remedy(format!("cat {}", path.display()));
    }
    if let Some(path) = &seen.unwritable {
        return check
            .problem(format!("{} cannot be written", path.display()))
            .remedy("sudo ballast doctor host    # run the daemon as root, too");
    }
    match seen.found {
        // The packaged configuration has patterns for Docker and Podman, whether or not they run.
        0 => check.note("matches no cgroup now").remedy("systemd-cgls --no-pager"),
        found => check.ok(format!("matches {found} cgroups, readable and writable")),
    }
}
