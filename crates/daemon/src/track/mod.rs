//! Tracks which pages live guests touch.
//!
//! Idea: [`Follower`] connects one guest's tracker (`crates/tracker`) with the state machines that
//! turn touches into a working set and plan the next interval (`crates/working-set`).
//! [`DamonFollower`] does this with the kernel's DAMON (`crates/damon`) for a guest without a
//! tracker, and [`MglruFollower`] with the kernel's multi-generational LRU. Each is a
//! [`WorkingSetSource`]: an interval yields a [`Row`]. `ballast track` prints the rows; the daemon
//! passes them to its policy.

mod coldness;
mod damon;
mod damon_budget;
mod damon_changes;
mod damon_hub;
mod diagnosis;
#[cfg(any(test, feature = "testing"))]
pub mod fixture;
mod follow;
mod interval_json;
mod latest;
mod mglru;
mod record;
mod row;
mod sampler;
mod service;
mod shared;
mod signals;
mod source;
mod source_order;
mod thread;
mod tiny;

pub use damon::DamonFollower;
pub use damon_hub::DamonHub;
pub use diagnosis::{GuestDiagnosis, SourceFinding, TrackingDiagnosis};
pub use follow::{FollowSettings, Follower};
pub use interval_json::IntervalJson;
pub use mglru::MglruFollower;
pub use record::Recording;
pub use row::{Row, WatchedInterval};
pub use sampler::Sampler;
pub use service::{HIDES_LITTLE, PresentGuest, Service, TrackingStatus};
pub use shared::ServiceSettings;
pub use signals::{GuestCounts, SignalReader, Signals};
pub use source::{SourceError, WorkingSetSource};
