//! What a move asks of a guest's hypervisor on this host.
//!
//! Idea: few calls that may be made twice, so that a move does not depend on which hypervisor it
//! is. Views have the words of `ballast-fleet-move`; whatever is not certain is `Unknown`, and
//! nobody concludes anything from that.

use std::net::SocketAddr;

use ballast_fleet_move::Process;
use ballast_model::{Bytes, GuestId};
use ballast_qmp::migration::Origin;

/// Why a hypervisor did not do as asked: a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HypervisorError(pub String);

/// A guest's hypervisor, as it is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HypervisorView {
    /// What it is.
    pub process: Process,
    /// How far its last copy is; `None`: there was none, or it is not known.
    pub copy: Option<CopyProgress>,
}

/// How far a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyProgress {
    /// Bytes sent.
    pub sent: Bytes,
    /// Memory that is still to be sent.
    pub remaining: Bytes,
    /// Bytes a second, once all is sent.
    pub bandwidth_per_s: Option<Bytes>,
}

/// The hypervisors of a host.
pub trait Hypervisor {
    /// Whether what copies a guest ends its source by itself
    /// ([`HostView::ends_source`](ballast_fleet_move::HostView::ends_source)).
    fn ends_source(&self) -> bool {
        false
    }

    /// What the guest's hypervisor is now, if it is as its host has noted (`origin`).
    fn look(&self, guest: &GuestId, origin: Origin) -> impl Future<Output = HypervisorView>;

    /// Bytes a second that the guest writes to its memory, as measured last; measures anew. `None`:
    /// it is not known yet, or cannot be measured.
    fn writes_per_s(&self, guest: &GuestId) -> impl Future<Output = Option<Bytes>>;

    /// Starts one that has nothing and listens, unless it is there.
    fn listen(&self, guest: &GuestId) -> impl Future<Output = Result<(), HypervisorError>>;

    /// Begins to copy the guest to the one that listens at `to`.
    fn copy(
        &self,
        guest: &GuestId,
        to: SocketAddr,
    ) -> impl Future<Output = Result<(), HypervisorError>>;

    /// Stops copying.
    fn cancel(&self, guest: &GuestId) -> impl Future<Output = Result<(), HypervisorError>>;

    /// Lets a guest that stands still run.
    fn run(&self, guest: &GuestId) -> impl Future<Output = Result<(), HypervisorError>>;

    /// Ends it.
    fn end(&self, guest: &GuestId) -> impl Future<Output = Result<(), HypervisorError>>;
}
