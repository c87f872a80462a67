//! Guest statistics to requests: when a guest asks for memory, gives some back, or cries for help.
//!
//! Idea: a guest knows first that it will need memory. What it is about to say follows from two
//! looks at its own figures: [`linux`] and [`osv`] have the rules of either kind of kernel as pure
//! functions, [`Caller`] sees to it that one request waits for an answer at a time and that there is
//! one emergency in a period at most.
//!
//! A crate of its own, because both sides use it: the program inside a guest, which must not carry
//! policies with it, and on the host the simulator and whoever stands in for a guest without such a
//! program. Not in the model, which has words and no rules.
//!
//! Source: flexmemd §3.1.2. Limits: no clock, no I/O; a look is what the caller took it for.

#![forbid(unsafe_code)]

mod caller;
pub mod linux;
pub mod osv;
mod trend;

pub use caller::{ANSWER_WAIT_MAX, Call, Caller};
pub use trend::{LOOKS_AHEAD, REQUEST_MIN, Wish};
