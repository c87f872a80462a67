//! What happens between samples.

use std::collections::BTreeMap;

use ballast_model::{GuestId, GuestLimits, Outcome, PolicyName, Restart};

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
    /// New limits for one guest.
    SetLimits(GuestId, GuestLimits),
    /// New limits for all guests that have any of their own.
    ReplaceLimits(BTreeMap<GuestId, GuestLimits>),
    /// Another policy.
    SetPolicy(PolicyName),
    /// A new configuration; targets in force, compliance and, between policies that have such,
    /// credits are kept.
    Reconfigure(Box<Settings>),
    /// Guests' credits when another controller last decided.
    Credits(Vec<(GuestId, u64)>),
    /// What the last controller promised guests, for one that has not seen any yet.
    Restart(Box<Restart>),
}
