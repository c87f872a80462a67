//! The vocabulary of Ballast.
//!
//! Idea: crates pass data to each other only in these types. A [`Snapshot`] is what was seen, an
//! [`Estimate`] what that means, a [`Plan`] what is to be done and why, an [`Outcome`] what
//! happened. All are plain immutable data.
//!
//! Limits: no clock, no I/O, no wire format (`api` converts). With the feature `serde` the types
//! are the rows of a journal (`unit.rs`). Missing is `None`, never zero, and whatever was measured
//! carries its age ([`Measured`]).

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod apportion;
mod balloon_owner;
mod bounds;
mod bytes;
mod carried;
mod clamped;
mod copied_memory;
mod demand;
mod disk_reads;
mod divisor;
mod estimate;
mod fence;
mod generation;
mod guest_change;
mod guest_id;
mod hold_reason;
mod host_sample;
mod hotplug;
mod input;
mod limit_layers;
mod limit_table;
mod limits;
mod link_state;
mod mapped;
mod measured;
mod mechanism;
mod memory_room;
mod merging;
mod miss_curve;
mod mode;
mod note;
mod overhead;
mod per_guest;
mod pinned;
mod plan;
mod policy_answer;
mod policy_name;
mod reason;
mod report;
mod reservation;
mod restart;
mod sample;
mod time;
mod tracking;
#[cfg(feature = "serde")]
mod unit;

pub use apportion::{in_proportion, largest_remainder};
pub use balloon_owner::BalloonOwner;
pub use bounds::Bounds;
pub use bytes::{Bytes, PAGE_SIZE, ParseBytesError};
pub use carried::CarriedGuest;
pub use clamped::Clamped;
pub use demand::{Confidence, Demand, DemandSource, PassedOver, PassedOverReason};
pub use disk_reads::DiskReads;
pub use divisor::Divisor;
pub use estimate::{Estimate, Provenance, Signals};
pub use fence::Fence;
pub use generation::Generation;
pub use guest_change::GuestChange;
pub use guest_id::{GuestId, ParseGuestIdError};
pub use hold_reason::{HoldReason, Implausible};
pub use host_sample::{HostSample, Pressure};
pub use hotplug::{Hotplug, HotplugKind};
pub use input::Input;
pub use limit_layers::{LimitLayers, LimitSource, LimitSources};
pub use limit_table::{LimitTable, LimitsInOrder};
pub use limits::{BoundsError, GuestLimits};
pub use link_state::{LinkDown, LinkState};
pub use measured::Measured;
pub use mechanism::{Mechanism, MechanismReason, Move, Paging, PressureLevel, Regret};
pub use memory_room::MemoryRoom;
pub use merging::{MergingKnobs, PageMerging};
#[cfg(feature = "serde")]
pub use miss_curve::CurveReference;
pub use miss_curve::{CURVE_PERCENTS, MissCurve, MissCurveError};
pub use mode::{Mode, ModeChoice, ParseModeError};
pub use note::Note;
pub use overhead::{overhead_assumed, overhead_at_most};
pub use per_guest::PerGuest;
pub use pinned::Pinned;
pub use plan::{
    Action, Budget, Change, Compliance, Desired, GuestPlan, Outcome, OutcomeKind, Plan,
};
pub use policy_answer::{AnswerFault, GuestTarget, PolicyAnswer};
pub use policy_name::{ParsePolicyNameError, PolicyName};
pub use reason::{Others, Reason, RentLimit, Tax};
pub use report::{AgentReport, MemoryRequest, RequestKind, TrackerReport, WORKING_SET_AGE_MAX};
pub use reservation::Reservation;
pub use restart::{CheckedGuest, Handover, LeftGuest, Restart, Stuck, Thrashed};
pub use sample::{Capabilities, GuestSample, GuestStats, ProcessId, RunState, Snapshot};
pub use time::Timestamp;
pub use tracking::{Share, Tracking, TrackingSource, TrackingState};
