//! The daemon: observes, decides, acts and records, once per tick.
//!
//! Idea: the [`engine`] runs ticks over a [`World`](engine::World). [`run()`] drives it over the
//! host: the mechanisms that sample guests and carry plans out, the API's [`server`], the agents
//! inside guests and the [`track`]ing of their pages.
//!
//! Begin reading at `engine/mod.rs`.

#![forbid(unsafe_code)]

mod agents;
mod api_thread;
mod clock;
pub mod engine;
mod event_program;
mod fencer;
mod file_backing;
mod gathered;
mod guest_rooms;
mod host_world;
mod inherited;
mod log;
mod log_journal;
mod log_queue;
mod merger;
mod observe;
mod occupancy;
mod operator_program;
mod page_kinds;
mod pager;
mod policy_program;
mod proxmox_settings;
mod rate_limited;
mod recorder;
mod run;
pub mod server;
pub mod track;
pub mod view;
mod wake;
mod warn_once;
mod worker;

pub use clock::processor_time;
pub use inherited::Inherited;
pub use log::{DaemonLog, start_log};
pub use run::run;
