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

mod controller;
mod event;
mod moving;
mod pages;
mod routing;
mod settings;
mod standings;
mod transfer;

pub use controller::Controller;
pub use event::Event;
pub use settings::Settings;
