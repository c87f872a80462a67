//! Why a decision is as it is.
//!
//! Idea: every deviation from "do what the policy wants" is a value with its figures. It is
//! rendered only here, so that the command line, the journal and the metrics say the same. Each has
//! a stable one-word `code` for machines; its `Display` is for people.

use std::borrow::Cow;
use std::fmt;

#[cfg(feature = "serde")]
use crate::unit::{self, is_none};
use crate::{Bytes, Clamped, GuestId, Input};

/// Why a policy wants a target.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(
        tag = "code",
        content = "figures",
        rename_all = "kebab-case",
        expecting = "expected a reason with its figures, or the bound that holds the target"
    )
)]
pub enum Reason {
    /// Its part of the budget by shares (`static`).
    Share {
        /// Budget divided.
        #[cfg_attr(feature = "serde", serde(rename = "budget_bytes", with = "unit"))]
        budget: Bytes,
        /// The guest's shares.
        shares: u32,
        /// All guests' shares.
        shares_total: u64,
    },
    /// The memory that it uses and a reserve: the requests of all guests fit (`self-scheduling`,
    /// Global §3).
    UsedPlusReserve {
        /// Memory in use.
        #[cfg_attr(feature = "serde", serde(rename = "used_bytes", with = "unit"))]
        used: Bytes,
        /// Free memory left to the guest on top.
        #[cfg_attr(feature = "serde", serde(rename = "reserve_bytes", with = "unit"))]
        reserve: Bytes,
    },
    /// The idle-memory tax (`global`, Global §3.3 equation 5).
    IdleTax {
        /// Memory in use.
        #[cfg_attr(feature = "serde", serde(rename = "used_bytes", with = "unit"))]
        used: Bytes,
        /// The tax in force.
        #[cfg_attr(feature = "serde", serde(rename = "tax_of_2_32", with = "unit"))]
        tax: Tax,
        /// Budget divided.
        #[cfg_attr(feature = "serde", serde(rename = "budget_bytes", with = "unit"))]
        budget: Bytes,
    },
    /// The rule of a policy that is not chosen by name, in its own words ([`PolicyName::Custom`]).
    ///
    /// [`PolicyName::Custom`]: crate::PolicyName::Custom
    Custom {
        /// What the rule says.
        rule: Cow<'static, str>,
        /// Memory in use, as the policy counts it.
        #[cfg_attr(feature = "serde", serde(rename = "used_bytes", with = "unit"))]
        used: Bytes,
    },
    /// The target that the policy's program answered (`external`).
    Answered {
        /// That target.
        #[cfg_attr(feature = "serde", serde(rename = "target_bytes", with = "unit"))]
        target: Bytes,
        /// Memory in use.
        #[cfg_attr(feature = "serde", serde(rename = "used_bytes", with = "unit"))]
        used: Bytes,
    },
    /// The memory that its kernel has promised to processes (`self-balloon`, TWS §2).
    Committed {
        /// Memory promised.
        #[cfg_attr(feature = "serde", serde(rename = "committed_bytes", with = "unit"))]
        committed: Bytes,
    },
    /// The working set that probing found (`tws`, TWS §2).
    Probed {
        /// The working set.
        #[cfg_attr(feature = "serde", serde(rename = "working_set_bytes", with = "unit"))]
        working_set: Bytes,
    },
    /// An input that the policy goes by is missing: the guest gets what it uses and a reserve
    /// instead.
    #[cfg_attr(feature = "serde", serde(rename = "missing-input"))]
    Missing {
        /// The missing input.
        what: Input,
        /// Memory in use.
        #[cfg_attr(feature = "serde", serde(rename = "used_bytes", with = "unit"))]
        used: Bytes,
        /// Free memory left to the guest on top.
        #[cfg_attr(feature = "serde", serde(rename = "reserve_bytes", with = "unit"))]
        reserve: Bytes,
    },
    /// The wants of all guests do not fit: a guest that wants less than its part gets what it
    /// wants, the others divide the rest by shares.
    Scarce {
        /// What it would get without the others.
        #[cfg_attr(feature = "serde", serde(rename = "wanted_bytes", with = "unit"))]
        wanted: Bytes,
        /// The guest's shares.
        shares: u32,
        /// Why it would get that.
        because: Box<Reason>,
    },
    /// It needs more than the policy's division gives it, at the cost of guests of lower priority.
    #[cfg_attr(feature = "serde", serde(rename = "priority-raised"))]
    Raised {
        /// What it needs.
        #[cfg_attr(feature = "serde", serde(rename = "need_bytes", with = "unit"))]
        need: Bytes,
        /// Its priority.
        priority: u8,
        /// What it takes beyond the policy's division.
        #[cfg_attr(feature = "serde", serde(rename = "taken_bytes", with = "unit"))]
        taken: Bytes,
        /// The guests that pay; `None`: none, it was left over.
        #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
        payers: Option<Others>,
        /// Why the policy's division gives it less.
        because: Box<Reason>,
    },
    /// Guests of higher priority take some of what the policy's division gives it.
    #[cfg_attr(feature = "serde", serde(rename = "priority-lowered"))]
    Lowered {
        /// What it pays.
        #[cfg_attr(feature = "serde", serde(rename = "given_bytes", with = "unit"))]
        given: Bytes,
        /// Its priority.
        priority: u8,
        /// The guests that get it.
        takers: Others,
        /// Why the policy's division gives it more.
        because: Box<Reason>,
    },
    /// Its demand, and a part of the memory that is beyond all demands (`meb`, MEB §4).
    DemandAndBonus {
        /// Its demand within floor and ceiling.
        #[cfg_attr(feature = "serde", serde(rename = "demand_bytes", with = "unit"))]
        demand: Bytes,
    },
    /// Demands do not fit: the division with the fewest misses of all guests (`meb`, MEB §4).
    FewestMisses {
        /// Its demand within floor and ceiling.
        #[cfg_attr(feature = "serde", serde(rename = "demand_bytes", with = "unit"))]
        demand: Bytes,
        /// Resulting misses a second; `None`: its curve is unknown and was assumed.
        #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
        misses_per_s: Option<u64>,
    },
    /// Its part of the memory beyond all floors (`proportional`, flexmemd §4.1).
    RentableShare {
        /// Its guaranteed minimum.
        #[cfg_attr(feature = "serde", serde(rename = "floor_bytes", with = "unit"))]
        floor: Bytes,
        /// The memory beyond all floors.
        #[cfg_attr(feature = "serde", serde(rename = "rentable_bytes", with = "unit"))]
        rentable: Bytes,
    },
    /// What it rents beyond its floor (flexmemd §3.2.3).
    Rent {
        /// Its guaranteed minimum.
        #[cfg_attr(feature = "serde", serde(rename = "floor_bytes", with = "unit"))]
        floor: Bytes,
        /// The total that it wants.
        #[cfg_attr(feature = "serde", serde(rename = "wanted_bytes", with = "unit"))]
        wanted: Bytes,
        /// Thousandths of a credit for each KiB and period; 0: free.
        price_thousandths_per_kib: u64,
        /// Credits it has left.
        credits: u64,
        /// Why it does not rent more.
        limit: RentLimit,
    },
    /// A bound holds it; the memory left over or lacking is shared among the others.
    #[cfg_attr(feature = "serde", serde(untagged))]
    Bound(Clamped),
}

impl Reason {
    /// Stable word for machines.
    pub const fn code(&self) -> &'static str {
        match self {
            Reason::Share { .. } => "share",
            Reason::UsedPlusReserve { .. } => "used-plus-reserve",
            Reason::IdleTax { .. } => "idle-tax",
            Reason::Custom { .. } => "custom",
            Reason::Answered { .. } => "answered",
            Reason::Committed { .. } => "committed",
            Reason::Probed { .. } => "probed",
            Reason::DemandAndBonus { .. } => "demand-and-bonus",
            Reason::FewestMisses { .. } => "fewest-misses",
            Reason::Missing { .. } => "missing-input",
            Reason::Scarce { .. } => "scarce",
            Reason::Raised { .. } => "priority-raised",
            Reason::Lowered { .. } => "priority-lowered",
            Reason::RentableShare { .. } => "rentable-share",
            Reason::Rent { .. } => "rent",
            Reason::Bound(clamped) => clamped.code(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Share { budget, shares, shares_total } => {
                write!(f, "{shares} of {shares_total} shares of {budget}")
            }
            Reason::UsedPlusReserve { used, reserve } => {
                write!(f, "needs {used}, and {reserve} in reserve")
            }
            Reason::IdleTax { used, tax, budget } => {
                write!(f, "needs {used}; idle memory taxed at {tax} of a budget of {budget}")
            }
            Reason::Custom { rule, used } => write!(f, "{rule}; needs {used}"),
            Reason::Answered { target, used } => {
                write!(f, "the policy's program answered {target}; needs {used}")
            }
            Reason::Committed { committed } => {
                write!(f, "its kernel has promised {committed} to processes")
            }
            Reason::DemandAndBonus { demand } => {
                write!(f, "demands {demand}; memory that no guest demands is shared out")
            }
            Reason::FewestMisses { demand, misses_per_s } => {
                write!(f, "fewest misses of all guests together: demand {demand}, ")?;
                match misses_per_s {
                    Some(misses) => write!(f, "{misses} misses a second"),
                    None => f.write_str("misses assumed"),
                }
            }
            Reason::Probed { working_set } => {
                write!(f, "probing found a working set of {working_set}")
            }
            Reason::Missing { what, used, reserve } => {
                write!(f, "its {what} is not known: needs {used}, and {reserve} in reserve")
            }
            Reason::Scarce { wanted, shares, because } => write!(
                f,
                "{because}; cut from {wanted} to its part by {shares} shares: all together want more than there is"
            ),
            Reason::Raised { need, priority, taken, payers, because } => {
                write!(f, "needs {need} and has priority {priority}: {taken} more, ")?;
                match payers {
                    Some(payers) => write!(f, "taken from {payers}")?,
                    None => f.write_str("left over by the others")?,
                }
                write!(f, " ({because})")
            }
            Reason::Lowered { given, priority, takers, because } => {
                write!(f, "gives {given} to {takers} above its priority {priority} ({because})")
            }
            Reason::RentableShare { floor, rentable } => {
                write!(f, "its floor of {floor}, and its part of the {rentable} beyond all floors")
            }
            Reason::Rent { floor, wanted, price_thousandths_per_kib: price, credits, limit } => {
                write!(f, "wants {wanted}, floor {floor}; the rest is rented ")?;
                match price {
                    0 => write!(f, "free of charge")?,
                    _ => write!(f, "at {}.{:03} credits a KiB", price / 1000, price % 1000)?,
                }
                write!(f, ", {limit}; {credits} credits left")
            }
            Reason::Bound(clamped) => write!(f, "{clamped}"),
        }
    }
}

/// Several guests, with the name of one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Others {
    /// The most important one.
    pub first: GuestId,
    /// How many others there are.
    pub more: usize,
}

impl fmt::Display for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.more {
            0 => write!(f, "{}", self.first),
            more => write!(f, "{} and {more} more", self.first),
        }
    }
}

/// Why a guest does not rent more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "kebab-case")
)]
pub enum RentLimit {
    /// It wants no more.
    Want,
    /// It cannot pay for more.
    Credits,
    /// There is no more to rent.
    Supply,
}

impl RentLimit {
    /// Every limit.
    pub const ALL: [RentLimit; 3] = [RentLimit::Want, RentLimit::Credits, RentLimit::Supply];
}

impl fmt::Display for RentLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RentLimit::Want => "all it wants",
            RentLimit::Credits => "all it can pay for",
            RentLimit::Supply => "all there is to rent",
        })
    }
}

/// An idle-memory tax between 0 and 1, as an exact fraction of 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tax(u64);

impl Tax {
    /// No tax: division by shares alone.
    pub const ZERO: Tax = Tax(0);
    /// All idle memory is taxed away.
    pub const ONE: Tax = Tax(1 << 32);

    /// `numerator / 2^32`, at most one.
    pub const fn from_fraction(numerator: u64) -> Tax {
        if numerator > Tax::ONE.0 { Tax::ONE } else { Tax(numerator) }
    }

    /// The numerator of this tax over 2^32.
    pub const fn numerator(self) -> u64 {
        self.0
    }
}

#[cfg(feature = "serde")]
impl unit::InUnit for Tax {
    type Number = u64;
    fn number(&self) -> u64 {
        self.numerator()
    }
    fn of_number(number: u64) -> Tax {
        Tax::from_fraction(number)
    }
}

impl fmt::Display for Tax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths_of_percent = (self.0 * 1000 + (1 << 31)) >> 32;
        write!(f, "{}.{}%", tenths_of_percent / 10, tenths_of_percent % 10)
    }
}
