//! What the host and the program inside a lab guest agree on.
//!
//! Idea: a lab guest is a real micro virtual machine whose first process is the `lab-guest` program.
//! The host speaks to it in JSON lines over a virtio-serial port: [`protocol`] has the messages,
//! [`mod@line`] the framing, [`workload`] what a guest can be asked to do with its memory. The rest are the
//! pure parts of the program itself, here so that they can be tested without a guest.
//!
//! Limits: one host at a time; nothing here opens a file or reads a clock.

pub mod line;
pub mod pace;
pub mod postgresql;
pub mod procfs;
pub mod protocol;
pub mod rng;
pub mod schedule;
pub mod visits;
pub mod workload;
