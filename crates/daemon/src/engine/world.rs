//! The engine's interface to the outside.
//!
//! Idea: one trait has every clock, sample, order and record of a tick. The daemon implements it
//! over the host. A simulation implements it over memory, with virtual time and chosen faults; its
//! [`World::sample`] and [`World::act`] may be ready at once, so that the engine needs no runtime.
//!
//! Limits: an implementation bounds every wait: the engine waits for `sample` and `act`.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use ballast_actuation::fence::Fences;
use ballast_control::incident::Incident;
use ballast_model::{
    Action, AnswerFault, Bytes, GuestChange, GuestId, Outcome, Plan, PolicyAnswer, Snapshot,
    Timestamp,
};
use ballast_policy::Question;
use ballast_store::{Event, JournalStatus, Tick};

use crate::agents::Answer;
use crate::pager::PagingOutcome;

/// Which guests a tick samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleScope {
    /// Every guest.
    All,
    /// Guests that cannot wait for the next regular tick: those that called, and those that give or
    /// receive memory in transfer.
    Urgent,
}

/// Everything outside of an [`Engine`](super::Engine).
///
/// By default no guest has an agent, the host pages and fences no guest, and no program decides.
#[expect(async_fn_in_trait, reason = "one thread drives an engine: its futures need not be Send")]
pub trait World {
    /// Time since any origin, in nanoseconds, on a clock that never goes back. Decisions and ages
    /// use it, so it includes time in which the machine was suspended.
    fn monotonic(&self) -> Duration;

    /// [`World::monotonic`] in the milliseconds of the model.
    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.monotonic()
    }

    /// The wall clock, for people and journals only.
    fn wall(&self) -> SystemTime;

    /// Samples the host and its guests within a bounded time. With [`SampleScope::Urgent`] it
    /// samples at least the guests `in_transfer`, and reuses older readings of the rest.
    async fn sample(&mut self, scope: SampleScope, in_transfer: &[GuestId]) -> Snapshot;

    /// Whether there is a program for the policy `external`.
    fn has_program(&self) -> bool {
        false
    }

    /// Asks that program, within a bounded time. The answer is a fault if there is none.
    async fn ask(&mut self, question: &Question) -> PolicyAnswer {
        let _ = question;
        PolicyAnswer::Fault(AnswerFault::NotAsked)
    }

    /// Carries out `actions`, at most one per guest, within a bounded time. An action without an
    /// outcome counts as failed, but may have been carried out.
    async fn act(&mut self, actions: &[Action]) -> Vec<Outcome>;

    /// The settings that live with guests, as of the last [`World::sample`]; `None`: unchanged
    /// since the last call.
    fn changed_settings(&mut self) -> Option<BTreeMap<GuestId, GuestChange>> {
        None
    }

    /// Writes all settings that should live with a guest to where the guest is defined, within a
    /// bounded time.
    ///
    /// # Errors
    /// Why they were not written.
    async fn persist(&mut self, guest: &GuestId, settings: &GuestChange) -> Result<(), String> {
        let _ = settings;
        Err(format!("{guest} has nowhere to keep settings"))
    }

    /// Replaces all fences with these, without waiting.
    fn fence(&mut self, fences: Fences) {
        let _ = fences;
    }

    /// Adjusts the host's merging of equal pages by a snapshot, without waiting. While nothing is
    /// moved (`is_held`) it is left as it was found.
    fn merge(&mut self, snapshot: &Snapshot, is_held: bool) {
        let _ = (snapshot, is_held);
    }

    /// Replaces all paging orders with the plan's; returns the outcomes since the last call.
    fn page(&mut self, plan: &Plan) -> Vec<PagingOutcome> {
        let _ = plan;
        Vec::new()
    }

    /// Whether a guest's balloon must wait before the guest goes from `holds` to `target`, because
    /// programs in the guest release memory first. `free` is the guest's unused memory, if known.
    fn must_wait(
        &mut self,
        guest: &GuestId,
        holds: Bytes,
        free: Option<Bytes>,
        target: Bytes,
    ) -> bool {
        let _ = (guest, holds, free, target);
        false
    }

    /// Tells a guest's agent that its balloon goes from `holds` to `target`.
    fn tell_balloon(&mut self, guest: &GuestId, holds: Bytes, target: Bytes) {
        let _ = (guest, holds, target);
    }

    /// Answers the request of a guest's agent with this number, unless it was answered before.
    fn answer(&mut self, guest: &GuestId, number: u64, answer: Answer) {
        let _ = (guest, number, answer);
    }

    /// Reports incidents that begin and end to the operator, without waiting.
    fn report_incidents(&mut self, incidents: &[Incident]) {
        let _ = incidents;
    }

    /// Records a tick before its plan is carried out, without waiting.
    fn record_tick(&mut self, tick: Tick<'_>);

    /// Waits, for a bounded time, until what was recorded so far would survive the end of this
    /// process.
    async fn wait_until_recorded(&mut self) {}

    /// Records what happened between ticks, without waiting.
    fn record_event(&mut self, event: Event);

    /// Number of guests that are left out because there are too many.
    fn guests_refused(&self) -> usize {
        0
    }

    /// The journal's state.
    fn journal(&self) -> JournalStatus {
        JournalStatus::default()
    }
}
