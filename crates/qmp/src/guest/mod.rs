//! One guest's QMP monitor as a state machine: no I/O, and time is a parameter.
//!
//! Idea: a [`GuestMonitor`] lives as long as its socket is known, over any number of connections.
//! It probes each new connection once. Then [`GuestMonitor::begin_sample`] queues the queries of
//! one tick, which leave in one write, and [`GuestMonitor::receive`] takes in the replies. A
//! reading keeps its time, so that it simply ages while the hypervisor does not answer. Start
//! reading at `monitor.rs`.
//!
//! Cost: a tick is two commands and two replies, about 160 bytes out and 400 in; three commands for
//! a guest with memory devices, and one more every five seconds, for block statistics. QEMU up to 9
//! spends more time reading these bytes, one per turn of its main loop, than answering.
//! Limits: while a command is overdue nothing more is sent, so that a hypervisor that hangs does
//! not wake up to a queue of outdated commands; after [`SILENCE_MAX`] the connection is dropped.

mod actions;
mod block_stats;
mod devices;
mod events;
mod hotplug;
mod monitor;
mod polling;
mod probe;
mod replies;
mod requests;
mod run_state;
mod stats;

pub use hotplug::MODULE;
pub use monitor::{GuestMonitor, PROBE_INTERVAL, SILENCE_MAX};
pub use requests::Ticket;
pub use stats::read_guest_stats;
