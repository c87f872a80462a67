//! The program of a host in a fleet: it registers the host, leads the fleet if no other does, and
//! shows the fleet to operators.
//!
//! Idea: one on each host, a client of the daemon's API and of etcd. The daemon knows nothing of
//! it, and works the same without.
//!
//! | file | answers |
//! |---|---|
//! | `config`, `config_moves` | what is the host's part in the fleet? |
//! | `beside` | does somebody else decide where guests of this host run? |
//! | `host_record` | what does the daemon say of its host and guests? |
//! | `member` | how does the host get into the fleet, and when does it leave? |
//! | `session` | what does a member hold, and why does a registration end? |
//! | `lead` | who leads, and what does a leader do? |
//! | `carry` | how does the host do its part of moving guests? |
//! | `serve` | what does the program answer on its host? |
//! | `metrics`, `timed` | what is counted, and what of etcd? |
//! | `measured` | what was measured of guests and copies? |
//! | `say` | what is said of that on standard error? |
//! | `commands` | what do operators see and order? |
//!
//! Limits: guests are moved in mode `move` alone (`docs/fleet.md`).

#![forbid(unsafe_code)]

pub mod beside;
pub mod carry;
pub mod cli;
pub mod commands;
pub mod config;
mod config_moves;
pub mod host_record;
mod lead;
pub mod measured;
pub mod member;
pub mod metrics;
mod say;
mod serve;
mod session;
#[cfg(test)]
mod tests;
pub mod timed;
