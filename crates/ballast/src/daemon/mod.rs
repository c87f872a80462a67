//! The daemon: observe, decide, act, record; once per tick.

pub(crate) mod clock;
mod guests;
mod observe;
mod once;
pub(crate) mod pager;
mod pressure;
mod recorder;
mod run;
pub mod view;

pub use clock::processor_time;
pub use run::run;
