//! The daemon's API: its wire format, and a client.
//!
//! Idea: HTTP with JSON over a Unix socket. The types here are the format and nothing else; they
//! are built from the model's types, never the reverse. Readers ignore unknown fields; requests
//! with unknown fields are refused. A change that breaks readers needs a new [`API_VERSION`] with
//! its own paths. Begin here: [`Tick`], from which every reply is built.
//!
//! Units are in the names: `_bytes`, `_ms`, and `_unix_ms` for milliseconds since 1970. Reasons are
//! a [`Coded`] pair of a stable code and a sentence. Unknown figures are `null`, never zero. Rows
//! of the journal differ in all of this (nanoseconds, absent fields, no sentences), so they have
//! types of their own.

#![forbid(unsafe_code)]

mod advice;
mod agent;
mod capabilities;
mod carried;
mod client;
mod coded;
mod command;
mod estimate;
mod explain;
mod fence;
mod fleet;
mod mechanism;
mod metrics_format;
#[cfg(feature = "schema")]
pub mod openapi;
mod plan;
mod socket;
mod status;
mod tick;
mod tracking;

pub use advice::{
    AdviceView, AdviceWindowView, AmountsView, ConfidenceView, CoursePointView, FindingView,
    GuestAdviceView, MoreGuestsView, WhatIfReply,
};
pub use agent::AgentView;
pub use ballast_model::GuestChange;
pub use capabilities::CapabilitiesView;
pub use carried::{CarriedReply, CarriedView, ThrashedView};
pub use client::{Client, ClientError, REPLY_BYTES_MAX};
pub use coded::{ChangeView, Coded, ComplianceView};
pub use command::{CommandReply, ErrorReply, ModeReply, Reserve, SetMode, SetPolicy};
pub use estimate::{CurvePointView, CurveView, DemandView, EstimateView, PassedOverView};
pub use explain::{
    DesiredView, ExplainReply, InputsView, LimitsView, OutcomeView, RoomView, SourcesView,
    StatsView,
};
pub use fence::FenceView;
pub use fleet::FleetReply;
pub use mechanism::{HotplugView, MoveView, PagingView, RegretView};
pub use metrics_format::MetricsFormat;
pub use plan::{ActionView, PlanGuestView, PlanReply};
pub use socket::{NoRuntimeFolder, client_socket, default_socket, fleet_socket};
pub use status::{
    BudgetView, GuestView, GuestsReply, HostView, MergingView, ReservationView, StatusReply,
};
pub use tick::{DaemonView, FairnessView, Source, Tick, TickView};
pub use tracking::TrackingView;

/// Version of the wire format; part of every path and every reply.
pub const API_VERSION: u32 = 1;

/// Paths of the API, for server and client.
pub mod path {
    /// Host and guests in summary.
    pub const STATUS: &str = "/v1/status";
    /// Only the guests.
    pub const GUESTS: &str = "/v1/guests";
    /// Every step of the last decision about one guest.
    pub const EXPLAIN: &str = "/v1/guests/{id}/explain";
    /// Change one guest's bounds.
    pub const SET_GUEST: &str = "/v1/guests/{id}/set";
    /// `POST`: change one guest's bounds, also where the guest itself is defined; body
    /// [`GuestChange`](crate::GuestChange).
    pub const PERSIST_GUEST: &str = "/v1/guests/{id}/persist";
    /// What goes along with a guest to another host; `POST`: take over what a guest has brought,
    /// body [`CarriedView`](crate::CarriedView).
    pub const CARRIED: &str = "/v1/guests/{id}/carried";
    /// The latest plan; with `?dry_run=true` a dry run, which is not carried out.
    pub const PLAN: &str = "/v1/plan";
    /// Pause Ballast.
    pub const PAUSE: &str = "/v1/pause";
    /// Resume Ballast.
    pub const RESUME: &str = "/v1/resume";
    /// The mode in force; `POST`: set another one, body [`SetMode`](crate::SetMode).
    pub const MODE: &str = "/v1/mode";
    /// Change the policy.
    pub const POLICY: &str = "/v1/policy";
    /// `POST`: keep memory free for a guest that is about to start; body
    /// [`Reserve`](crate::Reserve).
    pub const RESERVE: &str = "/v1/reservations/{id}/set";
    /// `POST`: end such a reservation.
    pub const UNRESERVE: &str = "/v1/reservations/{id}/release";
    /// The recorded past under another policy, by replay: `?policy=NAME&since_s=SECONDS`.
    pub const WHAT_IF: &str = "/v1/what-if";
    /// The fleet that the host is in.
    pub const FLEET: &str = "/v1/fleet";
    /// Figures in a text format of Prometheus ([`MetricsFormat`](crate::MetricsFormat)).
    pub const METRICS: &str = "/metrics";
    /// Every path.
    pub const ALL: [&str; 16] = [
        STATUS,
        GUESTS,
        EXPLAIN,
        SET_GUEST,
        PERSIST_GUEST,
        CARRIED,
        PLAN,
        PAUSE,
        RESUME,
        MODE,
        POLICY,
        RESERVE,
        UNRESERVE,
        WHAT_IF,
        FLEET,
        METRICS,
    ];
}
