//! The daemon: observe, decide, act, record; once per tick.
//!
//! Idea: [`run()`] joins the pure controller with the mechanisms that sample guests and carry its
//! plans out, the API's [`server`], the agents inside guests and the [`track`]ing of their pages.
//!
//! Begin reading at `run.rs`.

#![forbid(unsafe_code)]

mod agents;
mod clock;
mod guests;
mod inherited;
mod log;
mod observe;
mod occupancy;
mod pager;
mod recorder;
mod run;
pub mod server;
pub mod track;
pub mod view;
mod wake;
mod warn_once;

pub use clock::processor_time;
pub use log::start_log;
pub use run::run;
