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
    /// The operator wants no actions for now.
    Pause,
    /// The operator wants actions again.
    Resume,
    /// Memory is to be kept free for a guest that is about to start; takes the place of an earlier
    /// reservation of that name. What it says to be free is not believed.
    Reserve(Reservation),
    /// A reservation is not needed any more.
    Unreserve(GuestId),
    /// New limits for one guest.
    SetLimits(GuestId, GuestLimits),
    /// New limits for all guests that have any of their own.
    ReplaceLimits(BTreeMap<GuestId, GuestLimits>),
    /// Another mode.
    SetMode(Mode),
    /// Another policy.
    SetPolicy(PolicyName),
    /// What the policy's program answered to [`Controller::question`]; counts for the next sample.
    ///
    /// [`Controller::question`]: crate::Controller::question
    Answer(PolicyAnswer),
    /// A new configuration; targets in force, compliance and, between policies that have such,
    /// credits are kept.
    Reconfigure(Box<Settings>),
    /// Guests' credits when another controller last decided.
    Credits(Vec<(GuestId, u64)>),
    /// What a guest that was sampled here has brought along from another host. What a policy has no
    /// use for is ignored, and so is a guest that is not there.
    Carried(CarriedGuest),
    /// What the last controller promised guests, for one that has not seen any yet.
    Restart(Box<Restart>),
}
