//! Other managers that decide on which host a guest runs, found on this host.
//!
//! Idea: two managers that move guests undo each other's moves. Each also keeps its own list of
//! guests by host, which a move by the other one makes wrong. So a host that belongs to another
//! manager moves nothing, unless its operator says that the guests are not that manager's.
//! Source: Proxmox VE's documentation of clusters (`corosync.conf` in the cluster's file system)
//! and of its scheduler (`crs` in `datacenter.cfg`, with `ha-auto-rebalance` from 9.2 on);
//! KubeVirt's `virt-handler`, which keeps the sockets of a node's guests in `/run/kubevirt`.
//! Limits: it looks only once, when the program starts. KubeVirt's descheduler runs elsewhere and
//! leaves nothing on a node, so a node with guests of KubeVirt is enough to refuse.

use std::io::Read;
use std::path::Path;

use serde::Deserialize;

/// The file that a member of a cluster of Proxmox VE has; a single host has none.
const PROXMOX_CLUSTER: &str = "etc/pve/corosync.conf";
/// Settings of that cluster.
const PROXMOX_SETTINGS: &str = "etc/pve/datacenter.cfg";
/// The folder of `virt-handler`'s sockets; it is gone after a reboot.
const KUBEVIRT_FOLDER: &str = "run/kubevirt";
/// Most bytes of settings that are read.
const SETTINGS_BYTES_MAX: u64 = 64 << 10;

/// Another manager that decides where guests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OtherManager {
    /// A cluster of Proxmox VE.
    Proxmox,
    /// KubeVirt.
    Kubevirt,
}

/// Why this host may not move guests: it belongs to a manager that is not among `known`. `root` is
/// the root folder of the host's files.
pub fn other_manager(root: &Path, known: &[OtherManager]) -> Option<String> {
    let is_new = |manager: OtherManager| !known.contains(&manager);
    if is_new(OtherManager::Proxmox) && root.join(PROXMOX_CLUSTER).exists() {
        let balancer = match is_rebalancing(&root.join(PROXMOX_SETTINGS)) {
            true => ", and its own balancer is on (ha-auto-rebalance in /etc/pve/datacenter.cfg)",
            false => "",
        };
        return Some(refusal("a cluster of Proxmox VE", PROXMOX_CLUSTER, balancer, "proxmox"));
    }
    if is_new(OtherManager::Kubevirt) && root.join(KUBEVIRT_FOLDER).exists() {
        return Some(refusal("a cluster with KubeVirt", KUBEVIRT_FOLDER, "", "kubevirt"));
    }
    None
}

fn refusal(what: &str, evidence: &str, balancer: &str, word: &str) -> String {
    format!(
        "mode = \"move\" is refused: this host is a member of {what} (/{evidence}), which decides \
         where its guests run{balancer}. Two that move guests undo each other's moves: stay with \
         mode = \"advise\" and move guests there by its own means; or, if no guest that Ballast \
         manages here is its, set beside = [\"{word}\"]"
    )
}

/// Whether the settings of a Proxmox VE cluster let its balancer move guests.
fn is_rebalancing(settings: &Path) -> bool {
    let mut text = Vec::new();
    // A cluster without settings has the defaults: its balancer is off.
    if let Ok(file) = std::fs::File::open(settings) {
        let _ = file.take(SETTINGS_BYTES_MAX).read_to_end(&mut text);
    }
    let text = String::from_utf8_lossy(&text);
    let scheduler = text.lines().find_map(|line| line.trim().strip_prefix("crs:"));
    scheduler.is_some_and(|options| {
        options.split(',').any(|option| {
            let (name, value) = option.trim().split_once('=').unwrap_or_default();
            let is_on = ["1", "yes", "on", "true"].contains(&value.trim());
            name.trim() == "ha-auto-rebalance" && is_on
        })
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        root
    }

    #[test]
    fn a_host_of_its_own_may_move_guests() {
        // A single host of Proxmox VE has the folder, too.
        let alone = host(&[("etc/pve/datacenter.cfg", "keyboard: de\n")]);
        assert_eq!(other_manager(alone.path(), &[]), None);
    }

    #[test]
    fn members_of_clusters_are_refused_unless_told_otherwise() {
        let member = ("etc/pve/corosync.conf", "totem {}\n");
        for (settings, is_on) in [
            ("", false),
            ("crs: ha=static,ha-rebalance-on-start=1\n", false),
            ("crs: ha=dynamic,ha-auto-rebalance=0\n", false),
            ("# crs: ha-auto-rebalance=1\n", false),
            (
                "keyboard: de\ncrs: ha=dynamic, ha-auto-rebalance=1,ha-auto-rebalance-margin=5\n",
                true,
            ),
        ] {
            let root = host(&[member, ("etc/pve/datacenter.cfg", settings)]);
            let why = other_manager(root.path(), &[OtherManager::Kubevirt]).unwrap();
            assert!(
                why.contains("/etc/pve/corosync.conf") && why.contains("beside = [\"proxmox\"]")
            );
            assert_eq!(why.contains("its own balancer is on"), is_on, "{settings}: {why}");
            assert_eq!(other_manager(root.path(), &[OtherManager::Proxmox]), None);
        }
        let node = host(&[("run/kubevirt/sockets/x", "")]);
        let why = other_manager(node.path(), &[OtherManager::Proxmox]).unwrap();
        assert!(why.contains("KubeVirt (/run/kubevirt)"), "{why}");
        assert_eq!(other_manager(node.path(), &[OtherManager::Kubevirt]), None);
    }
}
