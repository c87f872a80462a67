//! What configures each guest's devices, where it is neither QEMU's command line nor libvirt.
//!
//! Limits: pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::probe::{ProxmoxSeen, RestHypervisor, RestSeen};

/// What configures a guest's devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manager {
    /// A hypervisor with a REST API.
    Rest(RestHypervisor),
    /// Proxmox VE.
    Proxmox {
        /// Its number of the guest.
        vmid: u32,
    },
}

/// The managers of guests, by the guests' names.
pub(super) type Managers = BTreeMap<String, Manager>;

/// The managers of guests whose API answers, and of machines of Proxmox VE with a QMP socket in one
/// of `socket_folders`.
pub(super) fn managers(
    rest: &[RestSeen],
    proxmox: Option<&ProxmoxSeen>,
    socket_folders: &[PathBuf],
) -> Managers {
    let mut managers = Managers::new();
    for RestSeen { hypervisor, sockets, .. } in rest {
        for socket in sockets.iter().filter(|it| matches!(it.answer, Some(Ok(_)))) {
            managers.insert(socket.guest.clone(), Manager::Rest(*hypervisor));
        }
    }
    if let Some(Ok(machines)) = proxmox.map(|seen| &seen.machines) {
        for (guest, vm) in machines.guests(socket_folders) {
            managers.insert(guest.to_string(), Manager::Proxmox { vmid: vm.vmid });
        }
    }
    managers
}
