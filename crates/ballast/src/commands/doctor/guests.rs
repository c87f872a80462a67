//! Judges what each guest lacks to be balanced well, by the daemon's view of it.
//!
//! Limits: pure. Of the guest's own kernel, only the arrival of statistics is visible.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use ballast_api::{GuestView, StatusReply};
use ballast_daemon::track::TrackingDiagnosis;
use ballast_report::format::{size, span};

use super::finding::{Area, Check, Finding, Severity};
use super::manager::{Manager, Managers};
use super::rest::{BALLOON_WHY, BalloonStart, DEFLATE_WHY};

/// Codes of run states in which a guest's figures do not count.
const NOT_RUNNING: [&str; 5] = ["paused", "shutdown", "panicked", "incoming", "other"];

/// Each guest's tracking source, by the guest's name; `None`: it has none now.
type Sources = BTreeMap<String, Option<&'static str>>;

/// The findings about the guests called `names`, or about all if there are no names.
///
/// # Errors
/// One of the names is not a guest's.
pub(super) fn judge(
    status: &StatusReply,
    names: &[String],
    tracking: &TrackingDiagnosis,
    managers: &Managers,
    stale_after: Duration,
) -> anyhow::Result<Vec<Finding>> {
    let known: Vec<&str> = status.guests.iter().map(|it| it.guest.as_str()).collect();
    for name in names {
        ensure!(
            known.contains(&name.as_str()),
            "the daemon knows no guest `{name}`: it knows {}",
            if known.is_empty() { "none".to_owned() } else { known.join(", ") }
        );
    }
    let mut sources = Sources::new();
    for it in &tracking.guests {
        if let Some(name) = it.guest.clone() {
            // What `[tracking]` without keys would use: no referenced bits.
            sources.insert(name, it.best(false));
        }
    }
    let is_asked = |guest: &&GuestView| names.is_empty() || names.contains(&guest.guest);
    let guests = status.guests.iter().filter(is_asked);
    Ok(guests.flat_map(|guest| guest_findings(guest, &sources, managers, stale_after)).collect())
}

/// The finding if no daemon answers; `hypervisors` is the number of them on this host.
pub(super) fn not_looked_at(why: &str, hypervisors: usize, severity: Severity) -> Finding {
    const WHY: &str = "Only the daemon, which talks to the hypervisors, knows what a guest's \
        balloon can do and does.";
    let found = format!("not looked at: {why} (hypervisors on this host: {hypervisors})");
    Area::Guests
        .check("daemon", WHY)
        .found(severity, found)
        .remedy("sudo systemctl start ballast && sudo ballast doctor")
}

fn guest_findings(
    guest: &GuestView,
    sources: &Sources,
    managers: &Managers,
    stale_after: Duration,
) -> Vec<Finding> {
    let manager = managers.get(&guest.guest).copied();
    let mut findings = vec![monitor(guest), balloon(guest, manager)];
    if guest.capabilities.balloon != Some(false) {
        findings.push(statistics(guest, manager, stale_after));
        findings.push(free_page_reporting(guest, manager));
        findings.push(deflate_on_oom(guest, manager));
    }
    findings.push(hotplug(guest));
    findings.push(working_set(guest, sources));
    findings.extend(discard(guest));
    findings.extend(another_owner(guest, manager));
    for finding in &mut findings {
        finding.subject = Some(guest.guest.clone());
    }
    findings
}

fn monitor(guest: &GuestView) -> Finding {
    const WHY: &str = "A guest is balanced only while its hypervisor answers.";
    let check = Area::Guests.check("monitor", WHY);
    let found = |severity| check.found(severity, &guest.state.text);
    match guest.state.code.as_str() {
        "running" => found(Severity::Ok),
        "unknown" | "connecting" => found(Severity::Note),
        code if NOT_RUNNING.contains(&code) => found(Severity::Note),
        _ => found(Severity::Problem).remedy("ballast doctor host    # what its socket says"),
    }
}

/// An option that a balloon device should be started with.
struct DeviceOption {
    /// Its name in QEMU.
    option: &'static str,
    /// Its name in libvirt.
    attribute: &'static str,
    start: BalloonStart,
}

const PLAIN: DeviceOption = DeviceOption {
    option: "",
    attribute: "",
    start: BalloonStart { deflate_on_oom: false, free_page_reporting: false },
};
const REPORTING: DeviceOption = DeviceOption {
    option: ",free-page-reporting=on",
    attribute: " freePageReporting='on'",
    start: BalloonStart { free_page_reporting: true, ..PLAIN.start },
};
const DEFLATING: DeviceOption = DeviceOption {
    option: ",deflate-on-oom=on",
    attribute: " autodeflate='on'",
    start: BalloonStart { deflate_on_oom: true, ..PLAIN.start },
};

/// How to start the guest with that option of its balloon device.
fn device(guest: &GuestView, manager: Option<Manager>, option: &DeviceOption) -> String {
    let name = &guest.guest;
    let can = &guest.capabilities;
    let DeviceOption { option, attribute, start } = option;
    match (manager, can.shared_control) {
        (Some(Manager::Rest(program)), _) => {
            let deflate_on_oom = start.deflate_on_oom || can.deflate_on_oom == Some(true);
            let free_page_reporting =
                start.free_page_reporting || can.free_page_reporting == Some(true);
            program.balloon_line(name, BalloonStart { deflate_on_oom, free_page_reporting })
        }
        (Some(Manager::Proxmox { vmid }), _) => match option.strip_prefix(',') {
            None => format!("qm set {vmid} --delete balloon && qm reboot {vmid}"),
            Some(option) => format!(
                "qm set {vmid} --args '… -global virtio-balloon-pci.{option}'    # … is what it has"
            ),
        },
        (None, Some(true)) => {
            format!("virsh edit {name}    # <memballoon model='virtio'{attribute}/>")
        }
        (None, _) => {
            format!("qemu-system-x86_64 … -device virtio-balloon-pci{option}    # for {name}")
        }
    }
}

fn balloon(guest: &GuestView, manager: Option<Manager>) -> Finding {
    let check = Area::Guests.check("balloon", BALLOON_WHY);
    match guest.capabilities.balloon {
        Some(true) => check.ok("has a balloon device"),
        Some(false) => check.problem("no balloon device").remedy(device(guest, manager, &PLAIN)),
        None => check.note("not known: its hypervisor has not said yet"),
    }
}

fn statistics(guest: &GuestView, manager: Option<Manager>, stale_after: Duration) -> Finding {
    const WHY: &str = "A guest's need is estimated from what its balloon's driver reports; if \
        that is old, the guest is left as it is.";
    let check = Area::Guests.check("statistics", WHY);
    let stale_ms = u64::try_from(stale_after.as_millis()).unwrap_or(u64::MAX);
    match (guest.stats_age_ms, guest.capabilities.statistics) {
        (Some(age), _) if age <= stale_ms => {
            check.ok(format!("the driver reports, last {} ago", span(age)))
        }
        (Some(age), _) => {
            let text = format!("the driver's last report is {} old", span(age));
            check.warning(text).remedy(format!("ballast explain {}", guest.guest))
        }
        // The balloon of this program does not report statistics.
        (None, Some(false)) if matches!(manager, Some(Manager::Rest(_))) => {
            let text = "none without an agent, so it gives nothing back".to_owned();
            let remedy = "ballast-agent --connect vsock    # inside the guest";
            check.warning(text).remedy(remedy)
        }
        (None, Some(false)) => {
            check.warning("its balloon device reports none").remedy(device(guest, manager, &PLAIN))
        }
        (None, _) if guest.state.code != "running" => {
            check.note("none from a guest that does not run or answer")
        }
        (None, _) => check
            .warning("none arrived: no driver in the guest?")
            .remedy("modprobe virtio_balloon    # inside the guest"),
    }
}

fn free_page_reporting(guest: &GuestView, manager: Option<Manager>) -> Finding {
    const WHY: &str =
        "With it the host gets back what the guest's kernel frees without being asked.";
    let check = Area::Guests.check("free-page-reporting", WHY);
    option(&check, guest.capabilities.free_page_reporting, || device(guest, manager, &REPORTING))
}

fn deflate_on_oom(guest: &GuestView, manager: Option<Manager>) -> Finding {
    let check = Area::Guests.check("deflate-on-oom", DEFLATE_WHY);
    option(&check, guest.capabilities.deflate_on_oom, || device(guest, manager, &DEFLATING))
}

fn option(check: &Check, is_on: Option<bool>, remedy: impl FnOnce() -> String) -> Finding {
    match is_on {
        Some(true) => check.ok("on"),
        Some(false) => check.note("off").remedy(remedy()),
        None => check.note("not known: its hypervisor has not said"),
    }
}

fn hotplug(guest: &GuestView) -> Finding {
    const WHY: &str = "A balloon never grows a guest past its boot memory; memory that is plugged in \
        does.";
    let check = Area::Guests.check("hotplug", WHY);
    match (&guest.hotplug, guest.capabilities.memory_devices) {
        (Some(hotplug), _) => {
            let kind = &hotplug.kind;
            let (plugged, max) = (size(hotplug.plugged_bytes), size(hotplug.max_bytes));
            check.ok(format!("{plugged} of {max} plugged in by {kind}"))
        }
        (None, Some(true)) => check.note("has memory devices that Ballast does not plug"),
        (None, Some(false)) => {
            let boot = guest.boot_bytes.map_or("its boot memory".to_owned(), size);
            check.ok(format!("none: {boot} is the most it can have"))
        }
        (None, None) => check.note("not known: its hypervisor has not said"),
    }
}

fn working_set(guest: &GuestView, sources: &Sources) -> Finding {
    const WHY: &str =
        "With a working set, a guest's demand is what it touches, not what it once filled.";
    let check = Area::Guests.check("working-set", WHY);
    if let Some(view) = &guest.tracking {
        let source =
            view.source.as_ref().map_or_else(String::new, |it| format!(", by {}", it.code));
        return match &view.trouble {
            None => check.ok(format!("{}{source}", view.state.text)),
            Some(trouble) => {
                // If there is no source, the findings about the host say whether that contradicts
                // the configuration.
                let is_absent = view.state.code == "absent";
                let severity = if is_absent { Severity::Note } else { Severity::Warning };
                let text = format!("{}: {trouble}", view.state.text);
                check.found(severity, text).remedy("ballast doctor tracking")
            }
        };
    }
    match sources.get(&guest.guest) {
        Some(Some(best)) => {
            check.note(format!("not tracked; with [tracking] it would be by {best}"))
        }
        Some(None) => check
            .note("not tracked; with [tracking] it would be by nothing")
            .remedy("ballast doctor tracking"),
        None => check.note("not tracked; no hypervisor of that name is seen"),
    }
}

fn discard(guest: &GuestView) -> Option<Finding> {
    const WHY: &str = "The host gains nothing by shrinking a guest whose ballooned pages stay.";
    let text = match &guest.pinned {
        Some(pinned) => &pinned.text,
        None => "a passthrough device or locked memory keeps ballooned pages on the host",
    };
    let remedy = format!("ballast set {} --managed false", guest.guest);
    (guest.capabilities.discard_inhibited == Some(true))
        .then(|| Area::Guests.check("discard", WHY).warning(text).remedy(remedy))
}

fn another_owner(guest: &GuestView, manager: Option<Manager>) -> Option<Finding> {
    const WHY: &str =
        "A balloon with two owners goes to and fro, so Ballast leaves this one alone.";
    let why = guest.change.as_ref()?.why.as_ref()?;
    let remedy = match manager {
        Some(Manager::Proxmox { vmid }) => {
            format!("qm set {vmid} --shares 0 && systemctl restart ballast")
        }
        _ => format!("ballast set {} --take-over", guest.guest),
    };
    (why.code == "another-owner")
        .then(|| Area::Guests.check("another-owner", WHY).warning(&why.text).remedy(remedy))
}
