//! What a hypervisor's crate has to say of its API.

use std::fmt::Debug;
use std::path::Path;

use ballast_model::{Action, GuestId, GuestSample, LinkDown, Timestamp};

use crate::call::{Answer, Call};

/// One guest, as its hypervisor's API describes it. No I/O: calls come out, answers go in.
pub trait RestGuest: Debug + Default {
    /// The hypervisor's name in messages.
    const HYPERVISOR: &'static str;
    /// How the name of its process begins, as the kernel keeps it (15 characters at most).
    const PROCESS: &'static str;

    /// A sample begins: what changes is to be asked for again.
    fn begin(&mut self, now: Timestamp);

    /// The calls that the sample needs next, all made before any is answered. Asked again after
    /// their answers were taken in; empty: the sample is complete.
    fn calls(&mut self) -> Vec<Call>;

    /// Takes in the answer at `now` to a call that was made at `asked_at`.
    ///
    /// # Errors
    /// The answer is not one of this hypervisor, or says that it cannot be asked.
    fn take(
        &mut self,
        call: &Call,
        answer: &Answer,
        asked_at: Timestamp,
        now: Timestamp,
    ) -> Result<(), LinkDown>;

    /// What is known of it at `now`, while its API answers.
    fn sample(&self, id: &GuestId, now: Timestamp) -> GuestSample;

    /// The calls that carry out an order, one after the other, each once the one before was carried
    /// out.
    ///
    /// # Errors
    /// It cannot be carried out; says why.
    fn order(&mut self, action: &Action) -> Result<Vec<Call>, String>;

    /// A plan was made. `is_short`: the host lacks memory, and the guest may be asked for pages
    /// that it does not use.
    fn planned(&mut self, is_short: bool) {
        let _ = is_short;
    }

    /// Whether it says itself that `pid` is its process, in the host's numbers.
    fn claims_process(&self, pid: u32) -> bool {
        let _ = pid;
        false
    }

    /// The Unix socket of its vsock device, as the hypervisor names it: connections of the guest to
    /// port N come out at that path with `_N` appended.
    fn vsock_socket(&self) -> Option<&Path> {
        None
    }

    /// Its hypervisor's version; `None`: that is not known.
    fn version(&self) -> Option<&str> {
        None
    }

    /// Whether it has a balloon that is not used, as nobody says what that holds.
    fn has_blind_balloon(&self) -> bool {
        false
    }

    /// What it has to say since the last call, without the guest's name.
    fn take_notices(&mut self) -> Vec<String>;
}
