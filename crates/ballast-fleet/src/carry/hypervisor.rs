//! What a move needs from a guest's hypervisor on this host.
//!
//! Idea: a few calls that may each be made twice, so that a move does not depend on the hypervisor.
//! States are those of `ballast-fleet-move`. Whatever is not certain is `Unknown`, from which no
//! role draws conclusions.

use std::net::SocketAddr;

use ballast_fleet_move::Process;
use ballast_model::{Bytes, GuestId};
use ballast_qmp::migration::Origin;
use ballast_report::harmless_line;

/// Most bytes of a program's error output that are shown.
pub(super) const ERROR_BYTES_MAX: usize = 300;

/// Why a hypervisor failed to do something: a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HypervisorError(pub String);

/// The state of a guest's hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HypervisorView {
    /// What the hypervisor is.
    pub process: Process,
    /// The progress of its last copy; `None` if there was none, or it is unknown.
    pub copy: Option<CopyProgress>,
}

/// The progress of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyProgress {
    /// Bytes sent.
    pub sent: Bytes,
    /// Bytes still to be sent.
    pub remaining: Bytes,
    /// Average bytes a second, once all is sent.
    pub bandwidth_per_s: Option<Bytes>,
}

/// The hypervisors of a host.
#[expect(async_fn_in_trait, reason = "one thread runs them: the futures need not be Send")]
pub trait Hypervisor {
    /// Whether the program that copies a guest ends its source itself
    /// ([`HostView::ends_source`](ballast_fleet_move::HostView::ends_source)).
    fn ends_source(&self) -> bool {
        false
    }

    /// The state of the guest's hypervisor; `origin` is what the host has noted of it.
    async fn look(&self, guest: &GuestId, origin: Origin) -> HypervisorView;

    /// The guest's dirty rate in bytes a second as last measured; also starts the next measurement.
    /// `None` if it is not known yet, or cannot be measured.
    async fn writes_per_s(&self, guest: &GuestId) -> Option<Bytes>;

    /// Starts an empty hypervisor that listens, unless it exists.
    async fn listen(&self, guest: &GuestId) -> Result<(), HypervisorError>;

    /// Begins to copy the guest to the hypervisor that listens at `to`.
    async fn copy(&self, guest: &GuestId, to: SocketAddr) -> Result<(), HypervisorError>;

    /// Stops the copy.
    async fn cancel(&self, guest: &GuestId) -> Result<(), HypervisorError>;

    /// Lets a guest that stands still run.
    async fn run(&self, guest: &GuestId) -> Result<(), HypervisorError>;

    /// Ends the hypervisor.
    async fn end(&self, guest: &GuestId) -> Result<(), HypervisorError>;
}

/// The beginning of a program's error output, on one line.
pub(super) fn error_excerpt(output: &[u8]) -> String {
    let output = output.trim_ascii();
    let shown = &output[..output.len().min(ERROR_BYTES_MAX)];
    harmless_line(&String::from_utf8_lossy(shown))
}
