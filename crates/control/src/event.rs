//! What happens between samples.

use std::collections::BTreeMap;

use ballast_model::{
    CarriedGuest, GuestId, GuestLimits, Mode, Outcome, PolicyAnswer, PolicyName, Reservation,
    Restart,
};

use crate::Settings;

/// What happened between samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An action was carried out, or not.
    Outcome(Outcome),
    /// The operator pauses all actions.
    Pause,
    /// The operator resumes actions.
    Resume,
    /// Memory is to be kept free for a guest that is about to start. Replaces an earlier
    /// reservation of the same name. The reservation's own figure of what is free is ignored.
    Reserve(Reservation),
    /// A reservation is not needed any more.
    Unreserve(GuestId),
    /// New limits for one guest.
    SetLimits(GuestId, GuestLimits),
    /// New limits for all guests that have limits of their own.
    ReplaceLimits(BTreeMap<GuestId, GuestLimits>),
    /// The mode changes.
    SetMode(Mode),
    /// The policy changes.
    SetPolicy(PolicyName),
    /// The answer of the policy's program to [`Controller::question`]; counts for the next sample.
    ///
    /// [`Controller::question`]: crate::Controller::question
    Answer(PolicyAnswer),
    /// A new configuration. Targets in force and compliance are kept, and so are credits if both
    /// policies have them.
    Reconfigure(Box<Settings>),
    /// The guests' credits at the last decision of another controller.
    Credits(Vec<(GuestId, u64)>),
    /// State that a guest sampled here brought along from another host. Credits are ignored under a
    /// policy without rent, and so is the thrash history of a guest that is not known here.
    Carried(CarriedGuest),
    /// What the last controller promised guests. For a controller that has not seen any guest yet.
    Restart(Box<Restart>),
}
