//! The interface that a hypervisor's crate implements for its API.

use std::fmt;
use std::path::Path;

use ballast_model::{Action, GuestId, GuestSample, LinkDown, Timestamp};

use crate::call::{Answer, Call};

/// A kind of hypervisor.
#[derive(Clone, Copy, Debug)]
pub struct HypervisorKind {
    /// Its name in messages.
    pub name: &'static str,
    /// How the name of its process begins, as the kernel keeps it (15 characters at most).
    pub process: &'static str,
    /// Makes a guest that nothing is known of yet.
    pub guest: fn() -> Box<dyn RestGuest>,
}

/// The name alone: with the fields, the program would have code to write all of them.
impl fmt::Debug for dyn RestGuest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RestGuest")
    }
}

/// One guest, as its hypervisor's API describes it. No I/O: calls come out, answers go in.
pub trait RestGuest: Send {
    /// Begins a sample: figures that change have to be read again; if `in_full`, also those that
    /// are read every [`SpreadQuery::INTERVAL`](ballast_backend::SpreadQuery::INTERVAL) only.
    fn begin(&mut self, now: Timestamp, in_full: bool);

    /// The calls that the sample needs next. They are made together, and this method is called
    /// again after their answers were taken in. Empty if the sample is complete.
    fn calls(&mut self) -> Vec<Call>;

    /// Takes in the answer at `now` to a call that was made at `asked_at`.
    ///
    /// # Errors
    /// The answer is not one of this hypervisor, or says that the hypervisor cannot be sampled.
    fn take(
        &mut self,
        call: &Call,
        answer: &Answer,
        asked_at: Timestamp,
        now: Timestamp,
    ) -> Result<(), LinkDown>;

    /// Its sample at `now`. The caller replaces the link state while the API does not answer.
    fn sample(&self, id: &GuestId, now: Timestamp) -> GuestSample;

    /// The calls that carry out an order. Each is made once the one before has succeeded.
    ///
    /// # Errors
    /// The order cannot be carried out; the text says why.
    fn order(&mut self, action: &Action) -> Result<Vec<Call>, String>;

    /// Takes in the last plan. `is_short`: the host is short of memory, and the guest may be asked
    /// for pages that it does not use.
    fn planned(&mut self, is_short: bool) {
        let _ = is_short;
    }

    /// Whether the API itself reports `pid` as its process, in the host's PID namespace.
    fn claims_process(&self, pid: u32) -> bool {
        let _ = pid;
        false
    }

    /// The Unix socket of its vsock device, as the hypervisor names it: connections of the guest to
    /// port N come out at that path with `_N` appended.
    fn vsock_socket(&self) -> Option<&Path> {
        None
    }

    /// Its hypervisor's version; `None` if it is not known.
    fn version(&self) -> Option<&str> {
        None
    }

    /// Whether it has a balloon that cannot be used, because the balloon's size is not reported.
    fn has_unmeasured_balloon(&self) -> bool {
        false
    }

    /// Takes the notices since the last call, without the guest's name.
    fn take_notices(&mut self) -> Vec<String>;
}
