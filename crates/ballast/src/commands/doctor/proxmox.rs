//! Judges Proxmox VE's machines: which of them are guests, and which balloons `pvestatd` moves.
//!
//! Limits: pure. Whether a guest has a balloon device is what the daemon sees.

use std::path::{Path, PathBuf};

use ballast_config::Config;
use ballast_model::GuestId;
use ballast_proxmox::{VmConfig, VmFolder};

use super::finding::{Area, Finding, configure};
use super::probe::{ProxmoxSeen, QmpFolder};

/// How to add a socket to a machine.
const GUIDE: &str = "less /usr/share/doc/ballast/proxmox.md";
/// Most machines that a finding names.
const NAMED_MAX: usize = 10;

/// The findings about Proxmox VE's machines. `folders` are those of QMP sockets.
pub(super) fn judge(seen: &ProxmoxSeen, folders: &[QmpFolder], config: &Config) -> Vec<Finding> {
    const WHY: &str = "A machine of Proxmox VE is a guest if its args add a QMP socket for \
        Ballast; its memory, balloon, shares and tags are its bounds if [proxmox] names the folder.";
    let folder = seen.folder.display().to_string();
    let check = Area::Hypervisors.check("proxmox", WHY).about(folder.clone());
    let machines = match &seen.machines {
        Ok(machines) => machines,
        Err(why) => {
            let found = format!("cannot be read: {why}");
            return vec![check.warning(found).remedy(format!("ls -l {folder}"))];
        }
    };
    let mut findings = Vec::new();
    for problem in &machines.problems {
        let remedy = format!("cat {}", problem.path.display());
        findings.push(check.warning(problem.to_string()).remedy(remedy));
    }
    let guests = machines.guests(&config.qmp_folders);
    let found = format!("{} machines, {} of them guests", machines.vms().count(), guests.len());
    findings.push(match seen.is_configured {
        true => check.ok(found),
        false => {
            let line = format!("folder = \"{folder}\"");
            let remedy = configure(&config.path.display().to_string(), &line, "proxmox");
            check
                .note(format!("{found}; not configured, so bounds and tags are not read"))
                .remedy(remedy)
        }
    });
    let is_there = |socket: &PathBuf| {
        folders.iter().flat_map(|folder| &folder.sockets).any(|it| it.path == *socket)
    };
    let mut without = Vec::new();
    for vm in machines.vms().filter(|vm| seen.running.contains(&vm.vmid)) {
        let is_ours = |socket: &&PathBuf| is_in(socket, &config.qmp_folders);
        let sockets: Vec<&PathBuf> = vm.monitors.iter().filter(is_ours).collect();
        if sockets.is_empty() {
            without.push(vm.vmid);
        } else if !sockets.into_iter().any(is_there) {
            let vmid = vm.vmid;
            let found = format!("machine {vmid} runs without the socket that its args name");
            let why = "Args take effect when a machine is started by Proxmox VE.";
            findings.push(check.because(why).warning(found).remedy(format!("qm reboot {vmid}")));
        }
    }
    if !without.is_empty() {
        let found = format!("no guests, as their args name no socket: {}", named(&without));
        findings.push(check.note(found).remedy(GUIDE));
    }
    findings
}

/// The VMIDs of guests that Ballast may move and `pvestatd` moves, too.
pub(super) fn moved(machines: &VmFolder, config: &Config) -> Vec<u32> {
    let limits = &config.settings.limits;
    let is_managed = |guest: &GuestId, vm: &VmConfig| {
        let given = limits.given.get(guest).and_then(|own| own.managed);
        given.or(vm.settings.managed).unwrap_or(limits.default.managed)
    };
    let guests = machines.guests(&config.qmp_folders);
    let moved = guests.iter().filter(|(guest, vm)| vm.is_moved_by_proxmox && is_managed(guest, vm));
    moved.map(|(_, vm)| vm.vmid).collect()
}

fn is_in(socket: &Path, folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| socket.parent() == Some(folder))
}

/// The first machines of a list, as text.
fn named(vmids: &[u32]) -> String {
    let mut named: Vec<String> = vmids.iter().take(NAMED_MAX).map(u32::to_string).collect();
    if vmids.len() > NAMED_MAX {
        named.push(format!("and {} more", vmids.len() - NAMED_MAX));
    }
    named.join(", ")
}
