//! A whole tick as a record.

use std::collections::BTreeMap;
use std::time::Duration;

use ballast_model::{Bytes, GuestId, GuestLimits, Outcome};
use serde::{Deserialize, Serialize};

use super::{OutcomeRecord, PlanRecord, RecordError, SampleRecord, no, ns, some_bytes};
use crate::{Tick, TickEntry};

/// One tick. Bounds are written only of guests that do not have the default ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of `Tick`, which documents them")]
pub struct TickRecord {
    pub sample: SampleRecord,
    pub plan: PlanRecord,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outcomes: Vec<OutcomeRecord>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<GuestId, LimitsRecord>,
    #[serde(default, skip_serializing_if = "no")]
    pub paused: bool,
    pub decision_ns: u64,
}

/// The bounds of one guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct LimitsRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_bytes: Option<u64>,
    pub shares: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub miss_rate_max: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap: Option<bool>,
    pub managed: bool,
}

fn is_zero(priority: &u8) -> bool {
    *priority == 0
}

impl From<&Tick<'_>> for TickRecord {
    fn from(tick: &Tick<'_>) -> Self {
        let limits = tick.limits.iter().filter(|(_, limits)| **limits != GuestLimits::default());
        TickRecord {
            sample: tick.snapshot.into(),
            plan: tick.plan.into(),
            outcomes: tick.outcomes.iter().map(OutcomeRecord::from).collect(),
            limits: limits.map(|(id, limits)| (id.clone(), limits.into())).collect(),
            paused: tick.paused,
            decision_ns: ns(tick.decision_cost),
        }
    }
}

impl TryFrom<TickRecord> for TickEntry {
    type Error = RecordError;

    fn try_from(record: TickRecord) -> Result<TickEntry, RecordError> {
        Ok(TickEntry {
            snapshot: record.sample.try_into()?,
            plan: record.plan.try_into()?,
            outcomes: record.outcomes.into_iter().map(Outcome::from).collect(),
            limits: record.limits.into_iter().map(|(id, limits)| (id, limits.into())).collect(),
            paused: record.paused,
            decision_cost: Duration::from_nanos(record.decision_ns),
        })
    }
}

impl From<&GuestLimits> for LimitsRecord {
    fn from(limits: &GuestLimits) -> Self {
        let GuestLimits { floor, ceiling, shares, priority, miss_rate_max, swap, managed } =
            *limits;
        LimitsRecord {
            floor_bytes: some_bytes(floor),
            ceiling_bytes: some_bytes(ceiling),
            shares,
            priority,
            miss_rate_max,
            swap,
            managed,
        }
    }
}

impl From<LimitsRecord> for GuestLimits {
    fn from(record: LimitsRecord) -> Self {
        GuestLimits {
            floor: record.floor_bytes.map(Bytes::new),
            ceiling: record.ceiling_bytes.map(Bytes::new),
            shares: record.shares,
            priority: record.priority,
            miss_rate_max: record.miss_rate_max,
            swap: record.swap,
            managed: record.managed,
        }
    }
}
