//! What a plan says about the host as a whole.

use std::borrow::Cow;
use std::fmt;

#[cfg(feature = "serde")]
use crate::unit::{self, is_none};
use crate::{AnswerFault, Bytes, GuestId, Input};

/// What a plan says about the host as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "code", content = "figures", rename_all = "kebab-case")
)]
pub enum Note {
    /// The guests' floors and the memory of guests that cannot be moved exceed the budget.
    Infeasible {
        /// Memory lacking.
        #[cfg_attr(feature = "serde", serde(rename = "shortfall_bytes", with = "unit"))]
        shortfall: Bytes,
    },
    /// The host has less memory for guests than the operator's budget.
    BudgetReduced {
        /// The operator's budget.
        #[cfg_attr(feature = "serde", serde(rename = "configured_bytes", with = "unit"))]
        configured: Bytes,
        /// What the host has for guests.
        #[cfg_attr(feature = "serde", serde(rename = "present_bytes", with = "unit"))]
        present: Bytes,
    },
    /// The host's own figures could not be read; nothing is granted.
    HostUnknown,
    /// Guests were found whose allocation is not known yet; the budget leaves them out.
    Uncounted {
        /// Number of guests.
        guests: usize,
    },
    /// A hypervisor claims memory for its guest that its process has not mapped. It does not count.
    Unmapped {
        /// The guest.
        guest: GuestId,
        /// How much of the claim is not mapped.
        #[cfg_attr(feature = "serde", serde(rename = "claimed_bytes", with = "unit"))]
        claimed: Bytes,
    },
    /// Guests that are left alone hold more than they were granted. No other guest is shrunk for
    /// that.
    BeyondEntitlement {
        /// Number of guests.
        guests: usize,
        /// How much more, in total.
        #[cfg_attr(feature = "serde", serde(rename = "debt_bytes", with = "unit"))]
        debt: Bytes,
        /// Whether the host can page it out.
        collected: bool,
    },
    /// Guests were found so recently that their allocations may not be accurate yet. Meanwhile
    /// nothing is granted to any guest.
    Newcomers {
        /// Number of guests.
        guests: usize,
    },
    /// Some guests lack an input of the policy, which uses something else instead.
    MissingInput {
        /// The missing input.
        what: Input,
        /// Number of guests.
        guests: usize,
        /// What the policy does about them, as a clause.
        fallback: Cow<'static, str>,
    },
    /// A guest misses more often than the operator wants.
    ObjectiveViolated {
        /// The guest.
        guest: GuestId,
        /// Misses a second that it should stay under.
        misses_per_s_max: u64,
        /// Misses a second that its target leads to; `None`: unknown.
        #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
        misses_per_s: Option<u64>,
    },
    /// At the last decision the answer of the policy's program was not used, and `global` decided
    /// instead.
    Unanswered {
        /// Why.
        fault: AnswerFault,
    },
    /// The checker refused the plan; no action is carried out.
    Refused {
        /// The violation found.
        violation: String,
    },
}

impl Note {
    /// Stable word for machines.
    pub const fn code(&self) -> &'static str {
        match self {
            Note::Infeasible { .. } => "infeasible",
            Note::BudgetReduced { .. } => "budget-reduced",
            Note::HostUnknown => "host-unknown",
            Note::Uncounted { .. } => "uncounted",
            Note::Unmapped { .. } => "unmapped",
            Note::BeyondEntitlement { .. } => "beyond-entitlement",
            Note::Newcomers { .. } => "newcomers",
            Note::MissingInput { .. } => "missing-input",
            Note::ObjectiveViolated { .. } => "objective-violated",
            Note::Unanswered { .. } => "unanswered",
            Note::Refused { .. } => "refused",
        }
    }
}

/// A number of guests, in words.
struct Guests(usize);

impl fmt::Display for Guests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} guest{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Infeasible { shortfall } => write!(
                f,
                "floors and immovable guests exceed the budget by {shortfall}: lower floors or raise the budget"
            ),
            Note::BudgetReduced { configured, present } => {
                write!(
                    f,
                    "budget of {configured} reduced to {present}: the host has no more for guests"
                )
            }
            Note::HostUnknown => {
                f.write_str("the host's memory could not be read: nothing is granted")
            }
            Note::Uncounted { guests } => write!(
                f,
                "not counted in the budget, as what they hold is not known yet: {}",
                Guests(*guests)
            ),
            Note::Unmapped { guest, claimed } => write!(
                f,
                "the hypervisor of {guest} claims {claimed} more for it than its process has mapped: that \
                 does not count"
            ),
            Note::BeyondEntitlement { guests, debt, collected } => write!(
                f,
                "{debt} more than was granted, held by {} that gave no answer: {}",
                Guests(*guests),
                match collected {
                    true => "the host pages it out",
                    false => "not paged out, as [mechanisms.paging] is off or swap is full",
                }
            ),
            Note::Newcomers { guests } => {
                write!(
                    f,
                    "nothing is granted until the allocation of {} is certain",
                    Guests(*guests)
                )
            }
            Note::MissingInput { what, guests, fallback } => write!(
                f,
                "no {what} is known of {} ({} would provide it): {fallback}",
                Guests(*guests),
                what.provider()
            ),
            Note::ObjectiveViolated { guest, misses_per_s_max, misses_per_s: Some(misses) } => {
                write!(
                    f,
                    "objective of {guest} not met: {misses} misses a second, at most {misses_per_s_max} wanted"
                )
            }
            Note::ObjectiveViolated { guest, misses_per_s_max, misses_per_s: None } => write!(
                f,
                "objective of {guest}, at most {misses_per_s_max} misses a second, cannot be judged: its \
                 misses are not known"
            ),
            Note::Unanswered { fault } => {
                write!(f, "the policy's program {fault}: decided as `global` does")
            }
            Note::Refused { violation } => write!(f, "plan refused by the checker: {violation}"),
        }
    }
}
