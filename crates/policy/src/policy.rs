//! The interface of all policies, and their settings.

use std::time::Duration;

use ballast_model::{Bytes, GuestId, PolicyAnswer, PolicyName, Timestamp};

use crate::divide::TaxRule;
use crate::problem::{Division, Problem};
use crate::{flexmemd, meb};

/// How often a policy decides, and which changes it ignores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// Time between decisions.
    pub interval: Duration,
    /// Changes up to this size are not made.
    pub dead_band: Bytes,
    /// Whether a new request of a guest is decided on at once instead of at the end of the
    /// interval. Emergencies always are.
    pub on_request: bool,
    /// Whether a guest whose need exceeds its target less the reserve is decided on at once instead
    /// of at the end of the interval.
    pub on_need: bool,
}

impl Pacing {
    /// A decision every `interval`, and none between.
    pub const fn every(interval: Duration, dead_band: Bytes) -> Pacing {
        Pacing { interval, dead_band, on_request: false, on_need: false }
    }
}

/// The operator's settings for policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySettings {
    /// Free memory left to each guest on top of what it uses: `f` of Global §3.4.
    pub reserve: Bytes,
    /// How the idle-memory tax of `global` is set.
    pub tax: TaxRule,
    /// Settings of `meb`.
    pub meb: meb::MebSettings,
    /// Settings of the policies of flexmemd.
    pub flexmemd: flexmemd::FlexmemdSettings,
}

impl Default for PolicySettings {
    fn default() -> Self {
        PolicySettings {
            reserve: PolicySettings::RESERVE_DEFAULT,
            tax: TaxRule::Dynamic,
            meb: meb::MebSettings::default(),
            flexmemd: flexmemd::FlexmemdSettings::default(),
        }
    }
}

impl PolicySettings {
    /// 100 MiB per guest, as in the evaluation of Global §4.4.
    pub const RESERVE_DEFAULT: Bytes = Bytes::mib(100);
}

/// A rule that divides the budget. Its state is limited to hysteresis and accounts of credits.
pub trait Policy: std::fmt::Debug + Send + PolicyClone {
    /// The policy's name.
    fn name(&self) -> PolicyName;
    /// How often it decides, and which changes it ignores.
    fn pacing(&self) -> Pacing;
    /// Divides the budget of `problem`.
    fn divide(&mut self, problem: &Problem) -> Division;

    /// The guests' credits; `None` for a policy without rent.
    fn accounts(&self) -> Option<&flexmemd::Accounts> {
        None
    }

    /// Restores credits that guests had under another policy or in an earlier run; see
    /// [`flexmemd::Accounts::restore`]. A policy without accounts ignores them.
    fn restore_credits(&mut self, _credits: &[(GuestId, u64)], _now: Timestamp) {}

    /// Gives a guest the credits that it had on another host; see [`flexmemd::Accounts::set`]. A
    /// policy without accounts ignores them.
    fn set_credits(&mut self, _guest: &GuestId, _credits: u64, _now: Timestamp) {}

    /// Takes in the program's answer to the question about the next decision. A policy that asks no
    /// program ignores it.
    fn take_answer(&mut self, _answer: PolicyAnswer) {}
}

/// Lets a boxed [`Policy`] be cloned, so that a dry run can work on a copy.
pub trait PolicyClone {
    /// A copy with the present state.
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
