//! Tracks which pages live guests touch.
//!
//! Idea: [`Follower`] connects one guest's tracker (`crates/tracker`) with the state machines that
//! turn touches into a working set and plan the next interval (`crates/working-set`). Each interval
//! yields a [`Row`]. `ballast track` prints the rows; the daemon passes them to its policy.

mod coldness;
#[cfg(any(test, feature = "testing"))]
pub mod fixture;
mod follow;
mod interval_json;
mod latest;
mod record;
mod row;
mod sampler;
mod service;
mod signals;
mod tiny;
mod watcher;

pub use follow::{FollowSettings, Follower};
pub use interval_json::IntervalJson;
pub use record::Recording;
pub use row::{Row, Seen};
pub use sampler::Sampler;
pub use service::{PresentGuest, Service, ServiceSettings, TrackingStatus};
pub use signals::{GuestCounts, SignalReader, Signals};
pub use watcher::Watcher;
