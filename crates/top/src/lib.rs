//! `ballast top`: shows a host's memory and its guests in a terminal, live or from a journal.
//!
//! Idea: the architecture of Elm. A `State` takes in `Event`s (keys, time, replies, recorded ticks)
//! and returns `Order`s (ask, pause, move through the journal). The screen is a function of the
//! state. Neither does any I/O, so tests need no terminal and no daemon. `run.rs` has the terminal,
//! the signals and the API, `recorded.rs` the journal.
//!
//! Begin reading at `state.rs`. Limits: a reply has all guests, about 1 KiB each, so a host of
//! 10,000 guests sends 10 MiB a tick. The view never asks more often than the daemon ticks.

#![forbid(unsafe_code)]

mod dialog;
#[cfg(test)]
mod fixture;
mod form;
mod guests;
mod history;
mod keys;
mod order;
pub mod recorded;
mod run;
mod state;
mod view;

pub use run::{Options, Origin, run};
