//! The daemon's API as it goes over the wire, and a client for it.
//!
//! Idea: HTTP with JSON over a Unix socket. The types here are the format and nothing else: they
//! are built from the model's types in one direction, so that neither can bend the other. A reader
//! ignores fields it does not know, a request with one is refused; a change that would break a
//! reader is a new [`API_VERSION`] with paths of its own.
//!
//! Sizes are whole bytes in fields ending in `_bytes`, spans whole milliseconds in `_ms`, wall-clock
//! moments milliseconds since 1970 in `_unix_ms`, reasons a [`Coded`] pair of a stable word and a
//! sentence for people. What is not known is `null`, never zero.

#![forbid(unsafe_code)]

mod agent;
mod client;
mod coded;
mod command;
mod estimate;
mod explain;
mod mechanism;
mod plan;
mod status;
mod tick;
mod tracking;

pub use agent::AgentView;
pub use client::{Client, ClientError, REPLY_BYTES_MAX};
pub use coded::{ChangeView, Coded, ComplianceView};
pub use command::{CommandReply, ErrorReply, SetGuest, SetPolicy};
pub use estimate::{
    CURVE_PERCENTS, CurvePointView, CurveView, DemandView, EstimateView, PassedOverView,
};
pub use explain::{
    CapabilitiesView, DesiredView, ExplainReply, InputsView, LimitsView, OutcomeView, StatsView,
};
pub use mechanism::{HotplugView, MoveView, PagingView, RegretView};
pub use plan::{ActionView, PlanGuestView, PlanReply};
pub use status::{BudgetView, GuestView, GuestsReply, HostView, StatusReply};
pub use tick::{DaemonView, FairnessView, Source, Tick, TickView};
pub use tracking::TrackingView;

/// Version of the wire format; part of every path and every reply.
pub const API_VERSION: u32 = 1;

/// Paths of the API, as the server routes them and the client asks for them.
pub mod path {
    /// Host and guests at a glance.
    pub const STATUS: &str = "/v1/status";
    /// The guests alone.
    pub const GUESTS: &str = "/v1/guests";
    /// One guest's chain from observation to action.
    pub const EXPLAIN: &str = "/v1/guests/{id}/explain";
    /// Change one guest's bounds.
    pub const SET_GUEST: &str = "/v1/guests/{id}/set";
    /// The latest plan; with `?dry_run=true` the one the next tick would make.
    pub const PLAN: &str = "/v1/plan";
    /// Stop acting.
    pub const PAUSE: &str = "/v1/pause";
    /// Act again.
    pub const RESUME: &str = "/v1/resume";
    /// Change the policy.
    pub const POLICY: &str = "/v1/policy";
    /// Figures in the OpenMetrics text format.
    pub const METRICS: &str = "/metrics";
    /// Every path, for listing to people.
    pub const ALL: [&str; 9] =
        [STATUS, GUESTS, EXPLAIN, SET_GUEST, PLAN, PAUSE, RESUME, POLICY, METRICS];
}
