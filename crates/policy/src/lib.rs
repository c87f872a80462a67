//! Policies: compute desired targets from demand and limits.
//!
//! Every policy has these properties, which `tests/it/properties.rs` checks:
//!
//! 1. Every guest gets at least its floor and at most its ceiling.
//! 2. The targets never add up to more than the budget, unless the floors alone do; then every
//!    guest gets its floor and the shortfall is reported.
//! 3. A policy that divides everything (`static`, `global`) leaves no page of the budget unused
//!    that some guest could hold.
//! 4. The order in which guests are listed does not matter.
//! 5. Deciding twice on the same problem gives the same result (no oscillation on constant input).
//! 6. No guest of higher priority lacks memory it needs while a guest of lower priority could give
//!    it (`priority.rs`).
//!
//! A policy knows nothing of hypervisors or of pending changes: it turns a [`Problem`], which
//! includes the time, into a [`Division`]. The guard decides in which order, how fast and whether
//! to apply it.
//!
//! Begin with `problem.rs`, then `global.rs`. To add a policy: implement [`Policy`] in a file of
//! its own, and add an arm to [`build`], a name to the model and an entry to the [`catalogue`].

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

pub mod catalogue;

mod divide;
mod external;
pub mod fairness;
pub mod flexmemd;
mod global;
mod in_use;
pub mod meb;
mod policy;
mod prioritized;
mod priority;
mod problem;
mod self_balloon;
mod self_scheduling;
mod static_shares;
mod tws;
mod wants;

use ballast_model::PolicyName;

use self::catalogue::PolicyEntry;
use self::prioritized::PrioritizedPolicy;
use crate::flexmemd::{Algorithm, CombinationError, Flexmemd};

pub use divide::TaxRule;
pub use external::{External, Question};
pub use global::Global;
pub use policy::{Pacing, Policy, PolicyClone, PolicySettings};
pub use problem::{Contender, Division, GUESTS_MAX, Problem};
pub use self_balloon::SelfBalloon;
pub use self_scheduling::SelfScheduling;
pub use static_shares::StaticShares;
pub use tws::Tws;

/// Builds the policy called `name`, with what is common to all: priorities, and notes on missing
/// data.
pub fn build(name: PolicyName, settings: PolicySettings) -> Box<dyn Policy> {
    let reserve = settings.reserve;
    let rule: Box<dyn Policy> = match name {
        PolicyName::Static => Box::new(StaticShares),
        PolicyName::SelfBalloon => Box::new(SelfBalloon::new(settings)),
        PolicyName::SelfScheduling => Box::new(SelfScheduling::new(settings)),
        PolicyName::Global => Box::new(Global::new(settings)),
        PolicyName::Meb => Box::new(meb::Meb::new(settings.meb)),
        PolicyName::Tws => Box::new(Tws::new(settings)),
        PolicyName::Proportional => flexmemd(Algorithm::Proportional, settings),
        PolicyName::Fcfs => flexmemd(Algorithm::Fcfs, settings),
        PolicyName::DemandProportional => flexmemd(Algorithm::DemandProportional, settings),
        PolicyName::DirectAssign => flexmemd(Algorithm::DirectAssign, settings),
        PolicyName::Auction => flexmemd(Algorithm::Auction, settings),
        PolicyName::RoundRobin => flexmemd(Algorithm::RoundRobin, settings),
        PolicyName::External => Box::new(External::new(settings)),
        // A custom policy is passed as an object and cannot be built by name; static is harmless.
        PolicyName::Custom(_) => Box::new(StaticShares),
    };
    Box::new(PrioritizedPolicy::new(rule, reserve))
}

/// Checks that `name` can be built exactly as `settings` say. If not, [`build`] uses the
/// combination that the policy's paper evaluates.
///
/// # Errors
/// The combination in the settings is not valid for that policy.
pub fn check(name: PolicyName, settings: &PolicySettings) -> Result<(), CombinationError> {
    match Algorithm::ALL.iter().find(|algorithm| algorithm.as_str() == name.as_str()) {
        Some(&algorithm) => settings.flexmemd.choice.with(algorithm).map(|_| ()),
        None => Ok(()),
    }
}

fn flexmemd(algorithm: Algorithm, settings: PolicySettings) -> Box<dyn Policy> {
    Box::new(Flexmemd::new(algorithm, settings.flexmemd))
}

impl PolicyEntry {
    /// The policy's pacing with default settings.
    pub fn pacing(&self) -> Pacing {
        build(self.name, PolicySettings::default()).pacing()
    }
}
