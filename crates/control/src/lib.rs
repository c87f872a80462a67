//! The controller: samples in, plans and actions out.
//!
//! Idea: a state machine without clock, files or sockets (sans-IO). Whoever drives it (the daemon,
//! a simulator, a replay) does, in a loop:
//!
//! 1. wait until [`Controller::poll_timeout`], then take a sample and call
//!    [`Controller::handle_sample`], which returns the plan;
//! 2. carry out every action of [`Controller::poll_action`] and report what came of it with
//!    [`Controller::handle_event`];
//! 3. where a sample cannot be had in time, call [`Controller::handle_timeout`].
//!
//! The same samples and events give the same plans, byte for byte, whoever drives.
//!
//! Within one sample: estimate → verdict per guest → policy (when its interval is over, or
//! something changed that cannot wait) → guard → mechanisms → check.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod actuate;
mod assess;
mod controller;
mod divide;
mod event;
mod grant;
mod identity;
pub mod incident;
mod needs;
mod page;
mod plan;
mod reserve;
mod restart;
mod settings;
mod state;
mod tick;
mod transfer;

#[cfg(test)]
#[allow(dead_code, reason = "the integration tests use the rest")]
#[path = "../tests/it/world.rs"]
mod world;
// The tests' driver imports this crate by its name.
#[cfg(test)]
extern crate self as ballast_control;

pub use controller::Controller;
pub use event::Event;
pub use settings::Settings;
pub use transfer::Transfer;
