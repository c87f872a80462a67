//! The daemon: observe, decide, act, record; once per tick.

pub(crate) mod clock;
mod guests;
mod observe;
mod occupancy;
mod once;
pub(crate) mod pager;
mod recorder;
mod run;
pub mod view;
mod wake;

pub use clock::processor_time;
pub use run::run;
