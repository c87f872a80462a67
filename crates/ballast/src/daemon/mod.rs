//! The daemon: observe, decide, act, record; once per tick.

pub mod view;
