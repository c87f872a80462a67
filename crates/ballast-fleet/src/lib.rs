//! The program of a host in a fleet: it registers the host, leads the fleet if no other host does,
//! carries out moves, and shows the fleet to operators.
//!
//! Idea: each host runs one, as a client of the daemon's API and of etcd. The daemon knows nothing
//! of it and works the same without it.
//!
//! | file | answers |
//! |---|---|
//! | `config`, `config_moves` | how is the host's part in the fleet configured? |
//! | `other_managers` | does another manager decide where guests of this host run? |
//! | `host_record` | how does the host's record follow from what the daemon reports? |
//! | `member` | how does the host join the fleet, and when does it leave? |
//! | `session` | what does a member keep, and why does a registration end? |
//! | `lead` | who leads, and what does the leader do? |
//! | `carry` | how does the host do its part of moves? |
//! | `serve` | what does the program answer on its host? |
//! | `metrics`, `timed` | what is counted, and which calls to etcd? |
//! | `status_log` | what goes to standard error? |
//! | `commands` | what do operators see and order? |
//!
//! Limits: guests are moved only in mode `move` (`docs/fleet.md`).

#![forbid(unsafe_code)]

pub mod carry;
pub mod cli;
pub mod commands;
pub mod config;
mod config_moves;
pub mod host_record;
mod lead;
pub mod member;
pub mod metrics;
pub mod other_managers;
mod serve;
mod session;
mod status_log;
#[cfg(test)]
mod tests;
pub mod timed;
