//! Why: reasons, clamps and changes as `{"code", "figures"}`, and back without loss.

use ballast_model::{Bytes, Change, Clamped, GuestId, Input, Others, Reason, RentLimit, Tax};
use serde::{Deserialize, Serialize};

use super::held::HeldRecord;

/// A [`Reason`]; the code is [`Reason::code`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", content = "figures", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are those of the model type, which documents them")]
pub enum ReasonRecord {
    Share {
        budget_bytes: u64,
        shares: u32,
        shares_total: u64,
    },
    UsedPlusReserve {
        used_bytes: u64,
        reserve_bytes: u64,
    },
    IdleTax {
        used_bytes: u64,
        /// The tax as a fraction of 2^32.
        tax_of_2_32: u64,
        budget_bytes: u64,
    },
    Custom {
        rule: String,
        used_bytes: u64,
    },
    Committed {
        committed_bytes: u64,
    },
    Probed {
        working_set_bytes: u64,
    },
    MissingInput {
        what: InputRecord,
        used_bytes: u64,
        reserve_bytes: u64,
    },
    Scarce {
        wanted_bytes: u64,
        shares: u32,
        because: Box<ReasonRecord>,
    },
    PriorityRaised {
        need_bytes: u64,
        priority: u8,
        taken_bytes: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        payers: Option<OthersRecord>,
        because: Box<ReasonRecord>,
    },
    PriorityLowered {
        given_bytes: u64,
        priority: u8,
        takers: OthersRecord,
        because: Box<ReasonRecord>,
    },
    DemandAndBonus {
        demand_bytes: u64,
    },
    FewestMisses {
        demand_bytes: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        misses_per_s: Option<u64>,
    },
    RentableShare {
        floor_bytes: u64,
        rentable_bytes: u64,
    },
    Rent {
        floor_bytes: u64,
        wanted_bytes: u64,
        price_thousandths_per_kib: u64,
        credits: u64,
        limit: RentLimitRecord,
    },
    #[serde(untagged)]
    Bound(ClampedRecord),
}

/// An [`Input`]; the word is [`Input::code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are those of the model type, which documents them")]
pub enum InputRecord {
    Committed,
    Probed,
    MissCurve,
    SwapRate,
    Free,
    Requests,
}

/// An [`Others`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct OthersRecord {
    pub first: GuestId,
    pub more: u64,
}

/// A [`RentLimit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are those of the model type, which documents them")]
pub enum RentLimitRecord {
    Want,
    Credits,
    Supply,
}

/// A [`Clamped`]; the code is [`Clamped::code`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", content = "figures", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are those of the model type, which documents them")]
pub enum ClampedRecord {
    Floor { floor_bytes: u64 },
    Ceiling { ceiling_bytes: u64 },
    StepUp { limit_bytes: u64 },
    StepDown { limit_bytes: u64 },
    Thrashed { held_bytes: u64 },
    NoSwap { least_bytes: u64 },
    AwaitingRelease { short_bytes: u64 },
    HostReserve { short_bytes: u64 },
}

/// A [`Change`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", content = "figures", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are those of the model type, which documents them")]
pub enum ChangeRecord {
    Grow { by_bytes: u64 },
    Shrink { by_bytes: u64 },
    CancelShrink { why: HeldRecord },
    Hold(HeldRecord),
}

impl From<&Reason> for ReasonRecord {
    fn from(reason: &Reason) -> Self {
        match reason {
            Reason::Share { budget, shares, shares_total } => ReasonRecord::Share {
                budget_bytes: budget.get(),
                shares: *shares,
                shares_total: *shares_total,
            },
            Reason::UsedPlusReserve { used, reserve } => ReasonRecord::UsedPlusReserve {
                used_bytes: used.get(),
                reserve_bytes: reserve.get(),
            },
            Reason::IdleTax { used, tax, budget } => ReasonRecord::IdleTax {
                used_bytes: used.get(),
                tax_of_2_32: tax.numerator(),
                budget_bytes: budget.get(),
            },
            Reason::Custom { rule, used } => {
                ReasonRecord::Custom { rule: rule.to_string(), used_bytes: used.get() }
            }
            Reason::Committed { committed } => {
                ReasonRecord::Committed { committed_bytes: committed.get() }
            }
            Reason::Probed { working_set } => {
                ReasonRecord::Probed { working_set_bytes: working_set.get() }
            }
            Reason::DemandAndBonus { demand } => {
                ReasonRecord::DemandAndBonus { demand_bytes: demand.get() }
            }
            Reason::FewestMisses { demand, misses_per_s } => ReasonRecord::FewestMisses {
                demand_bytes: demand.get(),
                misses_per_s: *misses_per_s,
            },
            Reason::Missing { what, used, reserve } => ReasonRecord::MissingInput {
                what: (*what).into(),
                used_bytes: used.get(),
                reserve_bytes: reserve.get(),
            },
            Reason::Scarce { wanted, shares, because } => ReasonRecord::Scarce {
                wanted_bytes: wanted.get(),
                shares: *shares,
                because: Box::new(because.as_ref().into()),
            },
            Reason::Raised { need, priority, taken, payers, because } => {
                ReasonRecord::PriorityRaised {
                    need_bytes: need.get(),
                    priority: *priority,
                    taken_bytes: taken.get(),
                    payers: payers.as_ref().map(OthersRecord::from),
                    because: Box::new(because.as_ref().into()),
                }
            }
            Reason::Lowered { given, priority, takers, because } => ReasonRecord::PriorityLowered {
                given_bytes: given.get(),
                priority: *priority,
                takers: takers.into(),
                because: Box::new(because.as_ref().into()),
            },
            Reason::RentableShare { floor, rentable } => ReasonRecord::RentableShare {
                floor_bytes: floor.get(),
                rentable_bytes: rentable.get(),
            },
            Reason::Rent { floor, wanted, price_thousandths_per_kib, credits, limit } => {
                ReasonRecord::Rent {
                    floor_bytes: floor.get(),
                    wanted_bytes: wanted.get(),
                    price_thousandths_per_kib: *price_thousandths_per_kib,
                    credits: *credits,
                    limit: match limit {
                        RentLimit::Want => RentLimitRecord::Want,
                        RentLimit::Credits => RentLimitRecord::Credits,
                        RentLimit::Supply => RentLimitRecord::Supply,
                    },
                }
            }
            Reason::Bound(clamped) => ReasonRecord::Bound(clamped.into()),
        }
    }
}

impl From<ReasonRecord> for Reason {
    fn from(record: ReasonRecord) -> Self {
        match record {
            ReasonRecord::Share { budget_bytes, shares, shares_total } => {
                Reason::Share { budget: Bytes::new(budget_bytes), shares, shares_total }
            }
            ReasonRecord::UsedPlusReserve { used_bytes, reserve_bytes } => {
                Reason::UsedPlusReserve {
                    used: Bytes::new(used_bytes),
                    reserve: Bytes::new(reserve_bytes),
                }
            }
            ReasonRecord::IdleTax { used_bytes, tax_of_2_32, budget_bytes } => Reason::IdleTax {
                used: Bytes::new(used_bytes),
                tax: Tax::from_fraction(tax_of_2_32),
                budget: Bytes::new(budget_bytes),
            },
            ReasonRecord::Custom { rule, used_bytes } => {
                Reason::Custom { rule: rule.into(), used: Bytes::new(used_bytes) }
            }
            ReasonRecord::Committed { committed_bytes } => {
                Reason::Committed { committed: Bytes::new(committed_bytes) }
            }
            ReasonRecord::Probed { working_set_bytes } => {
                Reason::Probed { working_set: Bytes::new(working_set_bytes) }
            }
            ReasonRecord::MissingInput { what, used_bytes, reserve_bytes } => Reason::Missing {
                what: what.into(),
                used: Bytes::new(used_bytes),
                reserve: Bytes::new(reserve_bytes),
            },
            ReasonRecord::Scarce { wanted_bytes, shares, because } => Reason::Scarce {
                wanted: Bytes::new(wanted_bytes),
                shares,
                because: Box::new((*because).into()),
            },
            ReasonRecord::PriorityRaised { need_bytes, priority, taken_bytes, payers, because } => {
                Reason::Raised {
                    need: Bytes::new(need_bytes),
                    priority,
                    taken: Bytes::new(taken_bytes),
                    payers: payers.map(Others::from),
                    because: Box::new((*because).into()),
                }
            }
            ReasonRecord::PriorityLowered { given_bytes, priority, takers, because } => {
                Reason::Lowered {
                    given: Bytes::new(given_bytes),
                    priority,
                    takers: takers.into(),
                    because: Box::new((*because).into()),
                }
            }
            ReasonRecord::DemandAndBonus { demand_bytes } => {
                Reason::DemandAndBonus { demand: Bytes::new(demand_bytes) }
            }
            ReasonRecord::FewestMisses { demand_bytes, misses_per_s } => {
                Reason::FewestMisses { demand: Bytes::new(demand_bytes), misses_per_s }
            }
            ReasonRecord::RentableShare { floor_bytes, rentable_bytes } => Reason::RentableShare {
                floor: Bytes::new(floor_bytes),
                rentable: Bytes::new(rentable_bytes),
            },
            ReasonRecord::Rent {
                floor_bytes,
                wanted_bytes,
                price_thousandths_per_kib,
                credits,
                limit,
            } => Reason::Rent {
                floor: Bytes::new(floor_bytes),
                wanted: Bytes::new(wanted_bytes),
                price_thousandths_per_kib,
                credits,
                limit: match limit {
                    RentLimitRecord::Want => RentLimit::Want,
                    RentLimitRecord::Credits => RentLimit::Credits,
                    RentLimitRecord::Supply => RentLimit::Supply,
                },
            },
            ReasonRecord::Bound(clamped) => Reason::Bound(clamped.into()),
        }
    }
}

impl From<Input> for InputRecord {
    fn from(input: Input) -> Self {
        match input {
            Input::Committed => InputRecord::Committed,
            Input::Probed => InputRecord::Probed,
            Input::MissCurve => InputRecord::MissCurve,
            Input::SwapRate => InputRecord::SwapRate,
            Input::Free => InputRecord::Free,
            Input::Requests => InputRecord::Requests,
        }
    }
}

impl From<InputRecord> for Input {
    fn from(record: InputRecord) -> Self {
        match record {
            InputRecord::Committed => Input::Committed,
            InputRecord::Probed => Input::Probed,
            InputRecord::MissCurve => Input::MissCurve,
            InputRecord::SwapRate => Input::SwapRate,
            InputRecord::Free => Input::Free,
            InputRecord::Requests => Input::Requests,
        }
    }
}

impl From<&Others> for OthersRecord {
    fn from(Others { first, more }: &Others) -> Self {
        OthersRecord { first: first.clone(), more: *more as u64 }
    }
}

impl From<OthersRecord> for Others {
    fn from(record: OthersRecord) -> Self {
        Others { first: record.first, more: record.more as usize }
    }
}

impl From<&Clamped> for ClampedRecord {
    fn from(clamped: &Clamped) -> Self {
        match clamped {
            Clamped::Floor { floor } => ClampedRecord::Floor { floor_bytes: floor.get() },
            Clamped::Ceiling { ceiling } => ClampedRecord::Ceiling { ceiling_bytes: ceiling.get() },
            Clamped::StepUp { limit } => ClampedRecord::StepUp { limit_bytes: limit.get() },
            Clamped::StepDown { limit } => ClampedRecord::StepDown { limit_bytes: limit.get() },
            Clamped::Thrashed { held } => ClampedRecord::Thrashed { held_bytes: held.get() },
            Clamped::NoSwap { least } => ClampedRecord::NoSwap { least_bytes: least.get() },
            Clamped::AwaitingRelease { short } => {
                ClampedRecord::AwaitingRelease { short_bytes: short.get() }
            }
            Clamped::HostReserve { short } => {
                ClampedRecord::HostReserve { short_bytes: short.get() }
            }
        }
    }
}

impl From<ClampedRecord> for Clamped {
    fn from(record: ClampedRecord) -> Self {
        match record {
            ClampedRecord::Floor { floor_bytes } => {
                Clamped::Floor { floor: Bytes::new(floor_bytes) }
            }
            ClampedRecord::Ceiling { ceiling_bytes } => {
                Clamped::Ceiling { ceiling: Bytes::new(ceiling_bytes) }
            }
            ClampedRecord::StepUp { limit_bytes } => {
                Clamped::StepUp { limit: Bytes::new(limit_bytes) }
            }
            ClampedRecord::NoSwap { least_bytes } => {
                Clamped::NoSwap { least: Bytes::new(least_bytes) }
            }
            ClampedRecord::Thrashed { held_bytes } => {
                Clamped::Thrashed { held: Bytes::new(held_bytes) }
            }
            ClampedRecord::StepDown { limit_bytes } => {
                Clamped::StepDown { limit: Bytes::new(limit_bytes) }
            }
            ClampedRecord::AwaitingRelease { short_bytes } => {
                Clamped::AwaitingRelease { short: Bytes::new(short_bytes) }
            }
            ClampedRecord::HostReserve { short_bytes } => {
                Clamped::HostReserve { short: Bytes::new(short_bytes) }
            }
        }
    }
}

impl From<&Change> for ChangeRecord {
    fn from(change: &Change) -> Self {
        match change {
            Change::Grow { by } => ChangeRecord::Grow { by_bytes: by.get() },
            Change::Shrink { by } => ChangeRecord::Shrink { by_bytes: by.get() },
            Change::CancelShrink { why } => ChangeRecord::CancelShrink { why: why.into() },
            Change::Hold(why) => ChangeRecord::Hold(why.into()),
        }
    }
}

impl From<ChangeRecord> for Change {
    fn from(record: ChangeRecord) -> Self {
        match record {
            ChangeRecord::Grow { by_bytes } => Change::Grow { by: Bytes::new(by_bytes) },
            ChangeRecord::Shrink { by_bytes } => Change::Shrink { by: Bytes::new(by_bytes) },
            ChangeRecord::CancelShrink { why } => Change::CancelShrink { why: why.into() },
            ChangeRecord::Hold(why) => Change::Hold(why.into()),
        }
    }
}
