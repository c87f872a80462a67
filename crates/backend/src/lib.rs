//! The interface between the daemon and whatever manages guests: QEMU by QMP, libvirt, Xen,
//! hypervisors with a REST API, containers.
//!
//! Idea: a [`Backend`] finds guests, samples them and carries out orders. [`Backends`] joins the
//! guests of all backends into one list under one budget, so the engine does not know which backend
//! manages a guest. [`GenerationGate`], [`SpreadQuery`] and [`StatsAge`] are helpers for backends.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod backends;
mod gate;
mod spread_query;
mod stats_age;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ballast_agent_proto::wire::HostMessage;
use ballast_model::{Action, Bytes, GuestChange, GuestId, GuestSample, Outcome, Plan, Timestamp};

pub use backends::Backends;
pub use gate::GenerationGate;
pub use spread_query::SpreadQuery;
pub use stats_age::StatsAge;

/// The readings of one guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestReading {
    /// Everything that the hypervisor reports; `resident` is `None`.
    pub sample: GuestSample,
    /// The hypervisor's process. `None` while it is not known.
    pub pid: Option<u32>,
    /// The socket on which that process listens, by the name that it gave it. `None` if it does not
    /// listen, or the name is not known.
    pub listens_at: Option<Arc<Path>>,
    /// Whether that process has answered as a hypervisor. One that has not may be anything that
    /// listens: it takes no guest's place.
    pub has_answered: bool,
    /// The settings that live with the guest, if its backend keeps any.
    pub settings: Option<Arc<GuestChange>>,
}

/// The time of a sample, and the guests to query.
#[derive(Clone, Copy, Debug)]
pub struct SampleRequest<'a> {
    /// The caller's monotonic clock.
    pub now: Timestamp,
    /// The caller's wall clock.
    pub wall: SystemTime,
    /// How long the call may take.
    pub deadline: Duration,
    /// Which guests to query; for the others older readings suffice. `None`: all, and look for new
    /// ones.
    pub only: Option<&'a BTreeSet<GuestId>>,
}

/// The host's memory, if another kernel than the daemon's manages it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostMemory {
    /// Total memory; `None`: not known.
    pub total: Option<Bytes>,
    /// Memory that guests could be given at once; `None`: not known.
    pub available: Option<Bytes>,
}

/// How a guest's agent reaches the host by vsock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VsockAddress {
    /// The guest's context id (CID), which the host's kernel reports for every connection.
    Cid(u32),
    /// The guest's hypervisor passes a connection to port N on to the Unix socket at this path with
    /// `_N` appended.
    Socket(PathBuf),
}

/// The future result of a backend.
pub type Waiting<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// One way to manage guests.
pub trait Backend: Debug {
    /// Its name in messages.
    fn name(&self) -> &'static str;

    /// Samples its guests within the deadline; readings are sorted by name. A guest that does not
    /// answer in time is returned with its last readings, which are older.
    fn sample<'a>(&'a mut self, request: SampleRequest<'a>) -> Waiting<'a, Vec<GuestReading>>;

    /// Sends `actions` and returns their outcomes in the same order, after one bounded wait for
    /// all. An action without an outcome by then counts as failed, but may still be carried out.
    /// The caller may drop the future if it takes longer.
    fn act_all<'a>(
        &'a mut self,
        now: Timestamp,
        actions: &'a [Action],
    ) -> Waiting<'a, Vec<Outcome>>;

    /// Informs the backend of a new plan: which guests are in it, and what each is guaranteed.
    fn planned(&mut self, plan: &Plan) {
        let _ = plan;
    }

    /// Whether it can keep settings with its guests.
    fn keeps_settings(&self) -> bool {
        false
    }

    /// Writes all settings that are to live with a guest to where the guest is defined, within the
    /// time of a command.
    ///
    /// # Errors
    /// Why they were not, or perhaps not, written.
    fn persist<'a>(
        &'a mut self,
        guest: &'a GuestId,
        settings: &'a GuestChange,
    ) -> Waiting<'a, Result<(), String>> {
        let _ = settings;
        let why = format!("{guest} is a guest of {}, which keeps no settings", self.name());
        Box::pin(std::future::ready(Err(why)))
    }

    /// Sends a message to the agent inside a guest, if the agent reaches the host by this backend.
    fn send_to_agent(&mut self, guest: &GuestId, message: &HostMessage) {
        let _ = (guest, message);
    }

    /// How the guest's agent reaches the host by vsock; `None`: it cannot, or that is not known.
    fn vsock(&self, guest: &GuestId) -> Option<VsockAddress> {
        let _ = guest;
        None
    }

    /// Waits until something happens that cannot wait for the next sample, such as a new guest. The
    /// caller may drop the future at any time.
    fn wait_for_event(&mut self) -> Waiting<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// The host's memory, if the kernel that the daemon runs on is itself a guest; `None`: that
    /// kernel manages the host's memory.
    fn host_memory(&self) -> Option<HostMemory> {
        None
    }

    /// Its messages for the log since the last call, oldest first.
    fn take_notices(&mut self) -> Vec<String>;

    /// How many guests it refuses, because there are too many or their names are invalid.
    fn refused(&self) -> usize;
}
