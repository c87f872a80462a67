//! What the daemon asks of those who manage guests: QEMU by QMP, libvirt, the kernel of containers.
//!
//! Idea: a [`Backend`] finds guests, samples them and carries out orders. [`Backends`] makes one
//! list of the guests of all, under one budget: the engine does not know who manages which.
//! [`GenerationGate`] and [`StatsAge`] are what every backend needs.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod backends;
mod gate;
mod stats_age;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ballast_agent_proto::wire::HostMessage;
use ballast_model::{Action, Bytes, GuestChange, GuestId, GuestSample, Outcome, Plan, Timestamp};

pub use backends::Backends;
pub use gate::GenerationGate;
pub use stats_age::StatsAge;

/// The readings of one guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestReading {
    /// Everything that the hypervisor reports; `resident` is `None`.
    pub sample: GuestSample,
    /// The hypervisor's process. `None` while it is not known.
    pub pid: Option<u32>,
    /// The settings that live with the guest, where whoever manages it keeps such.
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
    /// Which guests to query; of the others, older readings do. `None`: all, and new ones.
    pub only: Option<&'a BTreeSet<GuestId>>,
}

/// Memory of the host, where another kernel than the daemon's manages it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostMemory {
    /// All of it; `None`: not known.
    pub total: Option<Bytes>,
    /// What guests could be given at once; `None`: not known.
    pub available: Option<Bytes>,
}

/// How a guest's agent reaches the host by vsock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VsockAddress {
    /// The guest's context number (CID): the host's kernel sees it at every connection.
    Cid(u32),
    /// Connections of the guest to port N come out at this Unix socket with `_N` appended, made by
    /// its hypervisor's process.
    Socket(PathBuf),
}

/// What a backend will give.
pub type Waiting<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// One way to manage guests.
pub trait Backend: Debug {
    /// What it is called in messages.
    fn name(&self) -> &'static str;

    /// Samples its guests within the deadline, sorted by name. A guest that is late gives its last
    /// readings, which have aged.
    fn sample<'a>(&'a mut self, request: SampleRequest<'a>) -> Waiting<'a, Vec<GuestReading>>;

    /// Sends `actions`, and returns their outcomes in the same order, after a bounded wait that
    /// they share. An action whose outcome is late has failed, and may still be carried out. May be
    /// given up when it is late beyond that.
    fn act_all<'a>(
        &'a mut self,
        now: Timestamp,
        actions: &'a [Action],
    ) -> Waiting<'a, Vec<Outcome>>;

    /// A plan was made: which guests have a part in it, and what each is guaranteed.
    fn planned(&mut self, plan: &Plan) {
        let _ = plan;
    }

    /// Whether settings can live with its guests.
    fn keeps_settings(&self) -> bool {
        false
    }

    /// Writes all settings that are to live with a guest to where it is defined, within the time of
    /// a command.
    ///
    /// # Errors
    /// They were not written, or perhaps not; says why.
    fn persist<'a>(
        &'a mut self,
        guest: &'a GuestId,
        settings: &'a GuestChange,
    ) -> Waiting<'a, Result<(), String>> {
        let _ = settings;
        let why = format!("{guest} is a guest of {}, which keeps no settings", self.name());
        Box::pin(std::future::ready(Err(why)))
    }

    /// Says something to the program inside a guest, where this backend is its way to the host.
    fn tell(&mut self, guest: &GuestId, message: &HostMessage) {
        let _ = (guest, message);
    }

    /// How a guest's agent reaches the host by vsock; `None`: it cannot, or that is not known.
    fn vsock(&self, guest: &GuestId) -> Option<VsockAddress> {
        let _ = guest;
        None
    }

    /// Waits until something happens that cannot wait for the next sample, such as a new guest. May
    /// be given up at any time.
    fn news(&mut self) -> Waiting<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// The host's memory, where the kernel that the daemon runs on is itself a guest; `None`: that
    /// kernel manages it.
    fn host_memory(&self) -> Option<HostMemory> {
        None
    }

    /// What it has to say since the last call, oldest first.
    fn take_notices(&mut self) -> Vec<String>;

    /// How many guests it refuses, because there are too many or because of their names.
    fn refused(&self) -> usize;
}
