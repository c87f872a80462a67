//! Guests of Cloud Hypervisor and Firecracker, by their own APIs: which of them answer, and which
//! devices a guest lacks.
//!
//! Limits: pure. A missing device has to be configured before the guest boots: no call adds it
//! later, except Cloud Hypervisor's vsock.

use std::path::Path;

use ballast_model::LinkDown;
use ballast_rest::shown;

use super::finding::{Area, Check, Finding, Severity, configure};
use super::probe::{RestAnswer, RestHypervisor, RestSeen, RestSocket};

/// Why a guest should have a balloon.
pub(super) const BALLOON_WHY: &str = "Memory is taken from a guest and given back by its balloon.";

/// Why its balloon should have `deflate-on-oom`.
pub(super) const DEFLATE_WHY: &str = "With it the balloon gives memory back by itself before the \
    guest's kernel kills a process.";

/// Options with which a guest's balloon should be started, beside statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BalloonStart {
    /// It deflates before the guest's kernel kills a process.
    pub(super) deflate_on_oom: bool,
    /// It reports free pages.
    pub(super) free_page_reporting: bool,
}

impl RestHypervisor {
    /// Its topic in findings.
    const fn topic(self) -> &'static str {
        match self {
            RestHypervisor::CloudHypervisor => "cloud-hypervisor",
            RestHypervisor::Firecracker => "firecracker",
        }
    }

    /// How to start `guest` with a balloon: by a flag of Cloud Hypervisor, or by a file for
    /// Firecracker.
    pub(super) fn balloon_line(self, guest: &str, start: BalloonStart) -> String {
        let BalloonStart { deflate_on_oom, free_page_reporting } = start;
        match self {
            RestHypervisor::CloudHypervisor => {
                let mut with = "size=0".to_owned();
                for (name, is_on) in [
                    ("deflate_on_oom", deflate_on_oom),
                    ("free_page_reporting", free_page_reporting),
                ] {
                    if is_on {
                        with.push_str(&format!(",{name}=on"));
                    }
                }
                format!("cloud-hypervisor … --balloon {with}    # for {guest}")
            }
            RestHypervisor::Firecracker => format!(
                "firecracker … --config-file    # for {guest}, with \"balloon\": \
                 {{ \"amount_mib\": 0, \"deflate_on_oom\": {deflate_on_oom}, \
                 \"stats_polling_interval_s\": 1, \
                 \"free_page_reporting\": {free_page_reporting} }} in it"
            ),
        }
    }

    /// How to start `guest`, whose API is at `api`, with a vsock device.
    fn vsock_line(self, guest: &str, api: &Path) -> String {
        let socket = api.with_extension("vsock");
        let socket = socket.display();
        match self {
            RestHypervisor::CloudHypervisor => {
                format!("cloud-hypervisor … --vsock cid=3,socket={socket}    # for {guest}")
            }
            RestHypervisor::Firecracker => format!(
                "firecracker … --config-file    # for {guest}, with \"vsock\": \
                 {{ \"guest_cid\": 3, \"uds_path\": \"{socket}\" }} in it"
            ),
        }
    }
}

/// The findings about these hypervisors. `hears_vsock`: agents may connect by vsock; `config` is
/// the path of the configuration.
pub(super) fn judge(seen: &[RestSeen], hears_vsock: bool, config: &str) -> Vec<Finding> {
    const WHY: &str = "Every socket that matches these patterns is a guest.";
    let mut findings = Vec::new();
    for RestSeen { hypervisor, patterns, sockets } in seen {
        let check = Area::Hypervisors.check(hypervisor.topic(), WHY);
        for (pattern, _) in patterns.iter().filter(|(_, count)| *count == 0) {
            let found = check.clone().about(pattern).note("matches no socket now");
            findings.push(found.remedy(format!("ls -l {pattern}")));
        }
        let asked = sockets.iter().filter(|it| it.answer.is_some()).count();
        if asked < sockets.len() {
            findings.push(check.note(format!("{asked} of {} sockets were asked", sockets.len())));
        }
        for socket in sockets {
            findings.extend(socket_findings(*hypervisor, socket, hears_vsock, config));
        }
    }
    findings
}

fn socket_findings(
    hypervisor: RestHypervisor,
    socket: &RestSocket,
    hears_vsock: bool,
    config: &str,
) -> Vec<Finding> {
    const WHY: &str = "A guest is balanced only while its hypervisor's API answers.";
    let path = shown(&socket.path.to_string_lossy());
    let check = Area::Hypervisors.check(hypervisor.topic(), WHY).about(&path);
    let answer = match &socket.answer {
        None => return Vec::new(),
        Some(Ok(answer)) => answer,
        Some(Err(down)) => return vec![silence_finding(&check, hypervisor, down, &path)],
    };
    let version = answer.version.as_deref().map_or(String::new(), |it| format!(" {}", shown(it)));
    let state = match &answer.sample.run_state {
        Some(state) => format!("its guest: {state}"),
        None => "it does not say what its guest does".to_owned(),
    };
    let name = hypervisor.kind().name;
    let mut findings = vec![check.ok(format!("{name}{version} answers; {state}"))];
    // Before a guest boots, its devices are not known.
    if answer.sample.boot_memory.is_some() {
        findings.push(balloon(&check, hypervisor, &socket.guest, answer));
        findings.extend(deflate_on_oom(&check, hypervisor, &socket.guest, answer));
        findings.push(agent(&check, hypervisor, socket, answer, hears_vsock, config));
    }
    findings
}

/// The finding about a socket on which the hypervisor does not answer.
fn silence_finding(
    check: &Check,
    hypervisor: RestHypervisor,
    down: &LinkDown,
    path: &str,
) -> Finding {
    match down {
        LinkDown::PermissionDenied => check
            .problem("this user may not connect")
            .remedy("sudo ballast doctor host    # run the daemon as root, too"),
        LinkDown::Refused => check.note(down.to_string()).remedy(format!("rm {path}")),
        LinkDown::Protocol(_) => {
            let text = format!("no guest of {}: {down}", hypervisor.kind().name);
            let table = hypervisor.topic().replace('-', "_");
            check
                .warning(text)
                .remedy(format!("fuser -v {path}    # who does; correct sockets of [{table}]"))
        }
        _ => check
            .warning(down.to_string())
            .remedy(format!("fuser -v {path}    # which process that is")),
    }
}

fn balloon(check: &Check, hypervisor: RestHypervisor, guest: &str, answer: &RestAnswer) -> Finding {
    let check = check.because(BALLOON_WHY);
    let can = answer.sample.capabilities;
    let start = BalloonStart {
        deflate_on_oom: can.balloon != Some(true) || can.deflate_on_oom == Some(true),
        free_page_reporting: can.free_page_reporting == Some(true),
    };
    let line = || hypervisor.balloon_line(guest, start);
    if answer.has_unmeasured_balloon {
        let text = "its balloon is not used: it was configured without statistics before boot, and \
                    does not say what it holds";
        return check.problem(text).remedy(line());
    }
    match (can.balloon, can.memory_devices, can.statistics) {
        (Some(true), _, Some(true)) => check.ok("has a balloon with statistics"),
        (Some(true), ..) => check.ok("has a balloon; this program's have no statistics"),
        (_, Some(true), _) => {
            check.note("no balloon: it is moved by virtio-mem alone").remedy(line())
        }
        _ => check.problem("no balloon: its memory cannot be moved").remedy(line()),
    }
}

fn deflate_on_oom(
    check: &Check,
    hypervisor: RestHypervisor,
    guest: &str,
    answer: &RestAnswer,
) -> Option<Finding> {
    let can = answer.sample.capabilities;
    let is_off = can.balloon == Some(true) && can.deflate_on_oom == Some(false);
    let free_page_reporting = can.free_page_reporting == Some(true);
    let start = BalloonStart { deflate_on_oom: true, free_page_reporting };
    let line = hypervisor.balloon_line(guest, start);
    is_off.then(|| check.because(DEFLATE_WHY).note("deflate_on_oom is off").remedy(line))
}

/// How the guest's need is known: for Cloud Hypervisor, only by an agent.
fn agent(
    check: &Check,
    hypervisor: RestHypervisor,
    socket: &RestSocket,
    answer: &RestAnswer,
    hears_vsock: bool,
    config: &str,
) -> Finding {
    const WHY: &str = "A guest's need is known from its balloon's statistics, or from an agent in \
        it, which connects by vsock.";
    let check = check.because(WHY);
    let needs_agent = answer.sample.capabilities.statistics != Some(true);
    let severity = if needs_agent { Severity::Warning } else { Severity::Note };
    let but = match needs_agent {
        true => ": nothing says what it could give back, so it gives nothing back",
        false => ": an agent cannot connect by it",
    };
    match (&answer.vsock, hears_vsock) {
        (None, _) => check
            .found(severity, format!("no vsock device{but}"))
            .remedy(hypervisor.vsock_line(&socket.guest, &socket.path)),
        (Some(_), false) => {
            let found = format!("agents by vsock are not accepted{but}");
            check.found(severity, found).remedy(configure(config, "vsock = true", "agents"))
        }
        (Some(vsock), true) => {
            let at = shown(&vsock.to_string_lossy());
            check.ok(format!(
                "`ballast-agent --connect vsock` in the guest connects by its device at {at}"
            ))
        }
    }
}
