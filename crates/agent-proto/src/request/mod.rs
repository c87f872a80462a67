//! When a guest asks for memory, offers memory, or declares an emergency.
//!
//! [`linux`] has the rules of flexmemd §3.1.2 for Linux guests, as pure functions of two
//! consecutive samples. [`RequestLimiter`] allows one outstanding request at a time and one
//! emergency per period.
//!
//! Limits: no clock and no I/O.

mod limiter;
pub mod linux;
mod trend;

pub use limiter::{ANSWER_WAIT_MAX, OutgoingRequest, RequestLimiter};
pub use trend::{REQUEST_MIN, SAMPLES_AHEAD, WantedChange};
