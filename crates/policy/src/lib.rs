//! Policies: from demand and limits to desired targets.
//!
//! Properties every policy here has, and which `tests/properties.rs` checks for each:
//!
//! 1. Every guest gets at least its floor and at most its ceiling.
//! 2. The targets never add up to more than the budget, unless the floors alone do; then every
//!    guest gets its floor and the shortfall is named.
//! 3. A policy that divides everything (`static`, `global`) leaves no page of the budget over that
//!    some guest could hold.
//! 4. The order in which guests are listed does not matter.
//! 5. Deciding twice on the same problem gives the same answer (no oscillation on constant input).
//! 6. Nobody of higher priority lacks what it needs while somebody of lower priority could give it
//!    (`priority.rs`).
//!
//! A policy knows nothing of hypervisors or of what moved already: [`Problem`] in, [`Division`] out.
//! What time it is, the problem says. What is to happen first, how fast and whether at all is the guard's.
//!
//! Adding one: a file with a [`Policy`], an arm in [`build`], a name in the model, an entry in the
//! [`catalogue`].

#![forbid(unsafe_code)]

pub mod catalogue;
mod chosen;
mod divide;
pub mod fairness;
pub mod flexmemd;
mod global;
mod in_use;
pub mod meb;
mod priority;
mod problem;
mod self_balloon;
mod self_scheduling;
mod static_shares;
mod tws;
mod wants;

use std::time::Duration;

use ballast_model::{Bytes, GuestId, PolicyName, Tax, Timestamp};

use self::chosen::Chosen;
use crate::flexmemd::{Algorithm, CombinationError, Flexmemd};

pub use divide::TaxRule;
pub use global::Global;
pub use problem::{Contender, Division, GUESTS_MAX, Problem, Wanted};
pub use self_balloon::SelfBalloon;
pub use self_scheduling::SelfScheduling;
pub use static_shares::StaticShares;
pub use tws::Tws;

/// How often and how finely a policy means to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// Time between decisions.
    pub interval: Duration,
    /// Changes up to this size are not worth making.
    pub dead_band: Bytes,
    /// Whether a new request of a guest is decided on at once, instead of at the end of the
    /// interval. Emergencies always are.
    pub on_request: bool,
}

/// What an operator can set about policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySettings {
    /// Free memory left to each guest on top of what it uses: `f` of Global §3.4.
    pub reserve: Bytes,
    /// How the idle-memory tax of `global` is found.
    pub tax: TaxRule,
    /// Of `meb`.
    pub meb: meb::Settings,
    /// Of the policies of flexmemd.
    pub flexmemd: flexmemd::Settings,
}

impl Default for PolicySettings {
    fn default() -> Self {
        PolicySettings {
            reserve: PolicySettings::RESERVE_DEFAULT,
            tax: TaxRule::Dynamic,
            meb: meb::Settings::default(),
            flexmemd: flexmemd::Settings::default(),
        }
    }
}

impl PolicySettings {
    /// 100 MiB per guest, as the evaluation of Global §4.4 had it.
    pub const RESERVE_DEFAULT: Bytes = Bytes::mib(100);
    /// The tax of VMware ESX (0.75), for comparison with a fixed one (Global Fig. 3).
    pub const TAX_ESX: Tax = Tax::from_fraction(3 << 30);
}

/// A rule that divides the budget. State is only what hysteresis needs, and accounts.
pub trait Policy: std::fmt::Debug + Send + PolicyClone {
    /// Its name.
    fn name(&self) -> PolicyName;
    /// How often it decides and what it ignores.
    fn pacing(&self) -> Pacing;
    /// Divides the budget of `problem`.
    fn divide(&mut self, problem: &Problem) -> Division;

    /// Everybody's credits, of a policy that has guests pay rent.
    fn ledger(&self) -> Option<&flexmemd::Ledger> {
        None
    }

    /// Takes over credits that guests had under another policy or in another run, see
    /// [`flexmemd::Ledger::keep`]. A policy without accounts has no use for them.
    fn keep_credits(&mut self, _accounts: &[(GuestId, u64)], _now: Timestamp) {}
}

/// Lets a boxed [`Policy`] be cloned, so that a dry run can work on a copy.
pub trait PolicyClone {
    /// A copy in its present state.
    fn clone_box(&self) -> Box<dyn Policy>;
}

impl<P: Policy + Clone + 'static> PolicyClone for P {
    fn clone_box(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Policy> {
    fn clone(&self) -> Self {
        self.clone_box()
    }
}

/// The policy of that name, with what all of them get: priorities, and a note where data is missing.
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
        // Not chosen by name: whoever has one hands it over. Static is what harms nobody.
        PolicyName::Custom(_) => Box::new(StaticShares),
    };
    Box::new(Chosen::new(rule, reserve))
}

/// Whether `name` can be built just as `settings` say. What cannot is built as it is evaluated in
/// its paper.
///
/// # Errors
/// What is chosen of a combination makes no sense with that policy.
pub fn check(name: PolicyName, settings: &PolicySettings) -> Result<(), CombinationError> {
    let composed = Algorithm::ALL.iter().find(|algorithm| algorithm.as_str() == name.as_str());
    composed.map_or(Ok(()), |algorithm| settings.flexmemd.choice.with(*algorithm).map(|_| ()))
}

fn flexmemd(algorithm: Algorithm, settings: PolicySettings) -> Box<dyn Policy> {
    Box::new(Flexmemd::new(algorithm, settings.flexmemd))
}
