//! Miss-ratio curves of traces: measured, checked, and shown.
//!
//! Idea: a trace is streamed through an engine. The result is an [`outcome::Outcome`]; everything
//! shown is made from it.

mod any_stack;
mod auto_engine;
mod counter;
pub(crate) mod curve_csv;
#[cfg(test)]
mod fixture;
pub(crate) mod json;
pub(crate) mod measure;
pub(crate) mod outcome;
pub(crate) mod page;
pub(crate) mod plot;
pub(crate) mod progress;
pub(crate) mod settings;
pub(crate) mod summary;
mod verify;
mod words;
