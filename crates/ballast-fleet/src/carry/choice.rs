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

/// The same call to whichever of them it is.
macro_rules! call {
    ($self:ident, $it:ident => $call:expr) => {
        match $self {
            AnyHypervisor::Qemu($it) => $call,
            AnyHypervisor::Libvirt($it) => $call,
        }
    };
}

impl Hypervisor for AnyHypervisor {
    fn ends_source(&self) -> bool {
        call!(self, it => it.ends_source())
    }

    async fn look(&self, guest: &GuestId, origin: Origin) -> HypervisorView {
        call!(self, it => it.look(guest, origin).await)
    }

    async fn writes_per_s(&self, guest: &GuestId) -> Option<Bytes> {
        call!(self, it => it.writes_per_s(guest).await)
    }

    async fn listen(&self, guest: &GuestId) -> Result<(), HypervisorError> {
        call!(self, it => it.listen(guest).await)
    }

    async fn copy(&self, guest: &GuestId, to: SocketAddr) -> Result<(), HypervisorError> {
        call!(self, it => it.copy(guest, to).await)
    }

    async fn cancel(&self, guest: &GuestId) -> Result<(), HypervisorError> {
        call!(self, it => it.cancel(guest).await)
    }

    async fn run(&self, guest: &GuestId) -> Result<(), HypervisorError> {
        call!(self, it => it.run(guest).await)
    }

    async fn end(&self, guest: &GuestId) -> Result<(), HypervisorError> {
        call!(self, it => it.end(guest).await)
    }
}
