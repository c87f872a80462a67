//! The formats of what is written, apart from the model so that either can change alone.
//!
//! Idea: plain serde structs, written as JSON. Sizes are numbers of bytes, spans nanoseconds, moments
//! milliseconds, and names end in their unit. What is `None` in the model is left out. Every reason
//! is `{"code": word, "figures": {…}}` with the word that the model gives it; its sentence is not
//! stored, because the figures say it again at any time.
//!
//! A change that old rows would not survive gets a new [`RECORD_FORMAT`] and a conversion beside it;
//! an added optional field does not. `tests/fixtures` keeps a file of every format.
//!
//! Format 2 differs from 1 in that miss curves are rows of their own ([`CurveRecord::Kept`]).

mod estimate;
mod event;
mod held;
mod mechanism;
mod plan;
mod reason;
mod report;
mod sample;
mod tick;

pub use estimate::{
    DemandRecord, DemandSourceRecord, EstimateRecord, PassedOverRecord, ProvenanceRecord,
    SignalsRecord, WhyPassedOverRecord,
};
pub use event::EventRecord;
pub use held::{HeldRecord, ImplausibleRecord};
pub use mechanism::{
    HotplugKindRecord, HotplugRecord, MoveRecord, PagingRecord, RegretRecord, WhyRecord,
};
pub use plan::{
    ActionRecord, BoundsRecord, BudgetRecord, ComplianceRecord, DesiredRecord, GuestPlanRecord,
    NoteRecord, OutcomeKindRecord, OutcomeRecord, PlanRecord,
};
pub use reason::{ChangeRecord, ClampedRecord, InputRecord, OthersRecord, ReasonRecord};
pub use report::{
    AgentRecord, CurveRecord, RequestKindRecord, RequestRecord, TrackerRecord, TrackingRecord,
    TrackingStateRecord,
};
pub use sample::{
    CapabilitiesRecord, GuestSampleRecord, HostRecord, LinkRecord, MeasuredRecord, PressureRecord,
    RunStateRecord, SampleRecord, StatsRecord,
};
pub use tick::{LimitsRecord, TickRecord};

use std::time::Duration;

use ballast_model::{Bytes, MissCurveError, PolicyName};

/// Version of the records written now.
pub const RECORD_FORMAT: i64 = 2;

/// A record that says what no model value can be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A policy of another version.
    #[error("`{0}` is not a policy known here")]
    Policy(String),
    /// A word of another version.
    #[error("`{word}` is no {what} known here")]
    Word {
        /// What it was to name.
        what: &'static str,
        /// It.
        word: String,
    },
    /// What stands for a miss curve is none.
    #[error("{0}")]
    Curve(#[from] MissCurveError),
    /// The curve is a row of its own, and was not put back.
    #[error("curve {0} is a row of its own: it has to be put back first")]
    CurveApart(i64),
}

pub(crate) fn policy(name: &str) -> Result<PolicyName, RecordError> {
    name.parse().map_err(|_| RecordError::Policy(name.to_owned()))
}

/// Nanoseconds, up to 584 years.
pub(crate) fn ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn some_bytes(size: Option<Bytes>) -> Option<u64> {
    size.map(Bytes::get)
}

pub(crate) fn no(flag: &bool) -> bool {
    !flag
}
