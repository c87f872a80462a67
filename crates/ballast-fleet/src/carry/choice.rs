//! The hypervisor that the configuration chooses.

use std::net::SocketAddr;

use ballast_model::{Bytes, GuestId};
use ballast_qmp::migration::Origin;

use super::hypervisor::{Hypervisor, HypervisorError, HypervisorView};
use super::libvirt::Libvirt;
use super::qemu::Qemu;

/// One of the supported hypervisors.
#[derive(Clone, Debug)]
pub enum AnyHypervisor {
    /// Plain QEMU.
    Qemu(Qemu),
    /// libvirt.
    Libvirt(Libvirt),
}

impl Hypervisor for AnyHypervisor {
    fn ends_source(&self) -> bool {
        match self {
            AnyHypervisor::Qemu(it) => it.ends_source(),
            AnyHypervisor::Libvirt(it) => it.ends_source(),
        }
    }

    async fn look(&self, guest: &GuestId, origin: Origin) -> HypervisorView {
        match self {
            AnyHypervisor::Qemu(it) => it.look(guest, origin).await,
            AnyHypervisor::Libvirt(it) => it.look(guest, origin).await,
        }
    }

    async fn writes_per_s(&self, guest: &GuestId) -> Option<Bytes> {
        match self {
            AnyHypervisor::Qemu(it) => it.writes_per_s(guest).await,
            AnyHypervisor::Libvirt(it) => it.writes_per_s(guest).await,
        }
    }

    async fn listen(&self, guest: &GuestId) -> Result<(), HypervisorError> {
        match self {
            AnyHypervisor::Qemu(it) => it.listen(guest).await,
            AnyHypervisor::Libvirt(it) => it.listen(guest).await,
        }
    }

    async fn copy(&self, guest: &GuestId, to: SocketAddr) -> Result<(), HypervisorError> {
        match self {
            AnyHypervisor::Qemu(it) => it.copy(guest, to).await,
            AnyHypervisor::Libvirt(it) => it.copy(guest, to).await,
        }
    }

    async fn cancel(&self, guest: &GuestId) -> Result<(), HypervisorError> {
        match self {
            AnyHypervisor::Qemu(it) => it.cancel(guest).await,
            AnyHypervisor::Libvirt(it) => it.cancel(guest).await,
        }
    }

    async fn run(&self, guest: &GuestId) -> Result<(), HypervisorError> {
        match self {
            AnyHypervisor::Qemu(it) => it.run(guest).await,
            AnyHypervisor::Libvirt(it) => it.run(guest).await,
        }
    }

    async fn end(&self, guest: &GuestId) -> Result<(), HypervisorError> {
        match self {
            AnyHypervisor::Qemu(it) => it.end(guest).await,
            AnyHypervisor::Libvirt(it) => it.end(guest).await,
        }
    }
}
