//! The protocol between the host and the program inside a lab guest.
//!
//! Idea: a lab guest is a real micro virtual machine whose first process is the `lab-guest`
//! program. The host exchanges JSON lines with it over a virtio-serial port: [`protocol`] defines
//! the messages, [`mod@line`] the framing, [`workload`] the workloads a guest can run. The other
//! modules are the pure parts of the program, here so that they can be tested without a guest.
//! Begin with [`protocol`].
//!
//! Limits: one host at a time; nothing here opens a file or reads a clock.

pub mod line;
pub mod pace;
pub mod postgresql;
pub mod procfs;
pub mod protocol;
pub mod rng;
pub mod visits;

pub use ballast_workload as workload;
